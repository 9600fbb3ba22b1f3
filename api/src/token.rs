//! Tokens of 256 random bits, in links and in the cookies of sessions. The store has only their digests.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use photofinish_store::model::account::TokenDigest;
use sha2::{Digest, Sha256};

/// A token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl Token {
    /// Makes a random token.
    pub fn generate() -> Self {
        Self(rand::random())
    }

    /// Parses the text that a client sent: 43 characters of URL-safe base64.
    pub fn parse(text: &str) -> Option<Self> {
        BASE64_URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// Returns the text, for the client alone.
    pub fn reveal(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Returns the SHA-256 digest, by which the store finds it.
    pub fn digest(&self) -> TokenDigest {
        Sha256::digest(self.0).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_does_not_print_itself() {
        let token = Token::generate();
        assert_eq!(Token::parse(&token.reveal()), Some(token.clone()));
        assert_eq!((token.reveal().len(), format!("{token:?}").as_str()), (43, "Token(..)"));
        assert_ne!(token, Token::generate());
        assert_eq!(Token::parse("short"), None);
        assert_eq!(Token::parse(&"=".repeat(43)), None);
    }
}
