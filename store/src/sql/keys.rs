//! Organizations and API keys in the database.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::error::StoreError;
use crate::model::encoding::{now_micros, to_micros};
use crate::model::ids::{KeyId, OrganizationId};
use crate::model::key::{Key, KeyDigest, NewKey};
use crate::sql::database::Database;
use crate::sql::row_types::{KeyRow, convert_rows, to_json};
use crate::sql::statement::query;
use crate::traits::{Keys, Result};

/// The time of last use is written again when the stored one is at least this much older, microseconds.
const TOUCH_INTERVAL_MICROS: i64 = 60_000_000;

macro_rules! key_columns {
    () => {
        "k.id, k.organization, o.name as organization_name, k.mode, k.label, k.hint, k.scopes, k.limits, k.created_at, \
         k.last_used_at, k.expires_at, k.revoked_at \
         from api_key k join organization o on o.id = k.organization"
    };
}

pub(crate) struct SqlKeys {
    database: Database,
    /// When this process last wrote the use of each key, so that most requests cost no statement.
    last_touched: Mutex<HashMap<KeyId, i64>>,
}

impl SqlKeys {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, last_touched: Mutex::default() }
    }

    /// Whether a use at `at` is to be written; records that it is.
    fn claim_touch(&self, id: KeyId, at: i64) -> bool {
        let mut touched = self.last_touched.lock().unwrap_or_else(PoisonError::into_inner);
        let last = touched.entry(id).or_insert(i64::MIN);
        let is_due = at.saturating_sub(*last) >= TOUCH_INTERVAL_MICROS;
        if is_due {
            *last = at;
        }
        is_due
    }
}

#[async_trait]
impl Keys for SqlKeys {
    async fn get_or_create_organization(&self, name: &str) -> Result<OrganizationId> {
        const OPERATION: &str = "create an organization";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let insert = "insert into organization (id, name, created_at) values ($1, $2, $3) \
                      on conflict (name) do nothing";
        query(OPERATION, insert)
            .bind(OrganizationId::generate())
            .bind(name)
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        let (id,): (OrganizationId,) = query(OPERATION, "select id from organization where name = $1")
            .bind(name)
            .fetch_one(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        Ok(id)
    }

    async fn find_organization(&self, name: &str) -> Result<Option<OrganizationId>> {
        const OPERATION: &str = "find an organization";
        let found: Option<(OrganizationId,)> =
            query(OPERATION, "select id from organization where name = $1")
                .bind(name)
                .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
                .await?;
        Ok(found.map(|(id,)| id))
    }

    async fn create(&self, key: NewKey) -> Result<Key> {
        const OPERATION: &str = "store a key";
        let id = KeyId::generate();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let insert = "insert into api_key (id, organization, mode, label, hint, digest, scopes, created_at, \
                      expires_at, limits) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        query(OPERATION, insert)
            .bind(id)
            .bind(key.organization)
            .bind(key.mode.as_str())
            .bind(key.label)
            .bind(key.hint)
            .bind(key.digest.to_vec())
            .bind(to_json(&key.scopes)?)
            .bind(now_micros())
            .bind(key.expires_at.map(to_micros))
            .bind((!key.limits.is_empty()).then(|| to_json(&key.limits)).transpose()?)
            .execute(&mut transaction)
            .await?;
        let row: KeyRow = query(OPERATION, concat!("select ", key_columns!(), " where k.id = $1"))
            .bind(id)
            .fetch_one(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        row.try_into()
    }

    async fn find(&self, digest: &KeyDigest) -> Result<Option<Key>> {
        const OPERATION: &str = "find a key";
        let row: Option<KeyRow> =
            query(OPERATION, concat!("select ", key_columns!(), " where k.digest = $1"))
                .bind(digest.to_vec())
                .fetch_optional(&mut self.database.acquire_key_reader(OPERATION).await?)
                .await?;
        row.map(Key::try_from).transpose()
    }

    async fn touch(&self, id: KeyId, at: OffsetDateTime) -> Result<()> {
        const OPERATION: &str = "record the use of a key";
        let at = to_micros(at);
        if !self.claim_touch(id, at) {
            return Ok(());
        }
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(
            OPERATION,
            "update api_key set last_used_at = $2 \
             where id = $1 and (last_used_at is null or last_used_at <= $2 - $3)",
        )
        .bind(id)
        .bind(at)
        .bind(TOUCH_INTERVAL_MICROS)
        .execute(&mut transaction)
        .await?;
        transaction.commit(OPERATION).await
    }

    async fn list(&self) -> Result<Vec<Key>> {
        const OPERATION: &str = "list keys";
        let rows: Vec<KeyRow> = query(OPERATION, concat!("select ", key_columns!(), " order by k.id"))
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        convert_rows(rows)
    }

    async fn revoke(&self, id: KeyId) -> Result<()> {
        const OPERATION: &str = "revoke a key";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let found =
            query(OPERATION, "update api_key set revoked_at = coalesce(revoked_at, $2) where id = $1")
                .bind(id)
                .bind(now_micros())
                .execute(&mut transaction)
                .await?;
        if found == 0 {
            return Err(StoreError::not_found(format!("key {id}")));
        }
        transaction.commit(OPERATION).await
    }
}
