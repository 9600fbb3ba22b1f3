//! The whole service, run as a partner meets it: one binary for all groups of tests, so that they build once.

mod bad_images;
mod command_keys;
mod command_line;
mod command_upload;
mod crashes;
mod deletion;
mod disk_full;
mod end_to_end;
mod events;
mod health;
mod keys;
mod openapi;
mod orientation;
mod orpc;
mod outages;
mod previews;
mod progress;
mod real_networks;
mod sample_event;
mod search;
mod shell;
mod stops;
mod trace_collector;
mod traces;
mod uploads;
mod webhooks;
