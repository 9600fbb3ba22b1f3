//! Connections to one SQLite file or a Postgres server: opening, migrations, timeouts.

pub(crate) mod migration;
pub(crate) mod postgres;
pub(crate) mod schema;
pub(crate) mod sqlite;
pub(crate) mod timed;
mod vacuum;
