//! Texts in the database, for the bib search.

use async_trait::async_trait;
use sqlx::FromRow;

use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::DetectedText;
use crate::search::texts::TextSource;
use crate::sql::database::Database;
use crate::sql::row_types::TextRow;
use crate::sql::start_lists::entries::find_spellings;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

const OPERATION: &str = "search texts";

/// Values per statement, because the whole result of a statement is kept in memory.
const TEXTS_PER_STATEMENT: usize = 500;

macro_rules! look_up {
    ($is_one_of:literal) => {
        concat!(
            "select photo, text, box_top, box_left, box_width, box_height, confidence, max_confidence, standing, read_as, \
             read_confidence, read_standing from seen_text where album = $1 and text ",
            $is_one_of,
            " and standing in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL')"
        )
    };
}

pub(crate) const FIND_TEXTS: Statement = Statement::PerDialect {
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
struct PhotoTextRow {
    photo: PhotoId,
    #[sqlx(flatten)]
    text: TextRow,
}

#[async_trait]
impl TextSource for SqlTexts {
    async fn find_spellings(&self, album: AlbumId, text: &str) -> Result<Vec<String>> {
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        find_spellings(&mut reader, OPERATION, album, text).await
    }

    async fn find_readings(&self, album: AlbumId, texts: Vec<&str>) -> Result<Vec<(PhotoId, DetectedText)>> {
        let mut read = Vec::new();
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        for chunk in texts.chunks(TEXTS_PER_STATEMENT) {
            let texts: Vec<String> = chunk.iter().map(|text| (*text).to_owned()).collect();
            let rows: Vec<PhotoTextRow> =
                query(OPERATION, FIND_TEXTS).bind(album).bind(texts).fetch_all(&mut reader).await?;
            for row in rows {
                read.push((row.photo, row.text.try_into()?));
            }
        }
        Ok(read)
    }
}
