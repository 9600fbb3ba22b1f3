//! Signatures of webhooks by the scheme of Standard Webhooks: HMAC-SHA256 over id, timestamp and body, joined by dots.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use photofinish_store::model::webhook::WebhookSecret;
use ring::hmac;

/// The header `webhook-signature`: one signature for each secret, the first of the newest.
pub fn sign(secrets: &[WebhookSecret], id: &str, timestamp: i64, body: &str) -> String {
    let content = format!("{id}.{timestamp}.{body}");
    let sign = |secret: &WebhookSecret| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), content.as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crate that receivers use verifies what we sign, and nothing that was changed.
    #[test]
    fn the_crate_standardwebhooks_verifies_a_signature_of_each_secret() {
        let (new, old): (WebhookSecret, WebhookSecret) = ([1; 32], [2; 32]);
        let body = r#"{"type":"album.idle","data":{"title":"Läufer"}}"#;
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let signature = sign(&[new, old], "evt_7", now, body);
        let verify = |secret: WebhookSecret, body: &str| {
            let webhook = standardwebhooks::Webhook::new(&STANDARD.encode(secret)).unwrap();
            let mut headers = http::HeaderMap::new();
            headers.insert("webhook-id", "evt_7".parse().unwrap());
            headers.insert("webhook-timestamp", now.to_string().parse().unwrap());
            headers.insert("webhook-signature", signature.parse().unwrap());
            webhook.verify(body.as_bytes(), &headers)
        };
        verify(new, body).unwrap();
        verify(old, body).unwrap();
        assert!(verify([3; 32], body).is_err());
        assert!(verify(new, &body.replace("idle", "ready")).is_err());
    }
}
