//! What the face index reads.

use async_trait::async_trait;
use futures_util::TryStreamExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use super::{Database, fault};
use crate::error::StoreError;
use crate::face_index::{FaceChanges, FaceRows};
use crate::face_matrix::{FaceMatrix, IndexedFace};
use crate::ids::{AlbumId, PhotoId};
use crate::photo::BoundingBox;
use crate::traits::Result;

const WHAT: &str = "read faces";

macro_rules! select_faces {
    ($rest:literal) => {
        concat!("select photo, box_top, box_left, box_width, box_height, model, embedding from face ", $rest)
    };
}

pub(super) const ALL: &str = select_faces!("where album = $1 and embedding is not null");

pub(super) const CHANGED: &str = select_faces!(
    "where album = $1 and embedding is not null and photo in \
     (select photo from photo_change where album = $1 and change > $2 and change <= $3)"
);

pub(crate) struct SqliteFaces {
    database: Database,
}

impl SqliteFaces {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl FaceRows for SqliteFaces {
    async fn changes(&self, album: AlbumId) -> Result<Option<i64>> {
        sqlx::query_scalar("select changes from album where id = $1")
            .bind(album)
            .fetch_optional(&self.database.reader)
            .await
            .map_err(fault(WHAT))
    }

    async fn load(&self, album: AlbumId) -> Result<(i64, FaceMatrix)> {
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let change = changes_in(&mut snapshot, album).await?;
        let mut matrix = FaceMatrix::default();
        let mut rows = sqlx::query(ALL).bind(album).fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await.map_err(fault(WHAT))? {
            push(&mut matrix, &row)?;
        }
        Ok((change, matrix))
    }

    async fn since(&self, album: AlbumId, change: i64) -> Result<FaceChanges> {
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let upto = changes_in(&mut snapshot, album).await?;
        let photos: Vec<PhotoId> = sqlx::query_scalar(
            "select distinct photo from photo_change where album = $1 and change > $2 and change <= $3",
        )
        .bind(album)
        .bind(change)
        .bind(upto)
        .fetch_all(&mut *snapshot)
        .await
        .map_err(fault(WHAT))?;
        let mut faces = FaceMatrix::default();
        let mut rows = sqlx::query(CHANGED).bind(album).bind(change).bind(upto).fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await.map_err(fault(WHAT))? {
            push(&mut faces, &row)?;
        }
        drop(rows);
        Ok(FaceChanges { upto, photos, faces })
    }
}

async fn changes_in(snapshot: &mut Transaction<'static, Sqlite>, album: AlbumId) -> Result<i64> {
    let change: Option<i64> = sqlx::query_scalar("select changes from album where id = $1")
        .bind(album)
        .fetch_optional(&mut **snapshot)
        .await
        .map_err(fault(WHAT))?;
    change.ok_or_else(|| StoreError::not_found(format!("album {album}")))
}

/// The vector's bytes go from the row into the matrix without a stop.
fn push(matrix: &mut FaceMatrix, row: &SqliteRow) -> Result<()> {
    let number = |column| row.try_get::<f64, _>(column).map_err(fault(WHAT));
    matrix.push(&IndexedFace {
        photo: row.try_get("photo").map_err(fault(WHAT))?,
        bounding_box: BoundingBox {
            top: number("box_top")?,
            left: number("box_left")?,
            width: number("box_width")?,
            height: number("box_height")?,
        },
        model: row.try_get("model").map_err(fault(WHAT))?,
        vector: row.try_get("embedding").map_err(fault(WHAT))?,
    })
}
