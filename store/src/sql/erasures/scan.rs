//! Looks in the database for what an erasure removed.
//!
//! Every table that has a column for an album or a photo must be in one of the lists here. The lists are compared with the
//! schema before each scan: one with an unknown table fails, and no receipt is signed.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::FromRow;
use uuid::Uuid;

use super::guard::{ErasedBibs, load_bibs};
use super::rows::StoredErasure;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::erasure::{ErasureKind, ScannedStore};
use crate::model::ids::{AlbumId, ErasureId, PhotoId};
use crate::model::photo::BoundingBox;
use crate::sealing::MasterSecret;
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::BoxRow;
use crate::sql::start_lists::formats;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

const OPERATION: &str = "look for what was erased";

/// A table with rows of albums, and how to count those of one.
struct AlbumTable {
    name: &'static str,
    count: &'static str,
}

macro_rules! album_tables {
    ($($table:literal),+ $(,)?) => {
        [$(AlbumTable { name: $table, count: concat!("select count(*) from ", $table, " where album = $1") }),+]
    };
}

/// Tables whose rows go with their album.
const ALBUM_TABLES: [AlbumTable; 23] = album_tables![
    "photo",
    "photo_change",
    "photo_count",
    "face",
    "seen_text",
    "probe",
    "album_change_feed",
    "event_cursor",
    "start_list",
    "start_list_entry",
    "album_to_judge",
    "album_to_learn",
    "bib_format",
    "erased_place",
    "erased_bib",
    "erased_bib_secret",
    "gallery",
    "gallery_consent",
    "gallery_visitor",
    "gallery_report",
    "watermark",
    "download",
    "album",
];

/// Tables that name an album after it has gone, by its id alone.
const TABLES_OF_IDS: [&str; 6] =
    ["event", "event_outbox", "webhook", "usage_rollup", "cost_rollup", "erasure"];

/// The column of `album` itself.
const COUNT_ALBUM: &str = "select count(*) from album where id = $1";

/// Tables whose rows go with their photo, and how to count those of some.
const PHOTO_TABLES: [(&str, Statement); 5] = [
    (
        "photo",
        Statement::PerDialect {
            sqlite: "select count(*) from photo where album = $1 and id in (select unhex(value) from json_each($2))",
            postgres: "select count(*) from photo where album = $1 and id = any($2)",
        },
    ),
    (
        "face",
        Statement::PerDialect {
            sqlite: "select count(*) from face where album = $1 and photo in (select unhex(value) from json_each($2))",
            postgres: "select count(*) from face where album = $1 and photo = any($2)",
        },
    ),
    (
        "seen_text",
        Statement::PerDialect {
            sqlite: "select count(*) from seen_text where album = $1 and photo in (select unhex(value) from json_each($2))",
            postgres: "select count(*) from seen_text where album = $1 and photo = any($2)",
        },
    ),
    (
        "erased_place",
        Statement::PerDialect {
            sqlite: "select count(*) from erased_place where album = $1 and photo in (select unhex(value) from json_each($2))",
            postgres: "select count(*) from erased_place where album = $1 and photo = any($2)",
        },
    ),
    (
        "gallery_report",
        Statement::PerDialect {
            sqlite: "select count(*) from gallery_report where album = $1 and photo in (select unhex(value) from json_each($2))",
            postgres: "select count(*) from gallery_report where album = $1 and photo = any($2)",
        },
    ),
];

/// Tables that name a photo after it has gone: face indexes learn from them that it has.
const TABLES_OF_PHOTO_IDS: [&str; 1] = ["photo_change"];

/// Tables with a column for albums or photos.
const TABLES: Statement = Statement::PerDialect {
    sqlite: "select tables.name as table_name, columns.name as column_name from sqlite_master as tables \
             join pragma_table_info(tables.name) as columns \
             where tables.type = 'table' and columns.name in ('album', 'photo') order by 1, 2",
    postgres: "select table_name::text as table_name, column_name::text as column_name from information_schema.columns \
               where table_schema = current_schema() and column_name in ('album', 'photo') order by 1, 2",
};

const ERASED_FACES: &str = "select face.id, face.photo, face.box_top, face.box_left, face.box_width, face.box_height \
     from face where face.album = $1 and face.embedding is not null \
     and face.photo in (select photo from erased_place where erasure = $2)";

const ERASED_PLACES: &str = "select id, photo, box_top, box_left, box_width, box_height from erased_place where album = $1 and erasure = $2";

const TEXTS: &str = "select text from seen_text where album = $1 union select read_as from seen_text \
     where album = $1 and read_as is not null union select bib from start_list_entry where album = $1";

const COUNT_PROBES: Statement = Statement::PerDialect {
    sqlite: "select count(*) from probe where id in (select unhex(value) from json_each($1))",
    postgres: "select count(*) from probe where id = any($1)",
};

#[derive(FromRow)]
struct PlaceOfPhoto {
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
}

/// Looks for rows.
#[derive(Clone)]
pub(crate) struct RowScan {
    pub(crate) database: Database,
    pub(crate) master: Option<MasterSecret>,
}

