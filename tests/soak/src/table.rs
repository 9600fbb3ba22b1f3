//! The report of a soak: a row for each fault, over all its rounds.

use std::time::Duration;

use photofinish_bench::report::statistics::median;
use photofinish_bench::report::{Report, Table};
use photofinish_soak::faults::{FAULTS, Fault};
use photofinish_soak::run::RunOutcome;

/// The section of the results page.
pub const SECTION: &str = "soak";

/// The columns of a row that count what was lost, duplicated, orphaned and found wrongly.
const PROBLEM_COLUMNS: std::ops::Range<usize> = 6..10;

/// The results of one fault over all its rounds.
pub struct FaultRow {
    fault: &'static Fault,
    rounds: usize,
    strikes: usize,
    confirmed_photos: usize,
    told_photos: usize,
    repeated_webhooks: usize,
    charged: u64,
    /// Lost, duplicated, orphaned, wrong searches, other.
    problem_counts: [usize; 5],
    seconds_to_next: Vec<f64>,
    seconds_to_all: Vec<f64>,
}

impl FaultRow {
    /// An empty row.
    pub fn new(fault: &'static Fault) -> Self {
        Self {
            fault,
            rounds: 0,
            strikes: 0,
            confirmed_photos: 0,
            told_photos: 0,
            repeated_webhooks: 0,
            charged: 0,
            problem_counts: [0; 5],
            seconds_to_next: Vec::new(),
            seconds_to_all: Vec::new(),
        }
    }

    /// Its fault.
    pub fn fault(&self) -> &'static Fault {
        self.fault
    }

    /// Adds the result of a round.
    pub fn add_round(&mut self, outcome: &RunOutcome) {
        let audit = &outcome.audit;
        self.rounds += 1;
        self.strikes += outcome.strikes;
        self.confirmed_photos += audit.confirmed;
        self.told_photos += audit.told;
        self.repeated_webhooks += audit.repeated;
        self.charged += audit.charged;
        let wrong = [&audit.lost, &audit.duplicated, &audit.orphaned, &audit.wrong_searches, &audit.other];
        for (sum, wrong) in self.problem_counts.iter_mut().zip(wrong) {
            *sum += wrong.len();
        }
        self.seconds_to_next.extend(outcome.time_to_next.map(|next| next.as_secs_f64()));
        self.seconds_to_all.push(outcome.time_to_all.as_secs_f64());
    }

    /// How many processes were killed or crashed.
    pub fn kills(&self) -> usize {
        if self.fault.unit == "kills" || self.fault.unit == "deaths" { self.strikes } else { 0 }
    }

    fn cells(&self) -> Vec<String> {
        let [lost, doubled, orphaned, different, _] = self.problem_counts;
        let mut cells = vec![
            self.fault.description.to_owned(),
            format!("{} {}", self.strikes, self.fault.unit),
            self.confirmed_photos.to_string(),
            self.told_photos.to_string(),
            self.charged.to_string(),
            self.repeated_webhooks.to_string(),
        ];
        cells.extend([lost, doubled, orphaned, different].map(|count| count.to_string()));
        cells.extend([
            format_median_and_max(&self.seconds_to_next),
            format_median_and_max(&self.seconds_to_all),
        ]);
        cells
    }
}

/// Builds the report of a soak with so many photos a round.
pub fn build_report(rows: &[FaultRow], photos: usize, took: Duration, failures: usize) -> Report {
    let mut report = Report::new(SECTION, "Faults in the cluster profile: nothing lost, nothing duplicated");
    let columns = [
        "fault",
        "struck",
        "photos",
        "told",
        "charged",
        "webhooks again",
        "lost",
        "duplicated",
        "orphaned",
        "wrong searches",
        "next photo after, s",
        "all after, s",
    ];
    let mut table = Table::new("", &columns);
    for row in rows.iter().filter(|row| row.rounds > 0) {
        table.add_row(row.cells());
    }
    report.tables.push(table);
    let rounds: usize = rows.iter().map(|row| row.rounds).sum();
    let kills: usize = rows.iter().map(FaultRow::kills).sum();
    report.notes.push(format!(
        "{rounds} rounds of {photos} photos in {:.0} minutes, {kills} processes killed, {failures} rounds failed. \
         Two APIs behind a load balancer, two workers whose models are fakes that take 150 ms a photo, leases of 4 s; each \
         fault strikes while photos are uploaded and read.",
        took.as_secs_f64() / 60.0
    ));
    report.notes.push(
        "Times are from the end of the fault, median and maximum over the rounds: until the next photo is ready or failed, and \
         until all are. The last third of the photos is uploaded only then, except what a fault releases. A round is \
         audited by every photo's state, faces and texts, every bib's and person's search through both APIs compared \
         with an undisturbed run, every object of storage, and the messages of the queue. Each photo that is ready or failed \
         must be in one event (by its id) of a webhook that the partner accepted, who refuses every seventh; each that is \
         ready is charged one credit, failed ones none; then nothing may be held, and what was spent must be the sum of \
         what was used. An event may be delivered again, with the same id and body: the column counts how often it was."
            .to_owned(),
    );
    report.notes.extend(describe_build());
    report
}

/// Whether a published row counts no photo or search that was wrong.
pub fn is_clean(row: &[String]) -> bool {
    row.get(PROBLEM_COLUMNS).is_some_and(|counts| counts.iter().all(|count| count == "0"))
}

/// Keeps the rows of a table that is published, of faults that this run did not select, in the order of the faults.
pub fn keep_published(report: &mut Report, published: Vec<Vec<String>>) {
    let Some(table) = report.tables.first_mut().filter(|_| !published.is_empty()) else { return };
    let kept = published.len();
    table.rows.extend(published);
    table.rows.sort_by_key(|row| FAULTS.iter().position(|fault| fault.description == row[0]));
    report.notes.push(format!(
        "{kept} of the rows are of earlier runs with the same accounting; the counts above are of the last one."
    ));
}

/// A note for a build that is not the shipped one.
pub fn describe_build() -> Option<String> {
    cfg!(debug_assertions).then(|| "Built without optimisation: a release build is faster.".to_owned())
}

fn format_median_and_max(seconds: &[f64]) -> String {
    let max = seconds.iter().copied().fold(f64::NAN, f64::max);
    if seconds.is_empty() { "none".to_owned() } else { format!("{:.1}, {max:.1}", median(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fault: &Fault, lost: &str) -> Vec<String> {
        let cells = [
            fault.description,
            "1 kills",
            "96",
            "96",
            "88",
            "0",
            lost,
            "0",
            "0",
            "0",
            "0.1, 0.1",
            "4.8, 4.8",
        ];
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn rows_of_earlier_runs_stay_in_their_places() {
        let [first, second, ..] = FAULTS;
        assert!(is_clean(&row(first, "0")) && !is_clean(&row(first, "2")));
        let mut report = build_report(&[], 96, Duration::ZERO, 0);
        report.tables[0].rows.push(row(second, "0"));
        let notes = report.notes.len();
        keep_published(&mut report, Vec::new());
        assert_eq!((report.tables[0].rows.len(), report.notes.len()), (1, notes));
        keep_published(&mut report, vec![row(first, "0")]);
        assert_eq!(report.tables[0].rows, [row(first, "0"), row(second, "0")]);
        assert_eq!(report.notes.len(), notes + 1);
    }
}
