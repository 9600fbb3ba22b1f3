//! Messages that are away, or gone: NATS restarted with its disk, and without.

use super::{Fault, USUAL};

/// The server ends as by a power cut, and comes back with what it had.
pub const NATS_RESTARTED: Fault = Fault {
    name: "nats-restarted",
    what: "NATS restarted, its disk kept",
    unit: "restarts",
    disturb: |scene| {
        let restarts = scene.choose(2, 5);
        for _ in 0..restarts {
            scene.pause(300..1500);
            scene.cluster.nats().kill();
            scene.pause(500..2500);
            scene.cluster.nats().run();
        }
        Ok(restarts)
    },
    ..USUAL
};

/// The server comes back without the stream and all that was in it.
pub const NATS_DISK_LOST: Fault = Fault {
    name: "nats-disk-lost",
    what: "NATS restarted, its disk lost",
    unit: "disks",
    disturb: |scene| {
        let disks = scene.choose(1, 3);
        for _ in 0..disks {
            scene.pause(300..1500);
            let mut nats = scene.cluster.nats();
            nats.kill();
            nats.lose_disk();
            nats.run();
        }
        Ok(disks)
    },
    ..USUAL
};
