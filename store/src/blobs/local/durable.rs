//! Files that exist completely or not at all, also after a power cut: written to a staged file, synced, renamed, and the
//! folders above synced too. Removed files and folders do not come back after a power cut either.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::model::object_key;
use crate::private::{private_file, private_folder};

/// The extension of staged files.
const STAGED_EXTENSION: &str = "part";

/// The lock file in the storage folder. No object key begins with this name.
pub(crate) const LOCK_FILE: &str = "folders.lock";
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(200);

/// How often an operation is tried while another thread or process interferes.
const MAX_ATTEMPTS: u32 = 100;

/// A file that is being written; removed on drop unless it was persisted.
pub(crate) struct StagedFile {
    path: PathBuf,
    persisted: bool,
}

impl StagedFile {
    /// Creates an empty file in `scratch` without blocking the runtime's thread.
    pub(crate) async fn create(scratch: &Path) -> io::Result<(Self, File)> {
        let scratch = scratch.to_owned();
        tokio::task::spawn_blocking(move || Self::create_blocking(&scratch))
            .await
            .map_err(io::Error::other)?
    }

    /// Creates an empty file in `scratch`; blocks.
    pub(crate) fn create_blocking(scratch: &Path) -> io::Result<(Self, File)> {
        let path = scratch.join(format!("{}.{STAGED_EXTENSION}", Uuid::now_v7()));
        let create = || private_file().write(true).create_new(true).open(&path);
        let file = match create() {
            // The disk was full when the store was opened. The folders above are not created here: if they are missing,
            // their disk may not be mounted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_folder().create(scratch)?;
                create()?
            }
            created => created?,
        };
        Ok((Self { path, persisted: false }, file))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.persisted
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "failed to remove staged file");
        }
    }
}

/// The folder of all objects, and the lock that guards its subfolders.
///
/// A deletion removes the folders that it leaves empty; a write creates the folders that it needs and moves its file
/// into them. Both happen concurrently, in this process and in others that use the storage. Therefore writes share a
/// lock file, and the removal of empty folders locks it exclusively. Either waits for [`LOCK_TIMEOUT`] at most, because
/// a process that was suspended with the lock must not block the others: without the lock a deletion leaves the folders,
/// and a write tries again if they disappear. Nothing is synced under the lock.
pub(crate) struct ObjectDir {
    root: PathBuf,
    /// Inside the root, so that its existence also shows that the root is the one that was opened; `None` if it could
    /// not be created.
    lock_file: Option<PathBuf>,
}

impl ObjectDir {
    /// Returns whether objects were stored in `root` before.
    pub(crate) fn exists_at(root: &Path) -> io::Result<bool> {
        Ok(root.join(LOCK_FILE).try_exists()? || root.join(object_key::KEY_ROOT).try_exists()?)
    }

    /// Opens an existing folder.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let lock_file = root.join(LOCK_FILE);
        if lock_file.try_exists()? {
            return Ok(Self { root, lock_file: Some(lock_file) });
        }
        match private_file().write(true).create(true).truncate(false).open(&lock_file) {
            Ok(_) => {
                // Before the database refers to any photo in it: after a power cut this file identifies the folder.
                File::open(&root)?.sync_all()?;
                Ok(Self { root, lock_file: Some(lock_file) })
            }
            // A full or read-only disk can still be read.
            Err(error) => {
                tracing::warn!(%error, "failed to create lock file of the storage, keeping empty folders");
                Ok(Self { root, lock_file: None })
            }
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the folder exists. If it does not (not mounted, moved away), a missing object says nothing, and a
    /// write would create a new folder in its place.
    pub(crate) fn check(&self) -> io::Result<()> {
        fs::metadata(self.lock_file.as_ref().unwrap_or(&self.root)).map(drop)
    }

    /// Moves a staged file, open as `file`, to `target` below the root and makes it durable; blocks.
    pub(crate) fn persist(&self, mut staged: StagedFile, file: File, target: &Path) -> io::Result<()> {
        file.sync_all()?;
        drop(file);
        let folder = target.parent().unwrap_or(&self.root);
        let lock = self.lock(File::try_lock_shared);
        // The folder may disappear meanwhile: albums are removed without the lock, and this write may have failed to get
        // it.
        retry_on(&[io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists], || {
            self.check()?;
            private_folder().recursive(true).create(folder)?;
            fs::rename(&staged.path, target)
        })?;
        drop(lock);
        staged.persisted = true;
        sync_folders(&self.root, folder)
    }

    /// Removes a file and the folders below the root that it leaves empty, durably; no error if it does not exist.
    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_file(path))?;
        if let Some(_exclusive) = self.lock(File::try_lock) {
            for folder in folders_above(&self.root, path) {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
                    removed => ignore_missing(removed)?,
                }
            }
        }
        self.sync_parents(path)
    }

    /// Removes a folder below the root with its content, durably; no error if it does not exist.
    pub(crate) fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        // Without the lock: an album may have a hundred thousand files, and writes would wait for all of them. Workers
        // may still write late results into it.
        retry_on(&[io::ErrorKind::DirectoryNotEmpty], || ignore_missing(fs::remove_dir_all(folder)))?;
        self.sync_parents(folder)
    }

    /// Syncs the folders above a path: after a power cut a file that was found may be gone, and a removed path be back. Also if
    /// there was nothing to remove, because the process that removed it may have died before this step; and all of them,
    /// because another write may have created the lowest again.
    pub(crate) fn sync_parents(&self, path: &Path) -> io::Result<()> {
        sync_folders(&self.root, path.parent().unwrap_or(&self.root))
    }

    /// Locks until the returned file is closed; `None` if the lock could not be acquired in time.
    fn lock(&self, attempt: impl Fn(&File) -> Result<(), TryLockError>) -> Option<File> {
        // Some file systems require a writable file for this, and some users may not write it.
        let path = self.lock_file.as_ref()?;
        let file = File::options().write(true).open(path).or_else(|_| File::open(path)).ok()?;
        let start = Instant::now();
        loop {
            match attempt(&file) {
                Ok(()) => return Some(file),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL)
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to lock the storage folder");
                    return None;
                }
            }
        }
    }
}

