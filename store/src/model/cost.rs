//! What processing photos and searching faces costs: CPU time, time of devices, and bytes, by stage.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use time::Date;
use time::macros::date;

use crate::model::ids::{AlbumId, PhotoId};

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time of threads.
    pub cpu: Duration,
    /// Time in which a device worked on it.
    pub device: Duration,
    /// Read from the storage.
    pub bytes_read: u64,
    /// Written to the storage.
    pub bytes_written: u64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.device += other.device;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}

/// What one attempt to process a photo has cost so far, by stage. Travels with the lease; its outcome writes it.
#[derive(Debug, Default)]
pub struct CostMeter(Mutex<BTreeMap<&'static str, Spent>>);

impl CostMeter {
    /// Adds what a stage spent.
    pub fn add(&self, stage: &'static str, spent: Spent) {
        *self.stages().entry(stage).or_default() += spent;
    }

    /// Returns what each stage spent, in the order of their names.
    pub fn by_stage(&self) -> Vec<(&'static str, Spent)> {
        self.stages().iter().map(|(stage, spent)| (*stage, *spent)).collect()
    }

    /// Returns what all stages spent.
    pub fn total(&self) -> Spent {
        let mut total = Spent::default();
        self.stages().values().for_each(|spent| total += *spent);
        total
    }

    fn stages(&self) -> MutexGuard<'_, BTreeMap<&'static str, Spent>> {
        // Every change is one addition, so a panic left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stage that finds the face on a selfie.
pub const SELFIE_STAGE: &str = "probe";
/// The stage that compares the face on a selfie with those of an album.
pub const FACE_SEARCH_STAGE: &str = "face_search";

/// What threads of stages spend between photos, shared by those that follow.
pub const OVERHEAD_STAGE: &str = "overhead";
/// The stage that draws a watermark on the previews of photos that were ready before.
pub const MARKING_STAGE: &str = "mark";

thread_local! {
    /// CPU time of threads that have helped this one.
    static HELPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the CPU time of the calling thread, with that of its helpers.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)) + HELPED.get()
}

/// Adds the CPU time of a helper, which has ended, to that of the calling thread.
pub(crate) fn add_helper_cpu(time: Duration) {
    HELPED.set(HELPED.get() + time);
}

/// What searches of this process have cost since it was last written, by album and stage. What a process that dies has not
/// written is lost: a few seconds.
#[derive(Debug, Default)]
pub struct SearchCosts(Mutex<SpentBySearches>);

/// Searches and what they cost, by album and stage.
pub(crate) type SpentBySearches = BTreeMap<(AlbumId, &'static str), SearchesSpent>;

/// What some searches cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchesSpent {
    pub(crate) searches: u64,
    pub(crate) spent: Spent,
}

impl SearchCosts {
    /// Counts a search that begins a stage.
    pub fn count(&self, album: AlbumId, stage: &'static str) {
        self.lock().entry((album, stage)).or_default().searches += 1;
    }

    /// Adds what a search spent in a stage.
    pub fn add(&self, album: AlbumId, stage: &'static str, spent: Spent) {
        self.lock().entry((album, stage)).or_default().spent += spent;
    }

    /// Returns what is not written yet, and forgets it.
    pub(crate) fn take(&self) -> SpentBySearches {
        std::mem::take(&mut *self.lock())
    }

    /// Takes back what could not be written.
    pub(crate) fn put_back(&self, costs: SpentBySearches) {
        let mut own = self.lock();
        for (key, cost) in costs {
            let entry = own.entry(key).or_default();
            entry.searches += cost.searches;
            entry.spent += cost.spent;
        }
    }

    fn lock(&self) -> MutexGuard<'_, SpentBySearches> {
        // Every change is one addition, so a panic left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which costs to sum up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostQuery {
    /// The first day (UTC).
    pub from: Date,
    /// The last day.
    pub to: Date,
    /// Only this album.
    pub album: Option<AlbumId>,
    /// A row for each day.
    pub by_day: bool,
    /// A row for each album.
    pub by_album: bool,
    /// A row for each stage.
    pub by_stage: bool,
    /// Without what searches cost.
    pub photos_only: bool,
    /// At most this many rows.
    pub limit: u32,
}

impl CostQuery {
    /// Before everything that is kept.
    pub const FIRST_DAY: Date = date!(1970 - 01 - 01);
    /// After it.
    pub const LAST_DAY: Date = date!(9999 - 12 - 31);
}

/// A sum of costs; what it is of is `None` where the query does not tell it apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRow {
    /// The day.
    pub day: Option<Date>,
    /// The album, which may be deleted.
    pub album: Option<AlbumId>,
    /// The stage.
    pub stage: Option<String>,
    /// Photos, selfies or searches that the stage worked on; without stages, photos that became ready or failed.
    pub photos: u64,
    /// What they cost.
    pub spent: Spent,
}

/// What is stored of photos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredObjects {
    /// Originals whose size is known since they were confirmed, and the pictures that were made of them.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What microseconds count for when photos are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostWeights {
    /// Of CPU time.
    pub cpu: f64,
    /// Of the time of a device.
    pub device: f64,
}

/// What one photo has cost, over all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhotoCost {
    /// The photo.
    pub photo: PhotoId,
    /// What it cost.
    pub spent: Spent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_adds_up_by_stage() {
        let meter = CostMeter::default();
        let cpu = |milliseconds| Spent { cpu: Duration::from_millis(milliseconds), ..Spent::default() };
        meter.add("read", cpu(5));
        meter.add("decode", Spent { bytes_read: 7, ..cpu(1) });
        meter.add("read", cpu(2));
        assert_eq!(meter.by_stage(), [("decode", Spent { bytes_read: 7, ..cpu(1) }), ("read", cpu(7))]);
        assert_eq!(meter.total(), Spent { bytes_read: 7, ..cpu(8) });
    }
}
