//! Events: making them of what happened in the store.

pub mod publisher;
