//! The format of an API key: a prefix that names its mode, 32 random bytes in base 62, and a checksum.
//!
//! The checksum detects typing errors without a database query; prefix and checksum let secret scanners recognise a key.
//! The store has only [`KeyText::digest`]; the text is shown once, when the key is created.

use std::fmt;

use photofinish_store::model::key::{KeyDigest, KeyMode};
use sha2::{Digest, Sha256};

use crate::base62::base62;

/// 62^43 is more than 2^256.
const BODY_LENGTH: usize = 43;
/// 62^6 is more than 2^32.
const CHECKSUM_LENGTH: usize = 6;
/// Characters after the prefix that a hint shows: 36 bits, which leaves 220 bits secret.
const HINT_LENGTH: usize = 6;

/// The text of a key. `Debug` shows only the prefix.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    text: String,
    mode: KeyMode,
}

/// The text is not a key: its prefix, length, alphabet or checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an api key")]
pub struct NotAKey;

impl KeyText {
    /// Generates a random key.
    pub fn generate(mode: KeyMode) -> Self {
        Self::from_secret(mode, rand::random())
    }

    fn from_secret(mode: KeyMode, secret: [u8; 32]) -> Self {
        let mut text = format!("{}{}", prefix(mode), base62(&secret, BODY_LENGTH));
        text.push_str(&checksum(&text));
        Self { text, mode }
    }

    /// Parses the text that a caller sent.
    ///
    /// # Errors
    /// [`NotAKey`].
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        let mode = [KeyMode::Test, KeyMode::Live].into_iter().find(|mode| text.starts_with(prefix(*mode)));
        let mode = mode.ok_or(NotAKey)?;
        let rest = &text[prefix(mode).len()..];
        let in_alphabet = rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if rest.len() != BODY_LENGTH + CHECKSUM_LENGTH || !in_alphabet {
            return Err(NotAKey);
        }
        let (signed, sum) = text.split_at(text.len() - CHECKSUM_LENGTH);
        if checksum(signed) == sum { Ok(Self { text: text.to_owned(), mode }) } else { Err(NotAKey) }
    }

    /// Returns whether this is a test or a live key.
    pub fn mode(&self) -> KeyMode {
        self.mode
    }

    /// Returns the SHA-256 digest, by which the store finds the key.
    pub fn digest(&self) -> KeyDigest {
        Sha256::digest(self.text.as_bytes()).into()
    }

    /// Returns the beginning of the key, enough to recognise it in a list.
    pub fn hint(&self) -> String {
        self.text[..prefix(self.mode).len() + HINT_LENGTH].to_owned()
    }

    /// Returns the text, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({}..)", prefix(self.mode))
    }
}

fn prefix(mode: KeyMode) -> &'static str {
    match mode {
        KeyMode::Test => "svc_test_",
        KeyMode::Live => "svc_live_",
    }
}

fn checksum(text: &str) -> String {
    base62(&crc32fast::hash(text.as_bytes()).to_be_bytes(), CHECKSUM_LENGTH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_has_the_shape_that_scanners_look_for() {
        let key = KeyText::generate(KeyMode::Live);
        assert!(key.reveal().starts_with("svc_live_"));
        assert_eq!(key.reveal().len(), 9 + 43 + 6);
        assert!(key.reveal().starts_with(&key.hint()));
        assert_ne!(key, KeyText::generate(KeyMode::Live));
    }

    #[test]
    fn a_key_never_prints_itself() {
        let key = KeyText::generate(KeyMode::Test);
        assert_eq!(format!("{key:?}"), "KeyText(svc_test_..)");
    }

    proptest! {
        #[test]
        fn every_key_is_read_back(secret: [u8; 32], live: bool) {
            let mode = if live { KeyMode::Live } else { KeyMode::Test };
            let key = KeyText::from_secret(mode, secret);
            prop_assert_eq!(KeyText::parse(key.reveal()).unwrap(), key.clone());
            prop_assert_eq!(key.mode(), mode);
        }

        #[test]
        fn every_typing_error_is_detected(secret: [u8; 32], place in 0_usize..58, typed in "[0-9A-Za-z_]") {
            let key = KeyText::from_secret(KeyMode::Test, secret);
            let mut text = key.reveal().to_owned();
            prop_assume!(text[place..=place] != typed);
            text.replace_range(place..=place, &typed);
            prop_assert_eq!(KeyText::parse(&text), Err(NotAKey));
        }

        #[test]
        fn swapped_neighbouring_characters_are_detected(secret: [u8; 32], place in 9_usize..57) {
            let key = KeyText::from_secret(KeyMode::Test, secret);
            let mut bytes = key.reveal().as_bytes().to_vec();
            prop_assume!(bytes[place] != bytes[place + 1]);
            bytes.swap(place, place + 1);
            let text = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(KeyText::parse(&text), Err(NotAKey));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: String) {
            prop_assert!(KeyText::parse(&text).is_err());
            let dressed_up = format!("svc_test_{text}");
            prop_assert!(KeyText::parse(&dressed_up).is_err());
        }
    }
}
