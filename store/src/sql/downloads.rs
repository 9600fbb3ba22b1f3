//! Permitted downloads in the database.

use async_trait::async_trait;

use crate::model::account::TokenDigest;
use crate::model::download::{Download, DownloadFile, NewDownload};
use crate::model::encoding::now_micros;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::sql::database::Database;
use crate::sql::row_types::{from_json, parse_name, to_json};
use crate::sql::statement::query;
use crate::traits::{Downloads, Result};

const CREATE: &str =
    "insert into download (digest, album, photos, file, expires_at) values ($1, $2, $3, $4, $5)";

const FIND: &str = "select album.organization, album.id, album.title, download.photos, download.file from download \
     join album on album.id = download.album \
     where download.digest = $1 and download.expires_at > $2 and album.closed_at is null";

pub(crate) struct SqlDownloads {
    database: Database,
}

impl SqlDownloads {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl Downloads for SqlDownloads {
    async fn create(&self, download: NewDownload) -> Result<()> {
        const OPERATION: &str = "permit a download";
        let now = now_micros();
        let ttl = i64::try_from(download.ttl.as_micros()).unwrap_or(i64::MAX);
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, "delete from download where expires_at <= $1")
            .bind(now)
            .execute(&mut transaction)
            .await?;
        query(OPERATION, CREATE)
            .bind(download.digest.to_vec())
            .bind(download.album)
            .bind(to_json(&download.photos)?)
            .bind(download.file.as_str())
            .bind(now.saturating_add(ttl))
            .execute(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await
    }

    async fn find(&self, digest: &TokenDigest) -> Result<Option<Download>> {
        const OPERATION: &str = "find a download";
        let row: Option<(OrganizationId, AlbumId, String, String, String)> = query(OPERATION, FIND)
            .bind(digest.to_vec())
            .bind(now_micros())
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        let Some((organization, album, title, photos, file)) = row else { return Ok(None) };
        Ok(Some(Download {
            organization,
            album,
            title,
            photos: from_json(&photos)?,
            file: parse_name(&DownloadFile::ALL, DownloadFile::as_str, &file)?,
        }))
    }
}
