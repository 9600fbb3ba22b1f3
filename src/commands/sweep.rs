//! `photofinish sweep`: collects garbage of the storage once. For a timer beside the roles `serve` and `work`; role `all`
//! does it by itself.

use std::process::ExitCode;

use photofinish_store::{GcOptions, GcReport};

use crate::config::Config;
use crate::{run, schema, store};

/// How to collect garbage.
#[derive(clap::Args)]
pub struct SweepArguments {
    /// Prints what would be removed and removes nothing
    #[arg(long)]
    dry_run: bool,
}

/// Collects garbage once and prints the report.
///
/// # Errors
/// When the store cannot be opened, or fails during the run.
pub fn run(config: &Config, arguments: &SweepArguments) -> anyhow::Result<ExitCode> {
    let options = GcOptions { min_age: config.settings.gc.min_age, is_dry_run: arguments.dry_run };
    let report = run::block_on(async {
        if arguments.dry_run {
            schema::require_current(config).await?;
        }
        let store = store::open_store(config).await?;
        let report = store.collect_garbage(options).await?;
        store.close().await;
        anyhow::Ok(report)
    })??;
    println!("{}", format_report(&report, arguments.dry_run));
    Ok(ExitCode::SUCCESS)
}

fn format_report(report: &GcReport, is_dry_run: bool) -> String {
    let GcReport { listed, removed, removed_bytes, unrecognised, finished_albums } = report;
    let removal = if is_dry_run { "would be removed" } else { "removed" };
    format!(
        "{listed} objects, {removed} of them without a use ({removed_bytes} bytes) {removal}, {unrecognised} of unknown \
         names left alone, {finished_albums} deletions of albums finished"
    )
}
