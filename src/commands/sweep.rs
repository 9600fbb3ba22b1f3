//! `photofinish sweep`: removes bytes that no row needs, once. For a timer beside the service; role `all` has its own.

use std::process::ExitCode;

use photofinish_store::{GcOptions, GcReport};

use crate::config::Config;
use crate::run;

/// What to sweep.
#[derive(clap::Args)]
pub struct SweepArguments {
    /// Says what would go and removes nothing
    #[arg(long)]
    dry_run: bool,
}

/// Sweeps and prints what came of it.
///
/// # Errors
/// When the store cannot be opened, or does not answer.
pub fn run(config: &Config, arguments: &SweepArguments) -> anyhow::Result<ExitCode> {
    let terms = GcOptions { min_age: config.gc.min_age, is_dry_run: arguments.dry_run };
    let swept = run::block_on(async {
        let store = run::open_store(config).await?;
        let swept = store.collect_garbage(terms).await?;
        store.close().await;
        anyhow::Ok(swept)
    })??;
    println!("{}", format_report(&swept, arguments.dry_run));
    Ok(ExitCode::SUCCESS)
}

fn format_report(swept: &GcReport, is_dry: bool) -> String {
    let GcReport { listed, removed, removed_bytes: bytes, unrecognised: strange, finished_albums: albums } =
        swept;
    let would = if is_dry { "would be removed" } else { "removed" };
    format!(
        "{listed} objects, {removed} of them without a use ({bytes} bytes) {would}, {strange} of unknown names left alone, \
         {albums} deletions of albums finished"
    )
}
