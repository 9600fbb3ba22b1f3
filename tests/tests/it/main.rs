//! The whole service, run as a partner meets it: one binary for all groups of tests, so that they build once.

mod bad_images;
mod command_line;
mod crashes;
mod error_table;
mod keys;
mod openapi;
mod orientation;
mod orpc;
mod real_networks;
mod search;
mod uploads;
mod whole_way;
mod wire_rules;
