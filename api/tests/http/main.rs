//! The partner API over real HTTP, on a real store (SQLite and files in a temporary folder).
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod admin;
mod albums;
mod authentication;
mod document;
mod isolation;
mod photos;
mod progress;
mod queued;
mod search;
mod serving;
mod storage;
mod support;
mod uploads;
mod wire_rules;
