//! Clocks that do not agree: an API's is 5 minutes late, a worker's 5 minutes early.

use super::{DEFAULT_FAULT, Fault};
use crate::cluster::ClusterOptions;

/// Photos pass from the late API to both workers, and from a worker that dies to the other.
pub const CLOCKS_APART: Fault = Fault {
    name: "clocks-apart",
    description: "clocks 5 minutes off, one early, one late; either worker killed",
    unit: "kills",
    cluster_options: || ClusterOptions { skewed_clocks: true, ..ClusterOptions::default() },
    inject: |scene| {
        let rounds = scene.short_or_long(1, 3);
        let workers = scene.cluster.workers();
        for _ in 0..rounds {
            for worker in workers {
                scene.sleep_random(300..900);
                worker.kill();
                scene.sleep_random(0..300);
                worker.restart();
            }
        }
        Ok(rounds * workers.len())
    },
    ..DEFAULT_FAULT
};
