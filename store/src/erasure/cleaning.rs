//! Cleans the files of the database, once for all who wait for it: that takes long where tables are large.

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::sql::Database;
use crate::traits::Result;

/// Tables whose rows say something of a person: their dead versions go.
const TABLES: [&str; 10] = [
    "face",
    "seen_text",
    "probe",
    "photo",
    "start_list_entry",
    "bib_format",
    "organization",
    "account",
    "api_key",
    "webhook",
];

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
        let is_clean = database.clean_files(&TABLES).await?;
        *last = Some(Cleaned { begun, is_clean });
        Ok(is_clean)
    }
}
