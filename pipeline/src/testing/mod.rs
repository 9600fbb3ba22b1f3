//! What the tests of this crate share.

pub(crate) mod fault_plan;
pub(crate) mod faulty_pipeline;
pub(crate) mod memory_queue;

use std::sync::Arc;

pub(crate) use photofinish_store::conformance::album_config;
use photofinish_store::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use photofinish_store::traits::Lease;
use time::OffsetDateTime;

/// Returns the first lease of a photo of this organization.
pub(crate) fn lease_of(organization: OrganizationId) -> Lease {
    Lease {
        id: LeaseId::generate(),
        photo: PhotoId::generate(),
        album: AlbumId::generate(),
        organization,
        config: Arc::new(album_config()),
        attempt: 1,
        confirmed_at: OffsetDateTime::now_utc(),
        erased_places: Vec::new(),
        watermark_version: 0,
        spent: Arc::default(),
    }
}

/// Returns what has the header of a colour profile of RGB; `length` is at least 40 bytes.
pub(crate) fn rgb_profile(length: usize) -> Vec<u8> {
    let mut profile: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    profile[..4].copy_from_slice(&(length as u32).to_be_bytes());
    profile[16..20].copy_from_slice(b"RGB ");
    profile[36..40].copy_from_slice(b"acsp");
    profile
}

/// Returns the directory of real photos beside the checkout, if it exists.
///
/// # Panics
/// When it does not exist and `REQUIRE_SHARED=1`.
pub(crate) fn shared_photo_dir() -> Option<std::path::PathBuf> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/photos");
    if dir.join("MANIFEST.csv").is_file() {
        return Some(dir);
    }
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not a setting of the service")]
    let is_required = std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    assert!(!is_required, "REQUIRE_SHARED=1, and there is no {}", dir.display());
    println!("SKIPPED: no real photos at {}", dir.display());
    None
}
