//! SHA-256 of files, and stamps: a line in a folder that says from what it was made.

use std::io;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};

const STAMP: &str = ".made-from";

/// The SHA-256 of a file, in lower-case hexadecimal digits.
pub fn of_file(path: &Path) -> io::Result<String> {
    photofinish_zoo::verify::sha256(path)
}

/// The SHA-256 of a text.
pub fn of_text(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Whether a file is there with this SHA-256.
pub fn matches(path: &Path, sha256: &str) -> bool {
    of_file(path).is_ok_and(|found| found == sha256)
}

/// Whether a folder was made from `recipe`.
pub fn is_made_from(folder: &Path, recipe: &str) -> bool {
    std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found == recipe)
}

/// Notes that a folder was made from `recipe`; the last thing done to it.
pub fn note_made_from(folder: &Path, recipe: &str) -> anyhow::Result<()> {
    let path = folder.join(STAMP);
    std::fs::write(&path, recipe).with_context(|| format!("cannot write {}", path.display()))
}

/// An empty folder in place of whatever was there.
pub fn emptied(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
