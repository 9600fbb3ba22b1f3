//! Connections to one SQLite file or a Postgres server, opened, bounded in time and migrated.

pub(crate) mod postgres;
pub(crate) mod sqlite;
pub(crate) mod timed;
