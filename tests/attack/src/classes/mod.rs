//! The classes of attacks. A new one is a module with its [`Class`], a line in [`CLASSES`], and a test in `tests/quick.rs`.

mod bombs;
mod class;
mod clients;
mod cursors;
mod malformed;
mod matrix;
mod operations;
mod races;
mod stops;
mod streams;
mod urls;

pub use class::{Class, Setting};

/// All classes, in the order in which they run.
pub const CLASSES: [&Class; 9] = [
    &matrix::MATRIX,
    &urls::URLS,
    &malformed::MALFORMED,
    &cursors::CURSORS,
    &streams::STREAMS,
    &clients::CLIENTS,
    &races::RACES,
    &bombs::BOMBS,
    &stops::STOPS,
];

/// The class of this name.
pub fn find_class(name: &str) -> Option<&'static Class> {
    CLASSES.into_iter().find(|class| class.name == name)
}
