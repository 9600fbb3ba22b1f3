//! Removes secrets from URLs before they are printed: the URLs in settings contain passwords.

use url::Url;

/// Replaces the secrets of a URL by `masked`: its password and the values of its query. A database URL keeps its query
/// except passwords, because its options are known. Of a URL that does not parse, for example with a `#` or `/` in its
/// password, only the scheme is returned.
pub fn redact_url(url: &str) -> String {
    let (scheme, _) = url.split_once(':').unwrap_or_default();
    // Files have no password, and their URLs may be relative.
    if matches!(scheme, "sqlite" | "file") {
        return url.to_owned();
    }
    let Ok(mut parsed) = Url::parse(url) else { return format!("{scheme}:masked") };
    let is_ambiguous = parsed.fragment().is_some() || parsed.path().contains('@');
    if is_ambiguous || (parsed.password().is_some() && parsed.set_password(Some("masked")).is_err()) {
        return format!("{scheme}:masked");
    }
    redact_query(&mut parsed);
    parsed.to_string()
}

/// Redacts the text of a setting that should contain no secret: only if it looks like a URL with a user name, a password or
/// a query, so that an operator sees what is wrong with other texts.
pub fn redact_credentials(text: &str) -> String {
    let is_suspicious = text.contains("://") && text.contains(['@', '?']);
    if is_suspicious { redact_servers(text) } else { text.to_owned() }
}

/// Redacts each URL of a comma-separated list of servers, where a user name without a password is a token.
pub fn redact_servers(urls: &str) -> String {
    let servers: Vec<String> = urls.split(',').map(|url| redact_server(url.trim())).collect();
    servers.join(",")
}

fn redact_server(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut parsed) if !parsed.username().is_empty() && parsed.password().is_none() => {
            match parsed.set_username("masked") {
                Ok(()) => redact_url(parsed.as_str()),
                Err(()) => "masked".to_owned(),
            }
        }
        _ => redact_url(url),
    }
}

fn redact_query(url: &mut Url) {
    let is_database = matches!(url.scheme(), "postgres" | "postgresql");
    // Elsewhere every value may be a secret: each vendor has another name for its key.
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
            // A name without a value may itself be the key.
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

    #[test]
    fn credentials_in_a_setting_that_should_have_none_are_masked() {
        for text in ["8080", "not a url", "photos.example", "http://photos.example/a", "user@example"] {
            assert_eq!(redact_credentials(text), text);
        }
        for text in ["http://secret@a", "http://u:secret@a", "http://a:b?k=secret", "http://u:se#secret@a"] {
            assert!(!redact_credentials(text).contains("secret"), "{}", redact_credentials(text));
        }
    }

    #[test]
    fn tokens_and_passwords_are_masked() {
        let shown = redact_servers("nats://secret@a:4222, nats://user:secret@b:4222,nats://c");
        assert!(!shown.contains("secret") && shown.contains("user") && shown.contains("nats://c"), "{shown}");
    }
}
