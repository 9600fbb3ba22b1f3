//! The partner API over HTTP: routing, authentication, validation, handlers and the OpenAPI document.
//!
//! This crate knows nothing of neural networks, pixels, threads or SQL. It calls the store directly and everything else
//! through the traits in [`context`].
//!
//! A request passes through `server` (listener, middleware, router), `operation` (authentication, body, validation) and
//! one function of `handlers`. `wire` has the JSON types of the contract, [`errors`] the error table and error bodies.

mod album_cache;
mod auth;
mod base62;
mod body_budget;
mod client_address;
mod console_settings;
pub mod context;
mod credits;
mod downloads;
pub mod errors;
mod event_feed;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handlers;
pub mod key;
mod list_places;
pub mod metrics;
mod openapi;
mod operation;
mod page_places;
mod paid_cursor;
pub mod password;
mod rate_limits;
mod rate_meter;
mod reply;
mod same_origin;
mod search;
mod seats;
mod selfie_locks;
mod server;
mod session;
mod sse;
mod start_list;
mod stream_places;
pub mod token;
mod urls;
mod validate;
mod visitor;
mod wire;

pub use errors::ApiError;
pub use handlers::console::welcome_url;
pub use openapi::{openapi_document, typescript_types};
pub use server::listener::{serve, serve_admin, serve_console};
pub use server::router::{admin_routes, routes};
pub use wire::webhook::webhook_body;
