//! The copy of rows on a device, as long as they do not change.
//!
//! The rows own its place and empty it before each change: no device has a row that is not in the memory of the host, and
//! whoever has deleted a row need not think of devices.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::gpu::Resident;

/// The place of a copy: empty where there is none.
#[derive(Default)]
pub(crate) struct CopyPlace(Arc<Mutex<Option<Placed>>>);

struct Placed {
    /// The number that the list has in searches.
    number: u32,
    resident: Resident,
}

/// The copy of some rows, for those who decide which rows are on a device. Keeps neither the rows nor their copy.
#[derive(Clone, Default)]
pub struct DeviceCopy(Weak<Mutex<Option<Placed>>>);

impl CopyPlace {
    /// Returns the copy, if there is one with this number.
    pub(crate) fn get(&self, number: u32) -> Option<Resident> {
        lock(&self.0).as_ref().filter(|copy| copy.number == number).map(|copy| copy.resident.clone())
    }

    /// Keeps a copy in the place of any other.
    pub(crate) fn put(&self, number: u32, resident: Resident) {
        *lock(&self.0) = Some(Placed { number, resident });
    }

    /// Gives the copy up.
    pub(super) fn clear(&mut self) {
        *lock(&self.0) = None;
    }

    pub(super) fn share(&self) -> DeviceCopy {
        DeviceCopy(Arc::downgrade(&self.0))
    }
}

impl DeviceCopy {
    /// Returns the bytes on the device; 0 where there is no copy.
    pub fn bytes(&self) -> usize {
        let place = self.0.upgrade();
        place.map_or(0, |place| lock(&place).as_ref().map_or(0, |copy| copy.resident.bytes))
    }

    /// Gives the copy up. Its memory is free when the searches that use it have ended.
    pub fn clear(&self) {
        if let Some(place) = self.0.upgrade() {
            *lock(&place) = None;
        }
    }

    /// Whether the rows still exist.
    pub fn has_rows(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Locks a place, also after a panic of another holder: each change is complete in itself.
fn lock(place: &Mutex<Option<Placed>>) -> MutexGuard<'_, Option<Placed>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
