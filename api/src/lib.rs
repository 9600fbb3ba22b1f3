//! Speaks the partner API and nothing else.
//!
//! Knows nothing of networks, pixels, threads or SQL: it asks the store, and the rest through [`context`].
//! An operation is found in `operations`, goes the way that `operation` describes, and ends in `handlers`;
//! what stands on the wire is in `wire`, what can fail in [`error_table`].

mod accept;
mod admin;
mod auth;
mod body;
pub mod context;
mod cursor;
mod error;
mod error_schemas;
pub mod error_table;
mod handlers;
mod input;
mod issues;
pub mod key;
pub mod metrics;
mod openapi;
mod operation;
mod operations;
mod reply;
mod request;
mod routes;
mod rules;
mod server;
mod storage;
mod wire;

pub use error::ApiError;
pub use openapi::openapi_document;
pub use routes::{admin_routes, routes};
pub use server::{serve, serve_admin};
