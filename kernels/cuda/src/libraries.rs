//! Opens shared libraries by their path, so that those that ask for them by name find them without `LD_LIBRARY_PATH`: the
//! loader finds a library that is open by the name that it has in its file, wherever it came from.

use std::cmp::Reverse;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::CudaError;

/// What ONNX Runtime's CUDA provider and cuDNN open by name, each after those that it needs, in any version: CUDA 12 and 13
/// call them the same. Further parts of newer versions of cuDNN it finds beside itself, when it wants them.
const LIBRARIES: [&str; 16] = [
    "libcudart.so",
    "libnvJitLink.so",
    "libnvrtc-builtins.so",
    "libnvrtc.so",
    "libcublasLt.so",
    "libcublas.so",
    "libcurand.so",
    "libcufft.so",
    "libcudnn.so",
    "libcudnn_graph.so",
    "libcudnn_ops.so",
    "libcudnn_heuristic.so",
    "libcudnn_cnn.so",
    "libcudnn_adv.so",
    "libcudnn_engines_precompiled.so",
    "libcudnn_engines_runtime_compiled.so",
];

/// Opened where it is there: no provider asks for it.
const OPTIONAL_LIBRARIES: [&str; 1] = ["libnvjpeg.so"];

/// A library that [`preload_in_order`] did not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOpened {
    /// Its name without version.
    pub library: &'static str,
    /// What the loader said; `None` where no folder has it.
    pub reason: Option<String>,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "{}: {reason}", self.library),
            None => write!(f, "{}: not found", self.library),
        }
    }
}

/// Opens the libraries of CUDA that are in the folders for the life of the process, each after those that it needs.
/// Returns those that could not be opened or are not there; whoever needs one of them finds it by the search path of the
/// system, or says that it is missing.
pub fn preload_in_order(folders: &[PathBuf]) -> Vec<NotOpened> {
    let files: Vec<PathBuf> = folders.iter().flat_map(|folder| list_libraries(folder)).collect();
    let open = |library: &'static str| match open_newest(&files, library) {
        Ok(true) => None,
        Ok(false) => Some(NotOpened { library, reason: None }),
        Err(reason) => Some(NotOpened { library, reason: Some(reason) }),
    };
    let needed = LIBRARIES.into_iter().filter_map(open);
    needed.chain(OPTIONAL_LIBRARIES.into_iter().filter_map(open).filter(|it| it.reason.is_some())).collect()
}

/// Opens the newest version of a library that can be opened; false where there is none.
fn open_newest(files: &[PathBuf], library: &str) -> Result<bool, String> {
    let mut result = Ok(false);
    for path in list_versions(files, library) {
        match open_forever(path) {
            Ok(()) => return Ok(true),
            // Of several files the newest is the one that was meant.
            Err(reason) => result = result.and(Err(reason)),
        }
    }
    result
}

/// Returns the files of a library, the newest version first and one without a version last.
fn list_versions<'f>(files: &'f [PathBuf], library: &str) -> Vec<&'f PathBuf> {
    let is_version = |path: &&PathBuf| read_version(path, library).is_some();
    let mut versions: Vec<&PathBuf> = files.iter().filter(is_version).collect();
    versions.sort_by_cached_key(|path| Reverse((read_version(path, library), *path)));
    versions
}

/// Returns the numbers after the name of a library: as text, 10 would be before 9. `None` for files of other libraries.
fn read_version(path: &Path, library: &str) -> Option<Vec<u32>> {
    let name = path.file_name()?.to_string_lossy();
    let version = name.strip_prefix(library)?;
    if version.is_empty() {
        return Some(Vec::new());
    }
    let numbers = version.strip_prefix('.')?.split('.');
    // What is no number, such as the end of the name of a copy, is older than any.
    Some(numbers.map(|number| number.parse::<u32>().unwrap_or(0)).collect())
}

/// Opens every shared library of the folders, in the order in which they can be opened, for tests that bring libraries
/// of their own. Returns those that could not be opened, with the reason.
#[cfg(feature = "on-cpu")]
pub fn preload_all(folders: &[PathBuf]) -> Vec<(PathBuf, String)> {
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
    // Never closed: others hold what they found in it. An error itself says only that opening failed, its source why.
    library.map(std::mem::forget).map_err(|error| match error.source() {
        Some(reason) => reason.to_string(),
        None => error.to_string(),
    })
}

