//! Start lists and formats of bibs in the database, and judging by them.
//!
//! The version of an album's rules rises with every import of other bibs; a photo notes by which version its texts were judged.
//! Whoever leaves photos behind the album's version, an import or a worker that judged by the version before, notes the
//! album in `album_to_judge` while it holds the lock of the album's row.

mod album_turns;
mod check;
pub(in crate::sql) mod entries;
pub(in crate::sql) mod formats;
mod import;
pub(crate) mod judging;
mod offload;
pub(crate) mod rules;
pub(crate) mod versions;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::bibs::judge::find_alternatives;
use crate::model::bib_format::LearnedFormat;
use crate::model::encoding::from_micros;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::DetectedText;
use crate::model::start_list::{
    CheckedStartList, EntryPage, EntryQuery, ExplainedText, ImportedStartList, StartListEntry,
    StartListImport, StartListSummary, WaveSize,
};
use crate::sealing::MasterSecret;
use crate::sql::database::Database;
use crate::sql::photos::load_counts;
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::traits::{Result, StartLists};
use crate::turns::{Turns, current_organization};

use self::entries::EntryRow;
use self::offload::offload;
use self::rules::RulesCache;
use self::versions::judge_again;

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
    /// One check at a time: whatever the list, and however many ask, they take a core and the memory of one rule.
    checks: Turns,
}

impl SqlStartLists {
    pub(crate) fn new(
        database: Database,
        rules: Arc<RulesCache>,
        master: Option<MasterSecret>,
        scans: Turns,
    ) -> Self {
        Self { database, rules, master, scans, checks: Turns::default() }
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

#[async_trait]
impl StartLists for SqlStartLists {
    async fn import(&self, album: AlbumId, import: StartListImport) -> Result<ImportedStartList> {
        import::import(&self.database, album, import, self.master.as_ref()).await
    }

    async fn check(
        &self,
        album: AlbumId,
        import: StartListImport,
        max_photos: u32,
    ) -> Result<CheckedStartList> {
        let _turn = self.checks.take(current_organization()).await;
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
        offload(OPERATION, explain).await
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
