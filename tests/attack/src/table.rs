//! The report of the attacks: a row for each class.

use std::time::Duration;

use photofinish_attack::classes::find_class;
use photofinish_attack::normal::ServiceLevel;
use photofinish_attack::run::{ClassOutcome, Isolation, MEMORY_TOLERANCE_BYTES, MemoryUse, QUIET_TIME};
use photofinish_bench::report::goals::Goal;
use photofinish_bench::report::{Report, Table};

/// The most that an attack may multiply the normal client's 99th percentile by.
const MAX_SLOWDOWN: f64 = 3.0;

/// The most that an attack may multiply the normal client's longest wait for a photo by.
const MAX_PHOTO_DELAY: f64 = 2.0;
/// The class in which photos wait for other photos.
const PHOTO_CLASS: &str = "bombs";
/// Calls of which a 99th percentile says more than the longest.
const ENOUGH_CALLS: usize = 100;
const P99: f64 = 0.99;

/// Builds the report.
pub fn build_report(outcomes: &[ClassOutcome], took: Duration, seed: u64) -> Report {
    let mut report = Report::new("attack", "Attacks, and a normal client beside them");
    let columns = [
        "class",
        "tried",
        "wrong",
        "5xx",
        "unexpected",
        "envelope breaks",
        "panics",
        "memory before, peak, after, MB",
        "CPU of service and clients, s",
        "normal client's p50, quiet and beside, ms",
        "p99",
        "times",
        "its photo ready after, s: median, longest; quiet and beside",
    ];
    let mut table = Table::new("", &columns);
    let caption = "The normal client by operation, quiet and beside: calls, and percentiles in ms. Of fewer than 100 calls the \
                   95th percentile is compared, and marked so: the 99th would be the longest of all, one call's luck.";
    let columns = ["class", "operation", "calls", "p50", "p99 or p95", "times"];
    let mut operations = Table::new(caption, &columns);
    for outcome in outcomes {
        table.add_row(cells(outcome));
        add_operations(&mut operations, outcome);
        report.details.extend(details(outcome));
    }
    report.tables.extend([table, operations]);
    let mut large = Table::new("Large albums.", &["measured", "result"]);
    for figure in outcomes.iter().flat_map(|outcome| &outcome.counts.figures) {
        large.add_row([figure.what.clone(), figure.value.clone()]);
    }
    if !large.rows.is_empty() {
        report.tables.push(large);
    }
    report.goals = goals(outcomes);
    report.notes.push(format!(
        "{} classes in {:.1} minutes, seed {seed}. Each attacks a service of its own, after {} quiet seconds. Memory is resident; \
         after an attack it has 25 s to come back. Where the service is restarted, it is that of the first process before and of \
         the last one after, and no goal.",
        outcomes.len(),
        took.as_secs_f64() / 60.0,
        QUIET_TIME.as_secs()
    ));
    report.notes.push(
        "The normal client is another organization's: `albums/get` and a bib search every 50 ms, every fourth time a selfie \
         search with its upload, and one photo after the other, of which the longest wait is shown. Each of its calls that \
         fails is wrong, and so is a search that misses what is there and a photo that does not become ready."
            .to_owned(),
    );
    report.notes.push(
        "Attackers, service and normal client share the cores of one machine. The attackers have the lowest priority (nice 19), \
         so that what is measured is what the service does to the normal client, not what their own work does."
            .to_owned(),
    );
    for outcome in outcomes {
        let Some(class) = find_class(outcome.name) else { continue };
        let seconds = outcome.took.as_secs_f64();
        report.notes.push(format!("{} ({seconds:.0} s): {}.", class.name, class.description));
    }
    report
}

fn cells(outcome: &ClassOutcome) -> Vec<String> {
    let counts = &outcome.counts;
    let mut cells = vec![outcome.name.to_owned()];
    let numbers = [
        counts.tried,
        counts.wrong.count,
        counts.server_errors,
        counts.unexpected_errors.count,
        counts.envelope_breaks.count,
        outcome.panics,
    ];
    cells.extend(numbers.map(|number| number.to_string()));
    cells.push(outcome.memory.map_or("unknown".to_owned(), |memory| {
        let restarted = if is_restarted(outcome) { " (restarted)" } else { "" };
        [memory.before, memory.peak, memory.after].map(megabytes).join(", ") + restarted
    }));
    cells.push(outcome.cpu.map_or(String::new(), |cpu| {
        format!("{:.0}, {:.0}", cpu.service.as_secs_f64(), cpu.clients.as_secs_f64())
    }));
    match &outcome.isolation {
        Some(isolation) => {
            let Isolation { quiet, beside } = isolation;
            cells.push(format!("{:.1}, {:.1}", quiet.p50_ms(None), beside.p50_ms(None)));
            cells.push(format!("{:.1}, {:.1}", quiet.p99_ms(None), beside.p99_ms(None)));
            cells.push(format!("{:.1}", slowdown(isolation)));
            let waits = |level: &ServiceLevel| {
                format!("{:.2}, {:.2}", level.median_photo_wait(), level.longest_photo_wait())
            };
            cells.push(format!("{}; {}", waits(quiet), waits(beside)));
        }
        None => cells.extend(["stopped", "", "", ""].map(str::to_owned)),
    }
    cells
}

