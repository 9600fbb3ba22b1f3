//! Folders that survive a power cut.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::private::private_folder;

/// Creates a folder and the missing folders above it, for their owner alone, and syncs them to disk; blocks.
///
/// # Errors
/// As [`std::fs::create_dir_all`], or if the folder above a created one cannot be synced.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|ancestor| is_missing(ancestor)).collect();
    private_folder().recursive(true).create(folder)?;
    for created in &missing {
        sync_parent(created)?;
    }
    if missing.is_empty()
        && let Err(error) = sync_parent(folder)
    {
        // Attempted because the process that created the folder may have died before this step. Not an error because
        // the folder may be old, in a folder that this user may not open.
        tracing::debug!(%error, folder = %folder.display(), "failed to sync parent folder");
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
