//! Reads a body as the input of one operation, and checks what holds for any body. Compiled only with the cargo feature
//! `fuzzing`; [`crate::fuzzing`] has the operations.

use serde_json::Value;

use super::input::{self, Input};
use super::shape;

/// Returns whether a body is accepted as an input of this type.
///
/// # Panics
/// When an input is refused without an issue that says why, when one costs nothing of a limit, or when skipping unknown
/// members changes what is accepted.
pub(crate) fn check_body<T: Input>(text: &str) -> bool {
    let whole = serde_json::from_str::<Value>(text).ok();
    let Ok(value) = shape::read_json(text, &T::shape()) else {
        // What is skipped is not decoded: more texts can be read in part than as a whole, and never fewer.
        assert!(whole.is_none(), "{} refuses JSON as malformed", T::NAME);
        return false;
    };
    let parsed = input::parse::<T>(Some(&value));
    if let Some(whole) = &whole {
        let is_valid = input::parse::<T>(Some(whole)).is_ok();
        assert_eq!(parsed.is_ok(), is_valid, "{} differs without its unknown members", T::NAME);
    }
    match parsed {
        Ok(read) => {
            assert!(read.units() > 0, "{} costs nothing", T::NAME);
            true
        }
        Err(issues) => {
            assert!(!issues.is_empty(), "{} is refused without an issue", T::NAME);
            serde_json::to_value(&issues).expect("issues are written into the answer");
            false
        }
    }
}
