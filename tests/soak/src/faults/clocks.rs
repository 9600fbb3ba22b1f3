//! Clocks that disagree: one API's is 5 minutes slow, one worker's 5 minutes fast.

use super::{DEFAULT_FAULT, Fault};
use crate::cluster::ClusterOptions;

/// Photos pass from the slow API to both workers, and from a killed worker to the other.
pub const CLOCKS_APART: Fault = Fault {
    name: "clocks-apart",
    description: "clocks 5 minutes off, one fast, one slow; either worker killed",
    unit: "kills",
    cluster_options: || ClusterOptions { skewed_clocks: true, ..ClusterOptions::default() },
    inject: |context| {
        let rounds = context.short_or_long(1, 3);
        let workers = context.cluster.workers();
        for _ in 0..rounds {
            for worker in workers {
                context.sleep_random(300..900);
                worker.kill();
                context.sleep_random(0..300);
                worker.restart();
            }
        }
        Ok(rounds * workers.len())
    },
    ..DEFAULT_FAULT
};
