//! What the face index reads.

use async_trait::async_trait;
use futures_util::{Stream, TryStreamExt};
use sqlx::FromRow;

use super::fault::fault;
use super::{Database, Transaction, sql};
use crate::error::StoreError;
use crate::face_index::{Change, FaceChanges, FaceRows};
use crate::face_matrix::{FaceMatrix, IndexedFace};
use crate::ids::{AlbumId, PhotoId};
use crate::rows::BoxRow;
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

/// The album's last change, unless the album was closed. It has no mark before its first one.
const NEWEST: &str = "select changes, coalesce((select mark from photo_change \
     where photo_change.album = album.id and change = album.changes limit 1), 0) \
     from album where id = $1 and closed_at is null";

pub(crate) struct SqlFaces {
    database: Database,
}

impl SqlFaces {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

/// A searchable face where its row lies: the vector's bytes go from there into the matrix without a stop.
#[derive(FromRow)]
struct FoundFace<'r> {
    photo: PhotoId,
    #[sqlx(flatten)]
    place: BoxRow,
    model: &'r str,
    embedding: &'r [u8],
}

#[async_trait]
impl FaceRows for SqlFaces {
    async fn newest(&self, album: AlbumId) -> Result<Option<Change>> {
        let row: Option<(i64, i64)> =
            sql(WHAT, NEWEST).bind(album).fetch_optional(&mut self.database.reader(WHAT).await?).await?;
        Ok(row.map(|(number, mark)| Change { number, mark }))
    }

    async fn load(&self, album: AlbumId) -> Result<(Change, FaceMatrix)> {
        let mut snapshot = self.database.snapshot(WHAT).await?;
        // A cold album of a million faces is read in more time than any other statement may take.
        snapshot.without_time_limit(WHAT).await?;
        let change = newest_in(&mut snapshot, album).await?;
        let matrix = match &mut snapshot {
            Transaction::Sqlite(snapshot) => {
                collect(sqlx::query(ALL).bind(album).fetch(&mut **snapshot)).await
            }
            Transaction::Postgres(link) => collect(sqlx::query(ALL).bind(album).fetch(link)).await,
        };
        Ok((change, matrix?))
    }

    async fn since(&self, album: AlbumId, seen: Change) -> Result<Option<FaceChanges>> {
        let mut snapshot = self.database.snapshot(WHAT).await?;
        // An album that was searched while it was empty is read whole here.
        snapshot.without_time_limit(WHAT).await?;
        let upto = newest_in(&mut snapshot, album).await?;
        if mark_of(&mut snapshot, album, seen.number).await? != seen.mark || upto.number < seen.number {
            return Ok(None);
        }
        let photos: Vec<(PhotoId,)> = sql(
            WHAT,
            "select distinct photo from photo_change where album = $1 and change > $2 and change <= $3",
        )
        .bind(album)
        .bind(seen.number)
        .bind(upto.number)
        .fetch_all(&mut snapshot)
        .await?;
        let faces = match &mut snapshot {
            Transaction::Sqlite(snapshot) => {
                let query = sqlx::query(CHANGED).bind(album).bind(seen.number).bind(upto.number);
                collect(query.fetch(&mut **snapshot)).await
            }
            Transaction::Postgres(link) => {
                let query = sqlx::query(CHANGED).bind(album).bind(seen.number).bind(upto.number);
                collect(query.fetch(link)).await
            }
        };
        let photos = photos.into_iter().map(|(photo,)| photo).collect();
        Ok(Some(FaceChanges { upto, photos, faces: faces? }))
    }
}

async fn newest_in(snapshot: &mut Transaction, album: AlbumId) -> Result<Change> {
    let newest: Option<(i64, i64)> = sql(WHAT, NEWEST).bind(album).fetch_optional(snapshot).await?;
    let (number, mark) = newest.ok_or_else(|| StoreError::not_found(format!("album {album}")))?;
    Ok(Change { number, mark })
}

/// The mark of a change of the album; 0 when there is no such change.
async fn mark_of(snapshot: &mut Transaction, album: AlbumId, number: i64) -> Result<i64> {
    let mark: Option<(i64,)> =
        sql(WHAT, "select mark from photo_change where album = $1 and change = $2 limit 1")
            .bind(album)
            .bind(number)
            .fetch_optional(snapshot)
            .await?;
    Ok(mark.map_or(0, |(mark,)| mark))
}

/// The faces of the rows, one after the other: the rows together would be as large as the matrix once more.
async fn collect<R: sqlx::Row>(
    mut rows: impl Stream<Item = std::result::Result<R, sqlx::Error>> + Unpin,
) -> Result<FaceMatrix>
where
    for<'r> FoundFace<'r>: FromRow<'r, R>,
{
    let mut matrix = FaceMatrix::default();
    while let Some(row) = rows.try_next().await.map_err(fault(WHAT))? {
        let FoundFace { photo, place, model, embedding } = FoundFace::from_row(&row).map_err(fault(WHAT))?;
        matrix.push(&IndexedFace { photo, bounding_box: place.into(), model, vector: embedding })?;
    }
    Ok(matrix)
}
