//! Faults around workers: two that work on the same photo, a photo that crashes its worker each time, and workers and APIs
//! that are replaced one by one.

use std::time::Duration;

use anyhow::Context as _;
use photofinish_bench::prometheus::sum_metric;
use photofinish_client::{ClientOptions, RetryPolicy};
use photofinish_tests::harness::{Exit, Service, Signal};
use serde_json::{Value, json};

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::{Cluster, ClusterOptions};
use crate::event::KILLER_PHOTO;
use crate::flow::wait_until;

/// Longer than photos and requests in flight may take to finish.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// Several crashes, each followed by the wait until its lease expires, on a machine that may be busy.
const FAIL_TIMEOUT: Duration = Duration::from_secs(240);

/// More photos than a worker finishes at once.
const MIN_IN_FLIGHT: f64 = 3.0;

/// Rounds beyond the intended ones.
const SPARE_ROUNDS: usize = 3;

/// What a load balancer needs to notice that an API is about to stop, `api.preStopSeconds` of the chart.
const DEREGISTRATION_TIME: Duration = Duration::from_secs(2);

/// A worker hangs until others have read its photos, and then continues with them.
pub const SAME_PHOTO: Fault = Fault {
    name: "same-photo",
    description: "a worker hangs past its leases and continues with photos that the other has read",
    unit: "hangs",
    cluster_options: || ClusterOptions {
        read_delay: Duration::from_millis(300),
        ..ClusterOptions::default()
    },
    inject: |context| {
        let number = context.random_below(context.cluster.workers().len());
        let worker = &context.cluster.workers()[number];
        let lost_before = count_lost_photos(context.cluster, worker);
        anyhow::ensure!(wait_until_in_flight(context, worker)?, "no photo was left to lose");
        worker.send_signal(Signal::STOP);
        let all_else =
            context.flow.wait_for("the photos of a worker that hangs are read", || context.flow.is_drained());
        worker.send_signal(Signal::CONT);
        all_else?;
        context.flow.wait_for("the worker that hung notices that it lost its photos", || {
            count_lost_photos(context.cluster, worker) > lost_before
        })?;
        Ok(1)
    },
    ..DEFAULT_FAULT
};

/// Each worker that reads it crashes, until the limit of attempts.
pub const KILLING_PHOTO: Fault = Fault {
    name: "killing-photo",
    description: "a photo that crashes its worker each time",
    unit: "deaths",
    cluster_options: || ClusterOptions { attempt_limit: 3, lease_seconds: 8, ..ClusterOptions::default() },
    has_killer_photo: true,
    inject: |context| {
        let mut deaths = 0;
        let client = context.cluster.client();
        let client = client.with_options(ClientOptions { retry: RetryPolicy::NEVER, ..client.options() });
        let input = json!({ "albumId": context.flow.album(), "state": "failed" });
        wait_until("the photo that crashes its workers fails", FAIL_TIMEOUT, || {
            // A supervisor restarts what has ended.
            for worker in context.cluster.workers().iter().filter(|worker| worker.has_exited()) {
                deaths += 1;
                worker.try_restart();
            }
            let failed = client.call::<Value>("photos/photo/list", &input).unwrap_or_default();
            let mut photos = failed["photos"].as_array().into_iter().flatten();
            photos.any(|photo| photo["filename"] == KILLER_PHOTO)
        })?;
        // An attempt may also end without a crash: when a busy worker could not renew the lease.
        anyhow::ensure!((2..=3).contains(&deaths), "the limit of attempts is 3, and {deaths} workers died");
        Ok(deaths)
    },
    ..DEFAULT_FAULT
};

