//! The soak's table: a line a fault, over all its turns.

use std::time::Duration;

use photofinish_bench::report::{Report, Table};
use photofinish_bench::statistics::median;
use photofinish_soak::faults::Fault;
use photofinish_soak::run::Outcome;

/// What came of one fault in all its turns.
pub struct Line {
    fault: &'static Fault,
    turns: usize,
    struck: usize,
    photos: usize,
    /// Lost, doubled, orphaned, wrong answers, anything else.
    wrong: [usize; 5],
    next: Vec<f64>,
    all: Vec<f64>,
}

impl Line {
    /// Before its first turn.
    pub fn new(fault: &'static Fault) -> Self {
        Self { fault, turns: 0, struck: 0, photos: 0, wrong: [0; 5], next: Vec::new(), all: Vec::new() }
    }

    /// Whose line it is.
    pub fn fault(&self) -> &'static Fault {
        self.fault
    }

    /// Adds a turn.
    pub fn add(&mut self, outcome: &Outcome) {
        let account = &outcome.account;
        self.turns += 1;
        self.struck += outcome.struck;
        self.photos += account.photos;
        let wrong = [&account.lost, &account.doubled, &account.orphaned, &account.different, &account.amiss];
        for (sum, wrong) in self.wrong.iter_mut().zip(wrong) {
            *sum += wrong.len();
        }
        self.next.extend(outcome.next.map(|next| next.as_secs_f64()));
        self.all.push(outcome.all.as_secs_f64());
    }

    /// How many processes were ended without warning.
    pub fn kills(&self) -> usize {
        if self.fault.unit == "kills" || self.fault.unit == "deaths" { self.struck } else { 0 }
    }

    fn cells(&self) -> Vec<String> {
        let [lost, doubled, orphaned, different, _] = self.wrong;
        let mut cells = vec![
            self.fault.what.to_owned(),
            format!("{} {}", self.struck, self.fault.unit),
            self.photos.to_string(),
        ];
        cells.extend([lost, doubled, orphaned, different].map(|count| count.to_string()));
        cells.extend([middle_and_most(&self.next), middle_and_most(&self.all)]);
        cells
    }
}

/// What a run of turns is reported as.
pub fn report(lines: &[Line], photos: usize, (took, failures): (Duration, usize)) -> Report {
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
    for line in lines.iter().filter(|line| line.turns > 0) {
        table.row(line.cells());
    }
    report.tables.push(table);
    let turns: usize = lines.iter().map(|line| line.turns).sum();
    let kills: usize = lines.iter().map(Line::kills).sum();
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
    report.notes.extend(built_how());
    report
}

/// Times of a build that is not the shipped one say so.
pub fn built_how() -> Option<String> {
    cfg!(debug_assertions).then(|| "Built without optimisation: a release build is faster.".to_owned())
}

fn middle_and_most(seconds: &[f64]) -> String {
    let most = seconds.iter().copied().fold(f64::NAN, f64::max);
    if seconds.is_empty() { "none".to_owned() } else { format!("{:.1}, {most:.1}", median(seconds)) }
}
