//! Opens shared libraries by their path, so that those that ask for them by name find them without `LD_LIBRARY_PATH`.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::CudaError;

/// Opens every shared library of the folders for the life of the process, each after those it needs: whatever fails is
/// tried again once others have been opened. Returns those that could not be opened, with the reason.
pub fn preload(folders: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let mut waiting: Vec<PathBuf> = folders.iter().flat_map(|folder| list_libraries(folder)).collect();
    waiting.sort();
    loop {
        let before = waiting.len();
        let mut failed = Vec::new();
        for path in waiting {
            if let Err(reason) = open_forever(&path) {
                failed.push((path, reason));
            }
        }
        if failed.is_empty() || failed.len() == before {
            return failed;
        }
        waiting = failed.into_iter().map(|(path, _)| path).collect();
    }
}

fn list_libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("lib") && name.contains(".so")
    };
    entries.flatten().map(|entry| entry.path()).filter(is_library).collect()
}

fn open_forever(path: &Path) -> Result<(), String> {
    // SAFETY: the libraries are those that set-up has fetched and checked; their initialisers set up their own state
    // only.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    // Never closed: others hold what they found in it.
    library.map(std::mem::forget).map_err(|error| error.to_string())
}

/// Opens the run-time compiler, which a folder has or the system's search path.
///
/// # Errors
/// `Unavailable` when there is none that this program understands.
pub fn open_compiler(folder: Option<&Path>) -> Result<(), CudaError> {
    if let Some(folder) = folder {
        // The compiler opens its built-in functions by name, so they go first.
        for prefix in ["libnvrtc-builtins.so.", "libnvrtc.so."] {
            let starts = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
            };
            let library = list_libraries(folder)
                .into_iter()
                .find(starts)
                .ok_or_else(|| CudaError::Unavailable(format!("no {prefix}* in {}", folder.display())))?;
            open_forever(&library).map_err(CudaError::Unavailable)?;
        }
    }
    // SAFETY: only tries to open the library.
    if unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        Ok(())
    } else {
        Err(CudaError::Unavailable("libnvrtc.so was not found: no CUDA run-time compiler".into()))
    }
}

/// Checks that there is a driver.
///
/// # Errors
/// `Unavailable` when there is none.
pub fn check_driver() -> Result<(), CudaError> {
    // SAFETY: only tries to open the library.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        Ok(())
    } else {
        Err(CudaError::Unavailable("libcuda.so.1 was not found: no NVIDIA driver".into()))
    }
}
