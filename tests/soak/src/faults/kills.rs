//! Processes that end as by a power cut, at random moments.

use std::ops::Range;

use photofinish_tests::harness::Service;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::Cluster;

/// Workers, one after the other.
pub const WORKER_KILLED: Fault = Fault {
    name: "worker-killed",
    description: "`kill -9` of a worker",
    unit: "kills",
    inject: |scene| kill_in_turn(scene, Cluster::workers, (100..900, 0..400)),
    ..DEFAULT_FAULT
};

/// APIs, one after the other.
pub const API_KILLED: Fault = Fault {
    name: "api-killed",
    description: "`kill -9` of an API",
    unit: "kills",
    inject: |scene| kill_in_turn(scene, Cluster::apis, (100..700, 0..300)),
    ..DEFAULT_FAULT
};

/// Any process, the servers too.
pub const ANYTHING_KILLED: Fault = Fault {
    name: "anything-killed",
    description: "`kill -9` of any process, Postgres, NATS and S3 too",
    unit: "kills",
    inject: |scene| {
        let kills = scene.short_or_long(6, 20);
        for _ in 0..kills {
            scene.sleep_random(100..700);
            kill_one(scene);
        }
        Ok(kills)
    },
    ..DEFAULT_FAULT
};

/// All processes in one moment.
pub const EVERYTHING_KILLED: Fault = Fault {
    name: "everything-killed",
    description: "`kill -9` of all seven processes at once",
    unit: "kills",
    inject: |scene| {
        let rounds = scene.short_or_long(2, 4);
        let mut kills = 0;
        for _ in 0..rounds {
            scene.sleep_random(300..1500);
            kills += kill_all(scene);
        }
        Ok(kills)
    },
    ..DEFAULT_FAULT
};

/// After a time of the first range another one, which is away for a time of the second; milliseconds.
fn kill_in_turn(
    scene: &mut FaultContext<'_>,
    among: fn(&Cluster) -> &[Service],
    (until, away): (Range<u64>, Range<u64>),
) -> anyhow::Result<usize> {
    let kills = scene.short_or_long(5, 20);
    let services = among(scene.cluster);
    for _ in 0..kills {
        scene.sleep_random(until.clone());
        let service = &services[scene.random_below(services.len())];
        service.kill();
        scene.sleep_random(away.clone());
        service.restart();
    }
    Ok(kills)
}

fn kill_one(scene: &mut FaultContext<'_>) {
    let cluster = scene.cluster;
    let (services, servers) = (cluster.processes().count(), 3);
    let place = scene.random_below(services + servers);
    match place.checked_sub(services) {
        None => {
            let (_, service) = cluster.processes().nth(place).expect("a place among them");
            service.kill();
            scene.sleep_random(0..300);
            service.restart();
        }
        Some(0) => {
            cluster.postgres().stop();
            scene.sleep_random(0..500);
            cluster.postgres().start_again();
        }
        Some(1) => {
            cluster.nats().kill();
            scene.sleep_random(0..500);
            cluster.nats().run();
        }
        Some(_) => {
            cluster.s3().kill();
            scene.sleep_random(0..500);
            cluster.s3().restart();
        }
    }
}

fn kill_all(scene: &mut FaultContext<'_>) -> usize {
    let cluster = scene.cluster;
    for (_, service) in cluster.processes() {
        service.kill();
    }
    cluster.nats().kill();
    cluster.s3().kill();
    cluster.postgres().stop();
    scene.sleep_random(0..500);
    cluster.postgres().start_again();
    cluster.s3().restart();
    cluster.nats().run();
    for (_, service) in cluster.processes() {
        service.restart();
    }
    cluster.processes().count() + 3
}
