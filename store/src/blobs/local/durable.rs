//! Files that are wholly there or not at all, also after a power cut: written as a part beside the storage, synced,
//! renamed, and the folders synced too. And files and folders that stay away once they were removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::model::object_key;

/// The end of every part file's name.
const STAGED_EXTENSION: &str = "part";

/// The lock file in the folder of all objects, whose keys all begin with another folder.
pub(crate) const LOCK_FILE: &str = "folders.lock";
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(200);

/// How often something is tried while somebody else is in the way.
const MAX_ATTEMPTS: u32 = 100;

/// A file on its way; removed when dropped before it was placed.
pub(crate) struct StagedFile {
    path: PathBuf,
    persisted: bool,
}

impl StagedFile {
    /// An empty part in `scratch`, away from the runtime's threads.
    pub(crate) async fn create(scratch: &Path) -> io::Result<(Self, File)> {
        let scratch = scratch.to_owned();
        tokio::task::spawn_blocking(move || Self::create_blocking(&scratch))
            .await
            .map_err(io::Error::other)?
    }

    /// An empty part in `scratch`; blocks.
    pub(crate) fn create_blocking(scratch: &Path) -> io::Result<(Self, File)> {
        let path = scratch.join(format!("{}.{STAGED_EXTENSION}", Uuid::now_v7()));
        let create = || File::options().write(true).create_new(true).open(&path);
        let file = match create() {
            // The disk had no room for it at the start. Not the folders above: theirs may be a disk that is away.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(scratch)?;
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
            && let Err(cause) = fs::remove_file(&self.path)
        {
            tracing::warn!(%cause, "a half-written file stays in the scratch folder");
        }
    }
}

/// The folder of all objects, and who may change its folders.
///
/// A delete takes away the folders that it leaves empty; a write makes those that it needs and places its file in them.
/// Both happen at once, in this process and in others that have the storage open, so writes share a lock file and the
/// taking away of empty folders has it alone. It is waited for [`LOCK_WAIT`] at most, for a process that was stopped with
/// it must stop no other: without it a delete leaves the folders, and a write tries again while they go. Nothing is synced
/// under it.
pub(crate) struct ObjectDir {
    root: PathBuf,
    /// Below the root, so that it also shows whether the root is the one that was opened; `None` where it could not be made.
    lock_file: Option<PathBuf>,
}

impl ObjectDir {
    /// Whether objects were kept below `root` before.
    pub(crate) fn exists_at(root: &Path) -> io::Result<bool> {
        Ok(root.join(LOCK_FILE).try_exists()? || root.join(object_key::ROOT).try_exists()?)
    }

    /// `root`, which is there.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let lock = root.join(LOCK_FILE);
        if lock.try_exists()? {
            return Ok(Self { root, lock_file: Some(lock) });
        }
        match File::options().write(true).create(true).truncate(false).open(&lock) {
            Ok(_) => {
                // Before any row knows of photos in it: after a power cut it is what tells this folder from another.
                File::open(&root)?.sync_all()?;
                Ok(Self { root, lock_file: Some(lock) })
            }
            // A full or read-only disk can still be read.
            Err(cause) => {
                tracing::warn!(%cause, "the storage folder takes no lock file: folders that deletes leave empty stay");
                Ok(Self { root, lock_file: None })
            }
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the folder is there: without it (not mounted, moved away) no object is known to be missing, and a write
    /// would make another folder of its name.
    pub(crate) fn check(&self) -> io::Result<()> {
        fs::metadata(self.lock_file.as_ref().unwrap_or(&self.root)).map(drop)
    }

    /// Makes `file`, the open part, durable at `target` below the root; blocks.
    pub(crate) fn persist(&self, mut part: StagedFile, file: File, target: &Path) -> io::Result<()> {
        file.sync_all()?;
        drop(file);
        let folder = target.parent().unwrap_or(&self.root);
        let lock = self.lock(File::try_lock_shared);
        // An album's folder goes without the lock, and any folder may when this write could not have it.
        retry_on(&[io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists], || {
            self.check()?;
            fs::create_dir_all(folder)?;
            fs::rename(&part.path, target)
        })?;
        drop(lock);
        part.persisted = true;
        sync_folders(&self.root, folder)
    }

    /// Removes a file and the folders below the root that it leaves empty, for good; no error when it is not there.
    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        ignore_missing(fs::remove_file(path))?;
        if let Some(_alone) = self.lock(File::try_lock) {
            for folder in folders_above(&self.root, path) {
                match fs::remove_dir(folder) {
                    Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => break,
                    removed => ignore_missing(removed)?,
                }
            }
        }
        self.sync_parents(path)
    }

