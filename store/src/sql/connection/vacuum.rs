//! Removes dead versions of rows from the tables of a Postgres server, and knows whether none is left.

use std::io;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::{Instant, sleep, timeout};

use crate::sql::connection::timed::SqlxResult;

/// How long removing dead versions may take.
const TIMEOUT: Duration = Duration::from_mins(10);

/// How long it waits for older transactions: those of the service are much shorter.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it looks meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The transaction that begins next: everything that is committed now was written by an older one.
const NEXT_TRANSACTION: &str = "select pg_snapshot_xmax(pg_current_snapshot())::xid::text";

/// Counts who may still see what transactions before this one have deleted, by the rule of `ComputeXidHorizons` of the server:
/// running transactions and snapshots of this database and of standbys, replication slots and prepared transactions. A vacuum that is
/// running holds nothing back.
const OLDER_HOLDERS: &str = "select count(*) from ( \
       select backend_xid as holds from pg_stat_activity \
       where (datname = current_database() or datname is null) and pid not in (select pid from pg_stat_progress_vacuum) \
       union all select backend_xmin from pg_stat_activity \
       where (datname = current_database() or datname is null) and pid <> pg_backend_pid() \
       and pid not in (select pid from pg_stat_progress_vacuum) \
       union all select xmin from pg_replication_slots \
       union all select transaction from pg_prepared_xacts where database = current_database() \
     ) as holders where holds is not null and age(holds) > age($1::text::xid)";

/// Removes the dead versions of the rows of these tables. Returns whether it has: none goes while an older transaction may still
/// see it.
pub(super) async fn vacuum(options: &PgConnectOptions, tables: &[&'static str]) -> SqlxResult<bool> {
    // A connection of its own: those of the pool have timeouts that are too short for a large table.
    let mut connection = PgConnection::connect_with(options).await?;
    let vacuum = async {
        connection.execute("set statement_timeout = 0").await?;
        if !wait_for_older_transactions(&mut connection).await? {
            return connection.close().await.map(|()| false);
        }
        for table in tables {
            connection.execute(AssertSqlSafe(format!("vacuum {table}"))).await?;
        }
        connection.close().await.map(|()| true)
    };
    timeout(TIMEOUT, vacuum).await.map_err(io::Error::from)?
}

/// Returns whether nobody sees any more what is deleted now.
async fn wait_for_older_transactions(connection: &mut PgConnection) -> SqlxResult<bool> {
    let deadline = Instant::now() + PATIENCE;
    let next: String = sqlx::query_scalar(NEXT_TRANSACTION).fetch_one(&mut *connection).await?;
    loop {
        let older: i64 = sqlx::query_scalar(OLDER_HOLDERS).bind(&next).fetch_one(&mut *connection).await?;
        if older == 0 {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            tracing::debug!(older, "older transactions still see deleted rows");
            return Ok(false);
        }
        sleep(POLL_INTERVAL).await;
    }
}
