//! Settings of the database.

use std::path::Path;
use std::time::Duration;

use photofinish_store::ServerLimits;

use super::parsers;

/// While an album is loading it uses one connection and may wait for a search that needs another.
const MIN_CONNECTIONS: u64 = 2;

/// Settings of the database.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Database (roles all, serve, work)")]
pub struct DatabaseArguments {
    /// Database: sqlite:FILE or postgres://USER:PASSWORD@HOST/DATABASE [default: SQLite in the data folder]
    #[arg(long, env = "PHOTOFINISH_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    #[arg(value_parser = parsers::database_url)]
    pub database_url: Option<String>,
    /// Postgres: size of the connection pool; at least 2 connections are used, and 2 more look up API keys
    #[arg(long, env = "PHOTOFINISH_DATABASE_CONNECTIONS", value_name = "COUNT", default_value = "16")]
    #[arg(value_parser = parsers::count)]
    pub database_connections: u64,
    /// Postgres: how long a call waits for a connection, seconds
    #[arg(long = "database-acquire-seconds", env = "PHOTOFINISH_DATABASE_ACQUIRE_SECONDS")]
    #[arg(value_name = "SECONDS", default_value = "10", value_parser = parsers::seconds)]
    pub acquire_timeout: Duration,
    /// Postgres: how long a statement may run, seconds
    #[arg(long = "database-statement-seconds", env = "PHOTOFINISH_DATABASE_STATEMENT_SECONDS")]
    #[arg(value_name = "SECONDS", default_value = "30", value_parser = parsers::seconds)]
    pub statement_timeout: Duration,
    /// Postgres: how long a statement may wait for a lock, seconds
    #[arg(long = "database-lock-seconds", env = "PHOTOFINISH_DATABASE_LOCK_SECONDS")]
    #[arg(value_name = "SECONDS", default_value = "10", value_parser = parsers::seconds)]
    pub lock_timeout: Duration,
}

impl DatabaseArguments {
    /// The configured URL, or that of an SQLite file in the data folder.
    pub fn url(&self, data_dir: &Path) -> String {
        let default = || format!("sqlite:{}", data_dir.join("photofinish.sqlite").display());
        self.database_url.clone().unwrap_or_else(default)
    }

    /// The limits of a Postgres server.
    pub fn server_limits(&self) -> ServerLimits {
        ServerLimits {
            connections: self.database_connections.max(MIN_CONNECTIONS) as u32,
            acquire_timeout: self.acquire_timeout,
            statement_timeout: self.statement_timeout,
            lock_timeout: self.lock_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{config, problems};

    #[test]
    fn a_postgres_url_is_accepted() {
        let given = [("PHOTOFINISH_DATABASE_URL", "postgresql://photofinish:secret@host/rows")];
        let config = config(&given).unwrap();
        assert_eq!(config.server_limits, ServerLimits::default());
        assert!(config.lines().iter().all(|(_, value)| !value.contains("secret")));
        let problems = problems(&[("PHOTOFINISH_DATABASE_URL", "mysql://a:secret@host/rows")]);
        assert!(problems[0].contains("DATABASE_URL") && !problems[0].contains("secret"), "{problems:?}");
    }
}
