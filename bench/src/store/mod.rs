//! Measures the store alone, on SQLite and on a real Postgres that syncs to disk: confirmations, the work queue with
//! workers that do no work, and the face index of a very large album; and the first two with credits enforced and not.

pub mod backends;
mod confirms;
mod credits;
mod erasures;
mod faces;
pub mod queue;
pub mod setup;

use anyhow::Context as _;

use self::backends::Backend;
pub use self::setup::StoreOptions;
use crate::report::Report;

/// Runs the measurements.
///
/// # Errors
/// When a server is not installed or the store returns an error.
pub fn run(options: &StoreOptions) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    let mut report = Report::new("store", "The store by itself");
    let backends = Backend::start_all().context("no Postgres or no NATS: run `cargo xtask setup --all`")?;
    runtime.block_on(async {
        confirms::measure(options, &backends, &mut report).await?;
        queue::measure(options, &backends, &mut report).await?;
        faces::measure(options, &backends, &mut report).await
    })?;
    report.notes.push(
        "Postgres, NATS and their callers share this machine's cores; Postgres and SQLite sync each commit to disk. \
         The workers on SQLite share one open store, as in one process; those on Postgres have one each."
            .to_owned(),
    );
    report.notes.push(
        "CPU of the callers is measured by the process's clock, CPU of all by the machine's ticks, which miss short \
         work."
            .to_owned(),
    );
    Ok(report)
}

/// Measures what declining costs, in a section of its own: it takes as long as all the rest.
///
/// # Errors
/// When a server is not installed or the store returns an error.
pub fn run_credits(options: &StoreOptions) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    let mut report = Report::new("credits", "Rates with credits enforced beside those without");
    let backends = Backend::start_databases().context("no Postgres: run `cargo xtask setup --all`")?;
    runtime.block_on(credits::measure(options, &backends, &mut report))?;
    report.notes.push(
        "What photos cost is held, charged and counted in both; enforced, balances are read and photos that they do not \
         cover are declined. The measurements are those of `bench store`, on empty databases, one after the other."
            .to_owned(),
    );
    Ok(report)
}

/// Measures erasures in a large album, in a section of its own: filling the album takes minutes.
///
/// # Errors
/// When a server is not installed or the store returns an error.
pub fn run_erasures(options: &StoreOptions) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    let mut report = Report::new("erasures", "Erasures in a large album");
    let backends = Backend::start_databases().context("no Postgres: run `cargo xtask setup --all`")?;
    runtime.block_on(erasures::measure(options, &backends, &mut report))?;
    report.notes.push(
        "Rows, face indexes and the files of the database; the photos have no objects. The receipt of SQLite waits until the \
         write-ahead log is empty, that of Postgres for `vacuum` of four tables."
            .to_owned(),
    );
    Ok(report)
}
