//! The ledger of what processing costs: written by the transactions that end attempts, and its sums.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::FromRow;
use uuid::Uuid;

use crate::model::album::Tenant;
use crate::model::cost::{
    CostQuery, CostRow, CostWeights, MARKING_STAGE, PhotoCost, SearchCosts, SearchesSpent, Spent,
    SpentBySearches, StoredObjects,
};
use crate::model::ids::{AlbumId, OrganizationId, PhotoId};
use crate::model::watermark::MarkedPhoto;
use crate::sql::credits::SharedLedger;
use crate::sql::credits::ledger::{Ledger, Writer, day_of};
use crate::sql::credits::usage::{date_of, days_since_epoch};
use crate::sql::database::{Database, Transaction, commit_counts};
use crate::sql::row_types::{parse_key_mode, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::{Costs, Lease, Result};

/// The stage of the rows that count photos.
const NO_STAGE: &str = "";

const WRITE_SEARCHES: &str = "write costs of searches";

pub(crate) const WRITE_COSTS: Statement = Statement::PerDialect {
    sqlite: "insert into cost_rollup (organization, mode, album, stage, photos, cpu_us, device_us, bytes_read, \
             bytes_written, day, part) select unhex(value ->> 0), value ->> 1, unhex(value ->> 2), value ->> 3, value ->> 4, \
             value ->> 5, value ->> 6, value ->> 7, value ->> 8, $2, $3 from json_each($1) where true \
             on conflict (organization, mode, day, album, stage, part) do update set photos = photos + excluded.photos, \
             cpu_us = cpu_us + excluded.cpu_us, device_us = device_us + excluded.device_us, \
             bytes_read = bytes_read + excluded.bytes_read, bytes_written = bytes_written + excluded.bytes_written",
    postgres: "insert into cost_rollup as rollup (organization, mode, album, stage, photos, cpu_us, device_us, bytes_read, \
               bytes_written, day, part) select (value ->> 0)::uuid, value ->> 1, (value ->> 2)::uuid, value ->> 3, \
               (value ->> 4)::bigint, (value ->> 5)::bigint, (value ->> 6)::bigint, (value ->> 7)::bigint, \
               (value ->> 8)::bigint, $2, $3 from json_array_elements($1::json) as counted (value) \
               on conflict (organization, mode, day, album, stage, part) do update set \
               photos = rollup.photos + excluded.photos, cpu_us = rollup.cpu_us + excluded.cpu_us, \
               device_us = rollup.device_us + excluded.device_us, bytes_read = rollup.bytes_read + excluded.bytes_read, \
               bytes_written = rollup.bytes_written + excluded.bytes_written",
};

/// Reads the days of one tenant by the primary key. Stages tell what was spent; the rows without a stage count photos.
pub(crate) const COSTS: &str = "select case when $6 = 1 then day end as day_of, \
     case when $7 = 1 then album end as album_of, case when $8 = 1 then stage end as stage_of, \
     cast(sum(case when $8 = 1 or stage = '' then photos else 0 end) as bigint) as photos, \
     cast(sum(cpu_us) as bigint) as cpu_us, cast(sum(device_us) as bigint) as device_us, \
     cast(sum(bytes_read) as bigint) as bytes_read, cast(sum(bytes_written) as bigint) as bytes_written from cost_rollup \
     where organization = $1 and mode = $2 and day >= $3 and day <= $4 and album = coalesce($5, album) \
     and ($8 = 0 or stage <> '') and ($10 = 0 or stage not in ('probe', 'face_search')) group by 1, 2, 3 order by 1, 2, 3 limit $9";

/// Adds up the sums that triggers keep where photos are counted: a few rows of each album, however many photos it has.
pub(crate) const STORED: &str = "select cast(coalesce(sum(objects), 0) as bigint), cast(coalesce(sum(bytes), 0) as bigint) \
     from photo_count where album in \
     (select id from album where organization = $1 and mode = $2 and id = coalesce($3, id))";

/// No index names the costs of a photo, so that writing them changes none. What this reads is bounded instead: the newest
/// photos by the primary key, and the dearest of these.
pub(crate) const DEAREST: &str = "select id, cpu_us, device_us, bytes_read, bytes_written from (select id, cpu_us, device_us, \
     bytes_read, bytes_written from photo where album = $1 order by id desc limit $2) as newest \
     where cpu_us + device_us > 0 order by cpu_us * cast($4 as double precision) + device_us * cast($5 as double precision) desc, \
     id limit $3";

#[derive(FromRow)]
struct PhotoCostRow {
    id: PhotoId,
    cpu_us: i64,
    device_us: i64,
    bytes_read: i64,
    bytes_written: i64,
}

#[derive(FromRow)]
struct SummedRow {
    day_of: Option<i64>,
    album_of: Option<Uuid>,
    stage_of: Option<String>,
    photos: i64,
    cpu_us: i64,
    device_us: i64,
    bytes_read: i64,
    bytes_written: i64,
}

/// Costs of attempts that end in one transaction, in the order in which the rows are locked.
#[derive(Default)]
pub(crate) struct CostEntries(BTreeMap<(OrganizationId, &'static str, AlbumId, &'static str), (i64, Spent)>);

impl CostEntries {
    /// Adds a photo that became ready or failed, and what the attempt cost.
    pub(crate) fn add(&mut self, tenant: &Tenant, lease: &Lease) {
        self.add_to(tenant, lease.album, NO_STAGE, Spent::default());
        self.add_stages(tenant, lease);
    }

    /// Adds what an attempt cost that ends without an outcome.
    pub(crate) fn add_stages(&mut self, tenant: &Tenant, lease: &Lease) {
        for (stage, spent) in lease.spent.by_stage() {
            self.add_to(tenant, lease.album, stage, spent);
        }
    }

    fn add_to(&mut self, tenant: &Tenant, album: AlbumId, stage: &'static str, spent: Spent) {
        let key = (tenant.organization, tenant.mode.as_str(), album, stage);
        let (photos, sum) = self.0.entry(key).or_default();
        *photos += 1;
        *sum += spent;
    }

    /// Adds what drawing a watermark on photos that were ready cost.
    pub(crate) fn add_marks(&mut self, tenant: &Tenant, album: AlbumId, photos: &[MarkedPhoto]) {
        for photo in photos {
            self.add_to(tenant, album, MARKING_STAGE, photo.spent);
        }
    }

    /// Adds what searches of an album cost.
    fn add_searches(&mut self, tenant: &Tenant, album: AlbumId, stage: &'static str, cost: SearchesSpent) {
        let key = (tenant.organization, tenant.mode.as_str(), album, stage);
        let (searches, sum) = self.0.entry(key).or_default();
        *searches += to_bigint(cost.searches);
        *sum += cost.spent;
    }

    /// Writes them by one statement, after the ledger of credits and before albums are locked.
    pub(crate) async fn write(
        &self,
        transaction: &mut Transaction,
        ledger: &Ledger,
        writer: Writer,
        now: i64,
    ) -> Result<()> {
        const OPERATION: &str = "write costs";
        if self.0.is_empty() {
            return Ok(());
        }
        let rows = self.0.iter().map(|((organization, mode, album, stage), (photos, spent))| {
            let hex = |id: Uuid| id.simple().to_string();
            let SpentNumbers { cpu_us, device_us, bytes_read, bytes_written } = SpentNumbers::of(spent);
            (
                hex(organization.0),
                mode,
                hex(album.0),
                stage,
                photos,
                cpu_us,
                device_us,
                bytes_read,
                bytes_written,
            )
        });
        query(OPERATION, WRITE_COSTS)
            .bind(to_json(&rows.collect::<Vec<_>>())?)
            .bind(day_of(now))
            .bind(ledger.part_of(writer))
            .execute(transaction)
            .await
            .map(drop)
    }
}

/// What was spent, as columns.
pub(crate) struct SpentNumbers {
    pub(crate) cpu_us: i64,
    pub(crate) device_us: i64,
    pub(crate) bytes_read: i64,
    pub(crate) bytes_written: i64,
}

impl SpentNumbers {
    pub(crate) fn of(spent: &Spent) -> Self {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        Self {
            cpu_us: micros(spent.cpu),
            device_us: micros(spent.device),
            bytes_read: to_bigint(spent.bytes_read),
            bytes_written: to_bigint(spent.bytes_written),
        }
    }
}

/// A size or a count as a column.
pub(crate) fn to_bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Adds what an attempt cost to the row of its photo, which the transaction has locked.
pub(crate) async fn add_to_photo(
    transaction: &mut Transaction,
    operation: &'static str,
    lease: &Lease,
) -> Result<()> {
    let add = "update photo set cpu_us = cpu_us + $3, device_us = device_us + $4, bytes_read = bytes_read + $5, \
               bytes_written = bytes_written + $6 where album = $1 and id = $2";
    let SpentNumbers { cpu_us, device_us, bytes_read, bytes_written } =
        SpentNumbers::of(&lease.spent.total());
    query(operation, add)
        .bind(lease.album)
        .bind(lease.photo)
        .bind(cpu_us)
        .bind(device_us)
        .bind(bytes_read)
        .bind(bytes_written)
        .execute(transaction)
        .await
        .map(drop)
}

/// The sums of the ledger, and what searches of this process add to it.
pub(crate) struct SqlCosts {
    database: Database,
    shared: Arc<SharedLedger>,
    searches: Arc<SearchCosts>,
}

impl SqlCosts {
    pub(crate) fn new(database: Database, shared: Arc<SharedLedger>, searches: Arc<SearchCosts>) -> Self {
        Self { database, shared, searches }
    }

    /// Writes what searches cost; the caller commits.
    async fn write_searches(&self, costs: &SpentBySearches) -> Result<Transaction> {
        let mut transaction = self.database.begin_write(WRITE_SEARCHES).await?;
        let now = transaction.read_clock(WRITE_SEARCHES).await?;
        let ledger = &self.shared.ledger;
        let tenants = ledger.tenants_of(&mut transaction, costs.keys().map(|(album, _)| *album)).await?;
        let mut entries = CostEntries::default();
        for ((album, stage), cost) in costs {
            // What was spent on an album that was deleted meanwhile is nobody's.
            if let Some(tenant) = tenants.get(album) {
                entries.add_searches(tenant, *album, stage, *cost);
            }
        }
        entries.write(&mut transaction, ledger, Writer::Api, now).await?;
        Ok(transaction)
    }
}

#[async_trait]
impl Costs for SqlCosts {
    fn searches(&self) -> &SearchCosts {
        &self.searches
    }

    async fn flush_searches(&self) -> Result<()> {
        let costs = self.searches.take();
        if costs.is_empty() {
            return Ok(());
        }
        let written = self.write_searches(&costs).await;
        commit_counts(written, WRITE_SEARCHES, || self.searches.put_back(costs)).await
    }

    async fn costs(&self, tenant: &Tenant, filter: CostQuery) -> Result<Vec<CostRow>> {
        const OPERATION: &str = "sum up costs";
        let rows: Vec<SummedRow> = query(OPERATION, COSTS)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(days_since_epoch(filter.from))
            .bind(days_since_epoch(filter.to))
            .bind(filter.album)
            .bind(i64::from(filter.by_day))
            .bind(i64::from(filter.by_album))
            .bind(i64::from(filter.by_stage))
            .bind(i64::from(filter.limit))
            .bind(i64::from(filter.photos_only))
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        let to_row = |row: SummedRow| {
            Ok(CostRow {
                day: row.day_of.map(date_of).transpose()?,
                album: row.album_of.map(AlbumId),
                stage: row.stage_of,
                photos: row.photos.unsigned_abs(),
                spent: to_spent(SpentNumbers {
                    cpu_us: row.cpu_us,
                    device_us: row.device_us,
                    bytes_read: row.bytes_read,
                    bytes_written: row.bytes_written,
                }),
            })
        };
        rows.into_iter().map(to_row).collect()
    }

    async fn stored(&self, tenant: &Tenant, album: Option<AlbumId>) -> Result<StoredObjects> {
        const OPERATION: &str = "sum up stored bytes";
        let (objects, bytes): (i64, i64) = query(OPERATION, STORED)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(album)
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(StoredObjects { objects: objects.unsigned_abs(), bytes: bytes.unsigned_abs() })
    }

    async fn dearest(
        &self,
        album: AlbumId,
        newest: u32,
        weights: CostWeights,
        limit: u32,
    ) -> Result<Vec<PhotoCost>> {
        const OPERATION: &str = "find the dearest photos";
        let rows: Vec<PhotoCostRow> = query(OPERATION, DEAREST)
            .bind(album)
            .bind(i64::from(newest))
            .bind(i64::from(limit))
            .bind(weights.cpu)
            .bind(weights.device)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        let to_cost = |PhotoCostRow { id, cpu_us, device_us, bytes_read, bytes_written }| PhotoCost {
            photo: id,
            spent: to_spent(SpentNumbers { cpu_us, device_us, bytes_read, bytes_written }),
        };
        Ok(rows.into_iter().map(to_cost).collect())
    }

    async fn owner_of(&self, album: AlbumId) -> Result<Option<Tenant>> {
        const OPERATION: &str = "find the owner of an album";
        let row: Option<(OrganizationId, String)> =
            query(OPERATION, "select organization, mode from album where id = $1")
                .bind(album)
                .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
                .await?;
        let Some((organization, mode)) = row else { return Ok(None) };
        Ok(Some(Tenant { organization, mode: parse_key_mode(&mode)? }))
    }
}

fn to_spent(numbers: SpentNumbers) -> Spent {
    Spent {
        cpu: Duration::from_micros(numbers.cpu_us.unsigned_abs()),
        device: Duration::from_micros(numbers.device_us.unsigned_abs()),
        bytes_read: numbers.bytes_read.unsigned_abs(),
        bytes_written: numbers.bytes_written.unsigned_abs(),
    }
}
