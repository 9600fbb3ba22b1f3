//! Signs receipts as JSON Web Signatures (RFC 7515) with Ed25519 (RFC 8037), and what callers have been shown.
//!
//! The keys are derived from the master secret. The public keys of receipts are kept in the database, so that receipts can
//! be checked after the master secret has changed.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{StoreError, StoreErrorKind};
use crate::model::erasure::{Receipt, ReceiptKey};
use crate::sealing::{MasterSecret, SigningPurpose};
use crate::traits::Result;

/// The media type of a receipt's signature, so that it cannot be taken for one of something else.
const TYPE: &str = "photofinish-receipt+jws";

/// Signs receipts.
pub(crate) struct ReceiptSigner {
    key: Ed25519KeyPair,
    id: String,
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    kid: &'a str,
    typ: &'static str,
}

impl ReceiptSigner {
    /// The signer of a master secret.
    ///
    /// # Errors
    /// `Invalid` never, in practice: every 32 bytes are a key.
    pub(crate) fn new(master: &MasterSecret) -> Result<Self> {
        let seed = master.derive_signing_seed(SigningPurpose::Receipt);
        let refused = |cause: ring::error::KeyRejected| {
            StoreError::new(StoreErrorKind::Invalid, format!("key of receipts: {cause}"))
        };
        let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(refused)?;
        let id = thumbprint(key.public_key().as_ref());
        Ok(Self { key, id })
    }

    /// The key with which its receipts are checked.
    pub(crate) fn public_key(&self) -> ReceiptKey {
        ReceiptKey { id: self.id.clone(), public_key: self.key.public_key().as_ref().to_vec() }
    }

    /// Signs a receipt.
    ///
    /// # Errors
    /// `Corrupt` for a receipt that cannot be written as JSON.
    pub(crate) fn sign(&self, mut receipt: Receipt) -> Result<Receipt> {
        receipt.jws.clear();
        receipt.jws = self.sign_json(&receipt)?;
        Ok(receipt)
    }

    /// Returns a value as a compact JWS.
    ///
    /// # Errors
    /// `Corrupt` for one that cannot be written as JSON.
    pub(crate) fn sign_json(&self, value: &impl Serialize) -> Result<String> {
        let written = |cause: serde_json::Error| {
            StoreError::new(StoreErrorKind::Corrupt, "receipt to sign").with_source(cause)
        };
        let header = Header { alg: "EdDSA", kid: &self.id, typ: TYPE };
        let header = serde_json::to_vec(&header).map_err(written)?;
        let payload = serde_json::to_vec(value).map_err(written)?;
        let signed =
            format!("{}.{}", BASE64_URL_SAFE_NO_PAD.encode(header), BASE64_URL_SAFE_NO_PAD.encode(payload));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()));
        Ok(format!("{signed}.{signature}"))
    }
}

/// Returns the key as a JSON Web Key.
pub fn to_json_web_key(key: &ReceiptKey) -> Value {
    json!({
        "kty": "OKP",
        "crv": "Ed25519",
        "x": BASE64_URL_SAFE_NO_PAD.encode(&key.public_key),
        "kid": key.id,
        "use": "sig",
        "alg": "EdDSA",
    })
}

/// Returns the thumbprint of a public key: SHA-256 over its required members in the order of the alphabet (RFC 7638).
fn thumbprint(public_key: &[u8]) -> String {
    let x = BASE64_URL_SAFE_NO_PAD.encode(public_key);
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, members.as_bytes()))
}

/// Signs what a caller has been shown.
pub(crate) fn sign_confirmation(master: &MasterSecret, shown: &[u8]) -> String {
    hex::encode(hmac::sign(&confirmation_key(master), shown))
}

/// Returns whether this is the signature of what a caller has been shown.
pub(crate) fn check_confirmation(master: &MasterSecret, shown: &[u8], signature: &str) -> bool {
    let Ok(signature) = hex::decode(signature) else { return false };
    hmac::verify(&confirmation_key(master), shown, &signature).is_ok()
}

fn confirmation_key(master: &MasterSecret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &master.derive_signing_seed(SigningPurpose::Confirmation))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of RFC 8037, appendix A.
    #[test]
    fn the_thumbprint_is_that_of_the_standard() {
        let x = BASE64_URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        assert_eq!(thumbprint(&x), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn a_confirmation_is_of_what_was_shown_and_of_one_master_secret() {
        let master = MasterSecret::new([3; 32], None);
        let signature = sign_confirmation(&master, b"what was shown");
        assert!(check_confirmation(&master, b"what was shown", &signature));
        assert!(!check_confirmation(&master, b"something else", &signature));
        assert!(!check_confirmation(&MasterSecret::new([4; 32], None), b"what was shown", &signature));
        assert!(!check_confirmation(&master, b"what was shown", "not hexadecimal"));
    }
}
