//! What a caught panic says.

use std::any::Any;

/// Returns the message of a panic; `no message` where its payload is no text.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, panic_any};

    use super::*;

    #[test]
    fn texts_are_returned_and_other_payloads_have_none() {
        let message = |panics: fn()| panic_message(catch_unwind(panics).unwrap_err().as_ref());
        assert_eq!(message(|| panic!("a panic of this test")), "a panic of this test");
        assert_eq!(
            message(|| panic!("panic {}", std::process::id())),
            format!("panic {}", std::process::id())
        );
        assert_eq!(message(|| panic_any(7)), "no message");
    }
}
