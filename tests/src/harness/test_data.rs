//! Files that may be missing on this machine: the real photos of `../shared`, the runtime and the models.

use std::path::{Path, PathBuf};

use photofinish_servers::{repository_root, skip_or_fail, variable_or_installed_path};

/// One row of `rbnr_boxes.csv`: a bib and the face of its runner.
#[derive(Clone, Debug)]
pub struct LabelledRunner {
    /// Its path below `photos/files`.
    pub file: String,
    /// The runner's number.
    pub bib: String,
    /// Left, top, right and bottom of the face, in pixels.
    pub face: [u32; 4],
}

/// The folder of the real photos; `None`, with a line that the test is skipped, when it is missing.
///
/// # Panics
/// When it is missing and nothing may be skipped.
pub fn shared_photos_dir(test: &str) -> Option<PathBuf> {
    let folder = repository_root().join("../shared/photos");
    if folder.join("MANIFEST.csv").is_file() {
        return Some(folder);
    }
    skip_or_fail(test, "the real photos (../shared/photos beside the repository) are not here");
    None
}

/// The ONNX Runtime library.
///
/// # Errors
/// What is missing and how to get it.
pub fn find_runtime_library() -> Result<PathBuf, String> {
    let path = variable_or_installed_path("PHOTOFINISH_ONNXRUNTIME", "runtime");
    if path.is_file() {
        return Ok(path);
    }
    photofinish_launcher::find_runtime_library(&path)
        .ok_or_else(|| format!("no libonnxruntime.so in {}: run `cargo xtask setup`", path.display()))
}

/// The folder of the model files.
///
/// # Errors
/// What is missing and how to get it.
pub fn find_models_dir() -> Result<PathBuf, String> {
    let path = variable_or_installed_path("PHOTOFINISH_MODELS_DIR", "models");
    let has_models = std::fs::read_dir(&path).is_ok_and(|mut entries| {
        entries.any(|e| e.is_ok_and(|e| e.path().extension().is_some_and(|x| x == "onnx")))
    });
    if has_models {
        return Ok(path);
    }
    Err(format!("no model in {}: run `cargo xtask setup`", path.display()))
}

/// The rows of a label file below `photos`, without the header.
///
/// # Panics
/// When it cannot be read.
pub fn read_label_rows(photos: &Path, name: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(photos.join(name)).expect("a label file");
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// The labelled runners of RBNR.
///
/// # Panics
/// When a row has no numbers where its face should be.
pub fn load_labelled_runners(photos: &Path) -> Vec<LabelledRunner> {
    let pixel = |row: &[String], column: usize| row[column].parse().expect("a pixel");
    read_label_rows(photos, "rbnr_boxes.csv")
        .iter()
        .map(|row| LabelledRunner {
            file: row[0].clone(),
            bib: row[1].clone(),
            face: [6, 7, 8, 9].map(|column| pixel(row, column)),
        })
        .collect()
}