impl RowScan {
    /// Looks in every table for rows that an erasure should have removed.
    ///
    /// # Errors
    /// `Corrupt` when a table of the schema is unknown here.
    pub(crate) async fn run(&self, stored: &StoredErasure) -> Result<ScannedStore> {
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        snapshot.disable_statement_timeout(OPERATION).await?;
        check_schema(&mut snapshot).await?;
        let album = stored.erasure.album;
        let mut scanned = ScannedStore { store: "rows".to_owned(), looked: 0, left: 0 };
        if stored.erasure.kind == ErasureKind::Album {
            for table in &ALBUM_TABLES {
                let count = if table.name == "album" { COUNT_ALBUM } else { table.count };
                let (left,): (i64,) = query(OPERATION, count).bind(album).fetch_one(&mut snapshot).await?;
                scanned.looked += 1;
                scanned.left += left.unsigned_abs();
            }
            return Ok(scanned);
        }
        self.scan_photos(&mut snapshot, stored, &mut scanned).await?;
        match stored.erasure.kind {
            ErasureKind::Face | ErasureKind::Bib => {
                let id = stored.erasure.id;
                if stored.plan.all_faces {
                    scan_all_faces(&mut snapshot, album, &mut scanned).await?;
                }
                scan_faces(&mut snapshot, album, id, &mut scanned).await?;
                // All erased bibs of the album: two erasures may be of one bib.
                let bibs = load_bibs(&mut snapshot, OPERATION, album, self.master.as_ref()).await?;
                if let Some(bibs) = bibs {
                    scan_texts(&mut snapshot, album, &bibs, &mut scanned).await?;
                }
            }
            ErasureKind::Photo | ErasureKind::Album => {}
        }
        Ok(scanned)
    }

    async fn scan_photos(
        &self,
        snapshot: &mut Transaction,
        stored: &StoredErasure,
        scanned: &mut ScannedStore,
    ) -> Result<()> {
        let photos: Vec<Uuid> = stored.plan.deleted_photos.iter().map(|photo| photo.0).collect();
        if !photos.is_empty() {
            for (_, count) in PHOTO_TABLES {
                let (left,): (i64,) = query(OPERATION, count)
                    .bind(stored.erasure.album)
                    .bind(photos.clone())
                    .fetch_one(&mut *snapshot)
                    .await?;
                scanned.looked += photos.len() as u64;
                scanned.left += left.unsigned_abs();
            }
        }
        let probes: Vec<Uuid> = stored.plan.probes.iter().map(|probe| probe.0).collect();
        let (left,): (i64,) = query(OPERATION, COUNT_PROBES).bind(probes.clone()).fetch_one(snapshot).await?;
        scanned.looked += probes.len() as u64;
        scanned.left += left.unsigned_abs();
        Ok(())
    }
}

/// Compares the lists of tables with the schema.
async fn check_schema(snapshot: &mut Transaction) -> Result<()> {
    let columns: Vec<(String, String)> = query(OPERATION, TABLES).fetch_all(snapshot).await?;
    let known: BTreeSet<&str> = ALBUM_TABLES.iter().map(|table| table.name).chain(TABLES_OF_IDS).collect();
    let known_of_photos: BTreeSet<&str> =
        PHOTO_TABLES.iter().map(|(name, _)| *name).chain(TABLES_OF_PHOTO_IDS).collect();
    for (table, column) in columns {
        let known = if column == "photo" { &known_of_photos } else { &known };
        if !known.contains(table.as_str()) {
            let what =
                format!("table {table} is not looked at for what was erased: it has a column {column}");
            return Err(StoreError::new(StoreErrorKind::Corrupt, what));
        }
    }
    Ok(())
}

/// Counts faces with a vector, unless the owner of the album has switched faces on again: those are new.
async fn scan_all_faces(
    snapshot: &mut Transaction,
    album: AlbumId,
    scanned: &mut ScannedStore,
) -> Result<()> {
    let count = "select count(*), cast(coalesce(sum(case when embedding is null then 0 else 1 end), 0) as bigint) \
                 from face where album = $1 and exists (select 1 from album where id = $1 and faces_erased_at is not null)";
    let (faces, left): (i64, i64) = query(OPERATION, count).bind(album).fetch_one(snapshot).await?;
    scanned.looked += faces.unsigned_abs();
    scanned.left += left.unsigned_abs();
    Ok(())
}

/// Counts faces with a vector at erased places.
async fn scan_faces(
    snapshot: &mut Transaction,
    album: AlbumId,
    id: ErasureId,
    scanned: &mut ScannedStore,
) -> Result<()> {
    let places: Vec<PlaceOfPhoto> =
        query(OPERATION, ERASED_PLACES).bind(album).bind(id).fetch_all(&mut *snapshot).await?;
    let mut by_photo: BTreeMap<PhotoId, Vec<BoundingBox>> = BTreeMap::new();
    for PlaceOfPhoto { photo, bounding_box } in places {
        by_photo.entry(photo).or_default().push(bounding_box.into());
    }
    let faces: Vec<PlaceOfPhoto> =
        query(OPERATION, ERASED_FACES).bind(album).bind(id).fetch_all(snapshot).await?;
    scanned.looked += by_photo.values().map(|places| places.len() as u64).sum::<u64>();
    for PlaceOfPhoto { photo, bounding_box } in faces {
        let face: BoundingBox = bounding_box.into();
        let places = by_photo.get(&photo).map_or(&[][..], Vec::as_slice);
        if places.iter().any(|place| place.is_same_face(&face)) {
            scanned.left += 1;
        }
    }
    Ok(())
}

/// Counts texts, entries of the start list and bibs of what was learned of the album that say an erased bib.
async fn scan_texts(
    snapshot: &mut Transaction,
    album: AlbumId,
    bibs: &ErasedBibs,
    scanned: &mut ScannedStore,
) -> Result<()> {
    let texts: Vec<(String,)> = query(OPERATION, TEXTS).bind(album).fetch_all(&mut *snapshot).await?;
    let learned = formats::load(snapshot, OPERATION, album).await?.unwrap_or_default();
    let texts = texts.iter().map(|(text,)| text).chain(&learned.repeated);
    for text in texts {
        scanned.looked += 1;
        scanned.left += u64::from(bibs.contains(text));
    }
    Ok(())
}
