//! Whole photos through the whole pipeline, over the real store on a temporary folder and networks that read marks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod lifecycle;
mod photos;
mod probe;
mod spans;
mod support;
