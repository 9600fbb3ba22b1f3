//! How often galleries were opened and searched: counted in memory and written together. A visit that wrote its own count would cost
//! a commit, and all visitors of a gallery would wait for each other at its row. How often one visitor has searched is not counted
//! here: that has a limit, to the search.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::ids::AlbumId;
use crate::sql::database::{Database, Transaction, commit_counts};
use crate::sql::statement::query;
use crate::traits::Result;

const OPERATION: &str = "write visits of galleries";

/// What is added to the counts of a gallery.
#[derive(Clone, Copy, Default)]
pub(crate) struct Visits {
    pub(crate) opened: i64,
    pub(crate) searches: i64,
}

impl Visits {
    fn add(&mut self, other: Self) {
        self.opened += other.opened;
        self.searches += other.searches;
    }
}

/// In the order in which their rows are locked.
type Counts = BTreeMap<AlbumId, Visits>;

/// What the rows of galleries do not say yet.
#[derive(Default)]
struct Unwritten {
    counted: Counts,
    /// What is being written, and taken from `counted`.
    in_writing: Arc<Counts>,
}

/// The visits that are not written yet.
#[derive(Default)]
pub(crate) struct VisitMeter {
    unwritten: Mutex<Unwritten>,
    /// Held while counts are written.
    writer: tokio::sync::Mutex<()>,
}

impl VisitMeter {
    pub(crate) fn count_opened(&self, album: AlbumId) {
        self.unwritten().counted.entry(album).or_default().opened += 1;
    }

    pub(crate) fn count_search(&self, album: AlbumId) {
        self.unwritten().counted.entry(album).or_default().searches += 1;
    }

    /// Returns what was counted of a gallery and is not written yet.
    pub(crate) fn of_album(&self, album: AlbumId) -> Visits {
        let unwritten = self.unwritten();
        let mut visits = unwritten.counted.get(&album).copied().unwrap_or_default();
        visits.add(unwritten.in_writing.get(&album).copied().unwrap_or_default());
        visits
    }

    /// Writes what was counted; keeps it when that fails, unless it may have been written.
    pub(crate) async fn flush(&self, database: &Database) -> Result<()> {
        let _writer = self.writer.lock().await;
        let taken = self.take();
        if taken.is_empty() {
            return Ok(());
        }
        let written = write(database, &taken).await;
        let committed = commit_counts(written, OPERATION, || self.put_back()).await;
        self.unwritten().in_writing = Arc::default();
        committed
    }

    /// Takes what was counted. What a writer left that was stopped may have been written: it is nobody's.
    fn take(&self) -> Arc<Counts> {
        let mut unwritten = self.unwritten();
        unwritten.in_writing = Arc::new(std::mem::take(&mut unwritten.counted));
        Arc::clone(&unwritten.in_writing)
    }

    fn put_back(&self) {
        let mut unwritten = self.unwritten();
        let taken = std::mem::take(&mut unwritten.in_writing);
        for (album, visits) in taken.iter() {
            unwritten.counted.entry(*album).or_default().add(*visits);
        }
    }

    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds to the counts of galleries; the caller commits. Those of an album that was deleted meanwhile are nobody's.
async fn write(database: &Database, counts: &Counts) -> Result<Transaction> {
    let add = "update gallery set opened = opened + $2, searches = searches + $3 where album = $1";
    let mut transaction = database.begin_write(OPERATION).await?;
    for (album, visits) in counts {
        query(OPERATION, add)
            .bind(*album)
            .bind(visits.opened)
            .bind(visits.searches)
            .execute(&mut transaction)
            .await?;
    }
    Ok(transaction)
}
