//! Tests of the partner API over real HTTP, on a real store (SQLite and files in a temporary folder).
//!
//! This is the only suite of the wire rules. Tests that need a process or the pipeline are in `tests/tests/it`.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod accounts;
mod admin;
mod albums;
mod authentication;
mod bodies;
mod charges;
mod connections;
mod console;
mod credits;
mod document;
mod downloads;
mod erasures;
mod events;
mod galleries;
mod grants;
mod heads;
mod invitations;
mod isolation;
mod photos;
mod pictures;
mod progress;
mod queued;
mod rate_limits;
mod reports;
mod roles;
mod search;
mod selfies;
mod serving;
mod start_lists;
mod storage;
mod support;
mod thresholds;
mod types;
mod upload_limits;
mod uploads;
mod visits;
mod webhooks;
mod wire_rules;
mod words;
