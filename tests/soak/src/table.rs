//! The soak's table: a line a fault, over all its turns.

use std::time::Duration;

use photofinish_bench::report::statistics::median;
use photofinish_bench::report::{Report, Table};
use photofinish_soak::faults::Fault;
use photofinish_soak::run::RunOutcome;

/// What came of one fault in all its turns.
pub struct FaultRow {
    fault: &'static Fault,
    rounds: usize,
    strikes: usize,
    confirmed_photos: usize,
    /// Lost, doubled, orphaned, wrong answers, anything else.
    problem_counts: [usize; 5],
    seconds_to_next: Vec<f64>,
    seconds_to_all: Vec<f64>,
}

impl FaultRow {
    /// Before its first turn.
    pub fn new(fault: &'static Fault) -> Self {
        Self {
            fault,
            rounds: 0,
            strikes: 0,
            confirmed_photos: 0,
            problem_counts: [0; 5],
            seconds_to_next: Vec::new(),
            seconds_to_all: Vec::new(),
        }
    }

    /// Whose line it is.
    pub fn fault(&self) -> &'static Fault {
        self.fault
    }

    /// Adds a turn.
    pub fn add_round(&mut self, outcome: &RunOutcome) {
        let account = &outcome.audit;
        self.rounds += 1;
        self.strikes += outcome.strikes;
        self.confirmed_photos += account.confirmed;
        let wrong =
            [&account.lost, &account.duplicated, &account.orphaned, &account.wrong_searches, &account.other];
        for (sum, wrong) in self.problem_counts.iter_mut().zip(wrong) {
            *sum += wrong.len();
        }
        self.seconds_to_next.extend(outcome.time_to_next.map(|next| next.as_secs_f64()));
        self.seconds_to_all.push(outcome.time_to_all.as_secs_f64());
    }

    /// How many processes were ended without warning.
    pub fn kills(&self) -> usize {
        if self.fault.unit == "kills" || self.fault.unit == "deaths" { self.strikes } else { 0 }
    }

    fn cells(&self) -> Vec<String> {
        let [lost, doubled, orphaned, different, _] = self.problem_counts;
        let mut cells = vec![
            self.fault.description.to_owned(),
            format!("{} {}", self.strikes, self.fault.unit),
            self.confirmed_photos.to_string(),
        ];
        cells.extend([lost, doubled, orphaned, different].map(|count| count.to_string()));
        cells.extend([
            format_median_and_max(&self.seconds_to_next),
            format_median_and_max(&self.seconds_to_all),
        ]);
        cells
    }
}

/// What a run of turns is reported as.
pub fn build_report(lines: &[FaultRow], photos: usize, (took, failures): (Duration, usize)) -> Report {
    let mut report = Report::new("soak", "Faults in the cluster profile: nothing lost, nothing doubled");
    let columns = [
        "fault",
        "struck",
        "photos",
        "lost",
        "doubled",
        "orphaned",
        "wrong searches",
        "next photo after, s",
        "all after, s",
    ];
    let mut table = Table::new("", &columns);
    for line in lines.iter().filter(|line| line.rounds > 0) {
        table.add_row(line.cells());
    }
    report.tables.push(table);
    let turns: usize = lines.iter().map(|line| line.rounds).sum();
    let kills: usize = lines.iter().map(FaultRow::kills).sum();
    report.notes.push(format!(
        "{turns} turns of {photos} photos in {:.0} minutes, {kills} processes killed, {failures} turns that went wrong. \
         Two APIs behind a proxy, two workers whose networks are fakes that take 150 ms a photo, leases of 4 s; each fault \
         strikes while photos are sent and read.",
        took.as_secs_f64() / 60.0
    ));
    report.notes.push(
        "Times are from the end of the fault, median and most over the turns: until the next photo is ready or failed, and \
         until all are. The last third of the photos is sent only then, but for what a fault asks for. A turn is accounted for by every photo's state, \
         faces and texts, every bib's and person's search from both APIs compared with an undisturbed run, every object \
         of storage, and the queue's messages."
            .to_owned(),
    );
    report.notes.extend(describe_build());
    report
}

/// Times of a build that is not the shipped one say so.
pub fn describe_build() -> Option<String> {
    cfg!(debug_assertions).then(|| "Built without optimisation: a release build is faster.".to_owned())
}

fn format_median_and_max(seconds: &[f64]) -> String {
    let most = seconds.iter().copied().fold(f64::NAN, f64::max);
    if seconds.is_empty() { "none".to_owned() } else { format!("{:.1}, {most:.1}", median(seconds)) }
}
