//! `photofinish costs`: what processing the photos of an organization has cost.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use photofinish_api::context::CostPrices;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::cost::{CostQuery, CostRow};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::key::KeyMode;
use time::Date;

use super::credits::find_organization;
use super::key::ModeArgument;
use super::usage::{align, parse_day};
use crate::config::Config;
use crate::{run, store};

/// Rows of one report at most.
const MAX_ROWS: u32 = 1_000_000;

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// What to sum up.
#[derive(Args)]
pub struct CostsArguments {
    /// The organization
    #[arg(long)]
    organization: String,
    /// The first day (UTC), such as 2026-10-01
    #[arg(long, value_parser = parse_day)]
    from: Date,
    /// The last day
    #[arg(long, value_parser = parse_day)]
    to: Date,
    /// Only this album; also one that was deleted
    #[arg(long)]
    album: Option<uuid::Uuid>,
    /// What each row is of; several allowed
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["stage"])]
    by: Vec<CostKey>,
    /// Whose costs
    #[arg(long, value_enum, default_value = "live")]
    mode: ModeArgument,
    /// As comma-separated values
    #[arg(long)]
    csv: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CostKey {
    Stage,
    Day,
    Album,
}

/// Runs the command.
///
/// # Errors
/// When the database cannot be used, or there is no such organization.
pub fn run(config: &Config, arguments: &CostsArguments) -> anyhow::Result<ExitCode> {
    if arguments.to < arguments.from {
        bail!("--to must not be before --from");
    }
    let rows = run::block_on(load(config, arguments))??;
    for line in format_rows(arguments, &rows, config.settings.costs.cost_prices) {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn load(config: &Config, arguments: &CostsArguments) -> anyhow::Result<Vec<CostRow>> {
    let organizations = store::open_organizations(config).await?;
    let organization = find_organization(&organizations, &arguments.organization).await?;
    let tenant = Tenant { organization, mode: KeyMode::from(arguments.mode) };
    let query = CostQuery {
        from: arguments.from,
        to: arguments.to,
        album: arguments.album.map(AlbumId),
        by_day: arguments.by.contains(&CostKey::Day),
        by_album: arguments.by.contains(&CostKey::Album),
        by_stage: arguments.by.contains(&CostKey::Stage),
        photos_only: false,
        limit: MAX_ROWS,
    };
    Ok(organizations.costs.costs(&tenant, query).await?)
}

/// A line of names, and one for each row.
fn format_rows(arguments: &CostsArguments, rows: &[CostRow], prices: Option<CostPrices>) -> Vec<String> {
    let has = |key| arguments.by.contains(&key);
    let keys = |day: Option<String>, album: Option<String>, stage: Option<String>| {
        let mut cells = Vec::new();
        cells.extend(day.filter(|_| has(CostKey::Day)));
        cells.extend(album.filter(|_| has(CostKey::Album)));
        cells.extend(stage.filter(|_| has(CostKey::Stage)));
        cells
    };
    let name = |name: &str| Some(name.to_owned());
    let mut names = keys(name("day"), name("album"), name("stage"));
    names.extend(["photos", "cpu_s", "device_s", "read_bytes", "written_bytes"].map(str::to_owned));
    names.extend(prices.map(|_| "money".to_owned()));
    let mut table = vec![names];
    for row in rows {
        let day = row.day.map(|day| day.to_string());
        let mut line = keys(day, row.album.map(|album| album.to_string()), row.stage.clone());
        let (cpu, device) = (row.spent.cpu.as_secs_f64(), row.spent.device.as_secs_f64());
        line.extend([row.photos.to_string(), format!("{cpu:.3}"), format!("{device:.3}")]);
        line.extend([row.spent.bytes_read.to_string(), row.spent.bytes_written.to_string()]);
        let money = |prices: CostPrices| cpu / HOUR * prices.cpu_hour + device / HOUR * prices.device_hour;
        line.extend(prices.map(|prices| format!("{:.6}", money(prices))));
        table.push(line);
    }
    if arguments.csv { table.iter().map(|row| row.join(",")).collect() } else { align(&table) }
}
