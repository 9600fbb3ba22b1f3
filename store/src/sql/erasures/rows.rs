//! The rows of erasures, and the public keys of receipts.

use sqlx::FromRow;

use super::ErasurePlan;
use super::removal::find_marking_end;
use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::encoding::{from_micros, now_micros};
use crate::model::erasure::{
    Erasure, ErasureKind, ErasurePage, ErasureQuery, ErasureState, Receipt, ReceiptKey, RemovedCounts,
};
use crate::model::ids::{AlbumId, ErasureId, KeyId, OrganizationId};
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::{convert_rows, from_json, parse_key_mode, parse_name, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::{PhotoRef, Result};

/// How many running erasures are returned at once.
const RUNNING_PAGE: i64 = 100;

const LIST_UNREMOVED: Statement = Statement::PerDialect {
    sqlite: "select id from erasure where state = 'running' and id > $1 \
             and not coalesce(json_extract(plan, '$.isRemoved'), 0) order by id limit $2",
    postgres: "select id from erasure where state = 'running' and id > $1 \
               and not coalesce((plan::json ->> 'isRemoved')::boolean, false) order by id limit $2",
};

/// Counts that are there stay: whoever counted first began to delete after that, and others may have counted meanwhile.
const NOTE_MEASURED: Statement = Statement::PerDialect {
    sqlite: "update erasure set plan = $2, erased_at = $4, \
             removed = case when coalesce(json_extract(plan, '$.isMeasured'), 0) then removed else $3 end \
             where id = $1 and state = 'running' returning removed",
    postgres: "update erasure set plan = $2, erased_at = $4, \
               removed = case when coalesce((plan::json ->> 'isMeasured')::boolean, false) then removed else $3 end \
               where id = $1 and state = 'running' returning removed",
};

macro_rules! select_erasure {
    ($rest:literal) => {
        concat!(
            "select id, organization, mode, album, kind, state, asked_by, asked_at, finished_at, plan, removed, erased_at, \
             receipt from erasure ",
            $rest
        )
    };
}

/// An erasure with what only the store needs to know of it.
pub(crate) struct StoredErasure {
    pub(crate) erasure: Erasure,
    pub(crate) plan: ErasurePlan,
    /// When its rows were gone, by the database's clock, microseconds.
    pub(crate) erased_at: i64,
}

impl StoredErasure {
    /// Whether it deletes photos that messages of the queue may ask for: one is published for a photo that waits, and
    /// acknowledged when its attempt ends. A photo that was ready or had failed may still be named, by a copy that was
    /// published twice, or by a message whose acknowledgement was lost. That one is an id without a row: whoever gets it finds
    /// nothing to lease and acknowledges it, as if the photo were still there, and brings nothing back. Reading all messages
    /// takes seconds while many workers are busy, and is not worth it for that.
    pub(crate) fn deletes_queued_photos(&self) -> bool {
        let deletes_photos = self.erasure.kind == ErasureKind::Album || !self.plan.deleted_photos.is_empty();
        deletes_photos && !self.plan.none_queued
    }

    /// Whether it deletes this photo.
    pub(crate) fn deletes(&self, photo: &PhotoRef) -> bool {
        photo.album == self.erasure.album
            && (self.erasure.kind == ErasureKind::Album || self.plan.deleted_photos.contains(&photo.photo))
    }
}

#[derive(FromRow)]
struct ErasureRow {
    id: ErasureId,
    organization: OrganizationId,
    mode: String,
    album: AlbumId,
    kind: String,
    state: String,
    asked_by: KeyId,
    asked_at: i64,
    finished_at: Option<i64>,
    plan: String,
    removed: String,
    erased_at: i64,
    receipt: Option<String>,
}

impl TryFrom<ErasureRow> for StoredErasure {
    type Error = StoreError;
    fn try_from(row: ErasureRow) -> Result<Self> {
        let erasure = Erasure {
            id: row.id,
            tenant: Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? },
            album: row.album,
            kind: parse_name(&ErasureKind::ALL, ErasureKind::as_str, &row.kind)?,
            state: parse_name(&ErasureState::ALL, ErasureState::as_str, &row.state)?,
            asked_by: row.asked_by,
            asked_at: from_micros(row.asked_at)?,
            finished_at: row.finished_at.map(from_micros).transpose()?,
            removed: from_json(&row.removed)?,
            receipt: row.receipt.as_deref().map(from_json::<Receipt>).transpose()?,
        };
        Ok(Self { erasure, plan: from_json(&row.plan)?, erased_at: row.erased_at })
    }
}

