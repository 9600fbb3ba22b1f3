//! Bib readings in the database, photo by photo, for the bibs of faces.

use futures_util::{Stream, TryStreamExt};
use sqlx::FromRow;
use tokio::task::consume_budget;

use crate::model::ids::PhotoId;
use crate::model::photo::PhotoSize;
use crate::search::face_bibs::{BibReading, PhotoReadings};
use crate::sql::error::store_error;
use crate::sql::row_types::BoxRow;
use crate::traits::Result;

const OPERATION: &str = "read bibs of faces";

/// The rows of a photo follow each other. A ready photo has a size: without one there is nothing to measure by.
macro_rules! select_readings {
    ($of_photos:literal) => {
        concat!(
            "select seen_text.photo, box_top, box_left, box_width, box_height, \
             text, confidence, width, height, taken_at \
             from seen_text join photo on photo.album = seen_text.album and photo.id = seen_text.photo \
             where seen_text.album = $1 and standing = 'INDEXED' and width is not null and height is not null ",
            $of_photos,
            "order by seen_text.album, seen_text.photo"
        )
    };
}

pub(crate) const ALBUM_READINGS: &str = select_readings!("");

pub(crate) const CHANGED_READINGS: &str = select_readings!(
    "and seen_text.photo in \
     (select photo from photo_change where album = $1 and change > $2 and change <= $3) "
);

#[derive(FromRow)]
pub(crate) struct ReadingRow {
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    text: String,
    confidence: f64,
    width: i64,
    height: i64,
    taken_at: Option<i64>,
}

/// Passes the readings of each photo to `on_photo`.
pub(crate) async fn for_each_photo(
    mut rows: impl Stream<Item = std::result::Result<ReadingRow, sqlx::Error>> + Unpin,
    mut on_photo: impl FnMut(PhotoId, &PhotoReadings),
) -> Result<()> {
    let mut current: Option<(PhotoId, PhotoReadings)> = None;
    while let Some(row) = rows.try_next().await.map_err(store_error(OPERATION))? {
        // As for the faces.
        consume_budget().await;
        let ReadingRow { photo, bounding_box, text, confidence, width, height, taken_at } = row;
        if let Some((ended, readings)) = current.take_if(|(current, _)| *current != photo) {
            on_photo(ended, &readings);
        }
        let size = PhotoSize {
            width: width.try_into().unwrap_or(u32::MAX),
            height: height.try_into().unwrap_or(u32::MAX),
        };
        let (_, readings) = current.get_or_insert_with(|| (photo, PhotoReadings::new(size, taken_at)));
        readings.add(BibReading { text, confidence, bounding_box: bounding_box.into() });
    }
    if let Some((ended, readings)) = current {
        on_photo(ended, &readings);
    }
    Ok(())
}
