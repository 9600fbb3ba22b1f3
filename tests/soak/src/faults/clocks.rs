//! Clocks that do not agree: an API's is 5 minutes late, a worker's 5 minutes early.

use super::{Fault, USUAL};
use crate::cluster::Shape;

/// Photos pass from the late API to both workers, and from a worker that dies to the other.
pub const CLOCKS_APART: Fault = Fault {
    name: "clocks-apart",
    what: "clocks 5 minutes off, one early, one late; either worker killed",
    unit: "kills",
    shape: || Shape { wrong_clocks: true, ..Shape::default() },
    disturb: |scene| {
        let rounds = scene.choose(1, 3);
        let workers = scene.cluster.workers();
        for _ in 0..rounds {
            for worker in workers {
                scene.pause(300..900);
                worker.kill9();
                scene.pause(0..300);
                worker.restart();
            }
        }
        Ok(rounds * workers.len())
    },
    ..USUAL
};
