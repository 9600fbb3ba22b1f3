//! How far the migrations of a database are, found out by reading alone. Whoever opens a store migrates; a diagnosis must not.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::time::timeout;

use super::migration;
use super::postgres::{SILENCE_LIMIT, connect_options, connect_writable};
use super::sqlite::{self, BUSY_TIMEOUT, database_path, with_suffix};
use crate::sql::connection::timed::SqlxResult;
use crate::sql::error::store_error;
use crate::traits::Result;

const OPERATION: &str = "read which migrations the database has";

/// The migrations that were applied, in the table that sqlx keeps of them.
const APPLIED: &str = "select version, checksum from _sqlx_migrations where success";

/// Files beside a database file with changes that are not in it yet: of a process that has it open, or that died.
const LOGS: [&str; 2] = ["-wal", "-journal"];

/// The checksums of the migrations that were applied, by version.
type Applied = BTreeMap<i64, Vec<u8>>;

/// What a database has of the migrations of this binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// There is no database file, or no migration was ever applied: the first start creates what is missing.
    Absent,
    /// There are tables.
    Present {
        /// What the next start does first, in this order: migrations, by version and name (`0029 waiting with pictures`); on
        /// a server then indexes (`index photo_waiting`).
        pending: Vec<String>,
        /// Versions of migrations that this binary does not know: a newer one has applied them. A start refuses such a file,
        /// and uses such a server: during a rolling update replicas of both versions do.
        unknown: Vec<i64>,
    },
}

/// Looks at the file of a `sqlite:` URL.
pub(crate) async fn check_file(url: &str) -> Result<SchemaState> {
    read_file(&database_path(url)?).await.map_err(store_error(OPERATION))
}

/// Looks at the server of a `postgres:` URL.
pub(crate) async fn check_server(url: &str) -> Result<SchemaState> {
    let options = connect_options(url)?;
    let (mut connection, _) = connect_writable(&options).await.map_err(store_error(OPERATION))?;
    let read = async {
        let state = read_server(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(state)
    };
    let state = timeout(SILENCE_LIMIT, read).await;
    state.map_err(io::Error::from).map_err(sqlx::Error::from).flatten().map_err(store_error(OPERATION))
}

async fn read_file(path: &Path) -> SqlxResult<SchemaState> {
    // The database may be a link, and its log is beside the file itself.
    let path = match tokio::fs::canonicalize(path).await {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SchemaState::Absent),
        Err(error) => return Err(error.into()),
    };
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .read_only(true)
        // Where there is no log, SQLite would create one for a reader too, and leave it there.
        .immutable(!has_log(&path).await?)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let mut connection = options.connect().await?;
    let tables = "select count(*) from sqlite_master where type = 'table' and name = '_sqlx_migrations'";
    let tables: i64 = sqlx::query_scalar(tables).fetch_one(&mut connection).await?;
    let mut applied = Applied::new();
    if tables > 0 {
        let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(APPLIED).fetch_all(&mut connection).await?;
        applied.extend(rows);
    }
    connection.close().await?;
    compare_migrations(&sqlite::migrator(), &applied)
}

