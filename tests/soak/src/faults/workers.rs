//! What workers do to each other and photos do to workers: two that hold the same photo, a photo that ends its worker
//! each time, and workers and APIs that are replaced one by one.

use std::time::Duration;

use anyhow::Context as _;
use photofinish_tests::harness::{Service, Signal};
use serde_json::json;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::audit::sum_metric;
use crate::cluster::{Cluster, ClusterOptions};
use crate::event::KILLER_PHOTO;
use crate::flow::wait_until;

/// Longer than what is in flight may take to end, and than requests in hand may.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// Deaths of which each is waited out until its lease ends, on a machine that may be busy.
const FAIL_TIMEOUT: Duration = Duration::from_secs(240);

/// More than a worker reads in a moment.
const MIN_IN_FLIGHT: f64 = 3.0;

/// Rounds beyond those that were meant.
const SPARE_ROUNDS: usize = 3;

/// What a proxy needs to hear that an API is to go, `api.preStopSeconds` of the chart.
const DEREGISTRATION_TIME: Duration = Duration::from_secs(2);

/// A worker hangs until others have read its photos, and then goes on with them.
pub const SAME_PHOTO: Fault = Fault {
    name: "same-photo",
    description: "a worker hangs past its leases and goes on with photos that the other has read",
    unit: "hangs",
    cluster_options: || ClusterOptions {
        read_delay: Duration::from_millis(300),
        ..ClusterOptions::default()
    },
    inject: |scene| {
        let place = scene.random_below(scene.cluster.workers().len());
        let worker = &scene.cluster.workers()[place];
        let taken_before = count_lost_photos(scene.cluster, worker);
        anyhow::ensure!(wait_until_in_flight(scene, worker)?, "no photo was left to be taken away");
        worker.send_signal(Signal::STOP);
        let all_else =
            scene.flow.wait_for("the photos of a worker that hangs are read", || scene.flow.is_drained());
        worker.send_signal(Signal::CONT);
        all_else?;
        scene.flow.wait_for("the worker that hung learns that its photos were taken away", || {
            count_lost_photos(scene.cluster, worker) > taken_before
        })?;
        Ok(1)
    },
    ..DEFAULT_FAULT
};

/// Each worker that reads it ends, until the limit of attempts.
pub const KILLING_PHOTO: Fault = Fault {
    name: "killing-photo",
    description: "a photo that ends its worker each time",
    unit: "deaths",
    cluster_options: || ClusterOptions { attempt_limit: 3, lease_seconds: 8, ..ClusterOptions::default() },
    has_killer_photo: true,
    inject: |scene| {
        let mut deaths = 0;
        let client = scene.cluster.client();
        let failed = json!({ "albumId": scene.flow.album(), "state": "failed" });
        wait_until("the photo that ends its workers fails", FAIL_TIMEOUT, || {
            // Somebody starts again what has ended.
            for worker in scene.cluster.workers().iter().filter(|worker| worker.has_exited()) {
                deaths += 1;
                worker.try_restart();
            }
            let failed = client.try_call("/photos/photo/list", &failed).unwrap_or_default();
            let mut photos = failed["photos"].as_array().into_iter().flatten();
            photos.any(|photo| photo["filename"] == KILLER_PHOTO)
        })?;
        // An attempt may also end without a death: a lease that a busy worker could not renew.
        anyhow::ensure!((2..=3).contains(&deaths), "the limit of attempts is 3, and {deaths} workers died");
        Ok(deaths)
    },
    ..DEFAULT_FAULT
};

/// SIGTERM to each process in full flight, one after the other. Workers read slowly and may drain for a second only, so
/// that they have photos to give back; leases are far longer than anybody waits, so that what is not given back would not
/// be read.
pub const ROLLING_UPDATE: Fault = Fault {
    name: "rolling-update",
    description: "SIGTERM to every worker and API in full flight, one by one",
    unit: "stops",
    cluster_options: || ClusterOptions {
        lease_seconds: 900,
        drain_seconds: 1,
        read_delay: Duration::from_millis(500),
        ..ClusterOptions::default()
    },
    must_go_unnoticed: true,
    inject: |scene| {
        let least = scene.short_or_long(1, 3);
        let (mut rounds, mut given_back) = (0, 0);
        // Each worker may happen to end in its second all that it has.
        while rounds < least || given_back == 0 {
            anyhow::ensure!(rounds < least + SPARE_ROUNDS, "no photo was in flight at any stop");
            rounds += 1;
            for worker in scene.cluster.workers() {
                scene.sleep_random(200..800);
                wait_until_in_flight(scene, worker)?;
                stop_process(worker)?;
                given_back += count_photos_released_at_stop(worker)?;
                worker.restart();
            }
            for number in 0..scene.cluster.apis().len() {
                scene.sleep_random(200..800);
                replace_api(scene, number)?;
            }
        }
        Ok(rounds * scene.cluster.processes().count())
    },
    ..DEFAULT_FAULT
};

/// Waits until it has photos, more than it reads in a moment, and has more sent where all are read before it has them.
/// Answers whether it has: in the end there are no more to be sent.
fn wait_until_in_flight(scene: &FaultContext<'_>, worker: &Service) -> anyhow::Result<bool> {
    let in_flight = || {
        let page = scene.cluster.client_for(worker).page("/metrics").unwrap_or_default();
        sum_metric(&page, "photofinish_photos_in_flight").unwrap_or_default()
    };
    let mut has_photos = false;
    scene.flow.wait_for("the worker has photos", || {
        has_photos = in_flight() >= MIN_IN_FLIGHT;
        let is_over = !has_photos && scene.flow.is_drained() && !scene.flow.release_more();
        has_photos || is_over
    })?;
    Ok(has_photos)
}

/// How often this worker met a photo that was no longer its own: its result came too late, its lease could not be renewed,
/// or it gave the photo back. A worker that hung within the transaction of its results gives back: Postgres has ended the
/// transaction, for it held locks.
fn count_lost_photos(cluster: &Cluster, worker: &Service) -> f64 {
    const METRICS: [&str; 3] = [
        "photofinish_photos_superseded_total",
        "photofinish_leases_lost_total",
        "photofinish_photos_given_back_total",
    ];
    let page = cluster.client_for(worker).page("/metrics").unwrap_or_default();
    METRICS.iter().filter_map(|name| sum_metric(&page, name)).sum()
}

fn stop_process(process: &Service) -> anyhow::Result<()> {
    let (code, took) = process.terminate(STOP_TIMEOUT);
    anyhow::ensure!(code == Some(0), "a stop ended with {code:?} after {took:?}");
    Ok(())
}

/// What it says of photos that it had to give back in its life; none may be left behind.
fn count_photos_released_at_stop(worker: &Service) -> anyhow::Result<u64> {
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
fn replace_api(scene: &FaultContext<'_>, number: usize) -> anyhow::Result<()> {
    let (front, api) = (scene.cluster.load_balancer(), &scene.cluster.apis()[number]);
    front.disable_server(number);
    std::thread::sleep(DEREGISTRATION_TIME);
    stop_process(api)?;
    api.restart();
    front.enable_server(number);
    scene.flow.wait_for("the new API is sent to", || front.is_server_usable(number))
}