/// SIGTERM to each process under load, one after the other. Workers read slowly and may drain for a second only, so that
/// they have photos to release; leases are far longer than the run, so that a photo that is not released is not read.
pub const ROLLING_UPDATE: Fault = Fault {
    name: "rolling-update",
    description: "SIGTERM to every worker and API under load, one by one",
    unit: "stops",
    cluster_options: || ClusterOptions {
        lease_seconds: 900,
        drain_seconds: 1,
        read_delay: Duration::from_millis(500),
        ..ClusterOptions::default()
    },
    must_go_unnoticed: true,
    inject: |context| {
        let least = context.short_or_long(1, 3);
        let (mut rounds, mut released) = (0, 0);
        // Each worker may happen to finish all its photos within its second.
        while rounds < least || released == 0 {
            anyhow::ensure!(rounds < least + SPARE_ROUNDS, "no photo was in flight at any stop");
            rounds += 1;
            for worker in context.cluster.workers() {
                context.sleep_random(200..800);
                wait_until_in_flight(context, worker)?;
                stop_process(worker)?;
                released += count_photos_released_at_stop(worker)?;
                worker.restart();
            }
            for number in 0..context.cluster.apis().len() {
                context.sleep_random(200..800);
                replace_api(context, number)?;
            }
        }
        Ok(rounds * context.cluster.processes().count())
    },
    ..DEFAULT_FAULT
};

/// Waits until the worker has photos in flight, and releases more uploads when all are read before. Returns whether it has:
/// in the end there are no more to release.
fn wait_until_in_flight(context: &FaultContext<'_>, worker: &Service) -> anyhow::Result<bool> {
    let in_flight = || {
        sum_metric(&context.cluster.metrics_of(worker), "photofinish_photos_in_flight").unwrap_or_default()
    };
    let mut has_photos = false;
    context.flow.wait_for("the worker has photos", || {
        has_photos = in_flight() >= MIN_IN_FLIGHT;
        let is_over = !has_photos && context.flow.is_drained() && !context.flow.release_more();
        has_photos || is_over
    })?;
    Ok(has_photos)
}

/// How often this worker lost a photo: its result came too late, its lease could not be renewed, or it released the photo. A
/// worker that hung within the transaction of its results releases: Postgres has ended the transaction, which held locks.
fn count_lost_photos(cluster: &Cluster, worker: &Service) -> f64 {
    const METRICS: [&str; 3] = [
        "photofinish_photos_superseded_total",
        "photofinish_leases_lost_total",
        "photofinish_photos_given_back_total",
    ];
    let page = cluster.metrics_of(worker);
    METRICS.iter().filter_map(|name| sum_metric(&page, name)).sum()
}

fn stop_process(process: &Service) -> anyhow::Result<()> {
    let Exit { code, took } = process.terminate(STOP_TIMEOUT);
    anyhow::ensure!(code == Some(0), "a process stopped with exit code {code:?} after {took:?}");
    Ok(())
}

/// The photos that the worker released in its life, by its last log line; none may be left behind.
fn count_photos_released_at_stop(worker: &Service) -> anyhow::Result<u64> {
    let log = worker.log();
    let line = log
        .lines()
        .rfind(|line| line.contains("pipeline stopped drained="))
        .context("no log line at its stop")?;
    let number = |field: &str| line.split_once(field)?.1.split_whitespace().next()?.parse::<u64>().ok();
    anyhow::ensure!(number("left=") == Some(0), "photos were left behind: {line}");
    number("given_back=").with_context(|| format!("no number of released photos: {line}"))
}

/// As Kubernetes does it: first out of the load balancer, then SIGTERM, and back when it is ready.
fn replace_api(context: &FaultContext<'_>, number: usize) -> anyhow::Result<()> {
    let (load_balancer, api) = (context.cluster.load_balancer(), &context.cluster.apis()[number]);
    load_balancer.disable_server(number);
    std::thread::sleep(DEREGISTRATION_TIME);
    stop_process(api)?;
    api.restart();
    load_balancer.enable_server(number);
    context.flow.wait_for("the new API gets requests", || load_balancer.is_server_usable(number))
}
