//! Start lists and formats of bibs in the database, and judging by them.
//!
//! The version of an album's rules rises with every import; a photo notes by which version its texts were judged.
//! Whoever leaves photos behind the album's version, an import or a worker that judged by the version before, notes the
//! album in `album_to_judge` while it holds the lock of the album's row.

mod check;
pub(in crate::sql) mod entries;
pub(in crate::sql) mod formats;
pub(crate) mod judging;
pub(crate) mod rules;
pub(crate) mod versions;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::bibs::judge::find_alternatives;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::bib_format::LearnedFormat;
use crate::model::encoding::from_micros;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::DetectedText;
use crate::model::start_list::{
    CheckedStartList, EntryPage, EntryQuery, ExplainedText, ImportMode, ImportedStartList, StartListEntry,
    StartListImport, StartListSummary, WaveSize,
};
use crate::sealing::MasterSecret;
use crate::sql::changes::note_to_learn;
use crate::sql::database::Database;
use crate::sql::erasures::guard::load_bibs;
use crate::sql::photos::load_counts;
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::traits::{Result, StartLists};
use crate::turns::{Turns, current_organization};

use self::entries::{EntryRow, entries_json};
use self::rules::RulesCache;
use self::versions::{judge_again, raise_version};

/// The members of each entry in the JSON list `$2`.
const INSERT_ENTRIES: Statement = Statement::PerDialect {
    sqlite: "insert into start_list_entry (album, bib, wave, team, start_at, excluded) \
             select $1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 from json_each($2) where true \
             on conflict (album, bib) do update set wave = excluded.wave, team = excluded.team, \
             start_at = excluded.start_at, excluded = excluded.excluded",
    postgres: "insert into start_list_entry (album, bib, wave, team, start_at, excluded) \
               select $1, value ->> 0, value ->> 1, value ->> 2, (value ->> 3)::bigint, (value ->> 4)::bigint \
               from json_array_elements($2::json) \
               on conflict (album, bib) do update set wave = excluded.wave, team = excluded.team, \
               start_at = excluded.start_at, excluded = excluded.excluded",
};

const COUNT_UNJUDGED: &str =
    "select count(*) from photo where album = $1 and state = 'ready' and list_version < $2";

pub(crate) const FIND_ENTRIES: Statement = Statement::PerDialect {
    sqlite: "select bib, wave, team, start_at, excluded from start_list_entry \
             where album = $1 and excluded = 0 and bib in (select value from json_each($2))",
    postgres: "select bib, wave, team, start_at, excluded from start_list_entry \
               where album = $1 and excluded = 0 and bib = any($2)",
};

pub(crate) const ENTRY_PAGE: &str = "select bib, wave, team, start_at, excluded from start_list_entry \
     where album = $1 and bib > $2 and bib >= $3 and bib < $4 and excluded = 0 order by bib limit $5";

/// Photos with a text that has no lattice: an index has these texts alone. Reading what was erased again brings none back.
pub(crate) const COUNT_WITHOUT_LATTICE: &str = "select count(distinct photo) from seen_text \
     where album = $1 and lattice is null and standing <> 'ERASED'";

pub(crate) struct SqlStartLists {
    database: Database,
    rules: Arc<RulesCache>,
    /// By which it recognises bibs that were erased.
    master: Option<MasterSecret>,
    /// See `SqlPhotos`.
    scans: Turns,
}

impl SqlStartLists {
    pub(crate) fn new(
        database: Database,
        rules: Arc<RulesCache>,
        master: Option<MasterSecret>,
        scans: Turns,
    ) -> Self {
        Self { database, rules, master, scans }
    }
}

async fn has_list<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    album: AlbumId,
) -> Result<bool> {
    let count = "select count(*) from start_list where album = $1";
    let (lists,): (i64,) = query(operation, count).bind(album).fetch_one(on).await?;
    Ok(lists > 0)
}

/// What the entries of an album become by an import.
struct Merged {
    entries: Vec<StartListEntry>,
    added: u64,
    removed: u64,
    /// Whether other numbers are excluded than before.
    excludes_others: bool,
}

