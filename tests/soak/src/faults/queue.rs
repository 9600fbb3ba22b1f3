//! Messages that are away, or gone: NATS restarted with its disk, and without.

use super::{DEFAULT_FAULT, Fault};

/// The server ends as by a power cut, and comes back with what it had.
pub const NATS_RESTARTED: Fault = Fault {
    name: "nats-restarted",
    description: "NATS restarted, its disk kept",
    unit: "restarts",
    inject: |scene| {
        let restarts = scene.short_or_long(2, 5);
        for _ in 0..restarts {
            scene.sleep_random(300..1500);
            scene.cluster.nats().kill();
            scene.sleep_random(500..2500);
            scene.cluster.nats().run();
        }
        Ok(restarts)
    },
    ..DEFAULT_FAULT
};

/// The server comes back without the stream and all that was in it.
pub const NATS_DISK_LOST: Fault = Fault {
    name: "nats-disk-lost",
    description: "NATS restarted, its disk lost",
    unit: "disks",
    inject: |scene| {
        let disks = scene.short_or_long(1, 3);
        for _ in 0..disks {
            scene.sleep_random(300..1500);
            let mut nats = scene.cluster.nats();
            nats.kill();
            nats.lose_disk();
            nats.run();
        }
        Ok(disks)
    },
    ..DEFAULT_FAULT
};
