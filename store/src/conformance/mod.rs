//! Conformance tests that every backend passes, one suite per trait of [`crate::traits`]. The test of a backend opens a
//! store and calls them; they panic with what is wrong. They need exclusive use of the store, because all albums share
//! one queue, but not an empty store. Compiled only with the cargo feature `conformance`.

pub(crate) mod accounts;
pub(crate) mod albums;
pub(crate) mod bib_formats;
mod blobs;
pub(crate) mod costs;
mod credit_days;
mod credit_grants;
pub(crate) mod credits;
pub(crate) mod erasure_edges;
mod erasure_steps;
mod erasures;
pub(crate) mod events;
pub(crate) mod faces;
pub(crate) mod fair_shares;
pub(crate) mod fixture;
pub(crate) mod galleries;
pub(crate) mod gc;
mod idle_albums;
pub(crate) mod keys;
pub(crate) mod outbox;
pub(crate) mod photos;
pub(crate) mod pictures;
pub(crate) mod probes;
pub(crate) mod processes;
pub(crate) mod queue;
pub(crate) mod queue_outcomes;
pub(crate) mod signed_urls;
mod start_list_imports;
pub(crate) mod start_lists;
pub(crate) mod tasks;
pub(crate) mod texts;
pub(crate) mod waiting_queue;
mod webhook_edges;
pub(crate) mod webhooks;

use std::path::Path;

use url::Url;

use crate::blobs::cloud::CloudSettings;
use crate::error::StoreErrorKind;
use crate::model::credit::CreditSettings;
use crate::sealing::MasterSecret;
use crate::sql::ServerLimits;
use crate::store::{Store, StoreSettings};
use crate::traits::Result;

pub use self::accounts::accounts_suite;
pub use self::albums::albums_suite;
pub use self::bib_formats::bib_formats_suite;
pub use self::blobs::blobs_suite;
pub use self::costs::costs_suite;
pub use self::credits::{credits_suite, rates_suite};
pub use self::erasure_steps::erasure_steps_suite;
pub use self::erasures::erasures_suite;
pub use self::events::events_suite;
pub use self::faces::{add_album_with_bibs, faces_suite};
pub use self::fair_shares::fair_shares_suite;
pub use self::fixture::{AlbumFixture, album_config, face, text};
pub use self::galleries::galleries_suite;
pub use self::gc::gc_suite;
pub use self::keys::keys_suite;
pub use self::outbox::outbox_suite;
pub use self::photos::photos_suite;
pub use self::pictures::pictures_suite;
pub use self::probes::probes_suite;
pub use self::processes::processes_suite;
pub use self::queue::{queue_suite, queue_suite_with_lead};
pub use self::signed_urls::other_spellings;
pub use self::start_lists::{reading, start_lists_suite};
pub use self::tasks::tasks_suite;
pub use self::texts::texts_suite;
pub use self::waiting_queue::WaitingQueue;
pub use self::webhooks::webhooks_suite;

/// Runs all suites, one after the other.
pub async fn run_all_suites(store: &Store) {
    keys_suite(store).await;
    accounts_suite(store).await;
    albums_suite(store).await;
    photos_suite(store).await;
    queue_suite(store).await;
    outbox_suite(store).await;
    faces_suite(store).await;
    texts_suite(store).await;
    probes_suite(store).await;
    blobs_suite(store).await;
    gc_suite(store).await;
    tasks_suite(store).await;
    processes_suite(store).await;
    events_suite(store).await;
    webhooks_suite(store).await;
    start_lists_suite(store).await;
    bib_formats_suite(store).await;
    erasures_suite(store).await;
    erasure_steps_suite(store).await;
    costs_suite(store).await;
    pictures_suite(store).await;
    galleries_suite(store).await;
}

/// Settings of an embedded store in `folder`, with small limits. A test changes the ones it is about.
pub fn test_settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        database_url: format!("sqlite:{}", folder.join("photofinish.db").display()),
        server_limits: ServerLimits::default(),
        storage_url: format!("file:{}", folder.join("objects").display()),
        cloud: CloudSettings::default(),
        public_url: Url::parse("http://127.0.0.1:8080").expect("a URL"),
        signing_secret: [7; 32],
        master_secret: Some(MasterSecret::new([9; 32], None)),
        backup_days: None,
        attempt_limit: 3,
        max_cells: 16,
        credits: CreditSettings::default(),
        face_index_bytes: 64 << 20,
        queue: None,
    }
}

/// Asserts that the result is an error of this kind.
#[track_caller]
fn assert_error_kind<T: std::fmt::Debug>(result: Result<T>, kind: StoreErrorKind) {
    match result {
        Ok(value) => panic!("expected {kind}, got {value:?}"),
        Err(error) => assert_eq!(error.kind, kind, "{error}"),
    }
}
