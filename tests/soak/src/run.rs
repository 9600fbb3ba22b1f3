//! One run: an event flows through a cluster while a fault disturbs it, and every photo is accounted for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::account::{Account, settle};
use crate::answers::Answers;
use crate::cluster::Cluster;
use crate::event::Event;
use crate::faults::{Extent, Fault, Scene};
use crate::flow::Flow;

/// Between two photos that are sent while the fault lasts: about what two workers read.
const PACE: Duration = Duration::from_millis(90);
/// How long photos may take to be read once the fault is over: longer than pipelines pause and connections are tried.
const READ_LIMIT: Duration = Duration::from_secs(240);

/// How a run is made.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// What disturbs; none in the run that is the measure of the others.
    pub fault: Option<&'a Fault>,
    /// How much of it.
    pub extent: Extent,
    /// The moments are random, and the same for the same seed.
    pub seed: u64,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// How often the fault struck.
    pub struck: usize,
    /// Every photo.
    pub account: Account,
    /// What searches find.
    pub answers: Answers,
    /// From the end of the fault to the next photo that was ready or failed.
    pub next: Option<Duration>,
    /// From the end of the fault until all were, the last third of which was only sent then, but for what it asked for.
    pub all: Duration,
    /// How often a partner's program had to try again.
    pub tried_again: usize,
}

/// Runs it. `undisturbed` is what searches found in an undisturbed run of the same event.
///
/// # Errors
/// When photos stay unread, a partner is refused for too long, or the fault could not be made.
pub fn run(
    cluster: &Cluster,
    event: &Event,
    plan: Plan<'_>,
    undisturbed: Option<&Answers>,
) -> anyhow::Result<Outcome> {
    let title = plan.fault.map_or("undisturbed", |fault| fault.name);
    let may_be_noticed = plan.fault.is_some_and(|fault| !fault.is_silent);
    let mut flow = Flow::new(cluster, event, title, PACE)?;
    if !may_be_noticed {
        flow = flow.patient();
    }
    let disturb = || match plan.fault {
        None => Ok(0),
        Some(fault) => {
            let dice = StdRng::seed_from_u64(plan.seed);
            let mut scene = Scene { cluster, flow: &flow, extent: plan.extent, dice };
            // A process that does not come back panics in the harness: the rest of the soak is to go on.
            catch_unwind(AssertUnwindSafe(|| (fault.disturb)(&mut scene)))
                .unwrap_or_else(|panic| anyhow::bail!("{}", words_of(panic.as_ref())))
        }
    };
    let (ended, struck): (Instant, usize) = flow.run(disturb, READ_LIMIT).context(title)?;
    let (mut account, answers) = settle(cluster, event, &flow, undisturbed)?;
    let tried_again = flow.tried_again();
    let noticed = match plan.fault {
        // A machine that is too busy to answer is no refusal.
        None => flow.refused(),
        Some(_) if may_be_noticed => 0,
        // A request may also be lost where a process leaves.
        Some(_) => tried_again,
    };
    if noticed > 0 {
        account.amiss.push(format!("partners had to try again {noticed} times"));
    }
    let (next, all) = (flow.next_after(ended), flow.all_after(ended));
    Ok(Outcome { struck, account, answers, next, all, tried_again })
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}
