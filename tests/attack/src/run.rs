//! Runs one class of attacks against a service of its own: quiet first, then under attack, then after it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use photofinish_bench::process::{own_cpu, process_tree_cpu, read_memory};
use photofinish_store::panic_message;
use photofinish_tests::harness::ServiceOptions;

use crate::classes::Class;
use crate::findings::{Counts, Findings};
use crate::normal::{NormalClient, ServiceLevel};
use crate::priority::run_at_low_priority;
use crate::site::{Extent, Material, Site};

/// How long the normal client is alone before an attack.
pub const QUIET_TIME: Duration = Duration::from_secs(24);
/// Between the quiet time and the first look at the memory.
const REST_TIME: Duration = Duration::from_secs(10);
/// An attack is repeated until it has lasted so long: a percentile of few calls says nothing.
const MIN_ATTACK_TIME: Duration = Duration::from_secs(20);
/// How long the memory may take to come back after an attack.
const SETTLE_TIME: Duration = Duration::from_secs(25);
/// Memory that may stay: caches, and what the normal client's photos added.
pub const MEMORY_TOLERANCE_BYTES: u64 = 50 << 20;
/// Between two samples of memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What all classes of a run share.
pub struct Plan {
    /// How the service is started, before the settings of a class.
    pub options: ServiceOptions,
    /// Honest photos.
    pub material: Arc<Material>,
    /// Decides everything random.
    pub seed: u64,
}

/// Resident memory of the service, bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUse {
    /// After the quiet time.
    pub before: u64,
    /// The most that was seen during the attack.
    pub peak: u64,
    /// After the attack, when it no longer shrank.
    pub after: u64,
}

/// CPU time that an attack took.
#[derive(Clone, Copy, Debug)]
pub struct CpuUse {
    /// In the service.
    pub service: Duration,
    /// In this program: the attackers' own and the normal client's.
    pub clients: Duration,
}

/// How the normal client was served.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Alone.
    pub quiet: ServiceLevel,
    /// Beside the attack.
    pub beside: ServiceLevel,
}

/// The result of a class.
pub struct ClassOutcome {
    /// Its name.
    pub name: &'static str,
    /// What was tried and found.
    pub counts: Counts,
    /// Panics in the service's log.
    pub panics: usize,
    /// The service's memory; `None` in a quick attack. Of a class that restarts it, `before` is of the first process and `after`
    /// of the last.
    pub memory: Option<MemoryUse>,
    /// CPU time; `None` for a class that restarts the service.
    pub cpu: Option<CpuUse>,
    /// The normal client; `None` for a class that stops the service.
    pub isolation: Option<Isolation>,
    /// How long the attack took.
    pub took: Duration,
}

impl ClassOutcome {
    /// Whether nothing was found that may never happen. Latencies and memory are figures, not failures.
    pub fn is_clean(&self) -> bool {
        let Counts { wrong, envelope_breaks, unexpected_errors, .. } = &self.counts;
        let found = wrong.count + envelope_breaks.count + unexpected_errors.count + self.panics;
        found == 0
    }
}

/// Runs a class without a normal client: for the tests of a change.
///
/// # Panics
/// When the service does not start.
pub fn run_quick(class: &Class, plan: &Plan) -> ClassOutcome {
    run_alone(class, plan, Extent::Quick)
}

/// Runs a class without a normal client.
fn run_alone(class: &Class, plan: &Plan, extent: Extent) -> ClassOutcome {
    let site = start_site(class, plan, extent);
    let (findings, begun) = (Findings::default(), Instant::now());
    let memory = match extent {
        Extent::Quick => {
            attack(class, &site, &findings);
            None
        }
        Extent::Long => Some(attack_with_memory(class, &site, &findings)),
    };
    let took = begun.elapsed();
    check_alive(&site, &findings);
    ClassOutcome {
        name: class.name,
        counts: findings.into_counts(),
        panics: site.panics(),
        memory,
        cpu: None,
        isolation: None,
        took,
    }
}

/// Attacks a service that is restarted meanwhile. Its memory is that of the process that runs, unknown while none does.
fn attack_with_memory(class: &Class, site: &Site, findings: &Findings) -> MemoryUse {
    let read = || site.service.find_process_id().and_then(read_resident);
    let before = read().unwrap_or(u64::MAX);
    let peak = sample_peak(read, || attack(class, site, findings));
    let after = read_settled_memory(read, before).unwrap_or(u64::MAX);
    MemoryUse { before, peak, after }
}

