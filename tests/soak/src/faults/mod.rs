//! The faults, each with a name and what it does to a cluster while photos flow through it.
//!
//! After a fault everything is as before: every process runs, every connection is possible. Its function returns how often
//! it struck, and fails when it did not strike as intended.

mod clocks;
mod database;
mod erasures;
mod kills;
mod queue;
mod storage;
mod webhooks;
mod workers;

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::cluster::{Cluster, ClusterOptions};
use crate::flow::Flow;

pub use clocks::CLOCKS_APART;
pub use database::{POSTGRES_REFUSING, POSTGRES_RESTARTED, POSTGRES_SILENT};
pub use erasures::ERASER_KILLED;
pub use kills::{ANYTHING_KILLED, API_KILLED, EVERYTHING_KILLED, WORKER_KILLED};
pub use queue::{NATS_DISK_LOST, NATS_RESTARTED};
pub use storage::{S3_CUTTING, S3_FAILING, S3_SLOW};
pub use webhooks::{PUBLISHER_HANGS, PUBLISHER_KILLED, SENDER_KILLED};
pub use workers::{KILLING_PHOTO, ROLLING_UPDATE, SAME_PHOTO};

/// All faults.
pub const FAULTS: [&Fault; 20] = [
    &WORKER_KILLED,
    &API_KILLED,
    &ANYTHING_KILLED,
    &EVERYTHING_KILLED,
    &POSTGRES_RESTARTED,
    &POSTGRES_SILENT,
    &POSTGRES_REFUSING,
    &NATS_RESTARTED,
    &NATS_DISK_LOST,
    &S3_FAILING,
    &S3_SLOW,
    &S3_CUTTING,
    &SENDER_KILLED,
    &PUBLISHER_KILLED,
    &PUBLISHER_HANGS,
    &ERASER_KILLED,
    &CLOCKS_APART,
    &SAME_PHOTO,
    &KILLING_PHOTO,
    &ROLLING_UPDATE,
];

/// Something that goes wrong in a cluster.
pub struct Fault {
    /// A short name, as on the command line: words and hyphens.
    pub name: &'static str,
    /// What happens, for the report.
    pub description: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The cluster that it needs.
    pub cluster_options: fn() -> ClusterOptions,
    /// Whether the event has a photo that crashes its workers.
    pub has_killer_photo: bool,
    /// Whether partners must not notice: no request may need a retry.
    pub must_go_unnoticed: bool,
    /// Injects it, and returns how often it struck.
    pub inject: fn(&mut FaultContext<'_>) -> anyhow::Result<usize>,
}

/// How much of a fault there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// As in a test of seconds.
    Short,
    /// As in a soak.
    Long,
}

/// Where a fault strikes.
pub struct FaultContext<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// What flows through it.
    pub flow: &'a Flow<'a>,
    /// How much of it.
    pub extent: Extent,
    /// The moments are random, and the same for the same seed.
    pub rng: StdRng,
}

impl FaultContext<'_> {
    /// The first in a test, the second in a soak.
    fn short_or_long<T>(&self, short: T, long: T) -> T {
        if self.extent == Extent::Short { short } else { long }
    }

    /// Waits for a random time.
    fn sleep_random(&mut self, milliseconds: std::ops::Range<u64>) {
        std::thread::sleep(Duration::from_millis(self.rng.random_range(milliseconds)));
    }

    /// A random number below `count`.
    fn random_below(&mut self, count: usize) -> usize {
        self.rng.random_range(0..count)
    }
}

/// Needs the usual cluster and the usual event, and partners may notice.
const DEFAULT_FAULT: Fault = Fault {
    name: "",
    description: "",
    unit: "",
    cluster_options: ClusterOptions::default,
    has_killer_photo: false,
    must_go_unnoticed: false,
    inject: |_| Ok(0),
};
