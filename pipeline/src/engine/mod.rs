//! The machinery that moves photos between stages: threads, leases, budgets, outages and restarts. It knows nothing of
//! images or models.

pub(crate) mod budget;
pub(crate) mod cpu_shares;
pub(crate) mod device;
pub(crate) mod edge;
pub(crate) mod fault;
pub(crate) mod generation;
pub(crate) mod leases;
pub mod metrics;
pub(crate) mod outlet;
pub(crate) mod pipeline_stats;
pub(crate) mod runner;
pub(crate) mod spans;
pub(crate) mod stage;
pub(crate) mod stage_shares;
pub(crate) mod stage_stats;
pub(crate) mod status;
pub(crate) mod store_client;
pub(crate) mod supervisor;
pub(crate) mod supervisor_timeouts;
pub(crate) mod suspect_gate;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod ticket;
pub(crate) mod virtual_times;
