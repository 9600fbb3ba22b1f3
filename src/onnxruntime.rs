//! Finds the ONNX Runtime library of a device. One build of it has one GPU provider, so that each device has a library of
//! its own; a library for all devices is used where it has none.

use std::path::{Path, PathBuf};

use photofinish_models::onnx::devices::NetworkDevice;

/// Returns the configured library, else that of the device, else the one for all devices: the first one found beside the
/// binary, in `.photofinish` or under `/opt`.
///
/// # Errors
/// When there is none: the message names every folder searched and says what to do.
pub fn find_library(configured: Option<&Path>, device: NetworkDevice) -> anyhow::Result<PathBuf> {
    if let Some(path) = configured {
        anyhow::ensure!(
            path.is_file(),
            "the ONNX Runtime library {} (PHOTOFINISH_ONNXRUNTIME) does not exist",
            path.display()
        );
        return Ok(path.to_path_buf());
    }
    let binary = std::env::current_exe().ok();
    find_in_folders(&search_folders(device, binary.as_deref().and_then(Path::parent), Path::new("")))
}

/// The folders beside the binary, then those below the working folder, which may be one that the service writes to; of each
/// first that of the device, then those for all.
fn search_folders(device: NetworkDevice, beside: Option<&Path>, working: &Path) -> Vec<PathBuf> {
    // Of an installation with several libraries, and of what set-up makes.
    let (installed, fetched) = match device {
        NetworkDevice::Cpu => (None, None),
        NetworkDevice::Cuda => (Some("../lib/cuda"), Some(".photofinish/runtime-cuda-libraries")),
        NetworkDevice::Wgpu => (Some("../lib/wgpu"), Some(".photofinish/runtime-webgpu")),
    };
    let mut folders = Vec::new();
    folders.extend(beside.zip(installed).map(|(beside, installed)| beside.join(installed)));
    folders.extend(beside.into_iter().flat_map(|beside| [beside.to_path_buf(), beside.join("../lib")]));
    folders.extend(fetched.map(|fetched| working.join(fetched)));
    folders.extend([working.join(".photofinish/runtime"), PathBuf::from("/opt/onnxruntime/lib")]);
    folders
}

fn find_in_folders(folders: &[PathBuf]) -> anyhow::Result<PathBuf> {
    folders.iter().find_map(|folder| find_library_in(folder)).ok_or_else(|| {
        let searched: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        anyhow::anyhow!(
            "no ONNX Runtime library: searched for libonnxruntime.so* in {}; run `cargo xtask setup`, or name the \
             file in PHOTOFINISH_ONNXRUNTIME",
            searched.join(", ")
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: [NetworkDevice; 3] = [NetworkDevice::Cpu, NetworkDevice::Cuda, NetworkDevice::Wgpu];

    /// Returns the library that each of [`DEVICES`] has, by its path below the folder of everything.
    fn find_all(root: &Path) -> [Option<String>; 3] {
        let beside = root.join("bin");
        DEVICES.map(|device| {
            let found = find_in_folders(&search_folders(device, Some(&beside), &root.join("work"))).ok()?;
            Some(found.strip_prefix(root).unwrap().display().to_string())
        })
    }

    #[test]
    fn a_device_has_a_library_of_its_own_or_the_one_for_all() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bin")).unwrap();
        let add = |folder: &str| {
            let folder = root.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("libonnxruntime_providers_shared.so"), b"").unwrap();
            std::fs::write(folder.join("libonnxruntime.so.1"), b"").unwrap();
        };
        let all_at = |at: [&str; 3]| at.map(|folder| Some(format!("{folder}/libonnxruntime.so.1")));
        // In the order in which each is preferred to those before.
        add("work/.photofinish/runtime");
        assert_eq!(find_all(root.path()), all_at(["work/.photofinish/runtime"; 3]));
        add("work/.photofinish/runtime-webgpu");
        add("work/.photofinish/runtime-cuda-libraries");
        let fetched = ["runtime", "runtime-cuda-libraries", "runtime-webgpu"];
        let fetched = fetched.map(|folder| Some(format!("work/.photofinish/{folder}/libonnxruntime.so.1")));
        assert_eq!(find_all(root.path()), fetched);
        add("lib");
        assert_eq!(find_all(root.path()), all_at(["bin/../lib"; 3]));
        add("lib/cuda");
        add("lib/wgpu");
        assert_eq!(find_all(root.path()), all_at(["bin/../lib", "bin/../lib/cuda", "bin/../lib/wgpu"]));
    }

    #[test]
    fn a_library_that_is_configured_is_the_one_of_all_devices() {
        let library = tempfile::NamedTempFile::new().unwrap();
        for device in DEVICES {
            assert_eq!(find_library(Some(library.path()), device).unwrap(), library.path());
            let error = find_library(Some(Path::new("/nowhere/lib.so")), device).unwrap_err().to_string();
            assert!(error.contains("/nowhere/lib.so (PHOTOFINISH_ONNXRUNTIME) does not exist"), "{error}");
        }
    }

    #[test]
    fn where_no_library_is_each_folder_that_was_searched_is_named() {
        let folders = search_folders(NetworkDevice::Wgpu, None, Path::new("/nowhere"));
        let error = find_in_folders(&folders[..2]).unwrap_err().to_string();
        for folder in ["/nowhere/.photofinish/runtime-webgpu,", "/nowhere/.photofinish/runtime;"] {
            assert!(error.contains(folder), "{folder} is not in {error}");
        }
    }
}
