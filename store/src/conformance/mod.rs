//! Tests that every backend runs, one suite per trait. A backend's own test opens a store and calls them; they panic
//! with what is wrong. They want the store for themselves (the queue is one for all albums) but no empty one.

pub(crate) mod albums;
pub(crate) mod blobs;
pub(crate) mod faces;
pub(crate) mod fixture;
pub(crate) mod gc;
pub(crate) mod keys;
pub(crate) mod outbox;
pub(crate) mod photos;
pub(crate) mod probes;
pub(crate) mod queue;
pub(crate) mod queue_outcomes;
pub(crate) mod texts;
pub(crate) mod waiting_queue;

use std::path::Path;

use url::Url;

use crate::blobs::cloud::CloudSettings;
use crate::error::StoreErrorKind;
use crate::traits::Result;
use crate::{ServerLimits, Store, StoreSettings};

pub use self::albums::albums_suite;
pub use self::blobs::blobs_suite;
pub use self::faces::faces_suite;
pub use self::fixture::{Event, face, text};
pub use self::gc::gc_suite;
pub use self::keys::keys_suite;
pub use self::outbox::outbox_suite;
pub use self::photos::photos_suite;
pub use self::probes::probes_suite;
pub use self::queue::{queue_suite, queue_suite_with_lead};
pub use self::texts::texts_suite;
pub use self::waiting_queue::WaitingQueue;

/// All suites, one after the other.
pub async fn run_all_suites(store: &Store) {
    keys_suite(store).await;
    albums_suite(store).await;
    photos_suite(store).await;
    queue_suite(store).await;
    outbox_suite(store).await;
    faces_suite(store).await;
    texts_suite(store).await;
    probes_suite(store).await;
    blobs_suite(store).await;
    gc_suite(store).await;
}

/// A store of the embedded profile in this folder, with a little of everything: what a test is about it changes.
pub fn test_settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        database_url: format!("sqlite:{}", folder.join("photofinish.db").display()),
        server_limits: ServerLimits::default(),
        storage_url: format!("file:{}", folder.join("objects").display()),
        cloud: CloudSettings::default(),
        public_url: Url::parse("http://127.0.0.1:8080").expect("a URL"),
        signing_secret: [7; 32],
        attempt_limit: 3,
        face_index_bytes: 64 << 20,
        queue: None,
    }
}

/// The answer was an error of this kind.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, kind: StoreErrorKind) {
    match answer {
        Ok(value) => panic!("expected {kind:?}, got {value:?}"),
        Err(error) => assert_eq!(error.kind, kind, "{error}"),
    }
}
