//! Speaks the partner API and nothing else.
//!
//! Knows nothing of networks, pixels, threads or SQL: it asks the store, and the rest through [`context`].

pub mod context;
