//! How often galleries were opened and searched: counted in memory and written together. A visit that wrote its own count would cost
//! a commit, and all visitors of a gallery would wait for each other at its row. How often one visitor has searched is not counted
//! here: that has a limit, to the search.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::ids::AlbumId;
use crate::sql::database::{Database, Transaction};
use crate::sql::statement::query;
use crate::traits::Result;

const OPERATION: &str = "write visits of galleries";

/// What is added to the counts of a gallery.
#[derive(Clone, Copy, Default)]
pub(crate) struct Visits {
    pub(crate) opened: i64,
    pub(crate) searches: i64,
}

/// In the order in which their rows are locked.
type Counts = BTreeMap<AlbumId, Visits>;

/// The visits that are not written yet.
#[derive(Default)]
pub(crate) struct VisitMeter {
    counts: Mutex<Counts>,
}

impl VisitMeter {
    pub(crate) fn count_opened(&self, album: AlbumId) {
        self.counts().entry(album).or_default().opened += 1;
    }

    pub(crate) fn count_search(&self, album: AlbumId) {
        self.counts().entry(album).or_default().searches += 1;
    }

    /// Returns what was counted of a gallery and is not written yet.
    pub(crate) fn of_album(&self, album: AlbumId) -> Visits {
        self.counts().get(&album).copied().unwrap_or_default()
    }

    /// Writes what was counted; keeps it when that fails, unless it may have been written.
    pub(crate) async fn flush(&self, database: &Database) -> Result<()> {
        let taken = std::mem::take(&mut *self.counts());
        if taken.is_empty() {
            return Ok(());
        }
        let written = write(database, &taken).await;
        match written {
            Ok(transaction) => {
                let is_undone = transaction.is_undone_by_failed_commit();
                let committed = transaction.commit(OPERATION).await;
                // One that is not answered may have been made: writing the counts again would count twice.
                if committed.is_err() && is_undone {
                    self.put_back(taken);
                }
                committed
            }
            Err(error) => {
                self.put_back(taken);
                Err(error)
            }
        }
    }

    fn put_back(&self, taken: Counts) {
        let mut counts = self.counts();
        for (album, Visits { opened, searches }) in taken {
            let visits = counts.entry(album).or_default();
            visits.opened += opened;
            visits.searches += searches;
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
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