/// A row to insert.
pub(crate) struct NewErasureRow<'a> {
    pub(crate) id: ErasureId,
    pub(crate) tenant: &'a Tenant,
    pub(crate) album: AlbumId,
    pub(crate) kind: ErasureKind,
    pub(crate) asked_by: KeyId,
    pub(crate) plan: &'a ErasurePlan,
    pub(crate) removed: RemovedCounts,
    /// Microseconds.
    pub(crate) now: i64,
}

/// Inserts a running erasure.
pub(super) async fn insert(
    transaction: &mut Transaction,
    operation: &'static str,
    row: &NewErasureRow<'_>,
) -> Result<()> {
    let insert = "insert into erasure (id, organization, mode, album, kind, state, asked_by, asked_at, plan, removed, \
                  erased_at) values ($1, $2, $3, $4, $5, 'running', $6, $7, $8, $9, $7)";
    query(operation, insert)
        .bind(row.id)
        .bind(row.tenant.organization)
        .bind(row.tenant.mode.as_str())
        .bind(row.album)
        .bind(row.kind.as_str())
        .bind(row.asked_by)
        .bind(row.now)
        .bind(to_json(row.plan)?)
        .bind(to_json(&row.removed)?)
        .execute(transaction)
        .await
        .map(drop)
}

/// The rows of erasures.
#[derive(Clone)]
pub(crate) struct ErasureRows {
    database: Database,
}

impl ErasureRows {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Returns an erasure of any tenant.
    pub(crate) async fn load(&self, id: ErasureId) -> Result<StoredErasure> {
        const OPERATION: &str = "get an erasure";
        let row: Option<ErasureRow> = query(OPERATION, select_erasure!("where id = $1"))
            .bind(id)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.ok_or_else(|| erasure_not_found(id))?.try_into()
    }

    /// Returns an erasure of a tenant.
    pub(crate) async fn get(&self, tenant: &Tenant, id: ErasureId) -> Result<StoredErasure> {
        let stored = self.load(id).await?;
        if stored.erasure.tenant == *tenant { Ok(stored) } else { Err(erasure_not_found(id)) }
    }

    pub(crate) async fn list(&self, tenant: &Tenant, filter: ErasureQuery) -> Result<ErasurePage> {
        const OPERATION: &str = "list erasures";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let page = select_erasure!(
            "where organization = $1 and mode = $2 and id < $3 and album = coalesce($4, album) order by id desc limit $5"
        );
        let rows: Vec<ErasureRow> = query(OPERATION, page)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(filter.before.unwrap_or(ErasureId(uuid::Uuid::max())))
            .bind(filter.album)
            // One more than the limit shows whether there is a next page.
            .bind(i64::from(filter.limit) + 1)
            .fetch_all(&mut snapshot)
            .await?;
        let count = "select count(*) from erasure where organization = $1 and mode = $2 and album = coalesce($3, album)";
        let (total,): (i64,) = query(OPERATION, count)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(filter.album)
            .fetch_one(&mut snapshot)
            .await?;
        let stored: Vec<StoredErasure> = convert_rows(rows)?;
        let mut erasures: Vec<Erasure> = stored.into_iter().map(|stored| stored.erasure).collect();
        let more = erasures.len() > filter.limit as usize;
        erasures.truncate(filter.limit as usize);
        let next = if more { erasures.last().map(|erasure| erasure.id) } else { None };
        Ok(ErasurePage { erasures, next, total: total.unsigned_abs() })
    }

