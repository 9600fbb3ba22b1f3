//! What an event knows of its bibs, and how the texts of its photos are judged by it. Pure: knows neither tables nor
//! networks.

pub(crate) mod format;
pub(crate) mod judge;
pub(crate) mod start_list;
mod weights;
