//! The rules by which texts of an album are judged, kept in memory by their version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bibs::judge::{BibRule, judge_photo};
use crate::bounded_cache::BoundedCache;
use crate::model::album::AlbumConfig;
use crate::model::ids::AlbumId;
use crate::model::photo::DetectedText;
use crate::sql::database::Database;
use crate::sql::row_types::from_json;
use crate::sql::statement::query;
use crate::traits::{PhotoResults, Result};

use super::offload::offload;
use super::{entries, formats};

/// Bibs of all albums whose rules are kept: albums take turns, so that the rules of all that are in use should fit. A bib of a
/// start list takes 70 to 110 bytes, in a set and in a sorted list: twice 16 bytes that point to it, the set's spare room, and two
/// small allocations. One with leading zeros takes some 250, as it is there without them too. So a million takes 100 MB, 250 MB at
/// most, and twice as many would not leave enough of the 600 MB that the whole process should take.
const MAX_BIBS: usize = 1_000_000;

/// As how many bibs an album counts beside those that it has: for its pattern, and so that albums without bibs are bounded too.
const BIBS_OF_AN_ALBUM: usize = 500;

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
pub(crate) struct RulesCache(Mutex<BoundedCache<AlbumId, KeptRules>>);

struct KeptRules {
    rules: Arc<BibRules>,
    /// How many bibs they count as.
    bibs: usize,
}

impl RulesCache {
    /// Returns the rules that are known, which may be old; loads them if none are.
    pub(crate) async fn get(&self, database: &Database, album: AlbumId) -> Result<Arc<BibRules>> {
        match self.find(album) {
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
        match self.find(album) {
            Some(rules) if Some((rules.version,)) == version => Ok(rules),
            _ => self.load(database, album).await,
        }
    }

    /// Forgets rules that are no longer those of the album.
    pub(crate) fn forget(&self, album: AlbumId) {
        self.lock().remove(album);
    }

    async fn load(&self, database: &Database, album: AlbumId) -> Result<Arc<BibRules>> {
        const OPERATION: &str = "load the rules of bibs";
        let mut snapshot = database.begin_snapshot(OPERATION).await?;
        let get = "select list_version, config from album where id = $1";
        let row: Option<(i64, String)> =
            query(OPERATION, get).bind(album).fetch_optional(&mut snapshot).await?;
        // A deleted album has photos of workers that still hold them, and nobody will see these.
        let Some((version, config)) = row else {
            return Ok(self.keep(album, BibRules { version: 0, rule: BibRule::AsRead }, 0));
        };
        let entries = entries::load(&mut snapshot, OPERATION, album).await?;
        let learned = formats::load(&mut snapshot, OPERATION, album).await?;
        drop(snapshot);
        let config: AlbumConfig = from_json(&config)?;
        let bibs = entries.len() + learned.as_ref().map_or(0, |learned| learned.repeated.len());
        // Of a long list this is more work than a thread of the runtime may have at once.
        let rule = offload(OPERATION, move || BibRule::new(&entries, &config, learned)).await?;
        Ok(self.keep(album, BibRules { version, rule }, bibs))
    }

    fn find(&self, album: AlbumId) -> Option<Arc<BibRules>> {
        self.lock().get(album).map(|kept| Arc::clone(&kept.rules))
    }

    fn keep(&self, album: AlbumId, rules: BibRules, bibs: usize) -> Arc<BibRules> {
        let rules = Arc::new(rules);
        let mut known = self.lock();
        known.insert(album, KeptRules { rules: Arc::clone(&rules), bibs: bibs + BIBS_OF_AN_ALBUM });
        known.shrink_to(MAX_BIBS, |kept| kept.bibs);
        rules
    }

    fn lock(&self) -> MutexGuard<'_, BoundedCache<AlbumId, KeptRules>> {
        // Every change is one call of the cache, so a panic left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{AlbumFixture, album_config};
    use crate::sql::tests::open_store;

    #[tokio::test]
    async fn albums_that_take_turns_load_their_rules_once() {
        let (_folder, store, file) = open_store().await;
        let database = Database::Sqlite(file);
        let fixture = AlbumFixture::create(&store).await;
        let mut albums = Vec::new();
        for _ in 0..40 {
            albums.push(fixture.create_album(album_config()).await.album);
        }
        let rules = RulesCache::default();
        let mut first = Vec::new();
        for album in &albums {
            first.push(rules.get(&database, *album).await.unwrap());
        }
        for (album, loaded) in albums.iter().zip(&first) {
            let again = rules.get(&database, *album).await.unwrap();
            assert!(Arc::ptr_eq(&again, loaded), "the rules of {album} were loaded once more");
        }
    }
}
