//! What processing photos costs: CPU time, time of devices, and bytes, by stage.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::Date;

use crate::model::ids::AlbumId;

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
    /// At most this many rows.
    pub limit: u32,
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
    /// Photos that the stage worked on; without stages, attempts whose outcome was written.
    pub photos: u64,
    /// What they cost.
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
