//! `photofinish costs`: what processing the photos of an organization has cost.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use photofinish_api::context::CostPrices;
use photofinish_store::Organizations;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::cost::{CostQuery, CostRow, Spent, StoredObjects};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::key::KeyMode;
use time::Date;

use super::credits::find_organization;
use super::key::ModeArgument;
use super::usage::{align, parse_day};
use crate::config::Config;
use crate::{run, schema, store};

/// Rows of one report at most.
const MAX_ROWS: u32 = 1_000_000;

/// What to sum up.
#[derive(Args)]
pub struct CostsArguments {
    /// The organization; that of the album if missing
    #[arg(long, required_unless_present = "album")]
    organization: Option<String>,
    /// The first day (UTC), such as 2026-10-01; all that is kept if missing
    #[arg(long, value_parser = parse_day)]
    from: Option<Date>,
    /// The last day; today if missing
    #[arg(long, value_parser = parse_day)]
    to: Option<Date>,
    /// Only this album; with --organization also one that was deleted
    #[arg(long)]
    album: Option<uuid::Uuid>,
    /// What each row is of; several allowed
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["stage"])]
    by: Vec<CostKey>,
    /// Whose costs; without --organization those of the album
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
/// When the database cannot be used or is not up to date, or there is no such organization.
pub fn run(config: &Config, arguments: &CostsArguments) -> anyhow::Result<ExitCode> {
    if matches!((arguments.from, arguments.to), (Some(from), Some(to)) if to < from) {
        bail!("--to must not be before --from");
    }
    let (rows, stored) = run::block_on(load(config, arguments))??;
    let prices = config.settings.costs.cost_prices;
    for line in format_rows(arguments, &rows, prices) {
        println!("{line}");
    }
    if !arguments.csv {
        println!("{}", format_stored(stored, prices));
    }
    Ok(ExitCode::SUCCESS)
}

async fn load(config: &Config, arguments: &CostsArguments) -> anyhow::Result<(Vec<CostRow>, StoredObjects)> {
    schema::require_current(config).await?;
    let organizations = store::open_organizations(config).await?;
    let album = arguments.album.map(AlbumId);
    let tenant =
        find_tenant(&organizations, arguments.organization.as_deref(), album, arguments.mode).await?;
    let query = CostQuery {
        from: arguments.from.unwrap_or(CostQuery::FIRST_DAY),
        to: arguments.to.unwrap_or(CostQuery::LAST_DAY),
        album,
        by_day: arguments.by.contains(&CostKey::Day),
        by_album: arguments.by.contains(&CostKey::Album),
        by_stage: arguments.by.contains(&CostKey::Stage),
        photos_only: false,
        limit: MAX_ROWS,
    };
    let rows = organizations.costs.costs(&tenant, query).await?;
    Ok((rows, organizations.costs.stored(&tenant, album).await?))
}

/// The organization that is named, else the owner of the album.
async fn find_tenant(
    organizations: &Organizations,
    name: Option<&str>,
    album: Option<AlbumId>,
    mode: ModeArgument,
) -> anyhow::Result<Tenant> {
    match (name, album) {
        (Some(name), _) => {
            let organization = find_organization(organizations, name).await?;
            Ok(Tenant { organization, mode: KeyMode::from(mode) })
        }
        (None, Some(album)) => {
            let owner = organizations.costs.owner_of(album).await?;
            owner.with_context(|| {
                format!("there is no album {album}: for one that was deleted name its --organization")
            })
        }
        (None, None) => bail!("name an --organization or an --album"),
    }
}

/// What is stored now, in a line.
fn format_stored(stored: StoredObjects, prices: Option<CostPrices>) -> String {
    let StoredObjects { objects, bytes } = stored;
    let money = prices.map(|prices| format!(", {:.6} a month", prices.of_month(bytes)));
    format!("stored now: {objects} objects, {bytes} bytes{}", money.unwrap_or_default())
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
        let Spent { cpu, device, .. } = row.spent;
        let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
        line.extend([row.photos.to_string(), seconds(cpu), seconds(device)]);
        line.extend([row.spent.bytes_read.to_string(), row.spent.bytes_written.to_string()]);
        line.extend(prices.map(|prices| format!("{:.6}", prices.of_time(cpu, device))));
        table.push(line);
    }
    if arguments.csv { table.iter().map(|row| row.join(",")).collect() } else { align(&table) }
}
