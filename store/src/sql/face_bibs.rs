//! Faces and bib readings in the database, photo by photo, for the bibs of faces.

use std::ops::RangeInclusive;

use futures_util::{Stream, TryStreamExt};
use sqlx::FromRow;

use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::PhotoSize;
use crate::search::face_bibs::{BibReading, FaceBibs, FaceBibsBuilder, ReadPhoto};
use crate::sql::database::Transaction;
use crate::sql::error::store_error;
use crate::sql::row_types::BoxRow;
use crate::traits::Result;

const OPERATION: &str = "read bibs of faces";

/// The rows of a photo follow each other. Those of readings have a text.
macro_rules! select_detections {
    ($of_photos:literal) => {
        concat!(
            "select photo, id, box_top, box_left, box_width, box_height, \
             null as text, null as confidence, null as width, null as height, null as taken_at \
             from face where album = $1 ",
            $of_photos,
            "union all \
             select seen_text.photo, seen_text.id, box_top, box_left, box_width, box_height, \
             text, confidence, width, height, taken_at \
             from seen_text join photo on photo.album = seen_text.album and photo.id = seen_text.photo \
             where seen_text.album = $1 and standing = 'INDEXED' ",
            $of_photos,
            "order by photo"
        )
    };
}

pub(crate) const ALBUM_DETECTIONS: &str = select_detections!("");

pub(crate) const CHANGED_DETECTIONS: &str = select_detections!(
    "and photo in (select photo from photo_change where album = $1 and change > $2 and change <= $3) "
);

#[derive(FromRow)]
struct DetectionRow {
    photo: PhotoId,
    id: i64,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    text: Option<String>,
    confidence: Option<f64>,
    width: Option<i64>,
    height: Option<i64>,
    taken_at: Option<i64>,
}

/// Reads the bibs of all faces of an album.
pub(crate) async fn load_album_bibs(snapshot: &mut Transaction, album: AlbumId) -> Result<FaceBibs> {
    match snapshot {
        Transaction::Sqlite(snapshot) => {
            collect_bibs(sqlx::query_as(ALBUM_DETECTIONS).bind(album).fetch(&mut **snapshot)).await
        }
        Transaction::Postgres(link) => {
            collect_bibs(sqlx::query_as(ALBUM_DETECTIONS).bind(album).fetch(link)).await
        }
    }
}

/// Reads the bibs of the faces of photos that changed after the first of `changes`, up to the last.
pub(crate) async fn load_changed_bibs(
    snapshot: &mut Transaction,
    album: AlbumId,
    changes: RangeInclusive<i64>,
) -> Result<FaceBibs> {
    let (after, up_to) = changes.into_inner();
    match snapshot {
        Transaction::Sqlite(snapshot) => {
            let query = sqlx::query_as(CHANGED_DETECTIONS).bind(album).bind(after).bind(up_to);
            collect_bibs(query.fetch(&mut **snapshot)).await
        }
        Transaction::Postgres(link) => {
            let query = sqlx::query_as(CHANGED_DETECTIONS).bind(album).bind(after).bind(up_to);
            collect_bibs(query.fetch(link)).await
        }
    }
}

async fn collect_bibs(
    mut rows: impl Stream<Item = std::result::Result<DetectionRow, sqlx::Error>> + Unpin,
) -> Result<FaceBibs> {
    let mut builder = FaceBibsBuilder::default();
    while let Some(row) = rows.try_next().await.map_err(store_error(OPERATION))? {
        let DetectionRow { photo, id, bounding_box, text, confidence, width, height, taken_at } = row;
        let bounding_box = bounding_box.into();
        let size = width.zip(height).and_then(|(width, height)| {
            Some(PhotoSize { width: width.try_into().ok()?, height: height.try_into().ok()? })
        });
        match (text, confidence, size) {
            (None, ..) => builder.add_face(photo, id, bounding_box),
            (Some(text), Some(confidence), Some(size)) => {
                let photo_read = ReadPhoto { size, taken_at };
                builder.add_reading(photo, BibReading { text, confidence, bounding_box, photo: photo_read });
            }
            // A ready photo has a size: without one there is nothing to measure by.
            _ => {}
        }
    }
    Ok(builder.finish())
}
