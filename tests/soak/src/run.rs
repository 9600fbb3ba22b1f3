//! One run: an event flows through a cluster while a fault disturbs it, and every photo is accounted for.

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

/// Between two photos that are sent while the fault lasts: about what two workers read.
const SEND_INTERVAL: Duration = Duration::from_millis(90);
/// How long photos may take to be read once the fault is over: longer than pipelines pause and connections are tried.
const READ_TIMEOUT: Duration = Duration::from_secs(240);

/// How a run is made.
#[derive(Clone, Copy)]
pub struct RunPlan<'a> {
    /// What disturbs; none in the run that is the measure of the others.
    pub fault: Option<&'a Fault>,
    /// How much of it.
    pub extent: Extent,
    /// The moments are random, and the same for the same seed.
    pub seed: u64,
}

/// What came of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// How often the fault struck.
    pub strikes: usize,
    /// Every photo.
    pub audit: Audit,
    /// What searches find.
    pub search_results: SearchResults,
    /// From the end of the fault to the next photo that was ready or failed.
    pub time_to_next: Option<Duration>,
    /// From the end of the fault until all were, the last third of which was only sent then, but for what it asked for.
    pub time_to_all: Duration,
    /// How often a partner's program had to try again.
    pub retries: usize,
}

/// Runs it. `undisturbed` is what searches found in an undisturbed run of the same event.
///
/// # Errors
/// When photos stay unread, a partner is refused for too long, or the fault could not be made.
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
    let disturb = || match plan.fault {
        None => Ok(0),
        Some(fault) => {
            let dice = StdRng::seed_from_u64(plan.seed);
            let mut scene = FaultContext { cluster, flow: &flow, extent: plan.extent, rng: dice };
            // A process that does not come back panics in the harness: the rest of the soak is to go on.
            catch_unwind(AssertUnwindSafe(|| (fault.inject)(&mut scene)))
                .unwrap_or_else(|panic| anyhow::bail!("{}", panic_message(panic.as_ref())))
        }
    };
    let (ended, struck): (Instant, usize) = flow.run(disturb, READ_TIMEOUT).context(title)?;
    let (mut account, answers) = audit_photos(cluster, event, &flow, undisturbed)?;
    let tried_again = flow.retries();
    let noticed = match plan.fault {
        // A machine that is too busy to answer is no refusal.
        None => flow.refusals(),
        Some(_) if may_be_noticed => 0,
        // A request may also be lost where a process leaves.
        Some(_) => tried_again,
    };
    if noticed > 0 {
        account.other.push(format!("partners had to try again {noticed} times"));
    }
    let (next, all) = (flow.time_to_next_settled(ended), flow.time_to_all_settled(ended));
    Ok(RunOutcome {
        strikes: struck,
        audit: account,
        search_results: answers,
        time_to_next: next,
        time_to_all: all,
        retries: tried_again,
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}
