//! The HTTP server: listener, connections, request middleware and router.

pub(crate) mod admin;
pub(crate) mod connection;
pub(crate) mod console;
mod downloads;
pub(crate) mod gallery;
pub(crate) mod listener;
pub(crate) mod middleware;
mod operation_table;
mod pages;
mod read_only;
mod receipt_keys;
mod request;
pub(crate) mod router;
pub(crate) mod storage;
