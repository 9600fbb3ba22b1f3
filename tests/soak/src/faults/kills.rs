//! Processes killed at random moments, as by a power cut.

use std::ops::Range;

use photofinish_tests::harness::Service;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::Cluster;

/// Workers, one after the other.
pub const WORKER_KILLED: Fault = Fault {
    name: "worker-killed",
    description: "`kill -9` of a worker",
    unit: "kills",
    inject: |context| kill_in_turn(context, Cluster::workers, 100..900, 0..400),
    ..DEFAULT_FAULT
};

/// APIs, one after the other.
pub const API_KILLED: Fault = Fault {
    name: "api-killed",
    description: "`kill -9` of an API",
    unit: "kills",
    inject: |context| kill_in_turn(context, Cluster::apis, 100..700, 0..300),
    ..DEFAULT_FAULT
};

/// Any process, the servers too.
pub const ANYTHING_KILLED: Fault = Fault {
    name: "anything-killed",
    description: "`kill -9` of any process, Postgres, NATS and S3 too",
    unit: "kills",
    inject: |context| {
        let kills = context.short_or_long(6, 20);
        for _ in 0..kills {
            context.sleep_random(100..700);
            kill_one(context);
        }
        Ok(kills)
    },
    ..DEFAULT_FAULT
};

/// All processes at once.
pub const EVERYTHING_KILLED: Fault = Fault {
    name: "everything-killed",
    description: "`kill -9` of all seven processes at once",
    unit: "kills",
    inject: |context| {
        let rounds = context.short_or_long(2, 4);
        let mut kills = 0;
        for _ in 0..rounds {
            context.sleep_random(300..1500);
            kills += kill_all(context);
        }
        Ok(kills)
    },
    ..DEFAULT_FAULT
};

/// Kills one process after the other: each after a wait `until` milliseconds, and it is down for `down` milliseconds.
fn kill_in_turn(
    context: &mut FaultContext<'_>,
    services: fn(&Cluster) -> &[Service],
    until: Range<u64>,
    down: Range<u64>,
) -> anyhow::Result<usize> {
    let kills = context.short_or_long(5, 20);
    let services = services(context.cluster);
    for _ in 0..kills {
        context.sleep_random(until.clone());
        let service = &services[context.random_below(services.len())];
        service.kill();
        context.sleep_random(down.clone());
        service.restart();
    }
    Ok(kills)
}

fn kill_one(context: &mut FaultContext<'_>) {
    let cluster = context.cluster;
    let (services, servers) = (cluster.processes().count(), 3);
    let number = context.random_below(services + servers);
    match number.checked_sub(services) {
        None => {
            let (_, service) = cluster.processes().nth(number).expect("a number below their count");
            service.kill();
            context.sleep_random(0..300);
            service.restart();
        }
        Some(0) => {
            cluster.postgres().stop();
            context.sleep_random(0..500);
            cluster.postgres().start_again();
        }
        Some(1) => {
            cluster.nats().kill();
            context.sleep_random(0..500);
            cluster.nats().run();
        }
        Some(_) => {
            cluster.s3().kill();
            context.sleep_random(0..500);
            cluster.s3().restart();
        }
    }
}

fn kill_all(context: &mut FaultContext<'_>) -> usize {
    let cluster = context.cluster;
    for (_, service) in cluster.processes() {
        service.kill();
    }
    cluster.nats().kill();
    cluster.s3().kill();
    cluster.postgres().stop();
    context.sleep_random(0..500);
    cluster.postgres().start_again();
    cluster.s3().restart();
    cluster.nats().run();
    for (_, service) in cluster.processes() {
        service.restart();
    }
    cluster.processes().count() + 3
}
