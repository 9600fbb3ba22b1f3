//! Faces in the database, for the face index.

use std::collections::HashMap;

use async_trait::async_trait;
use futures_util::{Stream, TryStreamExt};
use sqlx::FromRow;
use tokio::task::consume_budget;
use uuid::Uuid;

use crate::error::StoreError;
use crate::model::encoding::floats_from_bytes;
use crate::model::ids::{AlbumId, FaceId, OrganizationId, PhotoId};
use crate::model::photo::{BoundingBox, Embedding};
use crate::search::faces::matrix::{FaceMatrix, IndexedFace, MemoryObserver};
use crate::search::faces::{Change, FaceChanges, FaceSource};
use crate::sql::database::{Database, Transaction};
use crate::sql::error::store_error;
use crate::sql::face_bibs::{ALBUM_READINGS, CHANGED_READINGS, ReadingRow, for_each_photo};
use crate::sql::row_types::BoxRow;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

const OPERATION: &str = "read faces";

macro_rules! select_faces {
    ($rest:literal) => {
        concat!(
            "select id, photo, box_top, box_left, box_width, box_height, model, embedding from face ",
            $rest
        )
    };
}

/// Also those that are not searchable: a bib below one of them is not that of its neighbour.
pub(crate) const ALBUM_FACES: &str = select_faces!("where album = $1");

pub(crate) const CHANGED_FACES: &str = select_faces!(
    "where album = $1 and photo in \
     (select photo from photo_change where album = $1 and change > $2 and change <= $3)"
);

/// The vectors of some faces. The plus keeps SQLite from reading the whole album by its index.
pub(crate) const EMBEDDINGS: Statement = Statement::PerDialect {
    sqlite: "select id, model, embedding from face where id in (select value from json_each($2)) \
             and +album = $1 and embedding is not null",
    postgres: "select id, model, embedding from face where id = any($2) and album = $1 and embedding is not null",
};

/// The latest change of albums that are not closed. The nonce of an album without changes is 0.
macro_rules! select_latest_change {
    ($columns:literal, $albums:literal) => {
        concat!(
            "select ",
            $columns,
            "changes, coalesce((select mark from photo_change \
             where photo_change.album = album.id and change = album.changes limit 1), 0) \
             from album where closed_at is null and ",
            $albums
        )
    };
}

const LATEST_CHANGE: &str = select_latest_change!("", "id = $1");

pub(crate) const LATEST_CHANGES: Statement = Statement::PerDialect {
    sqlite: select_latest_change!("id, ", "id in (select unhex(value) from json_each($1))"),
    postgres: select_latest_change!("id, ", "id = any($1)"),
};

pub(crate) struct SqlFaces {
    database: Database,
}

impl SqlFaces {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

/// A face that borrows from its row, so that the vector is copied only once, into the matrix. One that is not searchable
/// has neither model nor vector.
#[derive(FromRow)]
struct FaceRecord<'r> {
    id: FaceId,
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    model: Option<&'r str>,
    embedding: Option<&'r [u8]>,
}

#[async_trait]
impl FaceSource for SqlFaces {
    async fn last_change(&self, album: AlbumId) -> Result<Option<Change>> {
        let row: Option<(i64, i64)> = query(OPERATION, LATEST_CHANGE)
            .bind(album)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(row.map(|(number, mark)| Change { number, nonce: mark }))
    }

    async fn owner(&self, album: AlbumId) -> Result<Option<OrganizationId>> {
        let owner = "select organization from album where id = $1 and closed_at is null";
        let row: Option<(OrganizationId,)> = query(OPERATION, owner)
            .bind(album)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(row.map(|(organization,)| organization))
    }

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        let ids: Vec<Uuid> = albums.iter().map(|album| album.0).collect();
        let rows: Vec<(AlbumId, i64, i64)> = query(OPERATION, LATEST_CHANGES)
            .bind(ids)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(album, number, nonce)| (album, Change { number, nonce })).collect())
    }

    async fn load_faces(&self, album: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        let mut snapshot = self.database.begin_face_load(OPERATION).await?;
        // Reading an album of a million faces takes longer than any other statement may.
        snapshot.disable_statement_timeout(OPERATION).await?;
        let change = load_latest_change(&mut snapshot, album).await?;
        let mut faces = ReadFaces::new(memory);
        match &mut snapshot {
            Transaction::Sqlite(snapshot) => {
                faces.read(sqlx::query(ALBUM_FACES).bind(album).fetch(&mut **snapshot)).await?;
                faces.read_bibs(sqlx::query_as(ALBUM_READINGS).bind(album).fetch(&mut **snapshot)).await?;
            }
            Transaction::Postgres(link) => {
                faces.read(sqlx::query(ALBUM_FACES).bind(album).fetch(&mut *link)).await?;
                faces.read_bibs(sqlx::query_as(ALBUM_READINGS).bind(album).fetch(link)).await?;
            }
        }
        Ok((change, faces.matrix))
    }

    async fn changes_since(
        &self,
        album: AlbumId,
        seen: Change,
        memory: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>> {
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        // An album in which no face was found yet may be read almost completely here.
        snapshot.disable_statement_timeout(OPERATION).await?;
        let upto = load_latest_change(&mut snapshot, album).await?;
        let is_known = load_nonce(&mut snapshot, album, seen.number).await? == seen.nonce;
        // Also what has no nonce, as an album without changes: what came after it may be deleted.
        let is_kept = seen.number >= load_pruned_before(&mut snapshot, album).await?;
        if !is_known || !is_kept || upto.number < seen.number {
            return Ok(None);
        }
        let photos: Vec<(PhotoId,)> = query(
            OPERATION,
            "select distinct photo from photo_change where album = $1 and change > $2 and change <= $3",
        )
        .bind(album)
        .bind(seen.number)
        .bind(upto.number)
        .fetch_all(&mut snapshot)
        .await?;
        let (after, up_to) = (seen.number, upto.number);
        let mut faces = ReadFaces::new(memory);
        match &mut snapshot {
            Transaction::Sqlite(snapshot) => {
                let changed = sqlx::query(CHANGED_FACES).bind(album).bind(after).bind(up_to);
                faces.read(changed.fetch(&mut **snapshot)).await?;
                let changed = sqlx::query_as(CHANGED_READINGS).bind(album).bind(after).bind(up_to);
                faces.read_bibs(changed.fetch(&mut **snapshot)).await?;
            }
            Transaction::Postgres(link) => {
                let changed = sqlx::query(CHANGED_FACES).bind(album).bind(after).bind(up_to);
                faces.read(changed.fetch(&mut *link)).await?;
                let changed = sqlx::query_as(CHANGED_READINGS).bind(album).bind(after).bind(up_to);
                faces.read_bibs(changed.fetch(link)).await?;
            }
        }
        let photos = photos.into_iter().map(|(photo,)| photo).collect();
        Ok(Some(FaceChanges { up_to: upto, photos, faces: faces.matrix }))
    }

    async fn read_embeddings(&self, album: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        let ids: Vec<i64> = faces.iter().map(|face| face.0).collect();
        let rows: Vec<(FaceId, String, Vec<u8>)> = query(OPERATION, EMBEDDINGS)
            .bind(album)
            .bind(ids)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        let to_embedding = |(face, model, bytes): (FaceId, String, Vec<u8>)| {
            Ok((face, Embedding { model, vector: floats_from_bytes(&bytes)?.collect() }))
        };
        rows.into_iter().map(to_embedding).collect()
    }
}