    /// Removes a folder below the root and all that is in it, for good; no error when it is not there.
    pub(crate) fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        // Without the lock: an album may have a hundred thousand files, and writes would wait for all of them. Workers may
        // still place what comes too late.
        retry_on(&[io::ErrorKind::DirectoryNotEmpty], || ignore_missing(fs::remove_dir_all(folder)))?;
        self.sync_parents(folder)
    }

    /// Syncs the folders of what was removed: without that it would be back after a power cut. Also when nothing was there
    /// to be removed, for who removed it may have ended before this; and all of them, for another write may have made the
    /// lowest anew.
    fn sync_parents(&self, path: &Path) -> io::Result<()> {
        sync_folders(&self.root, path.parent().unwrap_or(&self.root))
    }

    /// The lock, until the file is closed; `None` when it could not be had in time.
    fn lock(&self, attempt: impl Fn(&File) -> Result<(), TryLockError>) -> Option<File> {
        // Some file systems want a file that may be written for it, and some users may not write it.
        let path = self.lock_file.as_ref()?;
        let file = File::options().write(true).open(path).or_else(|_| File::open(path)).ok()?;
        let begun = Instant::now();
        loop {
            match attempt(&file) {
                Ok(()) => return Some(file),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL)
                }
                Err(cause) => {
                    tracing::debug!(%cause, "the lock of the storage's folders could not be had");
                    return None;
                }
            }
        }
    }
}

/// Tries again while somebody else is in the way, which errors of these `kinds` show. Each such try means that the other
/// went ahead: more than a few in a row are another fault, such as a disk that is gone.
fn retry_on(kinds: &[io::ErrorKind], attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..MAX_ATTEMPTS {
        match attempt() {
            Err(cause) if kinds.contains(&cause.kind()) => {}
            done => return done,
        }
    }
    attempt()
}

/// Syncs `folder` and everything above it up to `root`. All of them, each time: another thread may have made one
/// a moment ago and not synced it yet, and syncing a folder without changes costs little. One that is gone went
/// with the object that was placed in it, deleted since.
fn sync_folders(root: &Path, folder: &Path) -> io::Result<()> {
    for ancestor in folder.ancestors() {
        match File::open(ancestor) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && ancestor != root => {}
            opened => opened?.sync_all()?,
        }
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

/// The folders between `path` and `root`, from below.
fn folders_above<'a>(root: &'a Path, path: &'a Path) -> impl Iterator<Item = &'a Path> {
    path.ancestors().skip(1).take_while(move |folder| *folder != root)
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes parts that nobody has written to for `age`.
pub(crate) fn remove_abandoned_files(scratch: &Path, age: Duration) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(scratch)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != STAGED_EXTENSION) {
            continue;
        }
        let Ok(written) = fs::metadata(&path).and_then(|metadata| metadata.modified()) else {
            continue; // another process finished it meanwhile
        };
        if now.duration_since(written).is_ok_and(|idle| idle > age) {
            ignore_missing(fs::remove_file(&path))?; // or removed it
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_share_folders_are_written_and_removed_concurrently() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 200;
        let folder = tempfile::tempdir().expect("makes a folder");
        let (root, scratch) = (folder.path().join("root"), folder.path().join("scratch"));
        for made in [&root, &scratch] {
            make_folder(made).expect("makes a folder");
        }
        std::thread::scope(|scope| {
            for name in 0..THREADS {
                // Each as a process of its own has it.
                let folders = ObjectDir::open(&root).expect("opens");
                let (target, scratch) = (folders.root().join("album/photo").join(name.to_string()), &scratch);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let (part, file) = StagedFile::create_blocking(scratch).expect("makes a part");
                        folders.persist(part, file, &target).expect("places it");
                        folders.remove_file(&target).expect("removes it");
                    }
                });
            }
        });
        let left = |folder: &Path| fs::read_dir(folder).expect("lists").count();
        assert_eq!((left(&root), left(&scratch)), (1, 0), "nothing but the lock file is left");
    }

    /// Late previews land in an album that is deleted.
    #[test]
    fn an_album_folder_is_removed_while_files_are_written_to_it() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let (root, scratch) = (folder.path().join("root"), folder.path().join("scratch"));
        for made in [&root, &scratch] {
            make_folder(made).expect("makes a folder");
        }
        let folders = ObjectDir::open(&root).expect("opens");
        let album = folders.root().join("album");
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                for photo in 0..200 {
                    let (part, file) = StagedFile::create_blocking(&scratch).expect("makes a part");
                    let target = album.join(photo.to_string()).join("preview");
                    folders.persist(part, file, &target).expect("places it");
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
        let _stopped = folders.lock(File::try_lock).expect("has it alone");
        let (part, file) = StagedFile::create_blocking(scratch).expect("makes a part");
        folders.persist(part, file, &target).expect("places it");
        folders.remove_file(&target).expect("removes it");
        assert!(!target.exists());
    }
}
