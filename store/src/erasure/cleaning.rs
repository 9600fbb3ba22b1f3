//! Cleans the files of the database, once for all who wait for it: that takes long where tables are large.

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::sql::{Database, PERSONAL_TABLES};
use crate::traits::Result;

/// Cleans one database.
#[derive(Default)]
pub(super) struct Cleaner {
    last: Mutex<Option<Cleaned>>,
}

#[derive(Clone, Copy)]
struct Cleaned {
    begun: Instant,
    is_clean: bool,
}

impl Cleaner {
    /// Makes everything that is deleted now leave the files of the database. Returns whether it has.
    pub(super) async fn clean(&self, database: &Database) -> Result<bool> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(cleaned) = last.filter(|cleaned| cleaned.begun >= asked) {
            return Ok(cleaned.is_clean);
        }
        let begun = Instant::now();
        let is_clean = database.clean_files(&PERSONAL_TABLES).await?;
        *last = Some(Cleaned { begun, is_clean });
        Ok(is_clean)
    }
}
