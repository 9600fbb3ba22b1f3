//! Other spellings of the query of a presigned URL, none of which may be accepted.

/// Returns what parses to the parameters of a query, or nearly, but is not what was signed: parameters added, repeated and
/// reordered, empty ones, other encodings of the same text, other digits of the same number.
///
/// # Panics
/// When the query does not end with a signature.
pub fn other_spellings(query: &str) -> Vec<String> {
    let (limits, signature) = query.rsplit_once("&signature=").expect("a signed query");
    let (expires, rest) = limits.split_once('&').unwrap_or((limits, ""));
    let separator = if rest.is_empty() { "" } else { "&" };
    let mut others = vec![
        format!("{query}&x=1"),
        format!("x=1&{query}"),
        format!("{query}&x"),
        format!("x&{query}"),
        format!("{query}&"),
        format!("&{query}"),
        format!("{query}&{expires}"),
        query.replacen('&', "&&", 1),
        format!("{rest}{separator}{expires}&signature={signature}"),
        format!("signature={signature}&{limits}"),
        query.replace("%2F", "/"),
        query.replace("%2F", "%2f"),
        query.replace("jpeg", "%6Apeg"),
        query.replace("expires=", "%65xpires="),
        query.replace("expires=", "expires=0"),
        query.replace("expires=", "expires=+"),
        query.replace("expires=", "expires=%2B"),
        query.replace("max=", "max=0"),
        query.replace("signature=", "SIGNATURE="),
        format!("{limits}&signature={}", signature.to_uppercase()),
    ];
    others.retain(|other| other != query);
    others
}
