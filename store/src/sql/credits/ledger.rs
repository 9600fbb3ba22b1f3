//! What a transaction does to credits: holds, releases, charges and counts, written by one or two statements at its end.
//!
//! Amounts are thousandths. Sums count, and not the rows: each process writes its own part of a tenant's balance, so that no
//! two processes wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use crate::model::album::Tenant;
use crate::model::credit::{CreditSettings, UsageOperation};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::sql::database::Transaction;
use crate::sql::row_types::{parse_key_mode, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

/// Parts of a balance.
const PARTS: i64 = 16;

/// Albums whose tenants are remembered: a few hundred bytes each.
const MAX_KNOWN_ALBUMS: usize = 4096;

pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;

macro_rules! balances_of_postgres {
    ($rows:literal, $part:literal) => {
        concat!(
            "insert into credit_shard as shard (organization, mode, part, held, spent) \
             select (value ->> 0)::uuid, value ->> 1, ",
            $part,
            ", (value ->> 2)::bigint, (value ->> 3)::bigint from json_array_elements(",
            $rows,
            "::json) as changed (value) on conflict (organization, mode, part) \
             do update set held = shard.held + excluded.held, spent = shard.spent + excluded.spent"
        )
    };
}
pub(in crate::sql) use balances_of_postgres;

/// `$rows` are JSON rows of [`LedgerEntries::into_holds`], `$part` is the part of each balance.
macro_rules! balances_of_sqlite {
    ($rows:literal, $part:literal) => {
        concat!(
            "insert into credit_shard (organization, mode, part, held, spent) \
             select unhex(value ->> 0), value ->> 1, ",
            $part,
            ", value ->> 2, value ->> 3 from json_each(",
            $rows,
            ") where true on conflict (organization, mode, part) \
             do update set held = held + excluded.held, spent = spent + excluded.spent"
        )
    };
}
pub(in crate::sql) use balances_of_sqlite;

pub(crate) const WRITE_BALANCES: Statement = Statement::PerDialect {
    sqlite: balances_of_sqlite!("$1", "$2"),
    postgres: balances_of_postgres!("$1", "$2"),
};

pub(crate) const WRITE_USAGE: &str = "insert into usage_rollup (organization, mode, day, album, operation, part, count, credits) \
     select unhex(value ->> 0), value ->> 1, $3, unhex(value ->> 2), value ->> 3, $2, value ->> 4, value ->> 5 \
     from json_each($1) where true on conflict (organization, mode, day, album, operation, part) \
     do update set count = count + excluded.count, credits = credits + excluded.credits";

/// Both at once: a statement costs Postgres a round trip. Rows of `usage_rollup` are locked first: Postgres runs a `with` that
/// changes rows, and that nothing reads, after the rest.
pub(crate) const WRITE_BALANCES_AND_USAGE: &str = concat!(
    "with balances as (",
    balances_of_postgres!("$1", "$2"),
    ") insert into usage_rollup as rollup (organization, mode, day, album, operation, part, count, credits) \
     select (value ->> 0)::uuid, value ->> 1, $4, (value ->> 2)::uuid, value ->> 3, $2, (value ->> 4)::bigint, \
     (value ->> 5)::bigint from json_array_elements($3::json) as counted (value) \
     on conflict (organization, mode, day, album, operation, part) \
     do update set count = rollup.count + excluded.count, credits = rollup.credits + excluded.credits"
);

/// Who writes: confirmations and results of one process do not wait for each other either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Confirms photos and charges searches.
    Api,
    /// Finishes photos.
    Worker,
}

/// The settings of credits, the parts that this process writes, and the tenants of albums.
pub(crate) struct Ledger {
    pub(crate) settings: CreditSettings,
    part: i64,
    /// An album never changes its owner.
    tenants: Mutex<HashMap<AlbumId, Tenant>>,
}

impl Ledger {
    pub(crate) fn new(settings: CreditSettings) -> Self {
        // The last bits of a random UUID are random.
        let part = (Uuid::new_v4().as_u128() % PARTS as u128) as i64;
        Self { settings, part, tenants: Mutex::default() }
    }

    /// The price of a photo, thousandths.
    pub(crate) fn price_of_photo(&self) -> i64 {
        self.settings.prices.photo.thousandths()
    }

    pub(in crate::sql) fn part_of(&self, writer: Writer) -> i64 {
        match writer {
            Writer::Api => self.part,
            Writer::Worker => (self.part + PARTS / 2) % PARTS,
        }
    }

    /// Returns the tenants of albums, without those that do not exist.
    pub(in crate::sql) async fn tenants_of(
        &self,
        transaction: &mut Transaction,
        albums: impl Iterator<Item = AlbumId>,
    ) -> Result<HashMap<AlbumId, Tenant>> {
        const OPERATION: &str = "find the owners of albums";
        const FIND: Statement = Statement::PerDialect {
            sqlite: "select id, organization, mode from album \
                     where id in (select unhex(value) from json_each($1))",
            postgres: "select id, organization, mode from album where id = any($1)",
        };
        let (mut found, mut unknown) = (HashMap::new(), Vec::new());
        {
            let known = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            for album in albums {
                if found.contains_key(&album) || unknown.contains(&album.0) {
                    continue;
                }
                match known.get(&album) {
                    Some(tenant) => drop(found.insert(album, *tenant)),
                    None => unknown.push(album.0),
                }
            }
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let rows: Vec<(AlbumId, OrganizationId, String)> =
            query(OPERATION, FIND).bind(unknown).fetch_all(transaction).await?;
        let mut known = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MAX_KNOWN_ALBUMS {
            known.clear();
        }
        for (album, organization, mode) in rows {
            let tenant = Tenant { organization, mode: parse_key_mode(&mode)? };
            known.insert(album, tenant);
            found.insert(album, tenant);
        }
        Ok(found)
    }
}

/// The change of a balance, thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BalanceChange {
    held: i64,
    spent: i64,
}