impl Merged {
    fn new(before: Vec<StartListEntry>, import: &StartListImport) -> Result<Self> {
        let mut after: HashMap<&str, &StartListEntry> = HashMap::new();
        if import.mode == ImportMode::Merge {
            after.extend(before.iter().map(|entry| (entry.bib.as_str(), entry)));
        }
        after.extend(import.entries.iter().map(|entry| (entry.bib.as_str(), entry)));
        if after.len() as u64 > import.max_entries {
            let what = format!("{} entries of a start list", after.len());
            return Err(StoreError::new(StoreErrorKind::TooLarge, what));
        }
        let bibs = |entries: &[StartListEntry], excluded: bool| -> std::collections::HashSet<String> {
            let of_kind = entries.iter().filter(|entry| entry.excluded == excluded);
            of_kind.map(|entry| entry.bib.clone()).collect()
        };
        let entries: Vec<StartListEntry> = after.into_values().cloned().collect();
        let excludes_others = bibs(&before, true) != bibs(&entries, true);
        let (old, new) = (bibs(&before, false), bibs(&entries, false));
        let added = new.difference(&old).count() as u64;
        Ok(Self { added, removed: old.difference(&new).count() as u64, excludes_others, entries })
    }

    fn len(&self) -> u64 {
        self.entries.iter().filter(|entry| !entry.excluded).count() as u64
    }
}

#[async_trait]
impl StartLists for SqlStartLists {
    async fn import(&self, album: AlbumId, mut import: StartListImport) -> Result<ImportedStartList> {
        const OPERATION: &str = "import a start list";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        // First: it locks the album, so that two imports take turns.
        let version = raise_version(&mut transaction, OPERATION, album).await?;
        if let Some(erased) = load_bibs(&mut transaction, OPERATION, album, self.master.as_ref()).await? {
            import.entries.retain(|entry| !erased.contains(&entry.bib));
        }
        let before = entries::load(&mut transaction, OPERATION, album).await?;
        let merged = Merged::new(before, &import)?;
        let now = transaction.read_clock(OPERATION).await?;
        let upsert = "insert into start_list (album, version, imported_at, imported_by) values ($1, $2, $3, $4) \
                      on conflict (album) do update set version = excluded.version, \
                      imported_at = excluded.imported_at, imported_by = excluded.imported_by";
        query(OPERATION, upsert)
            .bind(album)
            .bind(version)
            .bind(now)
            .bind(import.imported_by)
            .execute(&mut transaction)
            .await?;
        if import.mode == ImportMode::Replace {
            query(OPERATION, "delete from start_list_entry where album = $1")
                .bind(album)
                .execute(&mut transaction)
                .await?;
        }
        query(OPERATION, INSERT_ENTRIES)
            .bind(album)
            .bind(entries_json(&import.entries)?)
            .execute(&mut transaction)
            .await?;
        if merged.excludes_others {
            // They no longer show how bibs are numbered, or do again.
            note_to_learn(&mut transaction, OPERATION, album).await?;
        }
        let photos = load_counts(OPERATION, album, &mut transaction).await?.ready;
        transaction.commit(OPERATION).await?;
        let (added, removed) = (merged.added, merged.removed);
        Ok(ImportedStartList { version, entries: merged.len(), added, removed, photos })
    }

    async fn check(
        &self,
        album: AlbumId,
        import: StartListImport,
        max_photos: u32,
    ) -> Result<CheckedStartList> {
        check::check(&self.database, album, import, max_photos).await
    }

    async fn get(&self, album: AlbumId) -> Result<Option<StartListSummary>> {
        const OPERATION: &str = "get a start list";
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        if !has_list(&mut reader, OPERATION, album).await? {
            return Ok(None);
        }
        drop(reader);
        // A list has up to 100,000 entries, and an album more photos to judge.
        let _turn = self.scans.take(current_organization()).await;
        let mut snapshot = self.database.begin_scan(OPERATION).await?;
        let get = "select version, imported_at, list_version from start_list \
                   join album on album.id = start_list.album where start_list.album = $1";
        let row: Option<(i64, i64, i64)> =
            query(OPERATION, get).bind(album).fetch_optional(&mut snapshot).await?;
        let Some((version, imported_at, rules)) = row else { return Ok(None) };
        let waves = "select wave, count(*) from start_list_entry where album = $1 and excluded = 0 \
                     group by wave order by wave is not null, wave";
        let waves: Vec<(Option<String>, i64)> =
            query(OPERATION, waves).bind(album).fetch_all(&mut snapshot).await?;
        let waves: Vec<WaveSize> = waves
            .into_iter()
            .map(|(wave, entries)| WaveSize { wave, entries: entries.unsigned_abs() })
            .collect();
        let ready = load_counts(OPERATION, album, &mut snapshot).await?.ready;
        let (left,): (i64,) =
            query(OPERATION, COUNT_UNJUDGED).bind(album).bind(rules).fetch_one(&mut snapshot).await?;
        let left = left.unsigned_abs();
        let (without_lattice,): (i64,) =
            query(OPERATION, COUNT_WITHOUT_LATTICE).bind(album).fetch_one(&mut snapshot).await?;
        Ok(Some(StartListSummary {
            version,
            entries: waves.iter().map(|wave| wave.entries).sum(),
            waves,
            imported_at: from_micros(imported_at)?,
            judged: ready.saturating_sub(left),
            left,
            without_lattice: without_lattice.unsigned_abs(),
        }))
    }