/// Runs a class with a normal client beside it.
///
/// # Errors
/// When the normal client cannot begin its work in the quiet service.
///
/// # Panics
/// When the service does not start.
pub fn run_long(class: &Class, plan: &Plan) -> anyhow::Result<ClassOutcome> {
    if class.stops_service {
        return Ok(run_alone(class, plan, Extent::Long));
    }
    let site = start_site(class, plan, Extent::Long);
    let pid = site.service.process_id();
    let normal = NormalClient::new(&site)?;
    let ((), quiet) = normal.beside(|| std::thread::sleep(QUIET_TIME));
    // As long without work as the service waits before it returns memory: else this is what the last photos left.
    std::thread::sleep(REST_TIME);
    let before = read_memory(pid)?.resident;
    let (findings, begun) = (Findings::default(), Instant::now());
    let attack_repeatedly = || {
        attack(class, &site, &findings);
        while begun.elapsed() < MIN_ATTACK_TIME {
            site.next_round();
            attack(class, &site, &findings);
        }
    };
    let (service_cpu, clients_cpu) = (process_tree_cpu(pid)?, own_cpu());
    let read = || read_resident(pid);
    let (peak, beside) = normal.beside(|| sample_peak(read, || run_at_low_priority(attack_repeatedly)));
    let took = begun.elapsed();
    let cpu = CpuUse {
        service: process_tree_cpu(pid)?.saturating_sub(service_cpu),
        clients: own_cpu().saturating_sub(clients_cpu),
    };
    check_alive(&site, &findings);
    let after = read_settled_memory(read, before).unwrap_or(u64::MAX);
    // Among what is wrong, so that a class whose normal client is not served right is not clean.
    for failure in quiet.failures.iter().chain(&beside.failures).cloned().chain(normal.find_lost_photos()) {
        findings.wrong(failure);
    }
    Ok(ClassOutcome {
        name: class.name,
        counts: findings.into_counts(),
        panics: site.panics(),
        memory: Some(MemoryUse { before, peak, after }),
        cpu: Some(cpu),
        isolation: Some(Isolation { quiet, beside }),
        took,
    })
}

fn start_site(class: &Class, plan: &Plan, extent: Extent) -> Site {
    let settings = (class.settings)(extent);
    let options = settings
        .iter()
        .fold(plan.options.clone(), |options, setting| options.with_setting(setting.name, setting.value));
    Site::start(options, Arc::clone(&plan.material), extent, plan.seed)
}

/// Attacks. An attack that cannot go on because the service does not respond as it must is itself a finding.
fn attack(class: &Class, site: &Site, findings: &Findings) {
    let ended = catch_unwind(AssertUnwindSafe(|| (class.run)(site, findings)));
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => findings.wrong(format!("the attack broke off: {error:#}")),
        Err(panic) => {
            findings.wrong(format!("the attack broke off: {}", panic_message(panic.as_ref())));
        }
    }
}

fn check_alive(site: &Site, findings: &Findings) {
    findings.check(site.service.is_alive(), || "the service does not respond after the attack".to_owned());
}

/// The resident memory of a process, bytes; `None` once it has ended.
fn read_resident(pid: u32) -> Option<u64> {
    read_memory(pid).ok().map(|memory| memory.resident)
}

/// The most memory that `read` gives while `work` is done, bytes.
fn sample_peak(read: impl Fn() -> Option<u64> + Sync, work: impl FnOnce()) -> u64 {
    let (is_over, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                if let Some(resident) = read() {
                    peak.fetch_max(resident, Ordering::SeqCst);
                }
                std::thread::sleep(SAMPLE_INTERVAL);
            }
        });
        work();
        is_over.store(true, Ordering::SeqCst);
    });
    peak.into_inner()
}

/// The memory once it has come back to what it was, or at the end of the time in which it may; `None` if the process has ended.
fn read_settled_memory(read: impl Fn() -> Option<u64>, before: u64) -> Option<u64> {
    let deadline = Instant::now() + SETTLE_TIME;
    loop {
        let resident = read()?;
        if resident <= before.saturating_add(MEMORY_TOLERANCE_BYTES) || Instant::now() > deadline {
            return Some(resident);
        }
        std::thread::sleep(SAMPLE_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_never_happen_makes_a_class_unclean() {
        let outcome = |note: fn(&mut Counts), panics| {
            let mut counts = Counts::default();
            note(&mut counts);
            let (memory, cpu, isolation) = (None, None, None);
            ClassOutcome { name: "urls", counts, panics, memory, cpu, isolation, took: Duration::ZERO }
        };
        assert!(outcome(|counts| counts.server_errors = 1, 0).is_clean(), "a 503 is permitted");
        assert!(!outcome(|counts| counts.wrong.count = 1, 0).is_clean());
        assert!(!outcome(|counts| counts.unexpected_errors.count = 1, 0).is_clean());
        assert!(!outcome(|counts| counts.envelope_breaks.count = 1, 0).is_clean());
        assert!(!outcome(|_| {}, 1).is_clean());
    }

    #[test]
    fn the_memory_of_each_process_counts_and_none_while_none_runs() {
        let readings = std::sync::Mutex::new(vec![Some(70), None, Some(90), Some(40)]);
        let read = || readings.lock().unwrap().pop().unwrap_or(Some(50));
        let is_read = || readings.lock().unwrap().is_empty();
        let wait = || {
            while !is_read() {
                std::thread::sleep(SAMPLE_INTERVAL);
            }
        };
        assert_eq!(sample_peak(read, wait), 90);
        assert_eq!(read_settled_memory(|| Some(100), 90), Some(100));
        assert_eq!(read_settled_memory(|| None, 90), None);
    }
}
