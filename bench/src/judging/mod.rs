//! What start lists cost: bytes of the lattices that are stored with texts, by real readings of the labelled photos, and the
//! time of judging photos again by lists of three sizes, on SQLite and on a real Postgres that syncs to disk.

mod readings;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_store::Store;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::photo::DetectedText;
use photofinish_store::model::process::Task;
use photofinish_store::model::start_list::{ImportMode, StartListEntry, StartListImport};
use photofinish_store::traits::{LeaseKind, LeaseRequest};

use self::readings::Readings;
use crate::paths::InputPaths;
use crate::photos::random::SplitMix;
use crate::process::own_cpu;
use crate::report::statistics::{median, to_milliseconds};
use crate::report::{OutputOptions, Report, Table};
use crate::store::backends::Backend;
use crate::store::queue::finish_with_faces;
use crate::store::setup::{create_album, insert_expected_photos};

/// Bibs of a list, as of a town's run, a large city's, and the most that an album may have.
const LIST_SIZES: [usize; 3] = [1000, 10_000, 100_000];

/// Photos per lease and transaction, as in the pipeline.
const LEASE_BATCH: usize = 64;
/// No lease expires during the measurement.
const LEASE_TTL: Duration = Duration::from_secs(3600);

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct JudgingOptions {
    /// Labelled photos that are read.
    #[arg(long, default_value_t = 159)]
    pub read: usize,
    /// Photos of the album, with the texts of those that were read in turn.
    #[arg(long, default_value_t = 2000)]
    pub photos: usize,
    /// Times that the album is judged by each list.
    #[arg(long, default_value_t = 3)]
    pub rounds: u64,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the measurement.
///
/// # Errors
/// When photos, networks or a server are missing, or the store returns an error.
pub fn run(options: &JudgingOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("judging", "What start lists cost: lattices, and judging photos again");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    // Before photos are read for minutes: a server that is missing ends the run at once.
    let backends = Backend::start_databases().context("no Postgres: run `cargo xtask setup --all`")?;
    let readings = Readings::of_labelled_photos(&options.paths, options.read)?;
    report.tables.push(readings.to_table());
    let caption = format!(
        "Judging {} photos with these texts, again by another list each time; median of {} rounds.",
        options.photos, options.rounds
    );
    let columns =
        ["database", "bibs on the list", "photos a second", "wall ms a photo", "CPU ms a photo", "changed"];
    let mut table = Table::new(&caption, &columns);
    for backend in &backends {
        runtime.block_on(measure(options, backend, &readings, &mut table))?;
    }
    report.tables.push(table);
    report.notes.push(
        "CPU is that of this process: Postgres has its own. `changed` is the part of the photos of which the list of the last \
         round made something else than the one before. A row without a list is what reading and writing alone take: every \
         text becomes what was read."
            .to_owned(),
    );
    Ok(report)
}

async fn measure(
    options: &JudgingOptions,
    backend: &Backend,
    readings: &Readings,
    table: &mut Table,
) -> anyhow::Result<()> {
    let opened = backend.create_database(None)?.into_open_store().await?;
    let fixture = create_album(&opened.store).await?;
    add_photos(&opened.store, &fixture, options.photos, &readings.photos).await?;
    for size in LIST_SIZES.map(Some).into_iter().chain([None]) {
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            change_list(&fixture, size, round, readings).await?;
            rounds.push(judge_all(&opened.store).await?);
            if size.is_none() {
                break;
            }
        }
        let of = |value: fn(&Round) -> f64| median(&rounds.iter().map(value).collect::<Vec<f64>>());
        let per_photo = |milliseconds: f64| format!("{:.3}", milliseconds / options.photos as f64);
        let changed = rounds.last().map_or(0, |round| round.changed) as f64 / options.photos as f64;
        table.add_row([
            backend.name.to_owned(),
            size.map_or_else(|| "no list".to_owned(), |size| size.to_string()),
            format!("{:.0}", options.photos as f64 / of(|round| round.wall.as_secs_f64())),
            per_photo(of(|round| to_milliseconds(round.wall))),
            per_photo(of(|round| to_milliseconds(round.cpu))),
            format!("{changed:.2}"),
        ]);
    }
    opened.store.close().await;
    drop(opened.folder);
    Ok(())
}