fn add_operations(table: &mut Table, outcome: &ClassOutcome) {
    let Some(isolation) = &outcome.isolation else { return };
    let Isolation { quiet, beside } = isolation;
    for operation in beside.operations() {
        let calls = |level: &ServiceLevel| level.count(operation);
        let fraction = compared_fraction(isolation, operation);
        let [before, during] = tails(isolation, operation);
        let mark = if fraction < P99 { " (p95)" } else { "" };
        table.add_row([
            outcome.name.to_owned(),
            operation.to_owned(),
            format!("{}, {}", calls(quiet), calls(beside)),
            format!("{:.1}, {:.1}", quiet.p50_ms(Some(operation)), beside.p50_ms(Some(operation))),
            format!("{before:.1}, {during:.1}{mark}"),
            format!("{:.1}", during / before),
        ]);
    }
}

/// Whether the class stops and starts the service, so that no client works beside it.
fn is_restarted(outcome: &ClassOutcome) -> bool {
    outcome.isolation.is_none()
}

/// The percentile of an operation that is compared.
fn compared_fraction(Isolation { quiet, beside }: &Isolation, operation: &str) -> f64 {
    let calls = quiet.count(operation).min(beside.count(operation));
    if calls < ENOUGH_CALLS { 0.95 } else { P99 }
}

/// That percentile, quiet and beside, ms.
fn tails(isolation: &Isolation, operation: &str) -> [f64; 2] {
    let fraction = compared_fraction(isolation, operation);
    [&isolation.quiet, &isolation.beside].map(|level| level.percentile_ms(Some(operation), fraction))
}

fn megabytes(bytes: u64) -> String {
    if bytes == u64::MAX { "unknown".to_owned() } else { (bytes >> 20).to_string() }
}

fn slowdown(isolation: &Isolation) -> f64 {
    isolation.beside.p99_ms(None) / isolation.quiet.p99_ms(None)
}

/// The slowdown of the operation that suffered most. A pooled percentile hides an operation that is rare.
fn worst_slowdown(isolation: &Isolation) -> f64 {
    let slowdown = |operation| {
        let [quiet, beside] = tails(isolation, operation);
        beside / quiet
    };
    isolation.beside.operations().into_iter().map(slowdown).fold(f64::NAN, f64::max)
}

fn photo_delay(Isolation { quiet, beside }: &Isolation) -> f64 {
    beside.longest_photo_wait() / quiet.longest_photo_wait()
}

/// Megabytes that stayed.
fn growth(memory: MemoryUse) -> f64 {
    memory.after.saturating_sub(memory.before) as f64 / f64::from(1 << 20)
}

fn goals(outcomes: &[ClassOutcome]) -> Vec<Goal> {
    let sum = |number: fn(&ClassOutcome) -> usize| outcomes.iter().map(number).sum::<usize>() as f64;
    // Not a number where a class has no such figure, which the maximum ignores.
    let max = |figure: &dyn Fn(&ClassOutcome) -> f64| outcomes.iter().map(figure).fold(f64::NAN, f64::max);
    let mut goals = vec![
        Goal::at_most("wrong", sum(|outcome| outcome.counts.wrong.count), 0.0),
        Goal::at_most("unexpected 5xx", sum(|outcome| outcome.counts.unexpected_errors.count), 0.0),
        Goal::at_most("envelope breaks", sum(|outcome| outcome.counts.envelope_breaks.count), 0.0),
        Goal::at_most("panics", sum(|outcome| outcome.panics), 0.0),
    ];
    let max_of =
        |figure: fn(&Isolation) -> f64| max(&|outcome| outcome.isolation.as_ref().map_or(f64::NAN, figure));
    let slowest = max_of(slowdown).max(max(&|outcome| outcome.counts.slowdown.unwrap_or(f64::NAN)));
    // Of two processes the difference is no growth.
    let grown = max(&|outcome| outcome.memory.filter(|_| !is_restarted(outcome)).map_or(f64::NAN, growth));
    if !slowest.is_nan() {
        goals.push(Goal::at_most(
            "normal client's p99 of all calls, times its quiet value",
            slowest,
            MAX_SLOWDOWN,
        ));
        let worst = max_of(worst_slowdown);
        goals.push(Goal::at_most(
            "normal client's p99 of its slowest operation (p95 of fewer than 100 calls), times",
            worst,
            MAX_SLOWDOWN,
        ));
        // Photos wait for other photos; what waits for requests is one of the client's calls like any other.
        let beside_photos = outcomes.iter().find(|outcome| outcome.name == PHOTO_CLASS);
        if let Some(isolation) = beside_photos.and_then(|outcome| outcome.isolation.as_ref()) {
            let delay = photo_delay(isolation);
            let what =
                "normal client's longest wait for a photo beside large photos of others (bombs), times";
            goals.push(Goal::at_most(what, delay, MAX_PHOTO_DELAY));
        }
        let what = "normal client's longest wait for a photo in any class, times";
        goals.push(Goal::at_most(what, max_of(photo_delay), MAX_SLOWDOWN));
    }
    if !grown.is_nan() {
        let tolerance = (MEMORY_TOLERANCE_BYTES >> 20) as f64;
        goals.push(Goal::at_most("memory that stayed, MB", grown, tolerance));
    }
    goals
}

