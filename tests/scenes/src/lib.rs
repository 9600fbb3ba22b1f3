//! Draws synthetic race photos with known ground truth, for the sample event of the demo and for tests. Knows nothing
//! of networks; tests check whether they find what was drawn.
//!
//! [`event`] plans and writes a whole event with its ground truth; [`photo`] draws one picture.

mod backdrop;
mod bib;
mod canvas;
pub mod drawn_event;
pub mod event;
pub mod head;
pub mod jpeg;
mod noise;
pub mod photo;
pub mod portrait;
mod runner;
