//! What the ledger of costs misses, and what it takes: the CPU time of a worker by itself beside what photos were charged, and
//! the CPU time of writing what a batch cost.

use std::path::Path;
use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::conformance::{AlbumFixture, test_settings};
use photofinish_store::model::cost::{Spent, thread_cpu_time};

use super::options::{CpuOptions, read_charged, service_setup};
use crate::process::{own_cpu, process_tree_cpu};
use crate::report::goals::Goal;
use crate::report::statistics::median;
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// The stages that a photo is charged, and the row that counts it.
const STAGES: [&str; 10] =
    ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index", "overhead", "photos"];

/// How often what a batch cost is written; the median counts of so many turns.
const WRITES: u32 = 200;
const TURNS: usize = 5;

/// The share of the worker's CPU that photos are charged.
const LEAST_SHARE: f64 = 0.95;

/// What keeping the ledger may take of the CPU of a photo that is a batch of its own, percent.
const MOST_PERCENT: f64 = 0.5;

/// A worker beside an API: its CPU by the kernel, and what photos were charged.
pub struct WorkerRun {
    cpu: Duration,
    charged: Duration,
}

/// What was measured.
pub struct LedgerRuns {
    pub workers: Vec<WorkerRun>,
    /// CPU of writing what a batch cost, by turn.
    pub writes: Vec<Duration>,
}

/// Measures both.
///
/// # Errors
/// When the service or the store fails.
pub fn measure(options: &CpuOptions, folder: &Path, files: &[String]) -> anyhow::Result<LedgerRuns> {
    let mut workers = Vec::new();
    for round in 1..=options.rounds.max(1) {
        println!("round {round}: a worker alone");
        workers.push(measure_worker(options, folder, files)?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let writes = runtime.block_on(measure_writes())?;
    Ok(LedgerRuns { workers, writes })
}

/// Processes the photos with a worker that does nothing else.
fn measure_worker(options: &CpuOptions, folder: &Path, files: &[String]) -> anyhow::Result<WorkerRun> {
    let setup = Setup { has_worker_apart: true, ..service_setup(options) };
    let service = Service::start(&options.paths, &setup)?;
    let client = service.client();
    let album = UploadedAlbum::upload(client, None, folder, files)?;
    let before = process_tree_cpu(service.worker_pid())?;
    album.confirm_all(client)?;
    let progress = album.wait_until_idle(client)?;
    let cpu = process_tree_cpu(service.worker_pid())?.saturating_sub(before);
    anyhow::ensure!(progress.failed == 0, "{} photos failed:\n{}", progress.failed, service.log_tail());
    let charged = read_charged(client, &album.id)?.values().sum();
    Ok(WorkerRun { cpu, charged: Duration::from_secs_f64(charged) })
}

/// Writes what batches of one photo cost, as searches are written: the statement that ends attempts, in a transaction of
/// its own, which the attempts do not need. With the clocks that each stage reads.
async fn measure_writes() -> anyhow::Result<Vec<Duration>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(test_settings(folder.path())).await?;
    let fixture = AlbumFixture::create(&store).await;
    let mut turns = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let before = own_cpu();
        for _ in 0..WRITES {
            for stage in STAGES {
                let cpu = thread_cpu_time();
                let spent = Spent { cpu: thread_cpu_time().saturating_sub(cpu), ..Spent::default() };
                store.costs.searches().add(fixture.album, stage, spent);
            }
            store.costs.flush_searches().await?;
        }
        turns.push(own_cpu().saturating_sub(before) / WRITES);
    }
    store.close().await;
    Ok(turns)
}

impl LedgerRuns {
    /// Adds the table and the goals; `cpu_ms` is what a photo takes.
    pub fn report(&self, report: &mut Report, cpu_ms: f64) {
        let columns = ["CPU s of the worker, by the kernel", "charged to photos, s", "share"];
        let mut table =
            Table::new("A worker alone, beside an API, and what its photos were charged", &columns);
        for run in &self.workers {
            table.add_row([
                format!("{:.2}", run.cpu.as_secs_f64()),
                format!("{:.2}", run.charged.as_secs_f64()),
                format!("{:.3}", run.share()),
            ]);
        }
        report.tables.push(table);
        let shares: Vec<f64> = self.workers.iter().map(WorkerRun::share).collect();
        report.goals.push(Goal::at_least(
            "charged to photos, of the CPU of a worker alone",
            median(&shares),
            LEAST_SHARE,
        ));
        let most = shares.iter().copied().fold(f64::NAN, f64::max);
        report.goals.push(Goal::at_most("and never more than it", most, 1.0));
        let writes: Vec<f64> = self.writes.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        let percent = median(&writes) / cpu_ms * 100.0;
        report.goals.push(Goal::at_most(
            "keeping the ledger, a batch of one photo, % of its CPU",
            percent,
            MOST_PERCENT,
        ));
        report.notes.push(format!(
            "Keeping the ledger: {WRITES} times what a batch of one photo cost was written by the statement that ends \
             attempts, on SQLite, in a transaction of its own, which attempts share with their results: {:.0} us of CPU each, \
             the median of {TURNS} turns. A batch has up to 64 photos.",
            median(&writes) * 1e3
        ));
    }
}

impl WorkerRun {
    fn share(&self) -> f64 {
        self.charged.as_secs_f64() / self.cpu.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_run_that_charges_too_much_misses_the_goal() {
        let run =
            |charged| WorkerRun { cpu: Duration::from_secs(100), charged: Duration::from_secs(charged) };
        let runs =
            LedgerRuns { workers: [97, 102, 98].map(run).into(), writes: vec![Duration::from_micros(50)] };
        let mut report = Report::new("test", "Test");
        runs.report(&mut report, 100.0);
        let [least, most, _] = &report.goals[..] else { panic!("{:?}", report.goals) };
        assert!(least.figure == 0.98 && least.is_met(), "{least:?}");
        assert!(most.figure == 1.02 && !most.is_met(), "{most:?}");
    }
}