async fn load_latest_change(snapshot: &mut Transaction, album: AlbumId) -> Result<Change> {
    let newest: Option<(i64, i64)> =
        query(OPERATION, LATEST_CHANGE).bind(album).fetch_optional(snapshot).await?;
    let (number, mark) = newest.ok_or_else(|| StoreError::not_found(format!("album {album}")))?;
    Ok(Change { number, nonce: mark })
}

/// The nonce of a change of the album; 0 when there is no such change.
async fn load_nonce(snapshot: &mut Transaction, album: AlbumId, number: i64) -> Result<i64> {
    let mark: Option<(i64,)> =
        query(OPERATION, "select mark from photo_change where album = $1 and change = $2 limit 1")
            .bind(album)
            .bind(number)
            .fetch_optional(snapshot)
            .await?;
    Ok(mark.map_or(0, |(mark,)| mark))
}

/// The number below which changes of the album were deleted.
async fn load_pruned_before(snapshot: &mut Transaction, album: AlbumId) -> Result<i64> {
    let (before,): (i64,) = query(OPERATION, "select pruned_before from album where id = $1")
        .bind(album)
        .fetch_one(snapshot)
        .await?;
    Ok(before)
}

/// Counts what is in memory beside the matrix that is being filled.
struct BesideMatrix<'a> {
    bytes: usize,
    memory: &'a dyn MemoryObserver,
}

impl MemoryObserver for BesideMatrix<'_> {
    fn reserve(&self, bytes: usize) -> Result<()> {
        self.memory.reserve(self.bytes + bytes)
    }
}

/// Faces that are being read, then their bibs.
struct ReadFaces<'a> {
    matrix: FaceMatrix,
    /// Places of faces that are not searchable.
    others: HashMap<PhotoId, Vec<BoundingBox>>,
    memory: BesideMatrix<'a>,
}

impl<'a> ReadFaces<'a> {
    fn new(memory: &'a dyn MemoryObserver) -> Self {
        let memory = BesideMatrix { bytes: 0, memory };
        Self { matrix: FaceMatrix::default(), others: HashMap::new(), memory }
    }

    /// Reads faces one by one: all rows together would need as much memory as the matrix again.
    async fn read<R: sqlx::Row>(
        &mut self,
        mut rows: impl Stream<Item = std::result::Result<R, sqlx::Error>> + Unpin,
    ) -> Result<()>
    where
        for<'r> FaceRecord<'r>: FromRow<'r, R>,
    {
        while let Some(row) = rows.try_next().await.map_err(store_error(OPERATION))? {
            let FaceRecord { id, photo, bounding_box, model, embedding } =
                FaceRecord::from_row(&row).map_err(store_error(OPERATION))?;
            let bounding_box = bounding_box.into();
            if let (Some(model), Some(vector)) = (model, embedding) {
                self.matrix.push(&IndexedFace { id, photo, bounding_box, model, vector }, &self.memory)?;
            } else {
                self.others.entry(photo).or_default().push(bounding_box);
                self.memory.bytes += size_of::<(PhotoId, Vec<BoundingBox>)>() + size_of::<BoundingBox>();
            }
            // Rows may arrive faster than they are read: other tasks of this thread have their turn in between.
            consume_budget().await;
        }
        Ok(())
    }

    /// Reads what was read below the faces.
    async fn read_bibs(
        &mut self,
        rows: impl Stream<Item = std::result::Result<ReadingRow, sqlx::Error>> + Unpin,
    ) -> Result<()> {
        let Self { matrix, others, .. } = self;
        for_each_photo(rows, |photo, readings| {
            matrix.assign_bibs(photo, readings, others.get(&photo).map_or(&[][..], Vec::as_slice));
        })
        .await
    }
}
