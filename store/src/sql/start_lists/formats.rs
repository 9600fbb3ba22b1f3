//! The formats of bibs that albums show: learned again whenever an album has grown by a tenth, or other numbers are excluded.

use std::collections::HashSet;

use crate::bibs::format::{Sighting, learn};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::AlbumConfig;
use crate::model::bib_format::{BibFormatConfig, LearnedFormat};
use crate::model::encoding::now_micros;
use crate::model::ids::AlbumId;
use crate::model::process::TaskLease;
use crate::sealing::MasterSecret;
use crate::sql::database::{Database, Transaction};
use crate::sql::erasures::guard::load_bibs;
use crate::sql::row_types::{from_json, to_json};
use crate::sql::statement::{ConnectionRef, query};
use crate::sql::tasks::fence;
use crate::traits::Result;

use super::versions::raise_version;

const OPERATION: &str = "learn a format of bibs";

/// The format is learned again after a tenth more changes than the album had.
const GROWTH: i64 = 10;

/// Bibs that exact searches would find by what was read, with the number of their photos.
pub(crate) const SIGHTINGS: &str = "select coalesce(read_as, text), count(distinct photo) from seen_text \
     where album = $1 and coalesce(read_standing, standing) = 'INDEXED' group by coalesce(read_as, text)";

const SAVE: &str = "insert into bib_format (album, learned, learned_at) values ($1, $2, $3) \
     on conflict (album) do update set learned = excluded.learned, learned_at = excluded.learned_at";

/// Locks the album and says when its format is to be learned next.
const SCHEDULE: &str = "update album set learn_at = $2 where id = $1 and closed_at is null \
     returning changes, list_version, config";

/// Whether an album lists a bib: a list that only excludes some does not say who else is there.
pub(super) async fn has_bibs<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    album: AlbumId,
) -> Result<bool> {
    let any = "select bib from start_list_entry where album = $1 and excluded = 0 limit 1";
    let any: Option<(String,)> = query(operation, any).bind(album).fetch_optional(on).await?;
    Ok(any.is_some())
}

/// The format that was learned last.
pub(in crate::sql) async fn load<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    album: AlbumId,
) -> Result<Option<LearnedFormat>> {
    let get = "select learned from bib_format where album = $1";
    let row: Option<(String,)> = query(operation, get).bind(album).fetch_optional(on).await?;
    row.map(|(learned,)| from_json(&learned)).transpose()
}

/// Learns the format of an album that has changed. Its photos are judged again where they would be judged otherwise.
pub(super) async fn learn_album(
    database: &Database,
    lease: TaskLease,
    album: AlbumId,
    master: Option<&MasterSecret>,
) -> Result<()> {
    let mut snapshot = database.begin_snapshot(OPERATION).await?;
    // All texts of an album may take longer than a statement of the service may.
    snapshot.disable_statement_timeout(OPERATION).await?;
    let state = "select changes, list_version, config from album where id = $1";
    let state: Option<(i64, i64, String)> =
        query(OPERATION, state).bind(album).fetch_optional(&mut snapshot).await?;
    let (learned_at, excluded) = match state {
        Some((changes, list_version, config)) => {
            (AlbumState { changes, list_version }, load_excluded(&mut snapshot, album, &config).await?)
        }
        None => Default::default(),
    };
    let rows: Vec<(String, i64)> = query(OPERATION, SIGHTINGS).bind(album).fetch_all(&mut snapshot).await?;
    drop(snapshot);
    let to_sighting = |(bib, photos): (String, i64)| Sighting { bib, photos: photos.unsigned_abs() };
    let rows = rows.into_iter().filter(|(bib, _)| !excluded.contains(bib));
    let sightings: Vec<Sighting> = rows.map(to_sighting).collect();
    let learned = tokio::task::spawn_blocking(move || learn(&sightings)).await;
    let learned = learned
        .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, OPERATION).with_source(error))?;
    let mut transaction = database.begin_write(OPERATION).await?;
    fence(&mut transaction, OPERATION, lease).await?;
    save(&mut transaction, album, learned_at, learned, master).await?;
    transaction.commit(OPERATION).await
}

/// An album when its bibs were counted.
#[derive(Default)]
struct AlbumState {
    changes: i64,
    list_version: i64,
}

/// The numbers that nobody wears: they do not show how bibs are numbered, and one that is printed on every bib would have as many
/// readings as all others. None where the album does not use its list.
async fn load_excluded(snapshot: &mut Transaction, album: AlbumId, config: &str) -> Result<HashSet<String>> {
    let config: AlbumConfig = from_json(config)?;
    if !config.start_list.enabled {
        return Ok(HashSet::new());
    }
    let excluded = "select bib from start_list_entry where album = $1 and excluded <> 0";
    let excluded: Vec<(String,)> = query(OPERATION, excluded).bind(album).fetch_all(snapshot).await?;
    Ok(excluded.into_iter().map(|(bib,)| bib).collect())
}

/// Keeps what was learned of an album as it was.
async fn save(
    transaction: &mut Transaction,
    album: AlbumId,
    learned_at: AlbumState,
    mut learned: LearnedFormat,
    master: Option<&MasterSecret>,
) -> Result<()> {
    let learn_at = learned_at.changes + 1 + learned_at.changes / GROWTH;
    let row: Option<(i64, i64, String)> =
        query(OPERATION, SCHEDULE).bind(album).bind(learn_at).fetch_optional(&mut *transaction).await?;
    if let Some((changes, list_version, config)) = row {
        let before = load(&mut *transaction, OPERATION, album).await?.unwrap_or_default();
        // A bib may have been erased since it was read here. From now on the album is locked.
        if let Some(erased) = load_bibs(transaction, OPERATION, album, master).await? {
            learned.repeated.retain(|bib| !erased.contains(bib));
        }
        query(OPERATION, SAVE)
            .bind(album)
            .bind(to_json(&learned)?)
            .bind(now_micros())
            .execute(&mut *transaction)
            .await?;
        let config: AlbumConfig = from_json(&config)?;
        let has_list = config.start_list.enabled && has_bibs(&mut *transaction, OPERATION, album).await?;
        if !learned.judges_as(&before) && config.bib_format == BibFormatConfig::Auto && !has_list {
            raise_version(transaction, OPERATION, album).await?;
        }
        // It has grown since, or other numbers were excluded.
        if changes >= learn_at || list_version != learned_at.list_version {
            return Ok(());
        }
    }
    let forget = "delete from album_to_learn where album = $1";
    query(OPERATION, forget).bind(album).execute(transaction).await.map(drop)
}