/// Tries again after errors of these `kinds`, which mean that another thread or process interfered. Each of them means
/// that the other made progress: more than a few in a row have another cause, such as a disk that is gone.
fn retry_on(kinds: &[io::ErrorKind], attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..MAX_ATTEMPTS {
        match attempt() {
            Err(error) if kinds.contains(&error.kind()) => {}
            done => return done,
        }
    }
    attempt()
}

/// Syncs `folder` and all folders above it up to `root`. All of them, each time: another thread may have created one a
/// moment ago and not synced it yet, and syncing an unchanged folder costs little. A missing one was removed together
/// with the object that was just written to it.
fn sync_folders(root: &Path, folder: &Path) -> io::Result<()> {
    for ancestor in folder.ancestors() {
        match File::open(ancestor) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ancestor != root => {}
            opened => opened?.sync_all()?,
        }
        if ancestor == root {
            break;
        }
    }
    Ok(())
}

/// Returns the folders between `path` and `root`, the lowest first.
fn folders_above<'a>(root: &'a Path, path: &'a Path) -> impl Iterator<Item = &'a Path> {
    path.ancestors().skip(1).take_while(move |folder| *folder != root)
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes staged files that were not written to for `age`.
pub(crate) fn remove_abandoned_files(scratch: &Path, age: Duration) -> io::Result<()> {
    let now = SystemTime::now();
    let entries = match fs::read_dir(scratch) {
        // Nothing was staged yet, where the disk was full when the store was opened.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != STAGED_EXTENSION) {
            continue;
        }
        let Ok(modified) = fs::metadata(&path).and_then(|metadata| metadata.modified()) else {
            continue; // another process has persisted it meanwhile
        };
        if now.duration_since(modified).is_ok_and(|idle| idle > age) {
            ignore_missing(fs::remove_file(&path))?; // or removed it
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::make_folder;

    #[test]
    fn objects_that_share_folders_are_written_and_removed_concurrently() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 200;
        let folder = tempfile::tempdir().expect("makes a folder");
        let (root, scratch) = (folder.path().join("root"), folder.path().join("scratch"));
        for path in [&root, &scratch] {
            make_folder(path).expect("makes a folder");
        }
        std::thread::scope(|scope| {
            for name in 0..THREADS {
                // A separate handle each, as separate processes have.
                let folders = ObjectDir::open(&root).expect("opens");
                let (target, scratch) = (folders.root().join("album/photo").join(name.to_string()), &scratch);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let (staged, file) =
                            StagedFile::create_blocking(scratch).expect("creates a staged file");
                        folders.persist(staged, file, &target).expect("persists it");
                        folders.remove_file(&target).expect("removes it");
                    }
                });
            }
        });
        let left = |folder: &Path| fs::read_dir(folder).expect("lists").count();
        assert_eq!((left(&root), left(&scratch)), (1, 0), "only the lock file is left");
    }

    /// As when a worker writes a late preview to an album that is being deleted.
    #[test]
    fn an_album_folder_is_removed_while_files_are_written_to_it() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let (root, scratch) = (folder.path().join("root"), folder.path().join("scratch"));
        for path in [&root, &scratch] {
            make_folder(path).expect("makes a folder");
        }
        let folders = ObjectDir::open(&root).expect("opens");
        let album = folders.root().join("album");
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                for photo in 0..200 {
                    let (staged, file) =
                        StagedFile::create_blocking(&scratch).expect("creates a staged file");
                    let target = album.join(photo.to_string()).join("preview");
                    folders.persist(staged, file, &target).expect("persists it");
                }
            });
            while !worker.is_finished() {
                folders.remove_folder(&album).expect("removes it");
            }
        });
        folders.remove_folder(&album).expect("removes it");
        assert!(!album.exists());
    }

    #[test]
    fn a_process_suspended_with_the_lock_blocks_no_other() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let folders = ObjectDir::open(folder.path()).expect("opens");
        let (target, scratch) = (folders.root().join("album/preview"), folder.path());
        let _suspended = folders.lock(File::try_lock).expect("locks exclusively");
        let (staged, file) = StagedFile::create_blocking(scratch).expect("creates a staged file");
        folders.persist(staged, file, &target).expect("persists it");
        folders.remove_file(&target).expect("removes it");
        assert!(!target.exists());
    }
}
