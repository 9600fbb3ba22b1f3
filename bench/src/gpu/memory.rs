//! Memory of the service and of its device over the time of a run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::machine::read_device_memory;
use crate::process;
use crate::report::Table;
use crate::report::goals::Goal;

/// From one sample to the next.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Of so many samples one asks for the memory of the device, which starts a program: more would take a part of a core from
/// what is measured. The others repeat it.
const SAMPLES_PER_QUERY: usize = 5;

/// Samples from which on the course of the memory is judged.
const MIN_SAMPLES: usize = 80;

/// How much more memory the last quarter of a run may use than the second: the first one fills the pipeline.
const MAX_GROWTH: f64 = 1.1;

/// Memory at a moment, in bytes.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident: u64,
    /// `None` where nothing says it.
    device: Option<u64>,
}

/// Memory over the time of a run.
#[derive(Clone, Debug, Default)]
pub struct MemoryCourse(Vec<Sample>);

/// Where the course of a run is reported.
pub struct MemoryReport<'r> {
    /// One row for the process, one for the device.
    pub table: &'r mut Table,
    /// Gets two goals, or one where nothing says the device's memory.
    pub goals: &'r mut Vec<Goal>,
}

/// Does the work while the memory of process `pid` is sampled.
pub fn watch<T>(pid: u32, work: impl FnOnce() -> T) -> (T, MemoryCourse) {
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(pid, &has_ended));
        let end = EndWhenDropped(&has_ended);
        let result = work();
        drop(end);
        (result, MemoryCourse(sampler.join().unwrap_or_default()))
    })
}

/// Ends the sampling when it is dropped, by a panic of the work too: the scope waits for the sampler.
struct EndWhenDropped<'f>(&'f AtomicBool);

impl Drop for EndWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn sample(pid: u32, has_ended: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    let (mut device, mut next) = (None, Instant::now());
    while !has_ended.load(Ordering::Acquire) {
        if samples.len() % SAMPLES_PER_QUERY == 0 {
            device = read_device_memory();
        }
        if let Ok(memory) = process::read_memory(pid) {
            samples.push(Sample { resident: memory.resident, device });
        }
        next += SAMPLE_INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    samples
}

impl MemoryCourse {
    /// The means of the quarters of the run, in megabytes: of the process, and of the device where it is known.
    fn quarters(&self) -> Option<[(f64, Option<f64>); 4]> {
        let samples = &self.0;
        if samples.len() < MIN_SAMPLES {
            return None;
        }
        let mean = |values: Vec<u64>| values.iter().sum::<u64>() as f64 / values.len() as f64 / 1e6;
        Some([0, 1, 2, 3].map(|quarter| {
            let part = &samples[quarter * samples.len() / 4..(quarter + 1) * samples.len() / 4];
            let device: Option<Vec<u64>> = part.iter().map(|sample| sample.device).collect();
            (mean(part.iter().map(|sample| sample.resident).collect()), device.map(mean))
        }))
    }

    /// Reports it; nothing where the run was too short.
    pub fn report(&self, name: &str, report: MemoryReport<'_>) {
        let Some(quarters) = self.quarters() else { return };
        let megabytes =
            |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.0}"));
        let process = quarters.map(|(process, _)| Some(process));
        let device = quarters.map(|(_, device)| device);
        for (what, course) in [("process", process), ("device", device)] {
            report.table.add_row([name.to_owned(), what.to_owned()].into_iter().chain(course.map(megabytes)));
            if let (Some(second), Some(last)) = (course[1], course[3]) {
                let what = format!("{name}: memory of the {what}, last quarter over second");
                report.goals.push(Goal::at_most(&what, last / second, MAX_GROWTH));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn course(resident: impl Iterator<Item = u64>, device: Option<u64>) -> MemoryCourse {
        MemoryCourse(resident.map(|resident| Sample { resident, device }).collect())
    }

    fn report(course: &MemoryCourse) -> (Table, Vec<Goal>) {
        let (mut table, mut goals) = (Table::default(), Vec::new());
        course.report("cuda", MemoryReport { table: &mut table, goals: &mut goals });
        (table, goals)
    }

    #[test]
    fn the_course_of_the_memory_is_the_means_of_quarters() {
        let grows = course((0..80).map(|number| (number / 20 + 1) * 1_000_000), Some(5_000_000));
        let (table, goals) = report(&grows);
        assert_eq!(table.rows[0][2..], ["1", "2", "3", "4"]);
        assert_eq!(table.rows[1][2..], ["5", "5", "5", "5"]);
        assert_eq!(goals.iter().map(Goal::is_met).collect::<Vec<_>>(), [false, true], "process, device");
    }

    #[test]
    fn a_short_run_and_a_device_that_says_nothing_are_not_judged() {
        assert!(report(&course(1..=79, None)).1.is_empty());
        let (table, goals) = report(&course(std::iter::repeat_n(9, 80), None));
        assert_eq!((goals.len(), table.rows[1][2].as_str()), (1, "unknown"));
    }

    #[test]
    fn the_memory_of_a_process_is_sampled_while_it_works() {
        let (result, course) = watch(std::process::id(), || {
            std::thread::sleep(3 * SAMPLE_INTERVAL);
            7
        });
        assert_eq!(result, 7);
        assert!(course.0.len() >= 2 && course.0.iter().all(|sample| sample.resident > 0), "{course:?}");
    }

    #[test]
    fn work_that_panics_ends_the_sampling() {
        let work = || -> u32 { panic!("the run has failed") };
        assert!(catch_unwind(|| watch(std::process::id(), work)).is_err());
    }
}
