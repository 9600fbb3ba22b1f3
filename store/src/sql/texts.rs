//! What the bib search looks up.

use async_trait::async_trait;
use sqlx::FromRow;

use super::{Database, Statement, sql};
use crate::ids::{AlbumId, PhotoId};
use crate::photo::SeenText;
use crate::rows::TextRow;
use crate::text_search::TextRows;
use crate::traits::Result;

/// Texts per statement: the whole answer of one is held in memory.
const TEXTS_AT_ONCE: usize = 500;

macro_rules! look_up {
    ($is_one_of:literal) => {
        concat!(
            "select photo, text, box_top, box_left, box_width, box_height, confidence, standing \
             from seen_text where album = $1 and text ",
            $is_one_of,
            " and standing in ('INDEXED', 'CANDIDATE')"
        )
    };
}

pub(super) const LOOK_UP: Statement = Statement::Each {
    sqlite: look_up!("in (select value from json_each($2))"),
    postgres: look_up!("= any($2)"),
};

pub(crate) struct SqlTexts {
    database: Database,
}

impl SqlTexts {
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
impl TextRows for SqlTexts {
    async fn look_up(&self, album: AlbumId, texts: Vec<&str>) -> Result<Vec<(PhotoId, SeenText)>> {
        const WHAT: &str = "search texts";
        let mut read = Vec::new();
        let mut reader = self.database.reader(WHAT).await?;
        for some in texts.chunks(TEXTS_AT_ONCE) {
            let texts: Vec<String> = some.iter().map(|text| (*text).to_owned()).collect();
            let rows: Vec<ReadRow> =
                sql(WHAT, LOOK_UP).bind(album).bind(texts).fetch_all(&mut reader).await?;
            for row in rows {
                read.push((row.photo, row.seen.try_into()?));
            }
        }
        Ok(read)
    }
}
