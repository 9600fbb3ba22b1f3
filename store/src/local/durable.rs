//! Files that are wholly there or not at all, also after a power cut: written as a part beside the storage, synced,
//! renamed, and the folders synced too. And files and folders that stay away once they were removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

/// The end of every part file's name.
const PART: &str = "part";

/// A file on its way; removed when dropped before it was placed.
pub(super) struct Part {
    path: PathBuf,
    placed: bool,
}

impl Part {
    /// An empty part in `scratch`, away from the runtime's threads.
    pub(super) async fn create(scratch: &Path) -> io::Result<(Self, File)> {
        let scratch = scratch.to_owned();
        tokio::task::spawn_blocking(move || Self::create_now(&scratch)).await.map_err(io::Error::other)?
    }

    /// An empty part in `scratch`; blocks.
    pub(super) fn create_now(scratch: &Path) -> io::Result<(Self, File)> {
        let path = scratch.join(format!("{}.{PART}", Uuid::now_v7()));
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok((Self { path, placed: false }, file))
    }

    /// Makes `file`, the open part, durable at `target` below `root`; blocks.
    pub(super) fn place(mut self, file: File, root: &Path, target: &Path) -> io::Result<()> {
        file.sync_all()?;
        drop(file);
        let folder = target.parent().unwrap_or(root);
        fs::create_dir_all(folder)?;
        match fs::rename(&self.path, target) {
            // The folder was empty a moment ago and a delete of its last object took it away.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder)?;
                fs::rename(&self.path, target)?;
            }
            renamed => renamed?,
        }
        self.placed = true;
        sync_folders(root, folder)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.placed
            && let Err(cause) = fs::remove_file(&self.path)
        {
            tracing::warn!(%cause, "a half-written file stays in the scratch folder");
        }
    }
}

/// Syncs `folder` and everything above it up to `root`. All of them, each time: another thread may have made one
/// a moment ago and not synced it yet, and syncing a folder without changes costs microseconds.
fn sync_folders(root: &Path, folder: &Path) -> io::Result<()> {
    for ancestor in folder.ancestors() {
        File::open(ancestor)?.sync_all()?;
        if ancestor == root {
            break;
        }
    }
    Ok(())
}

/// Makes a folder and those above it that are missing, so that it is still there after a power cut; blocks.
///
/// # Errors
/// As [`fs::create_dir_all`], and when the folder above one that was made cannot be synced.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|ancestor| is_missing(ancestor)).collect();
    fs::create_dir_all(folder)?;
    for made in &missing {
        sync_parent(made)?;
    }
    if missing.is_empty()
        && let Err(cause) = sync_parent(folder)
    {
        // Tried because whoever made it may have ended before this; let be because it may be old, and lie in a folder that
        // is not ours to open.
        tracing::debug!(%cause, folder = %folder.display(), "the folder above cannot be synced");
    }
    Ok(())
}

fn is_missing(folder: &Path) -> bool {
    !folder.as_os_str().is_empty() && !folder.exists()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes a file and the folders below `root` that it leaves empty, for good; no error when it is not there.
pub(super) fn remove_file(root: &Path, path: &Path) -> io::Result<()> {
    unless_missing(fs::remove_file(path))?;
    for folder in folders_above(root, path) {
        match fs::remove_dir(folder) {
            Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => break,
            removed => unless_missing(removed)?,
        }
    }
    sync_above(root, path)
}

/// Removes a folder below `root` and all that is in it, for good; no error when it is not there.
pub(super) fn remove_folder(root: &Path, folder: &Path) -> io::Result<()> {
    unless_missing(fs::remove_dir_all(folder))?;
    sync_above(root, folder)
}

/// Syncs the folder of what was removed: without that it would be back after a power cut. Or the nearest above it that
/// is still there. Also when nothing was there to be removed: who removed it may have ended before this.
fn sync_above(root: &Path, path: &Path) -> io::Result<()> {
    for folder in folders_above(root, path).chain([root]) {
        match File::open(folder) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            opened => return opened?.sync_all(),
        }
    }
    Ok(())
}

/// The folders between `path` and `root`, from below.
fn folders_above<'a>(root: &'a Path, path: &'a Path) -> impl Iterator<Item = &'a Path> {
    path.ancestors().skip(1).take_while(move |folder| *folder != root)
}

fn unless_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes parts that nobody has written to for `age`.
pub(super) fn remove_abandoned_parts(scratch: &Path, age: Duration) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(scratch)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != PART) {
            continue;
        }
        let Ok(written) = fs::metadata(&path).and_then(|metadata| metadata.modified()) else {
            continue; // another process finished it meanwhile
        };
        if now.duration_since(written).is_ok_and(|idle| idle > age) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