    async fn list_entries(&self, album: AlbumId, filter: EntryQuery) -> Result<EntryPage> {
        const OPERATION: &str = "list a start list";
        // Bibs are letters and digits, so that every bib with the prefix is before this.
        let end = format!("{}~", filter.prefix);
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let rows: Vec<EntryRow> = query(OPERATION, ENTRY_PAGE)
            .bind(album)
            .bind(filter.after.unwrap_or_default())
            .bind(filter.prefix.clone())
            .bind(end.clone())
            .bind(i64::from(filter.limit) + 1)
            .fetch_all(&mut snapshot)
            .await?;
        let count = "select count(*) from start_list_entry \
                     where album = $1 and bib >= $2 and bib < $3 and excluded = 0";
        let (total,): (i64,) = query(OPERATION, count)
            .bind(album)
            .bind(filter.prefix)
            .bind(end)
            .fetch_one(&mut snapshot)
            .await?;
        let has_more = rows.len() > filter.limit as usize;
        let entries =
            rows.into_iter().take(filter.limit as usize).map(TryInto::try_into).collect::<Result<_>>()?;
        Ok(EntryPage { entries, has_more, total: total.unsigned_abs() })
    }

    async fn delete(&self, album: AlbumId) -> Result<()> {
        const OPERATION: &str = "delete a start list";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        if has_list(&mut transaction, OPERATION, album).await? {
            judge_again(&mut transaction, OPERATION, album).await?;
            let delete = "delete from start_list where album = $1";
            query(OPERATION, delete).bind(album).execute(&mut transaction).await?;
        }
        transaction.commit(OPERATION).await
    }

    async fn explain_texts(&self, album: AlbumId, photo: PhotoId) -> Result<Vec<ExplainedText>> {
        const OPERATION: &str = "explain texts";
        let rules = self.rules.get_current(&self.database, album).await?;
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        let texts = judging::load_texts(&mut reader, album, std::iter::once(photo)).await?;
        drop(reader);
        let texts: Vec<DetectedText> = texts.into_values().flatten().map(|known| known.text).collect();
        // The 48 texts of each of some hundred lattices take milliseconds.
        let explain = move || {
            let alternatives = find_alternatives(&rules.rule, &texts);
            let both = texts.into_iter().zip(alternatives);
            both.map(|(text, alternatives)| ExplainedText { text, alternatives }).collect()
        };
        let explained = tokio::task::spawn_blocking(explain).await;
        explained.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, OPERATION).with_source(error))
    }

    async fn get_format(&self, album: AlbumId) -> Result<LearnedFormat> {
        const OPERATION: &str = "get a format of bibs";
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        formats::load(&mut reader, OPERATION, album).await.map(Option::unwrap_or_default)
    }

    async fn find_entries(
        &self,
        album: AlbumId,
        bibs: Vec<String>,
    ) -> Result<Option<HashMap<String, StartListEntry>>> {
        const OPERATION: &str = "find entries of a start list";
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        if !formats::has_bibs(&mut reader, OPERATION, album).await? {
            return Ok(None);
        }
        let rows: Vec<EntryRow> =
            query(OPERATION, FIND_ENTRIES).bind(album).bind(bibs).fetch_all(&mut reader).await?;
        let entries: Vec<StartListEntry> = rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
        Ok(Some(entries.into_iter().map(|entry| (entry.bib.clone(), entry)).collect()))
    }
}
