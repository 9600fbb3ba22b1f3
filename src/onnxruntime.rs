//! Where the ONNX Runtime library lies.

use std::path::{Path, PathBuf};

use crate::config::Config;

/// The library to load: the configured one, else the first found beside the binary, in the set-up's folder or
/// under /opt.
///
/// # Errors
/// A sentence that names every place looked at and what to do.
pub fn find_library(config: &Config) -> anyhow::Result<PathBuf> {
    if let Some(path) = &config.onnxruntime {
        anyhow::ensure!(
            path.is_file(),
            "the ONNX Runtime library {} (PHOTOFINISH_ONNXRUNTIME) is not there",
            path.display()
        );
        return Ok(path.clone());
    }
    let folders = search_folders();
    folders.iter().find_map(|folder| find_library_in(folder)).ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        anyhow::anyhow!(
            "no ONNX Runtime library: looked for libonnxruntime.so* in {}; run `cargo xtask setup`, or name the \
             file in PHOTOFINISH_ONNXRUNTIME",
            looked.join(", ")
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

/// Wheels carry only the versioned name, packages the plain one too.
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
