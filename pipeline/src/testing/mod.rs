//! What tests of this crate share.

pub(crate) mod faulty_pipeline;
pub(crate) mod memory_queue;

use photofinish_store::model::album::{AlbumConfig, DEFAULT_BIB_PATTERN, Recognition, RecognitionMode};

/// A new album's configuration.
pub(crate) fn album_config() -> AlbumConfig {
    let recognition =
        Recognition { enabled: true, confidence_threshold: 50.0, mode: RecognitionMode::Photo, grid: None };
    AlbumConfig {
        face: recognition.clone(),
        text: recognition,
        preview_max_dimension: 2048,
        thumbnail_max_dimension: 512,
        bib_pattern: DEFAULT_BIB_PATTERN.to_owned(),
    }
}

/// The folder of real photos beside the checkout, where it is.
///
/// # Panics
/// When it is not and `REQUIRE_SHARED=1`.
pub(crate) fn shared_photo_dir() -> Option<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/photos");
    if folder.join("MANIFEST.csv").is_file() {
        return Some(folder);
    }
    #[expect(clippy::disallowed_methods, reason = "a test's switch, not configuration of the service")]
    let is_required = std::env::var("REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(!is_required, "REQUIRE_SHARED=1, and there is no {}", folder.display());
    println!("SKIPPED: no real photos at {}", folder.display());
    None
}
