//! What was used: counts that wait in memory until they are written together, and the sums of the ledger.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use time::{Date, Duration};
use uuid::Uuid;

use super::ledger::LedgerEntries;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::Tenant;
use crate::model::credit::{Credits, UsageOperation, UsageQuery, UsageRow};
use crate::model::ids::AlbumId;
use crate::sql::database::Reader;
use crate::sql::statement::query;
use crate::traits::Result;

/// The day 0 of the database.
const EPOCH: Date = time::OffsetDateTime::UNIX_EPOCH.date();

/// Reads the days of one tenant by the primary key.
pub(crate) const USAGE: &str = "select case when $5 = 1 then day end as day_of, \
     case when $6 = 1 then album end as album_of, case when $7 = 1 then operation end as operation_of, \
     cast(sum(count) as bigint), cast(sum(credits) as bigint) from usage_rollup \
     where organization = $1 and mode = $2 and day >= $3 and day <= $4 \
     group by 1, 2, 3 order by 1, 2, 3 limit $8";

type Counts = HashMap<(Tenant, AlbumId, UsageOperation), i64>;

/// Counts what costs nothing. A search that wrote its own count would cost a commit.
#[derive(Default)]
pub(crate) struct UsageMeter {
    counts: Mutex<Counts>,
}

impl UsageMeter {
    pub(crate) fn count(&self, tenant: &Tenant, album: AlbumId, operation: UsageOperation) {
        *self.counts().entry((*tenant, album, operation)).or_default() += 1;
    }

    /// Takes what was counted.
    pub(crate) fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts())
    }

    /// Puts back what could not be written.
    pub(crate) fn put_back(&self, taken: Counts) {
        let mut counts = self.counts();
        for (key, count) in taken {
            *counts.entry(key).or_default() += count;
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn entries_of(counts: &Counts) -> LedgerEntries {
    let mut entries = LedgerEntries::default();
    for ((tenant, album, operation), count) in counts {
        entries.count_free(tenant, *album, *operation, *count);
    }
    entries
}

/// A sum: day, album, operation, count and thousandths of credits.
type SummedRow = (Option<i64>, Option<Uuid>, Option<String>, i64, i64);

/// Sums up the usage of a tenant.
pub(crate) async fn load_usage(
    reader: &mut Reader,
    tenant: &Tenant,
    filter: &UsageQuery,
) -> Result<Vec<UsageRow>> {
    const OPERATION: &str = "sum up usage";
    let rows: Vec<SummedRow> = query(OPERATION, USAGE)
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(days_since_epoch(filter.from))
        .bind(days_since_epoch(filter.to))
        .bind(i64::from(filter.by_day))
        .bind(i64::from(filter.by_album))
        .bind(i64::from(filter.by_operation))
        .bind(i64::from(filter.limit))
        .fetch_all(reader)
        .await?;
    rows.into_iter()
        .map(|(day, album, operation, count, credits)| {
            Ok(UsageRow {
                day: day.map(date_of).transpose()?,
                album: album.map(AlbumId),
                operation,
                count: count.unsigned_abs(),
                credits: Credits::from_thousandths(credits),
            })
        })
        .collect()
}

pub(in crate::sql) fn days_since_epoch(day: Date) -> i64 {
    (day - EPOCH).whole_days()
}

pub(in crate::sql) fn date_of(days: i64) -> Result<Date> {
    let date = EPOCH.checked_add(Duration::days(days.clamp(-1_000_000, 10_000_000)));
    date.ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "day of usage"))
}
