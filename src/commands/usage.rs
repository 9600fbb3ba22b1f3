//! `photofinish usage`: what an organization used, for invoices.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::{Credits, UsageQuery, UsageRow};
use photofinish_store::model::key::KeyMode;
use time::Date;
use time::macros::format_description;

use super::credits::find_organization;
use super::key::ModeArgument;
use crate::config::Config;
use crate::{run, schema, store};

/// Rows of one report at most.
const MAX_ROWS: u32 = 1_000_000;

/// What to sum up.
#[derive(Args)]
pub struct UsageArguments {
    /// The organization
    #[arg(long)]
    organization: String,
    /// The first day (UTC), such as 2026-10-01
    #[arg(long, value_parser = parse_day)]
    from: Date,
    /// The last day
    #[arg(long, value_parser = parse_day)]
    to: Date,
    /// What each row is of; several allowed
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["day", "operation"])]
    by: Vec<UsageKey>,
    /// Whose usage
    #[arg(long, value_enum, default_value = "live")]
    mode: ModeArgument,
    /// As comma-separated values
    #[arg(long)]
    csv: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UsageKey {
    Day,
    Album,
    Operation,
}

pub(super) fn parse_day(text: &str) -> Result<Date, String> {
    Date::parse(text, format_description!("[year]-[month]-[day]"))
        .map_err(|_| "must be a day, such as 2026-10-01".to_owned())
}

/// Runs the command.
///
/// # Errors
/// When the database cannot be used or is not up to date, or there is no such organization.
pub fn run(config: &Config, arguments: &UsageArguments) -> anyhow::Result<ExitCode> {
    if arguments.to < arguments.from {
        bail!("--to must not be before --from");
    }
    let rows = run::block_on(load(config, arguments))??;
    for line in format_rows(arguments, &rows) {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn load(config: &Config, arguments: &UsageArguments) -> anyhow::Result<Vec<UsageRow>> {
    schema::require_current(config).await?;
    let organizations = store::open_organizations(config).await?;
    let organization = find_organization(&organizations, &arguments.organization).await?;
    let tenant = Tenant { organization, mode: KeyMode::from(arguments.mode) };
    let query = UsageQuery {
        from: arguments.from,
        to: arguments.to,
        by_day: arguments.by.contains(&UsageKey::Day),
        by_album: arguments.by.contains(&UsageKey::Album),
        by_operation: arguments.by.contains(&UsageKey::Operation),
        limit: MAX_ROWS,
    };
    Ok(organizations.credits.usage(&tenant, query).await?)
}

/// A line of names, one for each row, and without `--csv` one of the sums.
fn format_rows(arguments: &UsageArguments, rows: &[UsageRow]) -> Vec<String> {
    let has = |key| arguments.by.contains(&key);
    let cells = |day: Option<String>, album: Option<String>, operation: Option<String>| {
        let mut cells = Vec::new();
        cells.extend(day.filter(|_| has(UsageKey::Day)));
        cells.extend(album.filter(|_| has(UsageKey::Album)));
        cells.extend(operation.filter(|_| has(UsageKey::Operation)));
        cells
    };
    let named = |day: &str, album: &str, operation: &str, count: &str, credits: &str| {
        let mut row = cells(Some(day.to_owned()), Some(album.to_owned()), Some(operation.to_owned()));
        row.extend([count.to_owned(), credits.to_owned()]);
        row
    };
    let mut table = vec![named("day", "album", "operation", "count", "credits")];
    for row in rows {
        let mut line = cells(
            row.day.map(|day| day.to_string()),
            row.album.map(|album| album.to_string()),
            row.operation.clone(),
        );
        line.extend([row.count.to_string(), row.credits.to_string()]);
        table.push(line);
    }
    if arguments.csv {
        return table.iter().map(|row| row.join(",")).collect();
    }
    let count: u64 = rows.iter().map(|row| row.count).sum();
    let credits: Credits = rows.iter().map(|row| row.credits).sum();
    let mut sums = vec![String::new(); table[0].len() - 2];
    if let Some(first) = sums.first_mut() {
        "total".clone_into(first);
    }
    sums.extend([count.to_string(), credits.to_string()]);
    table.push(sums);
    align(&table)
}

pub(super) fn align(table: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    table.iter().map(line).collect()
}