async fn has_log(path: &Path) -> io::Result<bool> {
    for suffix in LOGS {
        if tokio::fs::try_exists(with_suffix(path, suffix)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Looks at a server through a connection that is open.
pub(super) async fn read_server(connection: &mut PgConnection) -> SqlxResult<SchemaState> {
    let has_table = "select to_regclass('_sqlx_migrations') is not null";
    let has_table: bool = sqlx::query_scalar(has_table).fetch_one(&mut *connection).await?;
    let mut applied = Applied::new();
    if has_table {
        let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(APPLIED).fetch_all(&mut *connection).await?;
        applied.extend(rows);
    }
    let mut state = compare_migrations(&migration::migrator(), &applied)?;
    if let SchemaState::Present { pending, .. } = &mut state {
        let indexes = migration::list_missing_indexes(connection).await?;
        pending.extend(indexes.into_iter().map(|name| format!("index {name}")));
    }
    Ok(state)
}

/// Fails as a start does where a migration was applied with another text.
fn compare_migrations(migrator: &Migrator, applied: &Applied) -> SqlxResult<SchemaState> {
    if applied.is_empty() {
        return Ok(SchemaState::Absent);
    }
    let mut pending = Vec::new();
    for migration in migrator.iter() {
        match applied.get(&migration.version) {
            Some(checksum) if checksum[..] == migration.checksum[..] => {}
            Some(_) => return Err(MigrateError::VersionMismatch(migration.version).into()),
            None => pending.push(format!("{:04} {}", migration.version, migration.description)),
        }
    }
    let is_known = |version: &i64| migrator.iter().any(|migration| migration.version == *version);
    let unknown = applied.keys().copied().filter(|version| !is_known(version)).collect();
    Ok(SchemaState::Present { pending, unknown })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use sqlx::{Executor, SqliteConnection};

    use super::*;
    use crate::error::StoreErrorKind;
    use crate::sql::migrate;

    const WITHOUT_THE_LAST: &str = "delete from _sqlx_migrations where version = 29";

    /// A database file with all migrations, and what it names.
    struct TestFile {
        folder: tempfile::TempDir,
        url: String,
    }

    impl TestFile {
        async fn create() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let url = url_in(folder.path());
            migrate(&url).await.unwrap();
            Self { folder, url }
        }

        async fn execute(&self, statement: &'static str) {
            let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
            connection.execute(statement).await.unwrap();
            connection.close().await.unwrap();
        }
    }

    fn url_in(folder: &Path) -> String {
        format!("sqlite:{}", folder.join("photofinish.sqlite").display())
    }

    fn read_files(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
    }

    fn present(pending: &[&str], unknown: &[i64]) -> SchemaState {
        let pending = pending.iter().map(|name| (*name).to_owned()).collect();
        SchemaState::Present { pending, unknown: unknown.to_vec() }
    }

    #[tokio::test]
    async fn a_file_that_does_not_exist_is_absent_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        for place in [folder.path().to_owned(), folder.path().join("missing")] {
            assert_eq!(check_file(&url_in(&place)).await.unwrap(), SchemaState::Absent);
        }
        assert!(read_files(folder.path()).is_empty());
        // Of a first start that was killed.
        std::fs::write(folder.path().join("photofinish.sqlite"), "").unwrap();
        let files = read_files(folder.path());
        assert_eq!(check_file(&url_in(folder.path())).await.unwrap(), SchemaState::Absent);
        assert_eq!(read_files(folder.path()), files);
    }

    #[tokio::test]
    async fn a_migration_that_is_missing_is_pending_and_not_applied() {
        let file = TestFile::create().await;
        assert_eq!(check_file(&file.url).await.unwrap(), present(&[], &[]));
        file.execute(WITHOUT_THE_LAST).await;
        let files = read_files(file.folder.path());
        for _ in 0..2 {
            assert_eq!(check_file(&file.url).await.unwrap(), present(&["0029 waiting with pictures"], &[]));
        }
        assert_eq!(read_files(file.folder.path()), files, "nothing is written, beside it neither");
    }

    #[tokio::test]
    async fn what_a_running_service_has_committed_counts() {
        let file = TestFile::create().await;
        let mut service = SqliteConnection::connect(&file.url).await.unwrap();
        // It is in the log, and not in the file.
        service.execute(WITHOUT_THE_LAST).await.unwrap();
        assert_eq!(check_file(&file.url).await.unwrap(), present(&["0029 waiting with pictures"], &[]));
        service.close().await.unwrap();
    }

    #[tokio::test]
    async fn migrations_of_newer_versions_are_listed_and_changed_ones_are_errors() {
        let file = TestFile::create().await;
        let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                     values (9999, 'later', true, x'00', 0)";
        file.execute(newer).await;
        assert_eq!(check_file(&file.url).await.unwrap(), present(&[], &[9999]));
        file.execute("update _sqlx_migrations set checksum = x'00' where version = 3").await;
        assert_eq!(check_file(&file.url).await.unwrap_err().kind, StoreErrorKind::Corrupt);
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("photofinish.sqlite"), "no database ".repeat(1000)).unwrap();
        assert_eq!(check_file(&url_in(folder.path())).await.unwrap_err().kind, StoreErrorKind::Corrupt);
    }
}
