//! What fuzzing needs of this crate: the code that reads bodies and cursors of strangers. Compiled only with the cargo
//! feature `fuzzing`.

use serde_json::Value;

use crate::validate::input::{self, Input};
use crate::validate::shape;
use crate::wire::album::{CreateAlbum, ListAlbums, OneAlbum, UpdateAlbum};
use crate::wire::cursor::{AlbumPosition, HitCursor, decode_id, encode_id};
use crate::wire::photo::{ListPhotos, OnePhoto};
use crate::wire::search::{SearchFace, SearchText};
use crate::wire::upload::{ConfirmPhotos, SignPhoto, SignPhotos};

/// Calls a macro with every type of input.
macro_rules! for_every_input {
    ($each:ident) => {
        $each!(
            CreateAlbum,
            ListAlbums,
            OneAlbum,
            UpdateAlbum,
            ListPhotos,
            OnePhoto,
            SearchFace,
            SearchText,
            ConfirmPhotos,
            SignPhoto,
            SignPhotos
        )
    };
}

/// Returns a valid body of every type of input.
///
/// # Panics
/// When one is refused.
pub fn example_bodies() -> Vec<Vec<u8>> {
    macro_rules! examples {
        ($($kind:ident),+) => { vec![$(example_body::<$kind>()),+] };
    }
    for_every_input!(examples)
}

fn example_body<T: Input>() -> Vec<u8> {
    let example = T::example();
    let body = example.to_string();
    // Here and not by `check_body`, to which another type would do.
    assert!(check_input::<T>(&body, Some(&example)), "{} refuses its own example", T::NAME);
    body.into_bytes()
}

/// Reads a body as the input of every operation. Returns whether it is one of any.
///
/// # Panics
/// When an input is refused without an issue that says why, or when skipping unknown members changes what is accepted.
pub fn check_body(body: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let whole = serde_json::from_str::<Value>(text).ok();
    macro_rules! check {
        ($($kind:ident),+) => { [$(check_input::<$kind>(text, whole.as_ref())),+] };
    }
    let accepted = for_every_input!(check);
    accepted.contains(&true)
}

/// Returns whether a body is accepted as an input of this type.
fn check_input<T: Input>(text: &str, whole: Option<&Value>) -> bool {
    let Ok(value) = shape::read_json(text, &T::shape()) else {
        // What is skipped is not decoded: more texts can be read in part than as a whole, and never fewer.
        assert!(whole.is_none(), "{} refuses JSON as malformed", T::NAME);
        return false;
    };
    let parsed = input::parse::<T>(Some(&value));
    if let Some(whole) = whole {
        let is_valid = input::parse::<T>(Some(whole)).is_ok();
        assert_eq!(parsed.is_ok(), is_valid, "{} differs without its unknown members", T::NAME);
    }
    match parsed {
        Ok(_) => true,
        Err(issues) => {
            assert!(!issues.is_empty(), "{} is refused without an issue", T::NAME);
            serde_json::to_value(&issues).expect("issues are written into the answer");
            false
        }
    }
}

/// Reads a text as each kind of cursor. Returns whether it is one of any.
///
/// # Panics
/// When a text is accepted that this service does not write.
pub fn check_cursor(text: &str) -> bool {
    let mut is_cursor = false;
    if let Some(HitCursor { position, proof }) = HitCursor::parse(text) {
        assert_eq!(position.to_cursor() + &proof.map(hex::encode).unwrap_or_default(), text);
        is_cursor = true;
    }
    if let Some(position) = AlbumPosition::from_cursor(text) {
        assert_eq!(position.to_cursor(), text);
        is_cursor = true;
    }
    if let Some(id) = decode_id(text) {
        assert_eq!(encode_id(id), text);
        is_cursor = true;
    }
    is_cursor
}
