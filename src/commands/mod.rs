//! The commands around the service, one file each.

pub mod doctor;
pub mod key;
pub mod models;
pub mod sweep;
pub(crate) mod upload;
