//! The classes of attacks. A new one is a module with its [`Class`], a line in [`CLASSES`], and a test in `tests/quick.rs`.

mod bombs;
mod class;
mod clients;
mod cursors;
mod erasures;
mod event_streams;
mod galleries;
#[cfg(feature = "heic")]
mod heic_bombs;
mod hooks;
mod large;
mod malformed;
mod matrix;
mod operations;
mod pages;
mod races;
mod sessions;
mod silent_streams;
mod stops;
mod streams;
mod urls;

pub use class::{Class, Setting};
pub(crate) use stops::grid_config;

/// The classes of every run, in the order in which they run.
pub const CLASSES: [&Class; 11] = [
    &matrix::MATRIX,
    &urls::URLS,
    &malformed::MALFORMED,
    &cursors::CURSORS,
    &streams::STREAMS,
    &clients::CLIENTS,
    &races::RACES,
    &erasures::ERASURES,
    &pages::PAGES,
    &bombs::BOMBS,
    &stops::STOPS,
];

/// Classes that run only when they are asked for, because they take long to prepare.
pub const LONG_CLASSES: [&Class; 1] = [&large::LARGE];

/// All classes, those that run only when they are asked for last.
pub fn all_classes() -> impl Iterator<Item = &'static Class> {
    CLASSES.into_iter().chain(LONG_CLASSES)
}

/// The class of this name.
pub fn find_class(name: &str) -> Option<&'static Class> {
    all_classes().find(|class| class.name == name)
}
