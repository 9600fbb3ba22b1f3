//! Finds the ONNX Runtime library.

use std::path::{Path, PathBuf};

/// Returns the configured library, else the first one found beside the binary, in `.photofinish/runtime` or under `/opt`.
///
/// # Errors
/// When there is none: the message names every folder searched and says what to do.
pub fn find_library(configured: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = configured {
        anyhow::ensure!(
            path.is_file(),
            "the ONNX Runtime library {} (PHOTOFINISH_ONNXRUNTIME) does not exist",
            path.display()
        );
        return Ok(path.to_path_buf());
    }
    let folders = search_folders();
    folders.iter().find_map(|folder| find_library_in(folder)).ok_or_else(|| {
        let searched: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        anyhow::anyhow!(
            "no ONNX Runtime library: searched for libonnxruntime.so* in {}; run `cargo xtask setup`, or name the \
             file in PHOTOFINISH_ONNXRUNTIME",
            searched.join(", ")
        )
    })
}

fn search_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(here) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        folders.push(here.to_path_buf());
        folders.push(here.join("../lib"));
    }
    folders.push(PathBuf::from(".photofinish/runtime"));
    folders.push(PathBuf::from("/opt/onnxruntime/lib"));
    folders
}

/// Python wheels contain only the versioned file name, system packages the plain one too.
fn find_library_in(folder: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|n| n.starts_with("libonnxruntime.so"))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}
