//! The queue unavailable, or its messages lost: NATS restarted with its disk, and without.

use super::{DEFAULT_FAULT, Fault};

/// The server is killed as by a power cut, and restarted with its data.
pub const NATS_RESTARTED: Fault = Fault {
    name: "nats-restarted",
    description: "NATS restarted, its disk kept",
    unit: "restarts",
    inject: |context| {
        let restarts = context.short_or_long(2, 5);
        for _ in 0..restarts {
            context.sleep_random(300..1500);
            context.cluster.nats().kill();
            context.sleep_random(500..2500);
            context.cluster.nats().run();
        }
        Ok(restarts)
    },
    ..DEFAULT_FAULT
};

/// The server is restarted without its stream and the messages in it.
pub const NATS_DISK_LOST: Fault = Fault {
    name: "nats-disk-lost",
    description: "NATS restarted, its disk lost",
    unit: "disks",
    inject: |context| {
        let disks = context.short_or_long(1, 3);
        for _ in 0..disks {
            context.sleep_random(300..1500);
            let mut nats = context.cluster.nats();
            nats.kill();
            nats.lose_disk();
            nats.run();
        }
        Ok(disks)
    },
    ..DEFAULT_FAULT
};
