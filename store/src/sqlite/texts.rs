//! What the bib search looks up.

use async_trait::async_trait;
use sqlx::FromRow;

use super::{Database, fault};
use crate::ids::{AlbumId, PhotoId};
use crate::photo::SeenText;
use crate::rows::{TextRow, json_of};
use crate::text_search::TextRows;
use crate::traits::Result;

/// Texts per statement: the whole answer of one is held in memory.
const TEXTS_AT_ONCE: usize = 500;

/// SQLite has no arrays: the texts travel as a JSON list.
pub(super) const LOOK_UP: &str = "select photo, text, box_top, box_left, box_width, box_height, confidence, \
     standing from seen_text where album = $1 and text in (select value from json_each($2)) \
     and standing in ('INDEXED', 'CANDIDATE')";

pub(crate) struct SqliteTexts {
    database: Database,
}

impl SqliteTexts {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[derive(FromRow)]
struct ReadRow {
    photo: PhotoId,
    #[sqlx(flatten)]
    seen: TextRow,
}

#[async_trait]
impl TextRows for SqliteTexts {
    async fn look_up(&self, album: AlbumId, texts: Vec<&str>) -> Result<Vec<(PhotoId, SeenText)>> {
        let mut read = Vec::new();
        for some in texts.chunks(TEXTS_AT_ONCE) {
            let rows: Vec<ReadRow> = sqlx::query_as(LOOK_UP)
                .bind(album)
                .bind(json_of(&some)?)
                .fetch_all(&self.database.reader)
                .await
                .map_err(fault("search texts"))?;
            for row in rows {
                read.push((row.photo, row.seen.try_into()?));
            }
        }
        Ok(read)
    }
}
