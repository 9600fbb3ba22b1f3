//! Persistence: albums, keys, photos, faces, texts, the work queue and the bytes of images.
//!
//! Knows nothing of HTTP, neural networks or pixels. Other crates call it through [`traits`]; [`Store::open`] builds the
//! backends from URLs. Every backend passes the tests of `conformance` (cargo feature of the same name, for tests only).

mod account_traits;
mod bibs;
mod blob_traits;
pub mod blobs;
mod bounded_cache;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod credit_traits;
mod download_traits;
pub mod erasure;
mod erasure_traits;
pub mod error;
mod event_traits;
pub mod folder;
mod gallery_traits;
mod key_cache;
mod measures;
pub mod metric_names;
pub mod model;
mod organizations;
mod outbox_traits;
mod panics;
pub mod private;
mod process_traits;
mod queue;
mod sealing;
pub mod search;
mod sql;
mod start_list_traits;
mod store;
pub mod traits;
mod turns;
mod watermark_traits;
mod webhook_traits;

pub use blobs::gc::{GcOptions, GcReport};
pub use bounded_cache::BoundedCache;
pub use error::{StoreError, StoreErrorKind};
pub use measures::MeasuredCredits;
pub use organizations::{Organizations, open_keys, open_organizations};
pub use panics::panic_message;
pub use queue::jetstream::{QueueSettings, StreamState, check_stream};
pub use sealing::{MasterSecret, VisitorSecret};
pub use sql::{DatabaseKind, SchemaState, SealedSecrets, ServerLimits, check_schema, lock_database, migrate};
pub use store::{Embedded, Store, StoreSettings};
pub use turns::{continue_on_behalf_of, on_behalf_of, on_behalf_of_later_known, spawn_on_same_behalf};
