//! What workers do to each other and photos do to workers: two that hold the same photo, a photo that ends its worker
//! each time, and workers and APIs that are replaced one by one.

use std::time::Duration;

use anyhow::Context as _;
use photofinish_tests::harness::{Service, Signal};
use serde_json::json;

use super::{Fault, Scene, USUAL};
use crate::account::metric;
use crate::cluster::{Cluster, Shape};
use crate::event::KILLER;
use crate::flow::wait;

/// Longer than what is in flight may take to end, and than requests in hand may.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// Deaths of which each is waited out until its lease ends, on a machine that may be busy.
const FAIL_LIMIT: Duration = Duration::from_secs(240);

/// More than a worker reads in a moment.
const IN_FLIGHT: f64 = 3.0;

/// Rounds beyond those that were meant.
const SPARE_ROUNDS: usize = 3;

/// What a proxy needs to hear that an API is to go, `api.preStopSeconds` of the chart.
const TAKING_OFF: Duration = Duration::from_secs(2);

/// A worker hangs until others have read its photos, and then goes on with them.
pub const SAME_PHOTO: Fault = Fault {
    name: "same-photo",
    what: "a worker hangs past its leases and goes on with photos that the other has read",
    unit: "hangs",
    shape: || Shape { read_delay: Duration::from_millis(300), ..Shape::default() },
    disturb: |scene| {
        let place = scene.pick(scene.cluster.workers().len());
        let worker = &scene.cluster.workers()[place];
        let taken_before = taken_away(scene.cluster, worker);
        anyhow::ensure!(until_in_flight(scene, worker)?, "no photo was left to be taken away");
        worker.signal(Signal::STOP);
        let all_else =
            scene.flow.wait_for("the photos of a worker that hangs are read", || scene.flow.is_drained());
        worker.signal(Signal::CONT);
        all_else?;
        scene.flow.wait_for("the worker that hung learns that its photos were taken away", || {
            taken_away(scene.cluster, worker) > taken_before
        })?;
        Ok(1)
    },
    ..USUAL
};

/// Each worker that reads it ends, until the limit of attempts.
pub const KILLING_PHOTO: Fault = Fault {
    name: "killing-photo",
    what: "a photo that ends its worker each time",
    unit: "deaths",
    shape: || Shape { attempt_limit: 3, lease_seconds: 8, ..Shape::default() },
    has_a_killer: true,
    disturb: |scene| {
        let mut deaths = 0;
        let client = scene.cluster.client();
        let failed = json!({ "albumId": scene.flow.album(), "state": "failed" });
        wait("the photo that ends its workers fails", FAIL_LIMIT, || {
            // Somebody starts again what has ended.
            for worker in scene.cluster.workers().iter().filter(|worker| worker.has_ended()) {
                deaths += 1;
                worker.try_restart();
            }
            let failed = client.try_call("/photos/photo/list", &failed).unwrap_or_default();
            let mut photos = failed["photos"].as_array().into_iter().flatten();
            photos.any(|photo| photo["filename"] == KILLER)
        })?;
        // An attempt may also end without a death: a lease that a busy worker could not renew.
        anyhow::ensure!((2..=3).contains(&deaths), "the limit of attempts is 3, and {deaths} workers died");
        Ok(deaths)
    },
    ..USUAL
};

/// SIGTERM to each process in full flight, one after the other. Workers read slowly and may drain for a second only, so
/// that they have photos to give back; leases are far longer than anybody waits, so that what is not given back would not
/// be read.
pub const ROLLING_UPDATE: Fault = Fault {
    name: "rolling-update",
    what: "SIGTERM to every worker and API in full flight, one by one",
    unit: "stops",
    shape: || Shape {
        lease_seconds: 900,
        drain_seconds: 1,
        read_delay: Duration::from_millis(500),
        ..Shape::default()
    },
    is_silent: true,
    disturb: |scene| {
        let least = scene.choose(1, 3);
        let (mut rounds, mut given_back) = (0, 0);
        // Each worker may happen to end in its second all that it has.
        while rounds < least || given_back == 0 {
            anyhow::ensure!(rounds < least + SPARE_ROUNDS, "no photo was in flight at any stop");
            rounds += 1;
            for worker in scene.cluster.workers() {
                scene.pause(200..800);
                until_in_flight(scene, worker)?;
                stop(worker)?;
                given_back += given_back_at_its_stop(worker)?;
                worker.restart();
            }
            for number in 0..scene.cluster.apis().len() {
                scene.pause(200..800);
                replace_api(scene, number)?;
            }
        }
        Ok(rounds * scene.cluster.processes().count())
    },
    ..USUAL
};

/// Waits until it has photos, more than it reads in a moment, and has more sent where all are read before it has them.
/// Answers whether it has: in the end there are no more to be sent.
fn until_in_flight(scene: &Scene<'_>, worker: &Service) -> anyhow::Result<bool> {
    let in_flight = || {
        let page = scene.cluster.client_of(worker).page("/metrics").unwrap_or_default();
        metric(&page, "photofinish_photos_in_flight").unwrap_or_default()
    };
    let mut has_photos = false;
    scene.flow.wait_for("the worker has photos", || {
        has_photos = in_flight() >= IN_FLIGHT;
        let is_over = !has_photos && scene.flow.is_drained() && !scene.flow.send_more();
        has_photos || is_over
    })?;
    Ok(has_photos)
}

/// How often this worker met a photo that was no longer its own: its result came too late, its lease could not be renewed,
/// or it gave the photo back. A worker that hung within the transaction of its results gives back: Postgres has ended the
/// transaction, for it held locks.
fn taken_away(cluster: &Cluster, worker: &Service) -> f64 {
    const METRICS: [&str; 3] = [
        "photofinish_photos_superseded_total",
        "photofinish_leases_lost_total",
        "photofinish_photos_given_back_total",
    ];
    let page = cluster.client_of(worker).page("/metrics").unwrap_or_default();
    METRICS.iter().filter_map(|name| metric(&page, name)).sum()
}

fn stop(process: &Service) -> anyhow::Result<()> {
    let (code, took) = process.terminate(STOP_LIMIT);
    anyhow::ensure!(code == Some(0), "a stop ended with {code:?} after {took:?}");
    Ok(())
}

/// What it says of photos that it had to give back in its life; none may be left behind.
fn given_back_at_its_stop(worker: &Service) -> anyhow::Result<u64> {
    let log = worker.log();
    let line = log
        .lines()
        .rfind(|line| line.contains("pipeline stopped drained="))
        .context("it said nothing at its stop")?;
    let number = |field: &str| line.split_once(field)?.1.split_whitespace().next()?.parse::<u64>().ok();
    anyhow::ensure!(number("left=") == Some(0), "photos were left behind: {line}");
    number("given_back=").with_context(|| format!("no number of photos given back: {line}"))
}

/// As Kubernetes does it: off the service first, then SIGTERM, and back when it is ready.
fn replace_api(scene: &Scene<'_>, number: usize) -> anyhow::Result<()> {
    let (front, api) = (scene.cluster.front(), &scene.cluster.apis()[number]);
    front.take_off(number);
    std::thread::sleep(TAKING_OFF);
    stop(api)?;
    api.restart();
    front.put_back(number);
    scene.flow.wait_for("the new API is sent to", || front.sends_to(number))
}