/// Adds ready photos with the texts of `photos` in turn.
async fn add_photos(
    store: &Store,
    fixture: &AlbumFixture,
    count: usize,
    photos: &[Vec<DetectedText>],
) -> anyhow::Result<()> {
    let inserted = insert_expected_photos(fixture, count).await;
    for batch in inserted.chunks(LEASE_BATCH) {
        store.queue.confirm(fixture.album, batch).await?;
    }
    let mut texts = photos.iter().cycle();
    loop {
        let request = LeaseRequest { limit: LEASE_BATCH, ttl: LEASE_TTL, kind: LeaseKind::Fresh };
        let leases = store.queue.lease(request).await?;
        if leases.is_empty() {
            return Ok(());
        }
        let mut results = Vec::with_capacity(leases.len());
        for lease in &leases {
            let mut finished = finish_with_faces(lease, Vec::new());
            finished.texts = texts.next().cloned().unwrap_or_default();
            results.push(finished);
        }
        store.queue.finish(results).await?;
    }
}

/// Imports a list of so many bibs, another one each round, or deletes the list.
async fn change_list(
    fixture: &AlbumFixture,
    size: Option<usize>,
    round: u64,
    readings: &Readings,
) -> anyhow::Result<()> {
    let lists = &fixture.store.start_lists;
    let Some(size) = size else { return Ok(lists.delete(fixture.album).await?) };
    let entries = draw_list(size, round, readings).into_iter().map(StartListEntry::of).collect();
    let (mode, imported_by) = (ImportMode::Replace, fixture.key.id);
    let import = StartListImport { mode, entries, imported_by, max_entries: size as u64 };
    lists.import(fixture.album, import).await?;
    Ok(())
}

/// Draws a list: nine tenths of the labelled bibs, and other numbers of up to five digits, or six for the largest.
fn draw_list(size: usize, round: u64, readings: &Readings) -> Vec<String> {
    let mut random = SplitMix(round);
    let mut bibs: Vec<String> =
        readings.labels.iter().filter(|_| random.uniform(0.0, 1.0) < 0.9).cloned().collect();
    let mut known: std::collections::HashSet<String> = bibs.iter().cloned().collect();
    while bibs.len() < size {
        let number = (random.next() % (4 * size as u64).max(50_000) + 1).to_string();
        if known.insert(number.clone()) {
            bibs.push(number);
        }
    }
    bibs.truncate(size);
    bibs
}

/// What judging all photos took.
struct Round {
    wall: Duration,
    cpu: Duration,
    changed: u64,
}

async fn judge_all(store: &Store) -> anyhow::Result<Round> {
    let lease = store.tasks.take(Task::Judging, ProcessId::generate(), LEASE_TTL).await?;
    let lease = lease.context("another process judges")?;
    let (start, cpu) = (Instant::now(), own_cpu());
    let mut changed = 0;
    while store.judging.is_due().await? {
        changed += store.judging.judge(lease).await?.changed;
    }
    let round = Round { wall: start.elapsed(), cpu: own_cpu().saturating_sub(cpu), changed };
    store.tasks.release(lease).await?;
    Ok(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_size_and_most_of_the_runners_and_another_one_each_round() {
        let labels: Vec<String> = (0..100).map(|number| format!("A{number}")).collect();
        let readings = Readings { photos: Vec::new(), labels: labels.clone() };
        let lists: Vec<Vec<String>> = (0..2).map(|round| draw_list(1000, round, &readings)).collect();
        for list in &lists {
            let runners = labels.iter().filter(|label| list.contains(label)).count();
            assert!(list.len() == 1000 && (80..100).contains(&runners), "{runners}");
        }
        assert_ne!(lists[0], lists[1]);
    }
}
