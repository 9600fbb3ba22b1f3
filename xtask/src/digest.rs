//! SHA-256 of files, and stamps: a file in a folder that records the recipe it was made from.

use std::io;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};

const STAMP_FILE: &str = ".made-from";

/// The SHA-256 of a file, in lower-case hexadecimal digits.
pub fn hash_file(path: &Path) -> io::Result<String> {
    photofinish_zoo::verify::sha256(path)
}

/// The SHA-256 of a text.
pub fn hash_text(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Whether the file exists and has this SHA-256.
pub fn file_matches(path: &Path, sha256: &str) -> bool {
    hash_file(path).is_ok_and(|found| found == sha256)
}

/// Whether the folder was completed from `recipe`.
pub fn has_stamp(folder: &Path, recipe: &str) -> bool {
    std::fs::read_to_string(folder.join(STAMP_FILE)).is_ok_and(|found| found == recipe)
}

/// Records that the folder was made from `recipe`. Written last, so that a stamped folder is complete.
pub fn write_stamp(folder: &Path, recipe: &str) -> anyhow::Result<()> {
    let path = folder.join(STAMP_FILE);
    std::fs::write(&path, recipe).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes the folder with its contents and creates it empty.
pub fn recreate_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
