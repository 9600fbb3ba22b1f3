//! URLs as they may be shown: an operator's URLs hold passwords.

use url::Url;

/// A URL without its secrets. One that cannot be taken apart, as with a `#` or `/` in its password, shows its kind alone.
pub fn masked(url: &str) -> String {
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
    if parsed.query_pairs().any(|(name, _)| name == "password") {
        let pairs: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
        let shown = pairs.iter().map(|(name, value)| match name.as_str() {
            "password" => (name.as_str(), "masked"),
            _ => (name.as_str(), value.as_str()),
        });
        parsed.query_pairs_mut().clear().extend_pairs(shown);
    }
    parsed.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_masked() {
        assert_eq!(masked("sqlite:data/x"), "sqlite:data/x");
        assert_eq!(masked("postgres://a:secret@host/db"), "postgres://a:masked@host/db");
        for url in [
            "postgresql://a@host/db?password=secret&sslmode=require",
            "postgres://a:se#secret/@host/db",
            "postgres://a:12#secret@host/db",
            "postgres://a:12/secret@host/db",
            "postgres://a:secret@host:port/db",
            "secret",
        ] {
            assert!(!masked(url).contains("secret"), "{}", masked(url));
        }
    }
}
