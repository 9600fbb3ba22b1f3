//! Persistence in one SQLite file (the embedded profile) or on a Postgres server (the cluster), with shared code.
//!
//! A [`database::Database`] is one of the two. Its transactions and connections run the [`statement`]s of this folder.
//! Writes to many photos at once are implemented per database ([`dialect`]): a statement costs SQLite microseconds and
//! Postgres a network round trip.
//!
//! **Rows are locked in one order** to rule out deadlocks: first photos by album and id, then the ledger by tenant
//! (`usage_rollup`, `credit_shard`, `cost_rollup`), then albums by id, and nothing after an album within the same transaction but its row of
//! `album_change_feed`, which a trigger locks, and what its start list is made of. SQLite has one lock for the whole file;
//! Postgres has one per row. Rows of galleries are locked by album, in transactions that lock nothing else. The counts of photos
//! have no place in that order: triggers insert rows whose sum they are, and no statement waits for one.

mod accounts;
#[cfg(test)]
mod album_tests;
mod albums;
mod changes;
mod connection;
mod costs;
mod counts;
mod credits;
mod database;
mod dialect;
mod downloads;
pub(crate) mod erasures;
mod error;
mod events;
mod face_bibs;
mod faces;
mod galleries;
#[cfg(test)]
mod gallery_tests;
mod gallery_visits;
mod gc_queries;
mod keys;
mod photos;
mod probes;
mod processes;
mod queue;
mod row_types;
#[cfg(test)]
mod scan_tests;
mod start_lists;
mod statement;
mod tasks;
#[cfg(test)]
mod tests;
mod texts;
mod upload_targets;
mod watermarks;
mod webhooks;

pub(crate) use self::accounts::SqlAccounts;
#[cfg(any(test, feature = "conformance"))]
pub(crate) use self::accounts::ageing::age_accounts;
pub(crate) use self::albums::SqlAlbums;
pub(crate) use self::connection::postgres::MIN_IDLE_IN_TRANSACTION;
pub use self::connection::postgres::ServerLimits;
pub use self::connection::schema::SchemaState;
pub(crate) use self::costs::SqlCosts;
pub(crate) use self::counts::find_mismatches as find_count_mismatches;
#[cfg(any(test, feature = "conformance"))]
pub(crate) use self::credits::ageing::age_credits;
pub(crate) use self::credits::rates::SqlRateWindows;
pub(crate) use self::credits::{SharedLedger, SqlCredits};
pub(crate) use self::database::Database;
pub use self::database::{DatabaseKind, check_schema, lock_database, migrate};
pub(crate) use self::downloads::SqlDownloads;
pub(crate) use self::erasures::PERSONAL_TABLES;
pub(crate) use self::events::SqlEvents;
#[cfg(any(test, feature = "conformance"))]
pub(crate) use self::events::ageing::age_events;
pub(crate) use self::faces::SqlFaces;
pub(crate) use self::galleries::SqlGalleries;
pub(crate) use self::gc_queries::SqlGcQueries;
pub(crate) use self::keys::SqlKeys;
pub(crate) use self::photos::SqlPhotos;
pub(crate) use self::probes::SqlProbes;
pub(crate) use self::processes::SqlProcesses;
pub(crate) use self::queue::SqlQueue;
pub(crate) use self::start_lists::SqlStartLists;
pub(crate) use self::start_lists::judging::SqlJudging;
pub(crate) use self::start_lists::rules::RulesCache;
pub(crate) use self::tasks::SqlTaskLeases;
pub(crate) use self::texts::SqlTexts;
pub(crate) use self::upload_targets::SqlUploadTargets;
pub(crate) use self::watermarks::SqlWatermarks;
pub(crate) use self::webhooks::SqlWebhooks;
#[cfg(any(test, feature = "conformance"))]
pub(crate) use self::webhooks::ageing::{age_webhooks, publish_late};
pub use self::webhooks::sealed::SealedSecrets;
pub(crate) use self::webhooks::sealed::{check as check_sealed_secrets, reseal};
pub(crate) use self::webhooks::sending::SqlDeliveryQueue;
