//! Faults of those who tell partners: the API that sends a webhook, and the one that publishes events.

use std::time::{Duration, Instant};

use photofinish_bench::prometheus::sum_metric;
use photofinish_tests::harness::{Service, Signal};

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::Cluster;

/// How long the partner takes to answer: a window in which its sender is killed.
const ANSWER_TIME: Duration = Duration::from_millis(1500);
/// How long a fault waits for somebody who sends or publishes: longer than another process takes to publish in place of
/// one that was killed.
const WAIT_LIMIT: Duration = Duration::from_secs(40);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Each time the partner has the request and the sender has no answer.
pub const SENDER_KILLED: Fault = Fault {
    name: "sender-killed",
    description: "`kill -9` of the API that waits for the answer to a webhook",
    unit: "kills",
    inject: |context| {
        let intended = context.short_or_long(1, 5);
        let cluster = context.cluster;
        let _slow = cluster.partner().slow_down(ANSWER_TIME);
        let mut kills = 0;
        while kills < intended {
            let Some(sender) = wait_for(context, || cluster.find_sender()) else { break };
            context.sleep_random(0..500);
            sender.kill();
            kills += 1;
            context.sleep_random(0..500);
            sender.restart();
        }
        anyhow::ensure!(kills > 0, "no webhook was sent");
        Ok(kills)
    },
    ..DEFAULT_FAULT
};

/// At a random moment after it has published something: within a turn, between two, while photos are gathered.
pub const PUBLISHER_KILLED: Fault = Fault {
    name: "publisher-killed",
    description: "`kill -9` of the API that publishes events",
    unit: "kills",
    inject: |context| {
        let intended = context.short_or_long(1, 4);
        let mut kills = 0;
        while kills < intended {
            let Some(publisher) = wait_for_publisher(context) else { break };
            context.sleep_random(0..2500);
            publisher.kill();
            kills += 1;
            context.sleep_random(0..500);
            publisher.restart();
        }
        anyhow::ensure!(kills > 0, "no event was published");
        Ok(kills)
    },
    ..DEFAULT_FAULT
};

/// Another API publishes in place of one that hangs, which then continues where it was.
pub const PUBLISHER_HANGS: Fault = Fault {
    name: "publisher-hangs",
    description: "the API that publishes events hangs until the other publishes, and continues",
    unit: "hangs",
    inject: |context| {
        let publisher = wait_for_publisher(context);
        let publisher = publisher.ok_or_else(|| anyhow::anyhow!("no event was published"))?;
        context.sleep_random(0..2500);
        publisher.send_signal(Signal::STOP);
        let others: Vec<&Service> =
            context.cluster.apis().iter().filter(|api| api.port() != publisher.port()).collect();
        let other = wait_for(context, growing_counter(context.cluster, others));
        publisher.send_signal(Signal::CONT);
        anyhow::ensure!(other.is_some(), "no other API published");
        Ok(1)
    },
    ..DEFAULT_FAULT
};

fn wait_for_publisher<'a>(context: &FaultContext<'a>) -> Option<&'a Service> {
    let apis = context.cluster.apis().iter().collect();
    wait_for(context, growing_counter(context.cluster, apis))
}

/// Finds the API that has published events since the last call.
fn growing_counter<'a>(cluster: &'a Cluster, apis: Vec<&'a Service>) -> impl FnMut() -> Option<&'a Service> {
    let count = |api: &Service| {
        sum_metric(&cluster.metrics_of(api), "photofinish_events_published_total").unwrap_or_default()
    };
    let mut counts: Vec<f64> = apis.iter().map(|api| count(api)).collect();
    move || {
        for (api, before) in apis.iter().zip(&mut counts) {
            let now = count(api);
            if now > std::mem::replace(before, now) {
                return Some(api);
            }
        }
        None
    }
}

/// Waits for what `find` finds. Meanwhile photos are uploaded, so that there is something to tell; `None` when nothing was
/// found in time, or everything is told.
fn wait_for<T>(context: &FaultContext<'_>, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < WAIT_LIMIT {
        if let Some(found) = find() {
            return Some(found);
        }
        if context.flow.is_drained() {
            context.flow.release_more();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    None
}
