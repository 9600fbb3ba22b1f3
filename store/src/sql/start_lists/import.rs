//! Imports a list.
//!
//! It is merged with the list that is there outside of the transaction that writes: 100,000 entries take a tenth of a
//! second, in which SQLite would accept no upload. Where another import or an erasure was first, it is merged again.

use std::collections::HashMap;

use sqlx::FromRow;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::AlbumId;
use crate::model::start_list::{ImportMode, ImportedStartList, StartListEntry, StartListImport};
use crate::sealing::MasterSecret;
use crate::sql::changes::note_to_learn;
use crate::sql::database::{Database, Transaction};
use crate::sql::erasures::guard::load_bibs;
use crate::sql::photos::load_counts;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

use super::entries::{self, entries_json};
use super::offload::offload;
use super::versions::{lock_album, raise_version};

const OPERATION: &str = "import a start list";

/// What an import is merged with: whatever changes the list, or what was erased, changes one of these.
const LIST_STATE: &str = "select list_version, erasures, imported_at from album \
     left join start_list on start_list.album = album.id where album.id = $1 and closed_at is null";

const NOTE_IMPORT: &str = "insert into start_list (album, version, imported_at, imported_by) values ($1, $2, $3, $4) \
     on conflict (album) do update set version = excluded.version, \
     imported_at = excluded.imported_at, imported_by = excluded.imported_by";

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

/// See [`LIST_STATE`].
#[derive(PartialEq, Eq, FromRow)]
struct ListState {
    list_version: i64,
    erasures: i64,
    /// `None` without a list.
    imported_at: Option<i64>,
}

/// An import that can be written, as long as its album has the list with which it was merged.
struct PreparedImport {
    merged_with: ListState,
    /// Without bibs that were erased.
    import: StartListImport,
    difference: Difference,
    /// Its entries, for [`INSERT_ENTRIES`].
    rows: String,
}

/// Entries by their bib.
type ByBib<'a> = HashMap<&'a str, &'a StartListEntry>;

/// What an import changes.
struct Difference {
    /// Bibs that are on the list then.
    entries: u64,
    added: u64,
    removed: u64,
    /// Whether photos may be judged otherwise: by their bibs and excluded numbers alone, not by waves, teams and starts.
    changes_rules: bool,
    /// Whether other numbers are excluded: these say nothing of how bibs are numbered.
    excludes_others: bool,
    changes_rows: bool,
}

impl Difference {
    fn new<'a>(before: &ByBib<'a>, after: &ByBib<'a>) -> Self {
        let is_listed = |list: &ByBib<'_>, bib: &str| list.get(bib).is_some_and(|entry| !entry.excluded);
        let count_missing = |list: &ByBib<'_>, other: &ByBib<'_>| {
            list.values().filter(|entry| !entry.excluded && !is_listed(other, &entry.bib)).count() as u64
        };
        let is_excluded = |list: &ByBib<'_>, bib: &str| list.get(bib).is_some_and(|entry| entry.excluded);
        let count_excluded = |list: &ByBib<'_>, other: &ByBib<'_>| {
            list.values().filter(|entry| entry.excluded && !is_excluded(other, &entry.bib)).count()
        };
        let is_judged_otherwise = |entry: &StartListEntry| {
            before.get(entry.bib.as_str()).is_none_or(|known| known.excluded != entry.excluded)
        };
        Self {
            entries: after.values().filter(|entry| !entry.excluded).count() as u64,
            added: count_missing(after, before),
            removed: count_missing(before, after),
            changes_rules: before.len() != after.len()
                || after.values().any(|entry| is_judged_otherwise(entry)),
            excludes_others: count_excluded(before, after) + count_excluded(after, before) > 0,
            changes_rows: before != after,
        }
    }
}

pub(super) fn by_bib(entries: &[StartListEntry]) -> ByBib<'_> {
    entries.iter().map(|entry| (entry.bib.as_str(), entry)).collect()
}

/// Returns what the entries of an album become by an import.
///
/// # Errors
/// `TooLarge` for too many bibs, or as many excluded numbers.
pub(super) fn merge<'a>(before: &ByBib<'a>, import: &'a StartListImport) -> Result<ByBib<'a>> {
    let mut after = match import.mode {
        ImportMode::Merge => before.clone(),
        ImportMode::Replace => ByBib::new(),
    };
    after.extend(by_bib(&import.entries));
    let excluded = after.values().filter(|entry| entry.excluded).count();
    let bibs = after.len() - excluded;
    if bibs.max(excluded) as u64 > import.max_entries {
        let what = format!("a start list of {bibs} bibs and {excluded} excluded numbers");
        return Err(StoreError::new(StoreErrorKind::TooLarge, what));
    }
    Ok(after)
}

pub(super) async fn import(
    database: &Database,
    album: AlbumId,
    mut import: StartListImport,
    master: Option<&MasterSecret>,
) -> Result<ImportedStartList> {
    loop {
        let prepared = prepare(database, album, import, master).await?;
        if let Some(imported) = write(database, album, &prepared).await? {
            return Ok(imported);
        }
        import = prepared.import;
    }
}

