//! Attacks the real service as hostile partners and strangers would, and measures what that costs a normal client beside
//! them: [`classes::CLASSES`] are the attacks, [`run`] runs one against a service of its own, [`fuzz`] feeds damaged
//! input to the code that reads it first.
//!
//! It knows the product by its API, its settings, its log and its process. What is wrong is decided by the contract: an
//! answer that it does not permit, another tenant's data, a process that does not answer.

#![forbid(unsafe_code)]

pub mod classes;
pub mod findings;
pub mod fuzz;
pub mod normal;
pub mod priority;
pub mod run;
pub mod site;
pub mod wire;
