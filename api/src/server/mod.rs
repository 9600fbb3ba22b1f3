//! The HTTP server: listener, request middleware and router.

pub(crate) mod admin;
pub(crate) mod listener;
pub(crate) mod middleware;
pub(crate) mod router;
pub(crate) mod storage;
