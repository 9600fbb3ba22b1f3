//! SQLite: inserts the faces and texts of photos.

use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::photo_ref;
use crate::model::encoding::vector_to_bytes;
use crate::model::photo::{DetectedFace, DetectedText};
use crate::sql::error::store_error;
use crate::sql::row_types::index_state_to_str;
use crate::traits::{PhotoRef, PhotoResults, Result};

/// Rows that one statement inserts. Each number of rows is a text of its own in the cache of prepared statements.
const ROWS_PER_INSERT: usize = 16;

/// Inserts what was detected in these photos.
pub(super) async fn insert(connection: &mut SqliteConnection, photos: &[&PhotoResults]) -> Result<()> {
    let faces: Vec<(PhotoRef, &DetectedFace)> = photos
        .iter()
        .flat_map(|results| results.faces.iter().map(|face| (photo_ref(results), face)))
        .collect();
    for faces in faces.chunks(ROWS_PER_INSERT) {
        insert_faces(connection, faces).await?;
    }
    let texts: Vec<(PhotoRef, &DetectedText)> = photos
        .iter()
        .flat_map(|results| results.texts.iter().map(|text| (photo_ref(results), text)))
        .collect();
    for texts in texts.chunks(ROWS_PER_INSERT) {
        insert_texts(connection, texts).await?;
    }
    Ok(())
}

/// Not from JSON, which would round the numbers and double the bytes of the vectors.
async fn insert_faces(connection: &mut SqliteConnection, faces: &[(PhotoRef, &DetectedFace)]) -> Result<()> {
    let mut insert = QueryBuilder::<Sqlite>::new(
        "insert into face (album, photo, box_top, box_left, box_width, box_height, confidence, unindexed, \
         model, embedding) ",
    );
    insert.push_values(faces, |mut row, (PhotoRef { album, photo }, face)| {
        row.push_bind(*album)
            .push_bind(*photo)
            .push_bind(face.bounding_box.top)
            .push_bind(face.bounding_box.left)
            .push_bind(face.bounding_box.width)
            .push_bind(face.bounding_box.height)
            .push_bind(face.confidence)
            .push_bind(face.unindexed.map(|reason| reason.as_str()))
            .push_bind(face.embedding.as_ref().map(|embedding| embedding.model.clone()))
            .push_bind(face.embedding.as_ref().map(|embedding| vector_to_bytes(&embedding.vector)));
    });
    insert.build().execute(connection).await.map_err(store_error("insert faces")).map(drop)
}

async fn insert_texts(connection: &mut SqliteConnection, texts: &[(PhotoRef, &DetectedText)]) -> Result<()> {
    let mut insert = QueryBuilder::<Sqlite>::new(
        "insert into seen_text (album, photo, text, box_top, box_left, box_width, box_height, confidence, \
         max_confidence, standing, read_as, read_confidence, read_standing, recogniser, lattice) ",
    );
    insert.push_values(texts, |mut row, (PhotoRef { album, photo }, text)| {
        row.push_bind(*album)
            .push_bind(*photo)
            .push_bind(text.text.clone())
            .push_bind(text.bounding_box.top)
            .push_bind(text.bounding_box.left)
            .push_bind(text.bounding_box.width)
            .push_bind(text.bounding_box.height)
            .push_bind(text.confidence)
            .push_bind(text.max_confidence)
            .push_bind(index_state_to_str(text.index_state))
            .push_bind(text.read.as_ref().map(|read| read.text.clone()))
            .push_bind(text.read.as_ref().map(|read| read.confidence))
            .push_bind(text.read.as_ref().map(|read| index_state_to_str(read.index_state)))
            .push_bind(text.lattice.as_ref().map(|lattice| lattice.recogniser.clone()))
            .push_bind(text.lattice.as_ref().map(|lattice| lattice.lattice.as_bytes().to_vec()));
    });
    insert.build().execute(connection).await.map_err(store_error("insert texts")).map(drop)
}