/// What is printed and not written into the page: the waits for each photo, and notes.
fn details(outcome: &ClassOutcome) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Isolation { quiet, beside }) = &outcome.isolation {
        let waits = [&quiet.photo_waits, &beside.photo_waits];
        let [quiet, beside] = waits.map(|waits| {
            waits.iter().map(|wait| format!("{:.2}", wait.as_secs_f64())).collect::<Vec<_>>().join(" ")
        });
        lines.push(format!("{}: photos ready after {quiet} s quiet, {beside} s beside", outcome.name));
    }
    lines.extend(outcome.counts.notes.iter().map(|note| format!("{}: {note}", outcome.name)));
    lines
}

#[cfg(test)]
mod tests {
    use photofinish_attack::findings::Findings;
    use photofinish_attack::normal::TimedCall;

    use super::*;

    fn outcome(beside_ms: u64, after_mb: u64) -> ClassOutcome {
        let level = |ms| {
            let call = TimedCall { operation: "albums/get", took: Duration::from_millis(ms) };
            ServiceLevel { calls: vec![call], ..ServiceLevel::default() }
        };
        let memory = MemoryUse { before: 100 << 20, peak: 300 << 20, after: after_mb << 20 };
        ClassOutcome {
            name: "urls",
            counts: Findings::default().into_counts(),
            panics: 0,
            memory: Some(memory),
            cpu: None,
            isolation: Some(Isolation { quiet: level(10), beside: level(beside_ms) }),
            took: Duration::from_secs(1),
        }
    }

    #[test]
    fn figures_above_the_targets_are_shown_as_missed_goals() {
        let met = |beside_ms, after_mb| {
            let report = build_report(&[outcome(beside_ms, after_mb)], Duration::from_secs(1), 1);
            report.goals.iter().map(Goal::is_met).collect::<Vec<_>>()
        };
        // Without a photo there is no wait, and a missing figure is a missed goal.
        assert_eq!(met(30, 149), [true, true, true, true, true, true, false, true]);
        assert_eq!(met(31, 151), [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn a_class_that_stops_the_service_shows_its_memory_and_has_no_goal_for_it() {
        let stopped = ClassOutcome { isolation: None, ..outcome(10, 200) };
        let report = build_report(&[stopped], Duration::from_secs(1), 1);
        assert_eq!(report.goals.len(), 4);
        let table = &report.tables[0];
        assert_eq!(table.rows[0].len(), table.columns.len());
        assert!(table.rows[0].iter().any(|cell| cell == "100, 300, 200 (restarted)"), "{:?}", table.rows);
    }

    #[test]
    fn a_percentile_of_few_calls_is_marked_and_is_the_one_that_is_compared() {
        let level = |count: usize, slowest_ms| {
            let call = |ms| TimedCall { operation: "upload", took: Duration::from_millis(ms) };
            let mut calls = vec![call(10); count - 2];
            calls.extend([call(slowest_ms); 2]);
            ServiceLevel { calls, ..ServiceLevel::default() }
        };
        let cells = |count| {
            let isolation = Isolation { quiet: level(count, 10), beside: level(count, 100) };
            let worst = worst_slowdown(&isolation);
            let outcome = ClassOutcome { isolation: Some(isolation), ..outcome(10, 100) };
            let report = build_report(&[outcome], Duration::from_secs(1), 1);
            (report.tables[1].rows[0][4].clone(), worst)
        };
        assert_eq!(cells(60), ("10.0, 10.0 (p95)".to_owned(), 1.0));
        assert_eq!(cells(120), ("10.0, 100.0".to_owned(), 10.0));
    }
}
