//! Brings the tables of a Postgres server up to date while other processes use them.
//!
//! Replicas take turns, and one that finds nothing to do waits for no turn. A migration waits for a table only briefly and
//! tries again after a pause: whoever needs the table next waits behind it. Indexes of tables that may be large are no part of
//! a migration: they are built after all of them, without blocking writes ([`CONCURRENT_INDEXES`]).

use std::io;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::{sleep, timeout};

use super::postgres::{SILENCE_LIMIT, connect_options, connect_writable, wait_until_backend_lost};
use super::schema::{SchemaState, read_server};
use crate::error::{StoreError, StoreErrorKind};
use crate::sql::connection::timed::SqlxResult;
use crate::sql::error::store_error;
use crate::traits::Result;

const OPERATION: &str = "migrate the database";

/// How long a migration waits for a table that a transaction uses: all others that need the table wait behind it meanwhile.
/// Shorter than the lock timeout of the service, so that these do not fail.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after that, in which the others use the table. Shorter than the ten seconds after which an idle connection
/// counts as lost.
const RETRY_PAUSE: Duration = Duration::from_secs(4);

/// The advisory lock of the replica whose turn it is: "photofin" in ASCII.
const TURN_LOCK: i64 = 0x7068_6f74_6f66_696e;

/// How often a replica asks for its turn.
const TURN_POLL: Duration = Duration::from_millis(250);

/// An index that is built while others write to its table.
struct ConcurrentIndex {
    name: &'static str,
    /// Its table, columns and condition.
    on: &'static str,
}

/// The indexes of hot tables that came after the first release. Each was added by the migration of the same version on
/// SQLite, whose file has one user. To be appended to: an index that is here and not on the server is built at the next
/// start.
const CONCURRENT_INDEXES: [ConcurrentIndex; 12] = [
    // 0004
    ConcurrentIndex {
        name: "photo_waiting",
        on: "photo (organization, album, confirmed_at, id, size_bytes) where state = 'queued' and attempts = 0",
    },
    ConcurrentIndex {
        name: "photo_outbox",
        on: "photo (organization, album, confirmed_at, id, size_bytes) \
             where state = 'queued' and published_at is null",
    },
    // 0013, which is 0012 on SQLite
    ConcurrentIndex { name: "photo_unjudged", on: "photo (album, list_version, id) where state = 'ready'" },
    ConcurrentIndex {
        name: "seen_text_found",
        on: "seen_text (album, text) where standing in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL')",
    },
    // 0014 on SQLite alone
    ConcurrentIndex { name: "album_change_feed_since", on: "album_change_feed (since)" },
    // 0015
    ConcurrentIndex {
        name: "seen_text_without_lattice",
        on: "seen_text (album, photo) where lattice is null",
    },
    // 0028 on SQLite alone
    ConcurrentIndex {
        name: "photo_by_camera",
        on: "photo (album, camera, id, taken_at, state) where camera is not null",
    },
    // 0029 on SQLite alone
    ConcurrentIndex {
        name: "photo_waiting_with_pictures",
        on: "photo (album, id, state, width) where state in ('queued', 'processing') and width is not null",
    },
    // 0030 on SQLite alone
    ConcurrentIndex { name: "gallery_consent_by_probe", on: "gallery_consent (probe, album)" },
    ConcurrentIndex { name: "gallery_visitor_by_day", on: "gallery_visitor (day)" },
    // 0031 on SQLite alone
    ConcurrentIndex {
        name: "seen_text_unfound",
        on: "seen_text (album, text) where standing not in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL')",
    },
    ConcurrentIndex { name: "seen_text_read_as", on: "seen_text (album, read_as) where read_as is not null" },
];

/// Applies the migrations to the database of a `postgres:` URL and builds its indexes.
pub(crate) async fn migrate(url: &str) -> Result<()> {
    let options = connect_options(url)?;
    // Without the timeouts of the service: creating an index on a large table takes time.
    let (mut connection, pid) = connect_writable(&options).await.map_err(store_error(OPERATION))?;
    tokio::select! {
        migrated = migrate_in_turn(&mut connection) => migrated.map_err(store_error(OPERATION))?,
        () = wait_until_backend_lost(&options, pid) => {
            let lost = format!("{OPERATION}: the server stopped responding");
            return Err(StoreError::new(StoreErrorKind::Unavailable, lost));
        }
    }
    let closed = timeout(SILENCE_LIMIT, connection.close()).await;
    closed.map_err(io::Error::from).map_err(sqlx::Error::from).flatten().map_err(store_error(OPERATION))
}

/// Migrates unless nothing is pending: a start must not wait while another process builds what this one does not know.
async fn migrate_in_turn(connection: &mut PgConnection) -> SqlxResult<()> {
    if is_current(connection).await? {
        return Ok(());
    }
    notice_lost_client(connection).await?;
    wait_for_turn(connection).await?;
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    run_migrations(connection).await?;
    // Building an index waits for transactions that began before, and nobody who writes waits for it.
    set_lock_timeout(connection, Duration::ZERO).await?;
    for index in &CONCURRENT_INDEXES {
        build_index(connection, index).await?;
    }
    sqlx::query("select pg_advisory_unlock($1)").bind(TURN_LOCK).execute(connection).await.map(drop)
}

async fn is_current(connection: &mut PgConnection) -> SqlxResult<bool> {
    let state = read_server(connection).await?;
    Ok(matches!(state, SchemaState::Present { pending, .. } if pending.is_empty()))
}