    /// Returns those whose receipts are to be signed, or, for who cannot sign any, those of which something is to be removed.
    pub(crate) async fn list_running(
        &self,
        after: Option<ErasureId>,
        can_sign: bool,
    ) -> Result<Vec<ErasureId>> {
        const OPERATION: &str = "find running erasures";
        let all = Statement::Portable(
            "select id from erasure where state = 'running' and id > $1 order by id limit $2",
        );
        let running = if can_sign { all } else { LIST_UNREMOVED };
        let rows: Vec<(ErasureId,)> = query(OPERATION, running)
            .bind(after.unwrap_or(ErasureId(uuid::Uuid::nil())))
            .bind(RUNNING_PAGE)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Returns whether an erasure is running whose rows went at this time or later, by the database's clock.
    pub(crate) async fn has_running_since(&self, micros: i64) -> Result<bool> {
        const OPERATION: &str = "find running erasures";
        let running = "select id from erasure where state = 'running' and erased_at >= $1 limit 1";
        let row: Option<(ErasureId,)> = query(OPERATION, running)
            .bind(micros)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(row.is_some())
    }

    /// Returns when the last running lease of an album's photos ends, microseconds; 0 if none is running.
    pub(crate) async fn find_last_lease(&self, album: AlbumId) -> Result<i64> {
        const OPERATION: &str = "find the leases of an album";
        let last = "select coalesce(max(lease_until), 0) from photo where album = $1 and state in ('queued', 'processing')";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let (until,): (i64,) = query(OPERATION, last).bind(album).fetch_one(&mut snapshot).await?;
        Ok(until.max(find_marking_end(&mut snapshot, album).await?))
    }

    /// Returns the database's clock, microseconds.
    pub(crate) async fn read_clock(&self) -> Result<i64> {
        const OPERATION: &str = "read the clock";
        self.database.begin_snapshot(OPERATION).await?.read_clock(OPERATION).await
    }

    /// Writes the plan of an erasure and what it is going to remove, or reads that where it was written before. What is erased in
    /// the database is gone by now: face indexes that are as of a later time do not have it, which the time of the first row does
    /// not say of one that was removed in steps, or after a wait for locks.
    pub(crate) async fn note_measured(&self, stored: &mut StoredErasure) -> Result<()> {
        const OPERATION: &str = "note what an erasure removes";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let noted: Option<(String,)> = query(OPERATION, NOTE_MEASURED)
            .bind(stored.erasure.id)
            .bind(to_json(&stored.plan)?)
            .bind(to_json(&stored.erasure.removed)?)
            .bind(now)
            .fetch_optional(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        if let Some((removed,)) = noted {
            stored.erasure.removed = from_json(&removed)?;
        }
        Ok(())
    }

    /// Ends an erasure with its receipt, unless another process has, and keeps the key that checks it.
    pub(crate) async fn end(&self, id: ErasureId, receipt: &Receipt, key: &ReceiptKey) -> Result<()> {
        const OPERATION: &str = "end an erasure";
        let end = "update erasure set state = 'done', finished_at = $2, receipt = $3 where id = $1 and state = 'running'";
        let now = now_micros();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        insert_key(&mut transaction, OPERATION, key).await?;
        query(OPERATION, end).bind(id).bind(now).bind(to_json(receipt)?).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    /// Keeps a key that checks a receipt.
    pub(crate) async fn keep_key(&self, key: &ReceiptKey) -> Result<()> {
        const OPERATION: &str = "keep a key of receipts";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        insert_key(&mut transaction, OPERATION, key).await?;
        transaction.commit(OPERATION).await
    }

    /// Returns the public keys that receipts were signed with, oldest first.
    pub(crate) async fn list_keys(&self) -> Result<Vec<ReceiptKey>> {
        const OPERATION: &str = "list the keys of receipts";
        let rows: Vec<(String, Vec<u8>)> =
            query(OPERATION, "select id, public_key from receipt_key order by created_at, id")
                .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
                .await?;
        Ok(rows.into_iter().map(|(id, public_key)| ReceiptKey { id, public_key }).collect())
    }
}

async fn insert_key(transaction: &mut Transaction, operation: &'static str, key: &ReceiptKey) -> Result<()> {
    let keep = "insert into receipt_key (id, public_key, created_at) values ($1, $2, $3) on conflict (id) do nothing";
    query(operation, keep)
        .bind(key.id.as_str())
        .bind(key.public_key.clone())
        .bind(now_micros())
        .execute(transaction)
        .await
        .map(drop)
}

fn erasure_not_found(id: ErasureId) -> StoreError {
    StoreError::not_found(format!("erasure {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::AlbumFixture;
    use crate::sql::tests::open_store;

    /// Two processes may count what the first of them deletes already.
    #[tokio::test]
    async fn what_is_counted_first_stays() {
        let (_folder, store, file) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let id = store.erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await.unwrap();
        let rows = ErasureRows::new(Database::Sqlite(file));
        for counted in [7, 3] {
            let mut stored = rows.load(id).await.unwrap();
            stored.erasure.removed.photos = counted;
            stored.plan.is_measured = true;
            rows.note_measured(&mut stored).await.unwrap();
            assert_eq!(stored.erasure.removed.photos, 7);
        }
        assert_eq!(rows.load(id).await.unwrap().erasure.removed.photos, 7);
    }
}
