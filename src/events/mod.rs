//! Events: making them of what happened in the store, and sending them to webhooks.

pub mod addresses;
pub mod client;
pub mod publisher;
mod schedule;
pub mod sender;
mod signature;
#[cfg(test)]
mod tests;