/// How often, and what it cost, thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UsageChange {
    count: i64,
    credits: i64,
}

/// What a transaction does to credits. To be written once, after the photos are locked and before an album is: see the
/// lock order of `sql`.
#[derive(Debug, Default)]
pub(crate) struct LedgerEntries {
    /// In the order in which the rows are locked.
    balances: BTreeMap<(OrganizationId, &'static str), BalanceChange>,
    usage: BTreeMap<(OrganizationId, &'static str, AlbumId, UsageOperation), UsageChange>,
}

impl LedgerEntries {
    /// Holds an amount; releases it when it is negative.
    pub(crate) fn hold(&mut self, tenant: &Tenant, amount: i64) {
        self.change(tenant).held += amount;
    }

    /// Spends an amount.
    pub(crate) fn spend(&mut self, tenant: &Tenant, amount: i64) {
        self.change(tenant).spent += amount;
    }

    /// Counts something, and what it cost.
    pub(crate) fn count(&mut self, tenant: &Tenant, album: AlbumId, operation: UsageOperation, credits: i64) {
        self.count_many(tenant, album, operation, UsageChange { count: 1, credits });
    }

    /// Counts things that cost nothing.
    pub(crate) fn count_free(
        &mut self,
        tenant: &Tenant,
        album: AlbumId,
        operation: UsageOperation,
        count: i64,
    ) {
        self.count_many(tenant, album, operation, UsageChange { count, credits: 0 });
    }

    fn count_many(
        &mut self,
        tenant: &Tenant,
        album: AlbumId,
        operation: UsageOperation,
        change: UsageChange,
    ) {
        let key = (tenant.organization, tenant.mode.as_str(), album, operation);
        let usage = self.usage.entry(key).or_default();
        usage.count += change.count;
        usage.credits += change.credits;
    }

    fn change(&mut self, tenant: &Tenant) -> &mut BalanceChange {
        self.balances.entry((tenant.organization, tenant.mode.as_str())).or_default()
    }

    /// Makes of holds what [`WRITE_BALANCES`] takes, for a statement that does more.
    pub(in crate::sql) fn into_holds(mut self, ledger: &Ledger, writer: Writer) -> Result<Holds> {
        let balances = to_json(&self.take_balances())?;
        Ok(Holds { price: ledger.price_of_photo(), balances, part: ledger.part_of(writer) })
    }

    /// Takes the changes of balances, as JSON rows in the order in which they are locked.
    fn take_balances(&mut self) -> Vec<(String, &'static str, i64, i64)> {
        let changed = std::mem::take(&mut self.balances).into_iter();
        let changed = changed.filter(|(_, change)| *change != BalanceChange::default());
        changed
            .map(|((organization, mode), change)| (hex(organization.0), mode, change.held, change.spent))
            .collect()
    }

    /// Writes the entries in the transaction that causes them. `now` is the database's clock, microseconds.
    pub(crate) async fn write(
        mut self,
        transaction: &mut Transaction,
        ledger: &Ledger,
        writer: Writer,
        now: i64,
    ) -> Result<()> {
        const OPERATION: &str = "write the ledger";
        let (part, day) = (ledger.part_of(writer), day_of(now));
        let balances = self.take_balances();
        let usage = self.usage.iter().map(|((organization, mode, album, operation), change)| {
            (hex(organization.0), mode, hex(album.0), operation.as_str(), change.count, change.credits)
        });
        let usage: Vec<_> = usage.collect();
        if let (Transaction::Postgres(_), false) = (&*transaction, usage.is_empty()) {
            return query(OPERATION, WRITE_BALANCES_AND_USAGE)
                .bind(to_json(&balances)?)
                .bind(part)
                .bind(to_json(&usage)?)
                .bind(day)
                .execute(transaction)
                .await
                .map(drop);
        }
        if !balances.is_empty() {
            query(OPERATION, WRITE_BALANCES)
                .bind(to_json(&balances)?)
                .bind(part)
                .execute(&mut *transaction)
                .await?;
        }
        if !usage.is_empty() {
            query(OPERATION, WRITE_USAGE)
                .bind(to_json(&usage)?)
                .bind(part)
                .bind(day)
                .execute(transaction)
                .await?;
        }
        Ok(())
    }
}

/// What is held for photos that are queued.
pub(in crate::sql) struct Holds {
    /// For each that is not paid, thousandths.
    pub(in crate::sql) price: i64,
    /// The rows that [`WRITE_BALANCES`] takes.
    pub(in crate::sql) balances: String,
    pub(in crate::sql) part: i64,
}

/// An id as `unhex` reads it.
fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

/// The day of a time in microseconds: days since 1970, UTC.
pub(crate) fn day_of(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_DAY)
}
