//! The commands beside the three roles, one module each.

pub mod account;
pub mod costs;
pub mod credits;
pub mod doctor;
mod doctor_cors;
mod doctor_store;
pub mod key;
pub mod models;
pub mod organization;
pub mod secret;
pub mod start_list;
pub mod sweep;
pub(crate) mod upload;
pub mod usage;
