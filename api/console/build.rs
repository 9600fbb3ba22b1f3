//! Embeds the pages that set-up has built. Without them the program says how to build them.

#![expect(clippy::disallowed_methods, reason = "what cargo tells its build scripts, no settings")]

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let built = manifest.join("../../.photofinish/console/files");
    println!("cargo:rerun-if-changed={}", built.display());
    println!("cargo:rerun-if-changed=build.rs");
    // Cargo tells build scripts of features by variables.
    let folder = env::var_os("CARGO_FEATURE_EMBEDDED").map(|_| built);
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("files.rs");
    std::fs::write(target, list_files(folder.as_deref())?)
}

/// Returns the source of a list of files and their contents; of none without a folder.
fn list_files(folder: Option<&Path>) -> std::io::Result<String> {
    let mut list = String::from("&[\n");
    if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
        let entries: std::io::Result<Vec<_>> = std::fs::read_dir(folder)?.collect();
        let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
        // In one order, so that two builds are equal.
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str()).expect("built files have names");
            let path = path.canonicalize()?;
            writeln!(list, "    ({name:?}, include_bytes!({path:?}) as &[u8]),").expect("memory suffices");
        }
    }
    list.push_str("]\n");
    Ok(list)
}
