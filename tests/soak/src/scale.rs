//! `soak scale`: the throughput of two workers compared with one, on photos that take 100 ms of sleep each. It measures
//! whether queue and database keep up, not how many cores the machine has.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use photofinish_bench::report::goals::Goal;
use photofinish_bench::report::{OutputOptions, Report, Table};
use photofinish_soak::cluster::{Cluster, ClusterOptions, missing_server_error};
use photofinish_soak::event::Event;
use photofinish_soak::flow::Flow;

use crate::table::describe_build;

/// The time that each photo takes; a worker of one thread reads ten a second.
const READ_DELAY: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(600);
/// The least throughput of two workers, as a multiple of one.
const MIN_SPEEDUP: f64 = 1.9;

/// Options of `soak scale`.
#[derive(clap::Args)]
pub struct Options {
    /// Photos, 100 to 1000
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u16).range(100..=1000))]
    photos: u16,
    #[command(flatten)]
    output: OutputOptions,
}

/// Measures the throughput of one and of two workers.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let event = Event::blank(usize::from(options.photos));
    let mut report = Report::new("scale", "Two workers against one, 100 ms of sleep a photo");
    let mut table = Table::new("", &["workers", "photos", "photos a second"]);
    let mut rates = Vec::new();
    for workers in [1, 2] {
        let rate = measure_rate(workers, &event)?;
        table.add_row([workers.to_string(), event.photos.len().to_string(), format!("{rate:.2}")]);
        rates.push(rate);
    }
    report.tables.push(table);
    report.goals.push(Goal::at_least("two workers against one", rates[1] / rates[0], MIN_SPEEDUP));
    report.notes.push(
        "All photos are confirmed before a worker starts. The rate counts the photos between the first tenth and \
         the last: workers start before it, and run out of photos after it. Models are fakes, photos are small and blank, each worker \
         has one thread that reads, and the sleep is in it."
            .to_owned(),
    );
    report.notes.extend(describe_build());
    report.print();
    report.save(&options.output)?;
    let is_met = report.goals.iter().all(Goal::is_met);
    Ok(if is_met || !options.output.strict { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The throughput in photos a second.
fn measure_rate(workers: usize, event: &Event) -> anyhow::Result<f64> {
    let options = ClusterOptions {
        workers,
        threads: 1,
        read_delay: READ_DELAY,
        lease_seconds: 60,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&options)?.ok_or_else(missing_server_error)?;
    let flow = Flow::new(&cluster, event, "scale", Duration::ZERO)?;
    for worker in cluster.workers() {
        worker.terminate(TIMEOUT);
    }
    flow.send_all()?;
    let settled_over_time =
        flow.poll_progress_while(TIMEOUT, || cluster.workers().iter().for_each(|worker| worker.restart()))?;
    Ok(steady_rate(&settled_over_time, event.photos.len() as u64))
}

/// Photos a second between the first tenth of the photos and the last; not a number when too few were seen.
fn steady_rate(settled_over_time: &[(Instant, u64)], photos: u64) -> f64 {
    let steady =
        || settled_over_time.iter().filter(|(_, settled)| (photos / 10..=photos * 9 / 10).contains(settled));
    match (steady().next(), steady().next_back()) {
        (Some((from, first)), Some((to, last))) if to > from => {
            (last - first) as f64 / (*to - *from).as_secs_f64()
        }
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_middle() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        // Slow at both ends: 10 a second in between.
        let mut course = vec![(at(0), 1)];
        course.extend((0..=8).map(|step| (at(100 + step), 10 + 10 * step)));
        course.push((at(500), 100));
        assert_eq!(steady_rate(&course, 100), 10.0);
        assert!(steady_rate(&[], 100).is_nan());
    }
}
