//! One run: an event flows through a cluster while a fault is injected, and every photo is audited.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::audit::{Audit, audit_photos};
use crate::cluster::Cluster;
use crate::event::Event;
use crate::faults::{Extent, Fault, FaultContext};
use crate::flow::Flow;
use crate::search_results::SearchResults;

/// Between two uploads while the fault lasts: about the rate at which two workers read.
const SEND_INTERVAL: Duration = Duration::from_millis(90);
/// How long photos may take to be read after the fault: longer than the pauses of pipelines and of reconnections.
const READ_TIMEOUT: Duration = Duration::from_secs(240);

/// What is done in a run.
#[derive(Clone, Copy)]
pub struct RunPlan<'a> {
    /// The fault; `None` in the run that the others are compared with.
    pub fault: Option<&'a Fault>,
    /// How much of the fault.
    pub extent: Extent,
    /// The moments are random, and the same for the same seed.
    pub seed: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// How often the fault struck.
    pub strikes: usize,
    /// The audit of every photo.
    pub audit: Audit,
    /// What the searches found.
    pub search_results: SearchResults,
    /// From the end of the fault to the next photo that was ready or failed.
    pub time_to_next: Option<Duration>,
    /// From the end of the fault until all photos were. The last third was only uploaded then, except what the fault
    /// released.
    pub time_to_all: Duration,
    /// How often a request was sent again.
    pub retries: usize,
}

/// Runs it. `undisturbed` are the results of an undisturbed run of the same event.
///
/// # Errors
/// When photos are not read in time, a partner's request keeps failing, or the fault cannot be injected.
pub fn run(
    cluster: &Cluster,
    event: &Event,
    plan: RunPlan<'_>,
    undisturbed: Option<&SearchResults>,
) -> anyhow::Result<RunOutcome> {
    let title = plan.fault.map_or("undisturbed", |fault| fault.name);
    let may_be_noticed = plan.fault.is_some_and(|fault| !fault.must_go_unnoticed);
    let mut flow = Flow::new(cluster, event, title, SEND_INTERVAL)?;
    if !may_be_noticed {
        flow = flow.with_long_timeouts();
    }
    let inject_fault = || match plan.fault {
        None => Ok(0),
        Some(fault) => {
            let rng = StdRng::seed_from_u64(plan.seed);
            let mut context = FaultContext { cluster, flow: &flow, extent: plan.extent, rng };
            // The harness panics for a process that does not become ready: the rest of the soak shall continue.
            catch_unwind(AssertUnwindSafe(|| (fault.inject)(&mut context)))
                .unwrap_or_else(|panic| anyhow::bail!("{}", panic_message(panic.as_ref())))
        }
    };
    let (ended, strikes): (Instant, usize) = flow.run(inject_fault, READ_TIMEOUT).context(title)?;
    let (mut audit, search_results) = audit_photos(cluster, event, &flow, undisturbed)?;
    let retries = flow.retries();
    let noticed = match plan.fault {
        // A timeout on a machine that is too busy is no refusal.
        None => flow.refusals(),
        Some(_) if may_be_noticed => 0,
        // A request may also be lost at a process that stops.
        Some(_) => retries,
    };
    if noticed > 0 {
        audit.other.push(format!("partners had to retry {noticed} requests"));
    }
    Ok(RunOutcome {
        strikes,
        audit,
        search_results,
        time_to_next: flow.time_to_next_settled(ended),
        time_to_all: flow.time_to_all_settled(ended),
        retries,
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}
