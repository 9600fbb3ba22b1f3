//! The formats of bibs that albums show: learned again whenever an album has grown by a tenth.

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

pub(super) const NEXT_ALBUM: &str =
    "select album from album_to_learn where album > $1 order by album limit 1";

/// Bibs that exact searches would find by what was read, with the number of their photos.
pub(crate) const SIGHTINGS: &str = "select coalesce(read_as, text), count(distinct photo) from seen_text \
     where album = $1 and coalesce(read_standing, standing) = 'INDEXED' group by coalesce(read_as, text)";

const SAVE: &str = "insert into bib_format (album, learned, learned_at) values ($1, $2, $3) \
     on conflict (album) do update set learned = excluded.learned, learned_at = excluded.learned_at";

/// Locks the album and says when its format is to be learned next.
const SCHEDULE: &str = "update album set learn_at = $2 where id = $1 and closed_at is null \
     returning changes, config";

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
    let changes = "select changes from album where id = $1";
    let changes: Option<(i64,)> = query(OPERATION, changes).bind(album).fetch_optional(&mut snapshot).await?;
    let rows: Vec<(String, i64)> = query(OPERATION, SIGHTINGS).bind(album).fetch_all(&mut snapshot).await?;
    drop(snapshot);
    let to_sighting = |(bib, photos): (String, i64)| Sighting { bib, photos: photos.unsigned_abs() };
    let sightings: Vec<Sighting> = rows.into_iter().map(to_sighting).collect();
    let learned = tokio::task::spawn_blocking(move || learn(&sightings)).await;
    let learned = learned
        .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, OPERATION).with_source(error))?;
    let (changes,) = changes.unwrap_or_default();
    let mut transaction = database.begin_write(OPERATION).await?;
    fence(&mut transaction, OPERATION, lease).await?;
    save(&mut transaction, album, changes, learned, master).await?;
    transaction.commit(OPERATION).await
}

/// Keeps what was learned when the album had so many changes.
async fn save(
    transaction: &mut Transaction,
    album: AlbumId,
    changes: i64,
    mut learned: LearnedFormat,
    master: Option<&MasterSecret>,
) -> Result<()> {
    let learn_at = changes + 1 + changes / GROWTH;
    let row: Option<(i64, String)> =
        query(OPERATION, SCHEDULE).bind(album).bind(learn_at).fetch_optional(&mut *transaction).await?;
    if let Some((now, config)) = row {
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
        if now >= learn_at {
            return Ok(());
        }
    }
    let forget = "delete from album_to_learn where album = $1";
    query(OPERATION, forget).bind(album).execute(transaction).await.map(drop)
}
