//! Erasures in the database: their rows, what each step removes, and what keeps it from coming back.
//!
//! - [`album_faces`] erases all faces of an album, [`retention`] finds the albums whose time has come.
//! - [`removal`] removes in one transaction what searches find.
//! - [`guard`] is asked by whoever writes detections: a face at an erased place gets no vector, an erased bib no text.
//! - [`organization`] deletes what is left of an organization without albums.
//! - [`pages`] reads and changes albums page by page.
//! - [`personal_tables`] says whose deleted rows must leave the files.
//! - [`scan`] looks for what is left, in every table that the schema has.

pub(crate) mod album_faces;
pub(crate) mod deletion;
pub(crate) mod guard;
pub(crate) mod organization;
mod pages;
mod personal_tables;
pub(crate) mod removal;
pub(crate) mod retention;
pub(crate) mod rows;
pub(crate) mod scan;
mod subject;

use serde::{Deserialize, Serialize};

pub(crate) use self::personal_tables::PERSONAL_TABLES;
use crate::model::ids::{PhotoId, ProbeId};

/// What an erasure has to remove beside rows, and what it removed: ids, no bib and no vector. Kept for later scans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ErasurePlan {
    /// Photos that were deleted, whose objects go.
    pub(crate) deleted_photos: Vec<PhotoId>,
    /// Selfies that were deleted, whose objects go.
    pub(crate) probes: Vec<ProbeId>,
    /// Photos that stay because that was asked.
    pub(crate) kept_photos: u64,
    /// Photos that stay because others are in them.
    pub(crate) shared_photos: u64,
    /// Photos that no search with a selfie could see: they wait, or were read while the selfie was searched with.
    pub(crate) unread_photos: u64,
    /// Selfies that were not compared: not examined yet, or by another network.
    pub(crate) other_probes: u64,
    /// Whether all faces of the album are erased.
    pub(crate) all_faces: bool,
    /// Whether the objects were counted that go.
    pub(crate) is_measured: bool,
    /// Whether all is removed, without a receipt for lack of a master secret: nothing is to be done until there is one.
    pub(crate) is_removed: bool,
    /// When the last lease ends that was running on a photo that was deleted, by the database's clock, microseconds; 0 without
    /// one. Its worker may write pictures until then.
    pub(crate) leased_until: i64,
    /// Whether none of the photos that were deleted was waiting or being processed: no message of the queue asks for them.
    pub(crate) none_queued: bool,
}
