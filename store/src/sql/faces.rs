//! Faces in the database, for the face index.

use async_trait::async_trait;
use futures_util::{Stream, TryStreamExt};
use sqlx::FromRow;
use uuid::Uuid;

use crate::error::StoreError;
use crate::model::encoding::floats_from_bytes;
use crate::model::ids::{AlbumId, FaceId, PhotoId};
use crate::model::photo::Embedding;
use crate::search::faces::matrix::{FaceMatrix, IndexedFace, MemoryObserver};
use crate::search::faces::{Change, FaceChanges, FaceSource};
use crate::sql::database::{Database, Transaction};
use crate::sql::error::store_error;
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

pub(crate) const ALBUM_FACES: &str = select_faces!("where album = $1 and embedding is not null");

pub(crate) const CHANGED_FACES: &str = select_faces!(
    "where album = $1 and embedding is not null and photo in \
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

/// A searchable face that borrows from its row, so that the vector is copied only once, into the matrix.
#[derive(FromRow)]
struct FaceRecord<'r> {
    id: FaceId,
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    model: &'r str,
    embedding: &'r [u8],
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

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        let ids: Vec<Uuid> = albums.iter().map(|album| album.0).collect();
        let rows: Vec<(AlbumId, i64, i64)> = query(OPERATION, LATEST_CHANGES)
            .bind(ids)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(album, number, nonce)| (album, Change { number, nonce })).collect())
    }

    async fn load_faces(&self, album: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        // Reading an album of a million faces takes longer than any other statement may.
        snapshot.disable_statement_timeout(OPERATION).await?;
        let change = load_latest_change(&mut snapshot, album).await?;
        let matrix = match &mut snapshot {
            Transaction::Sqlite(snapshot) => {
                collect_faces(sqlx::query(ALBUM_FACES).bind(album).fetch(&mut **snapshot), memory).await
            }
            Transaction::Postgres(link) => {
                collect_faces(sqlx::query(ALBUM_FACES).bind(album).fetch(link), memory).await
            }
        };
        Ok((change, matrix?))
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
        if load_nonce(&mut snapshot, album, seen.number).await? != seen.nonce || upto.number < seen.number {
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
        let faces = match &mut snapshot {
            Transaction::Sqlite(snapshot) => {
                let query = sqlx::query(CHANGED_FACES).bind(album).bind(seen.number).bind(upto.number);
                collect_faces(query.fetch(&mut **snapshot), memory).await
            }
            Transaction::Postgres(link) => {
                let query = sqlx::query(CHANGED_FACES).bind(album).bind(seen.number).bind(upto.number);
                collect_faces(query.fetch(link), memory).await
            }
        };
        let photos = photos.into_iter().map(|(photo,)| photo).collect();
        Ok(Some(FaceChanges { up_to: upto, photos, faces: faces? }))
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

/// Collects the faces of the rows one by one: all rows together would need as much memory as the matrix again.
async fn collect_faces<R: sqlx::Row>(
    mut rows: impl Stream<Item = std::result::Result<R, sqlx::Error>> + Unpin,
    memory: &dyn MemoryObserver,
) -> Result<FaceMatrix>
where
    for<'r> FaceRecord<'r>: FromRow<'r, R>,
{
    let mut matrix = FaceMatrix::default();
    while let Some(row) = rows.try_next().await.map_err(store_error(OPERATION))? {
        let FaceRecord { id, photo, bounding_box: place, model, embedding } =
            FaceRecord::from_row(&row).map_err(store_error(OPERATION))?;
        let bounding_box = place.into();
        matrix.push(&IndexedFace { id, photo, bounding_box, model, vector: embedding }, memory)?;
    }
    Ok(matrix)
}
