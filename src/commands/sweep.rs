//! `photofinish sweep`: collects garbage of the storage once. For a timer beside the roles `serve` and `work`; role `all`
//! does it by itself.

use std::process::ExitCode;

use photofinish_store::{GcOptions, GcReport};

use crate::config::Config;
use crate::store::ExistingStore;
use crate::{run, schema, secrets, store};

/// How to collect garbage.
#[derive(clap::Args)]
pub struct SweepArguments {
    /// Prints what would be removed; removes and creates nothing
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
        if arguments.dry_run { list_garbage(config, options).await } else { collect(config, options).await }
    })??;
    println!("{}", format_report(&report, arguments.dry_run));
    Ok(ExitCode::SUCCESS)
}

async fn collect(config: &Config, options: GcOptions) -> anyhow::Result<GcReport> {
    schema::require_created(config).await?;
    let store = store::open_store(config).await?;
    let report = store.collect_garbage(options).await?;
    store.close().await;
    Ok(report)
}

/// As [`collect`], on what is there already.
async fn list_garbage(config: &Config, options: GcOptions) -> anyhow::Result<GcReport> {
    schema::require_current(config).await?;
    let opened = store::open_existing(config, secrets::find(config)?.master).await?;
    let listed = list_garbage_of(&opened, options).await;
    opened.store.close().await;
    listed
}

async fn list_garbage_of(opened: &ExistingStore, options: GcOptions) -> anyhow::Result<GcReport> {
    opened.check_new_folder().await?;
    Ok(opened.store.collect_garbage(options).await?)
}

fn format_report(report: &GcReport, is_dry_run: bool) -> String {
    let GcReport { listed, removed, removed_bytes, unrecognised, finished_albums } = report;
    let removal = if is_dry_run { "would be removed" } else { "removed" };
    format!(
        "{listed} objects, {removed} of them without a use ({removed_bytes} bytes) {removal}, {unrecognised} of unknown \
         names left alone, {finished_albums} deletions of albums finished"
    )
}
