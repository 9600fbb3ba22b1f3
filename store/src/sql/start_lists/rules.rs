//! The rules by which texts of an album are judged, kept in memory by their version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::bibs::judge::{BibRule, judge_photo};
use crate::model::album::AlbumConfig;
use crate::model::ids::AlbumId;
use crate::model::photo::DetectedText;
use crate::sql::database::Database;
use crate::sql::row_types::from_json;
use crate::sql::statement::query;
use crate::traits::{PhotoResults, Result};

use super::{entries, formats};

/// Albums whose rules are kept. A list of 100,000 bibs takes some 10 MB.
const MAX_ALBUMS: usize = 32;

/// The rules of an album.
pub(crate) struct BibRules {
    /// Rises with every change; 0 for an album that never had any.
    pub(crate) version: i64,
    /// By what texts are judged.
    pub(crate) rule: BibRule,
}

impl BibRules {
    /// Changes the texts of a photo to what the rules make of them.
    pub(crate) fn apply_to(&self, texts: &mut [DetectedText]) {
        let judgements = judge_photo(&self.rule, texts);
        for (text, judgement) in texts.iter_mut().zip(judgements) {
            judgement.apply_to(text);
        }
    }
}

/// The versions of the rules by which the texts of photos were judged.
pub(crate) type JudgedBy = HashMap<AlbumId, i64>;

/// The rules of albums whose photos this process judges. What is older than the database is found out and left behind
/// at the first use.
#[derive(Default)]
pub(crate) struct RulesCache(Mutex<HashMap<AlbumId, Arc<BibRules>>>);

impl RulesCache {
    /// Returns the rules that are known, which may be old; loads them if none are.
    pub(crate) async fn get(&self, database: &Database, album: AlbumId) -> Result<Arc<BibRules>> {
        let known = self.lock().get(&album).cloned();
        match known {
            Some(rules) => Ok(rules),
            None => self.load(database, album).await,
        }
    }

    /// Judges the texts of photos by the rules of their albums that this process knows.
    pub(crate) async fn judge(
        &self,
        database: &Database,
        mut photos: Vec<PhotoResults>,
    ) -> Result<(Vec<PhotoResults>, JudgedBy)> {
        let mut judged_by = JudgedBy::new();
        for results in &mut photos {
            let rules = self.get(database, results.lease.album).await?;
            // One version for all photos of an album, also when another call has just learned of a newer one.
            if *judged_by.entry(results.lease.album).or_insert(rules.version) != rules.version {
                judged_by.insert(results.lease.album, 0);
            }
            rules.apply_to(&mut results.texts);
        }
        Ok((photos, judged_by))
    }

    /// Returns the rules of today.
    pub(crate) async fn get_current(&self, database: &Database, album: AlbumId) -> Result<Arc<BibRules>> {
        const OPERATION: &str = "read the version of rules of bibs";
        let version = "select list_version from album where id = $1";
        let mut reader = database.acquire_reader(OPERATION).await?;
        let version: Option<(i64,)> =
            query(OPERATION, version).bind(album).fetch_optional(&mut reader).await?;
        drop(reader);
        let known = self.lock().get(&album).cloned();
        match known {
            Some(rules) if Some((rules.version,)) == version => Ok(rules),
            _ => self.load(database, album).await,
        }
    }

    /// Forgets rules that are no longer those of the album.
    pub(crate) fn forget(&self, album: AlbumId) {
        self.lock().remove(&album);
    }

    async fn load(&self, database: &Database, album: AlbumId) -> Result<Arc<BibRules>> {
        const OPERATION: &str = "load the rules of bibs";
        let mut snapshot = database.begin_snapshot(OPERATION).await?;
        let get = "select list_version, config from album where id = $1";
        let row: Option<(i64, String)> =
            query(OPERATION, get).bind(album).fetch_optional(&mut snapshot).await?;
        // A deleted album has photos of workers that still hold them, and nobody will see these.
        let rules = match row {
            Some((version, config)) => {
                let entries = entries::load(&mut snapshot, OPERATION, album).await?;
                let learned = formats::load(&mut snapshot, OPERATION, album).await?;
                let config: AlbumConfig = from_json(&config)?;
                BibRules { version, rule: BibRule::new(&entries, &config, learned) }
            }
            None => BibRules { version: 0, rule: BibRule::AsRead },
        };
        let rules = Arc::new(rules);
        let mut known = self.lock();
        if known.len() >= MAX_ALBUMS {
            known.clear();
        }
        known.insert(album, Arc::clone(&rules));
        Ok(rules)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AlbumId, Arc<BibRules>>> {
        // Every change is one call of the map, so a panic left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
