//! Processes that end as by a power cut, at random moments.

use std::ops::Range;

use photofinish_tests::harness::Service;

use super::{Fault, Scene, USUAL};
use crate::cluster::Cluster;

/// Workers, one after the other.
pub const WORKER_KILLED: Fault = Fault {
    name: "worker-killed",
    what: "`kill -9` of a worker",
    unit: "kills",
    disturb: |scene| kill_in_turn(scene, Cluster::workers, (100..900, 0..400)),
    ..USUAL
};

/// APIs, one after the other.
pub const API_KILLED: Fault = Fault {
    name: "api-killed",
    what: "`kill -9` of an API",
    unit: "kills",
    disturb: |scene| kill_in_turn(scene, Cluster::apis, (100..700, 0..300)),
    ..USUAL
};

/// Any process, the servers too.
pub const ANYTHING_KILLED: Fault = Fault {
    name: "anything-killed",
    what: "`kill -9` of any process, Postgres, NATS and S3 too",
    unit: "kills",
    disturb: |scene| {
        let kills = scene.choose(6, 20);
        for _ in 0..kills {
            scene.pause(100..700);
            kill_one(scene);
        }
        Ok(kills)
    },
    ..USUAL
};

/// All processes in one moment.
pub const EVERYTHING_KILLED: Fault = Fault {
    name: "everything-killed",
    what: "`kill -9` of all seven processes at once",
    unit: "kills",
    disturb: |scene| {
        let rounds = scene.choose(2, 4);
        let mut kills = 0;
        for _ in 0..rounds {
            scene.pause(300..1500);
            kills += kill_all(scene);
        }
        Ok(kills)
    },
    ..USUAL
};

/// After a time of the first range another one, which is away for a time of the second; milliseconds.
fn kill_in_turn(
    scene: &mut Scene<'_>,
    among: fn(&Cluster) -> &[Service],
    (until, away): (Range<u64>, Range<u64>),
) -> anyhow::Result<usize> {
    let kills = scene.choose(5, 20);
    let services = among(scene.cluster);
    for _ in 0..kills {
        scene.pause(until.clone());
        let service = &services[scene.pick(services.len())];
        service.kill9();
        scene.pause(away.clone());
        service.restart();
    }
    Ok(kills)
}

fn kill_one(scene: &mut Scene<'_>) {
    let cluster = scene.cluster;
    let (services, servers) = (cluster.processes().count(), 3);
    let place = scene.pick(services + servers);
    match place.checked_sub(services) {
        None => {
            let (_, service) = cluster.processes().nth(place).expect("a place among them");
            service.kill9();
            scene.pause(0..300);
            service.restart();
        }
        Some(0) => {
            cluster.postgres().stop();
            scene.pause(0..500);
            cluster.postgres().start_again();
        }
        Some(1) => {
            cluster.nats().kill();
            scene.pause(0..500);
            cluster.nats().run();
        }
        Some(_) => {
            cluster.s3().kill();
            scene.pause(0..500);
            cluster.s3().start_again();
        }
    }
}

fn kill_all(scene: &mut Scene<'_>) -> usize {
    let cluster = scene.cluster;
    for (_, service) in cluster.processes() {
        service.kill9();
    }
    cluster.nats().kill();
    cluster.s3().kill();
    cluster.postgres().stop();
    scene.pause(0..500);
    cluster.postgres().start_again();
    cluster.s3().start_again();
    cluster.nats().run();
    for (_, service) in cluster.processes() {
        service.restart();
    }
    cluster.processes().count() + 3
}
