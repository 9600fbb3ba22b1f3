//! Draws photos of races: for the sample event of the demonstration, and for tests that want a photo of which
//! everything is known. Knows nothing of networks; whether they find what was drawn is for tests to say.
//!
//! [`event`] plans and writes a whole event with its truth; [`photo`] draws one picture.

mod backdrop;
mod bib;
mod canvas;
pub mod event;
pub mod jpeg;
mod noise;
pub mod photo;
pub mod portrait;
mod runner;
