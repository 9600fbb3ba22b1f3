//! The files that a service with real models needs.

use std::path::{Path, PathBuf};

/// The first `libonnxruntime.so*` in a folder or its subfolders; of several in one folder the first by name.
pub fn find_runtime_library(folder: &Path) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let is_library = |path: &&PathBuf| {
        path.is_file()
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"))
    };
    let here = entries.iter().find(is_library).cloned();
    here.or_else(|| {
        entries.iter().filter(|path| path.is_dir()).find_map(|folder| find_runtime_library(folder))
    })
}