/// Opens the run-time compiler, which a folder has or the system's search path.
///
/// # Errors
/// `Unavailable` when there is none that this program understands.
pub fn open_compiler(folder: Option<&Path>) -> Result<(), CudaError> {
    if let Some(folder) = folder {
        let files = list_libraries(folder);
        // The compiler opens its built-in functions by name, so they go first.
        for library in ["libnvrtc-builtins.so", "libnvrtc.so"] {
            if !open_newest(&files, library).map_err(CudaError::Unavailable)? {
                return Err(CudaError::Unavailable(format!("no {library} in {}", folder.display())));
            }
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Links an empty library of version 0, which nothing installed has, that needs others of the folder.
    fn link(folder: &Path, name: &str, needed: &[&str]) {
        let source = folder.join("empty.c");
        std::fs::write(&source, "").unwrap();
        let mut linker = Command::new("cc");
        linker.args(["-shared", "-fPIC", "-Wl,--no-as-needed", &format!("-Wl,-soname,{name}.0"), "-o"]);
        linker.arg(folder.join(format!("{name}.0"))).arg(source).arg("-L").arg(folder);
        linker.args(needed.iter().map(|needed| format!("-l:{needed}.0")));
        assert!(linker.status().unwrap().success(), "{name} cannot be linked");
    }

    fn find_by_name(name: &str) -> Result<(), String> {
        open_forever(Path::new(name))
    }

    #[test]
    fn libraries_are_opened_after_those_they_need_and_then_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        // In the order of the alphabet the first comes first, and cannot be opened.
        link(folder.path(), "libcublasLt.so", &[]);
        link(folder.path(), "libcublas.so", &["libcublasLt.so"]);
        assert!(
            open_forever(&folder.path().join("libcublas.so.0")).unwrap_err().contains("libcublasLt.so.0")
        );
        assert!(find_by_name("libcublas.so.0").is_err());

        let not_opened = preload_in_order(&[folder.path().join("missing"), folder.path().to_owned()]);

        assert_eq!(find_by_name("libcublas.so.0"), Ok(()));
        assert!(
            not_opened.iter().all(|it| !it.library.contains("cublas") && it.reason.is_none()),
            "{not_opened:?}"
        );
        assert_eq!(not_opened.len(), LIBRARIES.len() - 2, "nvJPEG is not missed");
    }

    #[test]
    fn a_library_that_lacks_another_is_named_and_the_rest_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        link(folder.path(), "libdriver.so", &[]);
        link(folder.path(), "libcudnn.so", &[]);
        link(folder.path(), "libcudnn_engines_runtime_compiled.so", &["libdriver.so"]);
        link(folder.path(), "libnvjpeg.so", &["libdriver.so"]);
        std::fs::remove_file(folder.path().join("libdriver.so.0")).unwrap();

        let mut not_opened = preload_in_order(&[folder.path().to_owned()]);

        assert_eq!(find_by_name("libcudnn.so.0"), Ok(()));
        not_opened.retain(|it| it.reason.is_some());
        let names: Vec<_> = not_opened.iter().map(|it| it.library).collect();
        assert_eq!(names, ["libcudnn_engines_runtime_compiled.so", "libnvjpeg.so"]);
        assert!(not_opened.iter().all(|it| it.to_string().contains("libdriver.so.0")), "{not_opened:?}");
    }

    #[test]
    fn names_are_taken_in_any_version_and_no_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["libcudnn_ops.so.9", "libcudnn.so_backup", "libcudnn.alt.so.9"];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        let files = list_libraries(folder.path());
        assert_eq!(open_newest(&files, "libcudnn.so"), Ok(false));
        assert!(open_newest(&files, "libcudnn_ops.so").unwrap_err().contains("libcudnn_ops.so.9"));
    }

    #[test]
    fn the_newest_version_is_the_one_with_the_largest_numbers_in_whatever_folder() {
        let names =
            ["b/x.so.9", "a/x.so.10", "a/x.so", "b/x.so.9.10.2", "b/x.so.9.9", "b/x.so.old", "b/xy.so.11"];
        let files = names.map(PathBuf::from);
        let expected = ["a/x.so.10", "b/x.so.9.10.2", "b/x.so.9.9", "b/x.so.9", "b/x.so.old", "a/x.so"];
        assert_eq!(list_versions(&files, "x.so"), expected.map(PathBuf::from).each_ref());
    }

    #[test]
    fn a_library_that_no_folder_has_is_not_found() {
        let missing = NotOpened { library: "libcudnn.so", reason: None };
        assert_eq!(missing.to_string(), "libcudnn.so: not found");
    }
}
