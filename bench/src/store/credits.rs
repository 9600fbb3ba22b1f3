//! What declining costs: rates with credits enforced beside those without, measured in pairs, so that a machine that becomes
//! slower does not count for one of them. Holds, charges and counts are written in both.

use super::backends::{Backend, BenchDatabase};
use super::setup::StoreOptions;
use super::{confirms, queue};
use crate::report::goals::Goal;
use crate::report::statistics::median;
use crate::report::{Report, Table};

/// The rate with credits enforced, as a share of that without.
const TARGET_SHARE: f64 = 0.95;

/// Adds the table of credits to the report.
pub async fn measure(
    options: &StoreOptions,
    backends: &[Backend],
    report: &mut Report,
) -> anyhow::Result<()> {
    let pairs = options.credit_pairs;
    let caption = format!("Photos per second with credits enforced and not, medians of {pairs} pairs");
    let columns = ["database", "what", "not enforced", "enforced", "share, median of pairs"];
    let mut table = Table::new(&caption, &columns);
    for backend in backends {
        for what in [Measured::Confirm, Measured::ConfirmToReady] {
            let (mut without, mut with, mut shares) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..pairs {
                // The order changes, so that being second counts for neither.
                let mut rates = [0.0; 2];
                for place in 0..2 {
                    let is_enforced = (pair + place) % 2 == 1;
                    let database =
                        backend.create_database(options.folder.as_deref())?.with_credits(is_enforced);
                    rates[usize::from(is_enforced)] = what.rate(options, database).await?;
                }
                without.push(rates[0]);
                with.push(rates[1]);
                shares.push(rates[1] / rates[0]);
            }
            let share = median(&shares);
            table.add_row([
                backend.name.to_owned(),
                what.name().to_owned(),
                format!("{:.0}", median(&without)),
                format!("{:.0}", median(&with)),
                format!("{share:.3}"),
            ]);
            let name = format!("rate with credits enforced, {}, {}", backend.name, what.name());
            report.goals.push(Goal::at_least(&name, (share * 1000.0).round() / 1000.0, TARGET_SHARE));
        }
    }
    report.tables.push(table);
    Ok(())
}

#[derive(Clone, Copy)]
enum Measured {
    Confirm,
    ConfirmToReady,
}

impl Measured {
    fn name(self) -> &'static str {
        match self {
            Self::Confirm => "confirm, one photo per call",
            Self::ConfirmToReady => "confirm to ready",
        }
    }

    async fn rate(self, options: &StoreOptions, database: BenchDatabase) -> anyhow::Result<f64> {
        match self {
            Self::Confirm => Ok(confirms::measure_database(options, database).await?.0),
            Self::ConfirmToReady => {
                let cost = queue::measure_database(options, &database).await?;
                Ok(options.queued as f64 / cost.seconds)
            }
        }
    }
}
