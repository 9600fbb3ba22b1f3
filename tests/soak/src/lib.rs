//! Proves by faults that the cluster profile loses nothing: real servers, two APIs behind a small proxy, two workers, an
//! event that flows through them, a [`Fault`](faults::Fault) that disturbs it, and an [`Account`](audit::Account) of
//! every photo at the end.
//!
//! Knows the product as a partner and an operator do: by its API, its settings, its metrics and its signals. What an
//! undisturbed run finds is the measure of what a disturbed one must find.

#![forbid(unsafe_code)]

pub mod audit;
pub mod client;
pub mod cluster;
pub mod event;
pub mod faults;
pub mod flow;
pub mod run;
pub mod search_results;
