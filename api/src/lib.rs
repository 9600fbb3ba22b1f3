//! Speaks the partner API and nothing else.
//!
//! Knows nothing of networks, pixels, threads or SQL: it asks the store, and the rest through [`context`].
//! An operation is found in `operations`, goes the way that `operation` describes, and ends in `handlers`;
//! what stands on the wire is in `wire`, what can fail in [`error_table`].

mod auth;
pub mod context;
pub mod errors;
mod handlers;
pub mod key;
pub mod metrics;
mod openapi;
mod operation;
mod reply;
mod server;
mod validate;
mod wire;

pub use errors::ApiError;
pub use openapi::openapi_document;
pub use server::listener::{serve, serve_admin};
pub use server::router::{admin_routes, routes};
