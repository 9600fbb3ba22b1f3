//! Deletes everything of an organization but the receipts of what was erased for it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::erasure::{LedgerFate, ScannedStore};
use crate::model::ids::OrganizationId;
use crate::sql::database::{Database, Transaction};
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::traits::Result;

const OPERATION: &str = "erase an organization";

/// A table with rows of an organization.
struct OrganizationTable {
    name: &'static str,
    delete: &'static str,
    count: &'static str,
}

macro_rules! organization_tables {
    ($($table:literal),+ $(,)?) => {
        [$(OrganizationTable {
            name: $table,
            delete: concat!("delete from ", $table, " where organization = $1"),
            count: concat!("select count(*) from ", $table, " where organization = $1"),
        }),+]
    };
}

/// In the order in which they are deleted. Deliveries go with their webhooks, sessions and links with their accounts.
const TABLES: [OrganizationTable; 11] = organization_tables![
    "webhook",
    "event_outbox",
    "event",
    "event_loss",
    "account",
    "api_key",
    "usage_rollup",
    "cost_rollup",
    "credit_shard",
    "credit_low",
    "credit_grant",
];

/// Tables with a column of that name that have nothing here: `erasure` has the receipts, rows of `album` and `photo` were
/// erased before.
const OTHER_TABLES: [&str; 3] = ["album", "erasure", "photo"];

/// Tables with a column for organizations.
const FIND_TABLES: Statement = Statement::PerDialect {
    sqlite: "select tables.name from sqlite_master as tables join pragma_table_info(tables.name) as columns \
             where tables.type = 'table' and columns.name = 'organization' order by 1",
    postgres: "select table_name::text from information_schema.columns \
               where table_schema = current_schema() and column_name = 'organization' order by 1",
};

const COUNT_ALBUMS: &str = "select count(*) from album where organization = $1";

const COUNT_PHOTOS: &str = "select count(*) from photo where organization = $1";

/// What keys have spent of their limits.
const DELETE_WINDOWS: &str =
    "delete from rate_window where api_key in (select id from api_key where organization = $1)";

/// Adds what was used, by day and operation, to what belongs to nobody: numbers without ids, for accounts that must be kept.
const KEEP_LEDGER: &str = "insert into usage_rollup as kept (organization, mode, day, album, operation, part, count, credits) \
     select $2, mode, day, $2, operation, 0, cast(sum(count) as bigint), cast(sum(credits) as bigint) from usage_rollup \
     where organization = $1 group by mode, day, operation \
     on conflict (organization, mode, day, album, operation, part) \
     do update set count = kept.count + excluded.count, credits = kept.credits + excluded.credits";

/// Leaves the row with the id in place of the name: whoever is interrupted before the receipt asks for it by the id.
const FORGET_NAME: &str = "update organization set name = $2 where id = $1";

/// Its name is gone; the id, which stands in its place until the receipt was handed out, names nobody.
const COUNT_NAMES: &str = "select count(*) from organization where id = $1 and name <> $2";

/// Makes sure that an organization has no albums left, closed ones neither.
///
/// # Errors
/// `Conflict` while it has some.
pub(crate) async fn require_no_albums(database: &Database, organization: OrganizationId) -> Result<()> {
    refuse_albums(&mut database.acquire_reader(OPERATION).await?, organization).await
}

async fn refuse_albums<'c>(on: impl Into<ConnectionRef<'c>>, organization: OrganizationId) -> Result<()> {
    let (albums,): (i64,) = query(OPERATION, COUNT_ALBUMS).bind(organization).fetch_one(on).await?;
    if albums == 0 {
        return Ok(());
    }
    Err(StoreError::new(StoreErrorKind::Conflict, format!("{albums} albums of the organization")))
}

/// Deletes the rows of an organization whose albums were erased; returns how many, by table. Its id stays until [`forget`].
///
/// # Errors
/// `Conflict` while it has albums, `Corrupt` when a table of the schema is unknown here.
pub(crate) async fn erase(
    database: &Database,
    organization: OrganizationId,
    ledger: LedgerFate,
) -> Result<BTreeMap<&'static str, u64>> {
    let mut transaction = database.begin_write(OPERATION).await?;
    check_schema(&mut transaction).await?;
    refuse_albums(&mut transaction, organization).await?;
    if ledger == LedgerFate::KeepNumbers {
        query(OPERATION, KEEP_LEDGER)
            .bind(organization)
            .bind(OrganizationId(Uuid::nil()))
            .execute(&mut transaction)
            .await?;
    }
    query(OPERATION, DELETE_WINDOWS).bind(organization).execute(&mut transaction).await?;
    let mut removed = BTreeMap::new();
    for table in &TABLES {
        let rows = query(OPERATION, table.delete).bind(organization).execute(&mut transaction).await?;
        removed.insert(table.name, rows);
    }
    query(OPERATION, FORGET_NAME)
        .bind(organization)
        .bind(organization.to_string())
        .execute(&mut transaction)
        .await?;
    let scanned = count_rows(&mut transaction, organization).await?;
    if scanned.left > 0 {
        let what = format!("{} rows of the organization are left", scanned.left);
        return Err(StoreError::new(StoreErrorKind::Conflict, what));
    }
    transaction.commit(OPERATION).await?;
    Ok(removed)
}

/// Deletes the id of an organization that was erased.
pub(crate) async fn forget(database: &Database, organization: OrganizationId) -> Result<()> {
    let mut transaction = database.begin_write(OPERATION).await?;
    query(OPERATION, "delete from organization where id = $1 and name = $2")
        .bind(organization)
        .bind(organization.to_string())
        .execute(&mut transaction)
        .await?;
    transaction.commit(OPERATION).await
}

/// Looks for rows of an organization.
pub(crate) async fn scan(database: &Database, organization: OrganizationId) -> Result<ScannedStore> {
    let mut snapshot = database.begin_snapshot(OPERATION).await?;
    check_schema(&mut snapshot).await?;
    count_rows(&mut snapshot, organization).await
}

async fn count_rows(transaction: &mut Transaction, organization: OrganizationId) -> Result<ScannedStore> {
    let mut scanned = ScannedStore { store: "rows".to_owned(), looked: 0, left: 0 };
    for count in TABLES.iter().map(|table| table.count).chain([COUNT_ALBUMS, COUNT_PHOTOS]) {
        let (left,): (i64,) = query(OPERATION, count).bind(organization).fetch_one(&mut *transaction).await?;
        scanned.looked += 1;
        scanned.left += left.unsigned_abs();
    }
    let (names,): (i64,) = query(OPERATION, COUNT_NAMES)
        .bind(organization)
        .bind(organization.to_string())
        .fetch_one(transaction)
        .await?;
    scanned.looked += 1;
    scanned.left += names.unsigned_abs();
    Ok(scanned)
}

/// Compares the lists of tables with the schema.
async fn check_schema(transaction: &mut Transaction) -> Result<()> {
    let tables: Vec<(String,)> = query(OPERATION, FIND_TABLES).fetch_all(transaction).await?;
    let known: BTreeSet<&str> = TABLES.iter().map(|table| table.name).chain(OTHER_TABLES).collect();
    match tables.into_iter().find(|(table,)| !known.contains(table.as_str())) {
        Some((table,)) => {
            let what = format!("table {table} is not looked at when an organization is erased");
            Err(StoreError::new(StoreErrorKind::Corrupt, what))
        }
        None => Ok(()),
    }
}
