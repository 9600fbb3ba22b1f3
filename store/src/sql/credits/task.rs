//! The task `ledger`: tells tenants whose credits have become low, once for each time, and deletes old rows.

use serde_json::json;

use super::balances::BALANCE;
use crate::model::album::Tenant;
use crate::model::credit::{CreditSettings, Credits};
use crate::model::event::EventType;
use crate::model::ids::OrganizationId;
use crate::model::key::KeyMode;
use crate::sql::database::Transaction;
use crate::sql::events::outbox::{PendingEvent, insert_pending_event};
use crate::sql::row_types::parse_key_mode;
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::traits::Result;

pub(crate) const OPERATION: &str = "keep the ledger";

/// Days for which usage is kept: 25 months, so that a year can be compared with the one before.
const USAGE_DAYS: i64 = 762;

/// The age from which nobody asks for a window of a rate limit, seconds.
const WINDOW_SECONDS: i64 = 300;

/// Days for which searches of visitors of galleries are kept after their own: the clocks of two processes may be a little apart.
const VISITOR_DAYS: i64 = 1;

/// Rows that one transaction deletes of a table.
const BATCH: i64 = 5000;

/// Deletes some searches of visitors on earlier days, found by their index. Those that go with their album right now are left
/// to it: waiting for them could be a circle.
pub(crate) const REMOVE_VISITORS: Statement = Statement::PerDialect {
    sqlite: "delete from gallery_visitor where (album, visitor, day) in \
             (select album, visitor, day from gallery_visitor where day < $1 limit $2)",
    postgres: "delete from gallery_visitor where ctid = any (array( \
               select ctid from gallery_visitor where day < $1 limit $2 for update skip locked))",
};

/// Each tenant that has grants, with their sum, its last grant by somebody, what it has spent or held, and since when it has
/// been told to be low.
const TENANTS: &str = "select g.organization, g.mode, cast(g.granted as bigint), \
     coalesce((select amount from credit_grant as last where last.organization = g.organization \
     and last.mode = g.mode and last.amount > 0 and last.refill_day is null \
     order by created_at desc, amount desc limit 1), 0), \
     cast(coalesce((select sum(held + spent) from credit_shard where credit_shard.organization = g.organization \
     and credit_shard.mode = g.mode), 0) as bigint), credit_low.told_at \
     from (select organization, mode, sum(amount) as granted from credit_grant group by organization, mode) as g \
     left join credit_low on credit_low.organization = g.organization and credit_low.mode = g.mode";

/// A tenant whose credits became low, or are not low any more.
pub(crate) struct Crossing {
    tenant: Tenant,
    is_low: bool,
    threshold: Credits,
}

type TenantRow = (OrganizationId, String, i64, i64, i64, Option<i64>);

/// Returns the tenants whose state is not what they were told last. None where nothing is declined.
pub(crate) async fn find_crossings<'c>(
    on: impl Into<ConnectionRef<'c>>,
    settings: &CreditSettings,
) -> Result<Vec<Crossing>> {
    if !settings.is_enforced || settings.low_percent == 0 {
        return Ok(Vec::new());
    }
    let rows: Vec<TenantRow> = query(OPERATION, TENANTS).fetch_all(on).await?;
    let mut crossings = Vec::new();
    for (organization, mode, granted, last_grant, used, told_at) in rows {
        let tenant = Tenant { organization, mode: parse_key_mode(&mode)? };
        let basis =
            if tenant.mode == KeyMode::Test { settings.mock_credits.thousandths() } else { last_grant };
        let threshold = basis.saturating_mul(i64::from(settings.low_percent)) / 100;
        let is_low = granted - used < threshold;
        if is_low != told_at.is_some() {
            crossings.push(Crossing { tenant, is_low, threshold: Credits::from_thousandths(threshold) });
        }
    }
    Ok(crossings)
}

/// Tells what was found, and remembers it.
pub(crate) async fn tell(transaction: &mut Transaction, crossings: &[Crossing], now: i64) -> Result<()> {
    for Crossing { tenant, is_low, threshold } in crossings {
        let change = if *is_low {
            query(
                OPERATION,
                "insert into credit_low (organization, mode, told_at) values ($1, $2, $3) \
                              on conflict (organization, mode) do nothing",
            )
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(now)
        } else {
            query(OPERATION, "delete from credit_low where organization = $1 and mode = $2")
                .bind(tenant.organization)
                .bind(tenant.mode.as_str())
        };
        if change.execute(&mut *transaction).await? == 0 || !is_low {
            continue;
        }
        let (granted, spent, held): (i64, i64, i64) = query(OPERATION, BALANCE)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_one(&mut *transaction)
            .await?;
        let balance = Credits::from_thousandths(granted - spent - held);
        let data = json!({ "balance": balance, "threshold": threshold, "mode": tenant.mode.as_str() });
        let event = PendingEvent {
            tenant: *tenant,
            event_type: EventType::CreditsLow,
            album: None,
            data,
            created_at: now,
        };
        insert_pending_event(transaction, OPERATION, &event).await?;
    }
    Ok(())
}

/// Whether there are rows that are no longer needed.
pub(crate) async fn has_expired<'c>(on: impl Into<ConnectionRef<'c>>, now: i64) -> Result<bool> {
    let (expired,): (i64,) = query(
        OPERATION,
        "select count(*) from (select 1 from (select 1 from rate_window where begins < $1 limit 1) as windows \
         union all select 1 from (select 1 from usage_rollup where day < $2 limit 1) as days \
         union all select 1 from (select 1 from cost_rollup where day < $2 limit 1) as costs \
         union all select 1 from (select 1 from gallery_visitor where day < $3 limit 1) as visitors) as expired",
    )
    .bind(first_window(now))
    .bind(first_day(now))
    .bind(first_visitor_day(now))
    .fetch_one(on)
    .await?;
    Ok(expired > 0)
}

/// Deletes some of the rows that are no longer needed.
pub(crate) async fn remove_expired(transaction: &mut Transaction, now: i64) -> Result<()> {
    query(
        OPERATION,
        "delete from rate_window where (api_key, class, begins) in \
         (select api_key, class, begins from rate_window where begins < $1 limit $2)",
    )
    .bind(first_window(now))
    .bind(BATCH)
    .execute(&mut *transaction)
    .await?;
    query(
        OPERATION,
        "delete from usage_rollup where (organization, mode, day, album, operation, part) in \
         (select organization, mode, day, album, operation, part from usage_rollup where day < $1 limit $2)",
    )
    .bind(first_day(now))
    .bind(BATCH)
    .execute(&mut *transaction)
    .await?;
    query(
        OPERATION,
        "delete from cost_rollup where (organization, mode, day, album, stage, part) in \
         (select organization, mode, day, album, stage, part from cost_rollup where day < $1 limit $2)",
    )
    .bind(first_day(now))
    .bind(BATCH)
    .execute(&mut *transaction)
    .await?;
    query(OPERATION, REMOVE_VISITORS)
        .bind(first_visitor_day(now))
        .bind(BATCH)
        .execute(transaction)
        .await
        .map(drop)
}

/// When the oldest window began that is kept, seconds since 1970.
fn first_window(now: i64) -> i64 {
    now.div_euclid(1_000_000) - WINDOW_SECONDS
}

/// The first day whose usage is kept.
fn first_day(now: i64) -> i64 {
    super::ledger::day_of(now) - USAGE_DAYS
}

/// The first day whose searches of visitors are kept.
fn first_visitor_day(now: i64) -> i64 {
    super::ledger::day_of(now) - VISITOR_DAYS
}
