//! How many pages of photos are made for visitors at once.
//!
//! A page is up to a millisecond or two of work, for its rows and the signatures of its pictures' URLs. Each would be a task of
//! the runtime, whose tasks wait for each other in the order in which they come: with a place for each of some of the cores, at
//! most so many pages are before anybody else's request, however many visitors ask.

use std::num::NonZero;
use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The places. Those who wait get one in the order in which they came. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PagePlaces(Arc<Semaphore>);

impl Default for PagePlaces {
    /// One for every two cores.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self(Arc::new(Semaphore::new(cores.div_ceil(2))))
    }
}

impl PagePlaces {
    /// Waits for a place, which is free again when what this returns is dropped.
    pub(crate) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // `None` when the semaphore is closed, which nobody does.
        self.0.acquire().await.ok()
    }
}
