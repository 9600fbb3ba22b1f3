//! The JSON bodies of the console's own operations.

pub(crate) mod account;
pub(crate) mod invitation;
pub(crate) mod key;
pub(crate) mod operator;
pub(crate) mod pipeline;
pub(crate) mod session;

use serde_json::{Value, json};

use crate::validate::input::{Fields, Input};

/// A body without members.
pub(crate) struct Nothing;

impl Input for Nothing {
    const NAME: &'static str = "Nothing";

    fn read(_: &mut Fields<'_>) -> Option<Self> {
        Some(Self)
    }

    fn example() -> Value {
        json!({})
    }
}