async fn prepare(
    database: &Database,
    album: AlbumId,
    mut import: StartListImport,
    master: Option<&MasterSecret>,
) -> Result<PreparedImport> {
    let mut snapshot = database.begin_snapshot(OPERATION).await?;
    let merged_with = load_state(&mut snapshot, album).await?;
    let erased = load_bibs(&mut snapshot, OPERATION, album, master).await?;
    let before = entries::load(&mut snapshot, OPERATION, album).await?;
    drop(snapshot);
    let prepare = move || -> Result<PreparedImport> {
        if let Some(erased) = erased {
            import.entries.retain(|entry| !erased.contains(&entry.bib));
        }
        let before = by_bib(&before);
        let difference = Difference::new(&before, &merge(&before, &import)?);
        let rows = entries_json(&import.entries)?;
        Ok(PreparedImport { merged_with, import, difference, rows })
    };
    offload(OPERATION, prepare).await?
}

/// Returns `None`, and writes nothing, if the album has another list by now.
async fn write(
    database: &Database,
    album: AlbumId,
    prepared: &PreparedImport,
) -> Result<Option<ImportedStartList>> {
    let PreparedImport { merged_with, import, difference, rows } = prepared;
    let mut transaction = database.begin_write(OPERATION).await?;
    // From now on no other import and no erasure changes the list.
    lock_album(&mut transaction, OPERATION, album).await?;
    if load_state(&mut transaction, album).await? != *merged_with {
        return Ok(None);
    }
    // Also for the first list, which is empty perhaps: no list has version 0.
    let (version, photos) = if difference.changes_rules || merged_with.imported_at.is_none() {
        let version = raise_version(&mut transaction, OPERATION, album).await?;
        (version, load_counts(OPERATION, album, &mut transaction).await?.ready)
    } else {
        (merged_with.list_version, 0)
    };
    let now = transaction.read_clock(OPERATION).await?;
    // Another one at every import, also where the clock goes back: see `LIST_STATE`.
    let imported_at = merged_with.imported_at.map_or(now, |before| now.max(before + 1));
    query(OPERATION, NOTE_IMPORT)
        .bind(album)
        .bind(version)
        .bind(imported_at)
        .bind(import.imported_by)
        .execute(&mut transaction)
        .await?;
    if difference.changes_rows {
        if import.mode == ImportMode::Replace {
            let delete = "delete from start_list_entry where album = $1";
            query(OPERATION, delete).bind(album).execute(&mut transaction).await?;
        }
        let insert = query(OPERATION, INSERT_ENTRIES).bind(album).bind(rows.as_str());
        insert.execute(&mut transaction).await?;
    }
    if difference.excludes_others {
        note_to_learn(&mut transaction, OPERATION, album).await?;
    }
    transaction.commit(OPERATION).await?;
    let Difference { entries, added, removed, .. } = *difference;
    Ok(Some(ImportedStartList { version, entries, added, removed, photos }))
}

async fn load_state(transaction: &mut Transaction, album: AlbumId) -> Result<ListState> {
    let state: Option<ListState> =
        query(OPERATION, LIST_STATE).bind(album).fetch_optional(transaction).await?;
    state.ok_or_else(|| StoreError::not_found(format!("album {album}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::AlbumFixture;
    use crate::sql::tests::open_store;

    fn merge_of(fixture: &AlbumFixture, bib: &str, wave: Option<&str>) -> StartListImport {
        let entry = StartListEntry { wave: wave.map(str::to_owned), ..StartListEntry::of(bib.to_owned()) };
        let (mode, imported_by) = (ImportMode::Merge, fixture.key.id);
        StartListImport { mode, entries: vec![entry], imported_by, max_entries: 2 }
    }

    #[tokio::test]
    async fn what_was_merged_with_another_list_is_merged_again() {
        let (_folder, store, file) = open_store().await;
        let database = Database::Sqlite(file);
        let fixture = AlbumFixture::create(&store).await;
        for (bib, wave) in [("7", None), ("8", None), ("8", Some("B"))] {
            let prepared =
                prepare(&database, fixture.album, merge_of(&fixture, "7", None), None).await.unwrap();
            let other = import(&database, fixture.album, merge_of(&fixture, bib, wave), None).await;
            assert!(other.is_ok());
            let written = write(&database, fixture.album, &prepared).await.unwrap();
            assert_eq!(written, None, "it was merged with the list before {bib} {wave:?}");
        }
        let prepared = prepare(&database, fixture.album, merge_of(&fixture, "8", None), None).await.unwrap();
        let written = write(&database, fixture.album, &prepared).await.unwrap().unwrap();
        assert_eq!((written.entries, written.added, written.removed), (2, 0, 0));
        let too_many = prepare(&database, fixture.album, merge_of(&fixture, "9", None), None).await;
        assert_eq!(too_many.err().map(|error| error.kind), Some(StoreErrorKind::TooLarge));
    }

    /// The only thread that merges is busy: an import that was the writer meanwhile would let no other write.
    #[test]
    fn a_list_is_merged_before_the_import_is_the_writer() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (_folder, store, file) = open_store().await;
            let database = Database::Sqlite(file.clone());
            let fixture = AlbumFixture::create(&store).await;
            let (release, released) = std::sync::mpsc::channel::<()>();
            drop(tokio::task::spawn_blocking(move || released.recv()));
            let import = import(&database, fixture.album, merge_of(&fixture, "7", None), None);
            tokio::pin!(import);
            tokio::select! {
                biased;
                _ = &mut import => panic!("merged on a thread of the runtime"),
                writer = file.begin_write() => drop(writer.unwrap()),
            }
            drop(release);
            assert_eq!(import.await.unwrap().entries, 1);
        });
    }
}
