//! Balances: the sums of grants and of the parts of what is held and spent, and the daily refill of mock credits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ledger::day_of;
use crate::model::album::Tenant;
use crate::model::credit::{Balance, Credits};
use crate::model::ids::{GrantId, OrganizationId};
use crate::model::key::KeyMode;
use crate::sql::database::Transaction;
use crate::sql::statement::{ConnectionRef, query};
use crate::traits::Result;

/// A few rows of each table.
pub(crate) const BALANCE: &str = "select \
     (select cast(coalesce(sum(amount), 0) as bigint) from credit_grant where organization = $1 and mode = $2), \
     cast(coalesce(sum(spent), 0) as bigint), cast(coalesce(sum(held), 0) as bigint) \
     from credit_shard where organization = $1 and mode = $2";

/// Brings what the test keys of an organization can use to `$4`, once on a day. A negative amount takes away what was set
/// beyond it.
const REFILL: &str = "insert into credit_grant (id, organization, mode, amount, note, granted_by, refill_day, created_at) \
     select $1, $2, $3, $4 - $5, 'daily refill', 'service', $6, $7 where true \
     on conflict (organization, mode, refill_day) do nothing";

/// Changes the refill of a day in place: a balance may be set any number of times, and every confirmation adds up all grants.
const ADD_TO_REFILL: &str = "insert into credit_grant (id, organization, mode, amount, note, granted_by, refill_day, created_at) \
     values ($1, $2, $3, $4, 'set by a test key', 'partner', $5, $6) \
     on conflict (organization, mode, refill_day) do update set amount = credit_grant.amount + excluded.amount, \
     note = excluded.note, granted_by = excluded.granted_by";

/// Adds an amount to the refill of the day of `now` (microseconds), which [`Refills::refilled_balance`] has made.
pub(super) async fn add_to_refill(
    transaction: &mut Transaction,
    tenant: &Tenant,
    amount: Credits,
    now: i64,
) -> Result<()> {
    query("set mock credits", ADD_TO_REFILL)
        .bind(GrantId::generate())
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(amount.thousandths())
        .bind(day_of(now))
        .bind(now)
        .execute(transaction)
        .await
        .map(drop)
}

/// Returns the balance of a tenant.
pub(crate) async fn load_balance<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    tenant: &Tenant,
) -> Result<Balance> {
    let (granted, spent, held): (i64, i64, i64) =
        query(operation, BALANCE).bind(tenant.organization).bind(tenant.mode.as_str()).fetch_one(on).await?;
    let [granted, spent, held] = [granted, spent, held].map(Credits::from_thousandths);
    Ok(Balance { granted, spent, held })
}

/// Photos that a balance must cover to be ample: many times what all processes queue in [`AMPLE_TIME`].
const AMPLE_PHOTOS: i64 = 100_000;

/// How long an ample balance is not read again.
const AMPLE_TIME: Duration = Duration::from_secs(1);

/// Tenants whose ample balance is remembered.
const MAX_AMPLE: usize = 4096;

/// Tenants that can pay for far more photos than are confirmed within a second. To read the balance of each for every
/// confirmation costs an eighth of all confirmations on SQLite, and declines nothing.
#[derive(Default)]
pub(crate) struct AmpleBalances(Mutex<HashMap<Tenant, Instant>>);

impl AmpleBalances {
    /// Whether the balance was ample at most [`AMPLE_TIME`] ago.
    pub(crate) fn contains(&self, tenant: &Tenant) -> bool {
        self.tenants().get(tenant).is_some_and(|read_at| read_at.elapsed() < AMPLE_TIME)
    }

    /// Remembers what was read, if it is ample at the price of a photo.
    pub(crate) fn record(&self, tenant: &Tenant, available: Credits, price: Credits) {
        let mut tenants = self.tenants();
        if available.thousandths() < price.thousandths().saturating_mul(AMPLE_PHOTOS) {
            tenants.remove(tenant);
            return;
        }
        if tenants.len() >= MAX_AMPLE {
            tenants.clear();
        }
        tenants.insert(*tenant, Instant::now());
    }

    /// Has the balance read again: a grant may have lowered it. Other processes read it within [`AMPLE_TIME`].
    pub(crate) fn forget(&self, tenant: &Tenant) {
        self.tenants().remove(tenant);
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refills mock credits, and remembers on which day it did.
#[derive(Default)]
pub(crate) struct Refills {
    /// By organization, so that most calls cost no statement.
    days: Mutex<HashMap<OrganizationId, i64>>,
}

impl Refills {
    /// Returns the balance of a tenant, that of test keys refilled to `amount` if it was not yet on the day of `now`
    /// (microseconds). Of several at once the first refills.
    pub(in crate::sql) async fn refilled_balance(
        &self,
        transaction: &mut Transaction,
        tenant: &Tenant,
        amount: Credits,
        now: i64,
    ) -> Result<Balance> {
        const OPERATION: &str = "refill mock credits";
        // Asked first: a refill that another commits and remembers while the balance is read is not in what was read.
        let is_due = self.is_due(tenant, now);
        let balance = load_balance(&mut *transaction, OPERATION, tenant).await?;
        if !is_due {
            return Ok(balance);
        }
        query(OPERATION, REFILL)
            .bind(GrantId::generate())
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(amount.thousandths())
            .bind(balance.available().thousandths())
            .bind(day_of(now))
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        // Also when another has refilled meanwhile.
        load_balance(transaction, OPERATION, tenant).await
    }

    /// Whether this process does not know of a refill on this day.
    pub(crate) fn is_due(&self, tenant: &Tenant, now: i64) -> bool {
        let days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        tenant.mode == KeyMode::Test && days.get(&tenant.organization) != Some(&day_of(now))
    }

    /// Remembers that a committed transaction has refilled, or found that another has.
    pub(crate) fn remember(&self, tenant: &Tenant, now: i64) {
        if tenant.mode == KeyMode::Test {
            let mut days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
            days.insert(tenant.organization, day_of(now));
        }
    }

    /// Makes the refill that is remembered of an organization lie so many days further in the past.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn age(&self, organization: OrganizationId, days: i64) {
        let mut remembered = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(day) = remembered.get_mut(&organization) {
            *day -= days;
        }
    }
}