/// Lets the server end what it does for this process soon after the process is gone: else the turn stays with its backend until
/// the statement ends, for hours where that builds an index. Left out where the server or its system cannot do it, before
/// Postgres 14.
async fn notice_lost_client(connection: &mut PgConnection) -> SqlxResult<()> {
    match connection.execute("set client_connection_check_interval = '5s'").await {
        Err(error) if error.as_database_error().is_some() => {
            tracing::debug!(%error, "the server does not notice when a migration's process is gone");
            Ok(())
        }
        outcome => outcome.map(drop),
    }
}

/// Waits until no other replica migrates. The lock is polled and no statement waits for it: building an index waits
/// for every statement that began before it, so it would wait for replicas that wait for it.
async fn wait_for_turn(connection: &mut PgConnection) -> SqlxResult<()> {
    let take_turn = "select pg_try_advisory_lock($1)";
    let mut is_told = false;
    while !sqlx::query_scalar::<_, bool>(take_turn).bind(TURN_LOCK).fetch_one(&mut *connection).await? {
        if !is_told {
            tracing::info!("another process migrates the database, waiting for it");
            is_told = true;
        }
        sleep(TURN_POLL).await;
    }
    Ok(())
}

/// `Duration::ZERO`: no limit.
async fn set_lock_timeout(connection: &mut PgConnection, limit: Duration) -> SqlxResult<()> {
    let set = format!("set lock_timeout = {}", limit.as_millis());
    connection.execute(AssertSqlSafe(set)).await.map(drop)
}

pub(super) fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("migrations/postgres");
    // During a rolling update an older replica may start on tables that a newer one has migrated already.
    migrator.set_ignore_missing(true);
    // It would wait for the lock in a statement: see `wait_for_turn`.
    migrator.set_locking(false);
    migrator
}

/// Applies the migrations, however often their tables are in use for longer than [`LOCK_TIMEOUT`]. One that was not
/// applied leaves nothing behind.
async fn run_migrations(connection: &mut PgConnection) -> SqlxResult<()> {
    let migrator = migrator();
    loop {
        match migrator.run(&mut *connection).await {
            Err(error) if is_lock_conflict(&error) => {
                tracing::warn!(%error, "failed to lock a table for a migration, retrying in 4 s");
                // Completes the rollback, which sqlx sends with the next statement.
                connection.ping().await?;
                sleep(RETRY_PAUSE).await;
            }
            outcome => return outcome.map_err(sqlx::Error::from),
        }
    }
}

/// Whether a migration waited for a lock for too long, or was ended because of a deadlock.
fn is_lock_conflict(error: &MigrateError) -> bool {
    let (MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) = error else {
        return false;
    };
    let code = cause.as_database_error().and_then(|cause| cause.code());
    matches!(code.as_deref(), Some("55P03" | "40P01"))
}

/// Builds an index unless it exists. One that an interrupted build left behind is not valid, slows down writes and helps
/// no query: it is dropped first.
async fn build_index(
    connection: &mut PgConnection,
    ConcurrentIndex { name, on }: &ConcurrentIndex,
) -> SqlxResult<()> {
    let is_valid = "select indisvalid from pg_index where indexrelid = to_regclass($1)";
    let is_valid: Option<bool> =
        sqlx::query_scalar(is_valid).bind(name).fetch_optional(&mut *connection).await?;
    match is_valid {
        Some(true) => return Ok(()),
        Some(false) => {
            tracing::warn!(index = name, "dropping an index whose build was interrupted");
            connection.execute(AssertSqlSafe(format!("drop index concurrently {name}"))).await?;
        }
        None => {}
    }
    tracing::info!(index = name, "building an index");
    connection.execute(AssertSqlSafe(format!("create index concurrently {name} on {on}"))).await.map(drop)
}

/// Returns the names of those of [`CONCURRENT_INDEXES`] that the next start builds.
pub(super) async fn list_missing_indexes(connection: &mut PgConnection) -> SqlxResult<Vec<String>> {
    let names = CONCURRENT_INDEXES.map(|index| index.name);
    let missing = "select wanted from unnest($1::text[]) as wanted where not exists \
         (select from pg_index where indexrelid = to_regclass(wanted) and indisvalid)";
    sqlx::query_scalar(missing).bind(names.as_slice()).fetch_all(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last migration that was released with indexes of its own on tables of earlier ones.
    const LAST_WITH_INDEXES: i64 = 3;

    /// Building an index in a migration blocks every write to its table for as long as that takes.
    #[test]
    fn migrations_create_indexes_only_on_their_own_tables() {
        for migration in migrator().iter().filter(|migration| migration.version > LAST_WITH_INDEXES) {
            let lines = migration.sql.as_str().lines().filter(|line| !line.trim_start().starts_with("--"));
            let text = lines.collect::<Vec<_>>().join("\n");
            let statements =
                text.split(';').map(|statement| statement.split_whitespace().collect::<Vec<_>>());
            for words in statements {
                let is_index = words.starts_with(&["create", "index"])
                    || words.starts_with(&["create", "unique", "index"]);
                let Some(on) = words.iter().position(|word| *word == "on").filter(|_| is_index) else {
                    continue;
                };
                let table = format!("create table {} ", words[on + 1]);
                assert!(
                    text.contains(&table),
                    "migration {} builds an index on a table that may be large: it belongs to CONCURRENT_INDEXES: {}",
                    migration.version,
                    words.join(" ")
                );
            }
        }
    }
}
