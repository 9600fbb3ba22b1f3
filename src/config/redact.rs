//! URLs as they may be shown: an operator's URLs hold passwords.

use url::Url;

/// A URL without its secrets: its password, and what its query gives. Of a database the query is shown except for
/// passwords: its options are known. A URL that cannot be taken apart, as with a `#` or `/` in its password, shows its
/// kind alone.
pub fn redact_url(url: &str) -> String {
    let (kind, _) = url.split_once(':').unwrap_or_default();
    // Files have no password, and their URLs need not be whole ones.
    if matches!(kind, "sqlite" | "file") {
        return url.to_owned();
    }
    let Ok(mut parsed) = Url::parse(url) else { return format!("{kind}:masked") };
    let is_torn = parsed.fragment().is_some() || parsed.path().contains('@');
    if is_torn || (parsed.password().is_some() && parsed.set_password(Some("masked")).is_err()) {
        return format!("{kind}:masked");
    }
    redact_query(&mut parsed);
    parsed.to_string()
}

fn redact_query(url: &mut Url) {
    let is_database = matches!(url.scheme(), "postgres" | "postgresql");
    // Elsewhere a name says nothing of its value: each vendor calls its key something else.
    let is_secret = |name: &str| !is_database || name.ends_with("password");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    if !pairs.iter().any(|(name, _)| is_secret(name)) {
        return;
    }
    let mut query = url.query_pairs_mut();
    query.clear();
    for (name, value) in &pairs {
        if !is_secret(name) {
            query.append_pair(name, value);
        } else if value.is_empty() {
            // The name alone may be the key.
            query.append_key_only("masked");
        } else {
            query.append_pair(name, "masked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_masked() {
        assert_eq!(redact_url("sqlite:data/x"), "sqlite:data/x");
        assert_eq!(redact_url("postgres://a:secret@host/db"), "postgres://a:masked@host/db");
        let shown = redact_url("postgresql://a@host/db?sslpassword=secret&sslmode=require");
        assert_eq!(shown, "postgresql://a@host/db?sslpassword=masked&sslmode=require");
        let shown = redact_url("https://vendor/v1/traces?api-key=secret&v=secret");
        assert_eq!(shown, "https://vendor/v1/traces?api-key=masked&v=masked");
        assert_eq!(redact_url("https://vendor/v1/traces"), "https://vendor/v1/traces");
        for url in [
            "postgresql://a@host/db?password=secret&sslmode=require",
            "https://vendor/v1/traces?secret",
            "https://vendor/v1/traces?a&secret=",
            "https://user:secret@vendor?api-key=secret",
            "grpc://vendor:4317?api-key=secret",
            "postgres://a:se#secret/@host/db",
            "postgres://a:12#secret@host/db",
            "postgres://a:12/secret@host/db",
            "postgres://a:secret@host:port/db",
            "secret",
        ] {
            assert!(!redact_url(url).contains("secret"), "{}", redact_url(url));
        }
    }
}
