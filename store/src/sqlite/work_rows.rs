//! The outbox of the work queue, in the same rows.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::fault;
use super::lease::{self, Term};
use super::queue::SqliteQueue;
use crate::ids::{AlbumId, PhotoId};
use crate::photo::FailureReason;
use crate::rows::{later, now};
use crate::traits::{Named, PhotoRef, Result, Unpublished, WorkRows};

#[async_trait]
impl WorkRows for SqliteQueue {
    async fn unpublished(&self, limit: usize) -> Result<Vec<Unpublished>> {
        const WHAT: &str = "look for unpublished photos";
        let rows: Vec<(AlbumId, PhotoId, i64)> = sqlx::query_as(
            "select album, id, confirmed_at from (select album, id, confirmed_at, \
             row_number() over (partition by album order by confirmed_at, id) as place \
             from photo where state = 'queued' and published_at is null) order by place, confirmed_at, id limit $1",
        )
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&self.database.reader)
        .await
        .map_err(fault(WHAT))?;
        let named =
            |(album, photo, confirmed_at)| Unpublished { photo: PhotoRef { album, photo }, confirmed_at };
        Ok(rows.into_iter().map(named).collect())
    }

    async fn published(&self, photos: &[Unpublished]) -> Result<()> {
        const WHAT: &str = "note published photos";
        let mut transaction = self.database.write(WHAT).await?;
        for Unpublished { photo, confirmed_at } in photos {
            sqlx::query(
                "update photo set published_at = $4 where album = $1 and id = $2 and confirmed_at = $3 \
                 and state in ('queued', 'processing')",
            )
            .bind(photo.album)
            .bind(photo.photo)
            .bind(confirmed_at)
            .bind(now())
            .execute(&mut *transaction)
            .await
            .map_err(fault(WHAT))?;
        }
        transaction.commit().await.map_err(fault(WHAT))
    }

    async fn lease_named(&self, photos: &[PhotoRef], ttl: Duration) -> Result<Vec<Named>> {
        const WHAT: &str = "lease named photos";
        let mut transaction = self.database.write(WHAT).await?;
        let now = now();
        let term = Term { now, until: later(now, ttl) };
        let mut known = HashMap::new();
        let mut answers = Vec::with_capacity(photos.len());
        for PhotoRef { album, photo } in photos {
            let row: Option<(String, i64, i64)> =
                sqlx::query_as("select state, attempts, lease_until from photo where album = $1 and id = $2")
                    .bind(album)
                    .bind(photo)
                    .fetch_optional(&mut *transaction)
                    .await
                    .map_err(fault(WHAT))?;
            let answer = match row {
                Some((state, attempts, until))
                    if state == "queued" || (state == "processing" && until <= now) =>
                {
                    if attempts >= i64::from(self.attempt_limit) {
                        let detail = format!("{attempts} leases ended without a word");
                        let reason = FailureReason::ProcessingCrashed;
                        super::finish::fail_row(&mut transaction, (*album, *photo), reason, &detail).await?;
                        Named::Over
                    } else {
                        let waiting = lease::Waiting { album: *album, photo: *photo, attempts };
                        Named::Leased(lease::take(&mut transaction, waiting, term, &mut known).await?)
                    }
                }
                Some((state, ..)) if state == "processing" => Named::Held,
                _ => Named::Over,
            };
            answers.push(answer);
        }
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(answers)
    }

    async fn republish(&self, before: i64) -> Result<u64> {
        const WHAT: &str = "let photos be published again";
        let mut transaction = self.database.write(WHAT).await?;
        let photos = sqlx::query(
            "update photo set published_at = null where published_at < $1 \
             and (state = 'queued' or (state = 'processing' and lease_until <= $2))",
        )
        .bind(before)
        .bind(now())
        .execute(&mut *transaction)
        .await
        .map_err(fault(WHAT))?
        .rows_affected();
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(photos)
    }
}
