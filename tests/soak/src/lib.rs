//! Shows by faults that the cluster profile loses nothing: real servers, two APIs behind a load balancer, two workers, an
//! event that flows through them, a partner that is told by webhooks, an injected [`Fault`](faults::Fault), and an [`Audit`](audit::Audit) of every photo at
//! the end.
//!
//! It knows the product as a partner and an operator do: by its API, its settings, its metrics and its signals. A run with
//! a fault must find what an undisturbed run finds.

#![forbid(unsafe_code)]

pub mod account;
pub mod audit;
pub mod cluster;
pub mod event;
pub mod faults;
pub mod flow;
pub mod partner;
pub mod run;
pub mod search_results;
