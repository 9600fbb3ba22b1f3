//! Tests that every backend runs, one suite per trait. A backend's own test opens a store and calls them; they panic
//! with what is wrong. They want the store for themselves (the queue is one for all albums) but no empty one.

mod albums;
mod blobs;
mod event;
mod faces;
mod keys;
mod outbox;
mod patient;
mod photos;
mod probes;
mod queue;
mod queue_ends;
mod texts;

use crate::Store;
use crate::error::StoreErrorKind;
use crate::traits::Result;

pub use self::albums::albums_suite;
pub use self::blobs::blobs_suite;
pub use self::event::{Event, face, text};
pub use self::faces::faces_suite;
pub use self::keys::keys_suite;
pub use self::outbox::outbox_suite;
pub use self::patient::Patient;
pub use self::photos::photos_suite;
pub use self::probes::probes_suite;
pub use self::queue::{queue_suite, queue_suite_with_lead};
pub use self::texts::texts_suite;

/// All suites, one after the other.
pub async fn every_suite(store: &Store) {
    keys_suite(store).await;
    albums_suite(store).await;
    photos_suite(store).await;
    queue_suite(store).await;
    outbox_suite(store).await;
    faces_suite(store).await;
    texts_suite(store).await;
    probes_suite(store).await;
    blobs_suite(store).await;
}

/// The answer was an error of this kind.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, kind: StoreErrorKind) {
    match answer {
        Ok(value) => panic!("expected {kind:?}, got {value:?}"),
        Err(error) => assert_eq!(error.kind, kind, "{error}"),
    }
}
