//! Compiled kernels in files, so that a process that starts, or opens its device again, does not compile them once more.
//!
//! The name of a file is the SHA-256 of all that its code depends on: source, options with the architecture, version of
//! the compiler. What changes has another file, and no file is ever out of date. A file begins with a digest of its name
//! and its code, so that one that is damaged, cut off or under a wrong name is compiled again. That is no protection from
//! somebody who may write in the folder, so one that is not the user's own, or that others may write in, is not used:
//! below a folder such as `/tmp` another user may have made it first.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use crate::CudaError;
use crate::compile;

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// The folder belongs to the user of the service: what is in it runs on the device.
const FOLDER_MODE: u32 = 0o700;

/// Bits of a mode by which the group and others may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Belongs to the user in whose name this process acts, whoever started it.
const OWN_PROCESS: &str = "/proc/self";

/// Where compiled kernels are kept.
#[derive(Debug)]
pub struct KernelCache {
    /// `None`: nowhere, they are compiled each time.
    folder: Option<PathBuf>,
    /// Whether a failure was logged: the reason is the same for all kernels.
    has_warned: AtomicBool,
}

/// Kernels for an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedCode {
    /// A cubin for `sm_90` and the like.
    pub code: Vec<u8>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where the code of kernels comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The compiler, just now.
    Compiler,
    /// A file.
    File,
}

impl KernelCache {
    /// A folder, made when kernels are first compiled. It may be shared by processes and machines of one user.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), has_warned: AtomicBool::new(false) }
    }

    /// Nothing is kept.
    pub fn none() -> Self {
        Self { folder: None, has_warned: AtomicBool::new(false) }
    }

    /// Returns the kernels of a source from their file, else compiles them and keeps them. A folder that cannot be used, or
    /// in which others may write, is logged once, and nothing fails because of it.
    ///
    /// # Errors
    /// As [`compile::compile`].
    pub fn compile(&self, name: &str, source: &str, architecture: &str) -> Result<CachedCode, CudaError> {
        let Some(folder) = &self.folder else { return compile_now(name, source, architecture) };
        if let Err(error) = prepare(folder) {
            self.warn(folder, &error);
            return compile_now(name, source, architecture);
        }
        let (major, minor) = compile::read_version()?;
        let key = Key::new(source, &compile::list_options(architecture), &format!("{major}.{minor}"));
        let file = folder.join(key.file_name());
        match read(&file, &key) {
            Ok(Some(code)) => return Ok(CachedCode { code, origin: Origin::File }),
            Ok(None) => {}
            Err(error) => self.warn(&file, &error),
        }
        let compiled = compile_now(name, source, architecture)?;
        match write(&file, &key, &compiled.code) {
            Ok(()) => tracing::debug!(name, architecture, file = %file.display(), "kept compiled kernels"),
            Err(error) => self.warn(&file, &error),
        }
        Ok(compiled)
    }

    fn warn(&self, file: &Path, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let file = file.display();
            tracing::warn!(%file, %error, "failed to use a file of compiled kernels, they are compiled again");
        }
    }
}

fn compile_now(name: &str, source: &str, architecture: &str) -> Result<CachedCode, CudaError> {
    let code = compile::compile(name, source, architecture)?.code;
    Ok(CachedCode { code, origin: Origin::Compiler })
}

/// The SHA-256 of all that code depends on.
struct Key([u8; DIGEST_BYTES]);

impl Key {
    fn new(source: &str, options: &[String], version: &str) -> Self {
        let mut digest = Sha256::new();
        for part in [version, source].into_iter().chain(options.iter().map(String::as_str)) {
            // With its length, so that no text can move from one part to the next.
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }

    fn file_name(&self) -> String {
        format!("{}.cubin", hex::encode(self.0))
    }

    fn digest(&self, code: &[u8]) -> [u8; DIGEST_BYTES] {
        Sha256::new().chain_update(self.0).chain_update(code).finalize().into()
    }
}

/// Makes the folder where it is missing. An error where its files may be another user's.
fn prepare(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    check_owner(folder, fs::metadata(OWN_PROCESS)?.uid())
}

/// Checks that a folder belongs to a user and that nobody else may write in it.
fn check_owner(folder: &Path, user: u32) -> io::Result<()> {
    let denied = |reason: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    let target = fs::metadata(folder)?;
    // A link may be led elsewhere by whoever made it.
    for owner in [fs::symlink_metadata(folder)?.uid(), target.uid()] {
        if owner != user {
            return denied(format!("the folder belongs to user {owner}, this process is of user {user}"));
        }
    }
    if target.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = target.mode() & 0o7777;
        return denied(format!("others than its owner may write in the folder, its mode is {mode:04o}"));
    }
    Ok(())
}

/// The code of a file; `None` where there is no file.
fn read(file: &Path, key: &Key) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
    let (digest, code) = bytes.split_first_chunk::<DIGEST_BYTES>().ok_or_else(damaged)?;
    if *digest != key.digest(code) {
        return Err(damaged());
    }
    bytes.drain(..DIGEST_BYTES);
    Ok(Some(bytes))
}

/// Writes a file aside and renames it, so that whoever reads it sees all of it. It is not forced to the disk: one that a
/// crash has cut off is compiled again.
fn write(file: &Path, key: &Key, code: &[u8]) -> io::Result<()> {
    // Processes in containers have the same number, so that it would not tell their files apart.
    let unfinished = file.with_extension(format!("{:016x}.tmp", RandomState::new().hash_one(code)));
    let mut target = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
    let written = target
        .write_all(&key.digest(code))
        .and_then(|()| target.write_all(code))
        .and_then(|()| fs::rename(&unfinished, file));
    if written.is_err() {
        // The error is that of the write; what is left lies in nobody's way.
        let _removed = fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;

    use super::*;
    use crate::libraries;

    const SOURCE: &str = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }";
    const OTHER_SOURCE: &str = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 3.0f; }";
    const ARCHITECTURE: &str = "sm_90";

    /// Opens the compiler that set-up fetched; prints that the test is skipped where there is none.
    #[expect(clippy::disallowed_methods, reason = "the environment tells tests where set-up put its files")]
    fn has_compiler() -> bool {
        let folder =
            std::env::var_os("PHOTOFINISH_TEST_CUDA").map(|folder| PathBuf::from(folder).join("lib"));
        let is_required =
            std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        assert!(folder.is_some() || !is_required, "REQUIRE_SHARED=1, and PHOTOFINISH_TEST_CUDA is not set");
        let Some(folder) = folder else {
            println!("SKIPPED: PHOTOFINISH_TEST_CUDA names no folder; `cargo xtask setup --all` fetches it");
            return false;
        };
        libraries::open_compiler(Some(&folder)).unwrap();
        true
    }

    /// A folder in which nobody else may write, whatever the file mode mask is.
    fn make_folder() -> tempfile::TempDir {
        tempfile::Builder::new().permissions(Permissions::from_mode(FOLDER_MODE)).tempdir().unwrap()
    }

    fn origin(folder: &Path, source: &str, architecture: &str) -> Origin {
        KernelCache::in_folder(folder).compile("twice", source, architecture).unwrap().origin
    }

    fn list_files(folder: &Path) -> Vec<PathBuf> {
        folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn kernels_are_compiled_once_for_a_source_and_an_architecture() {
        if !has_compiler() {
            return;
        }
        let parent = make_folder();
        let folder = parent.path().join("of/kernels");
        let first = KernelCache::in_folder(&folder).compile("twice", SOURCE, ARCHITECTURE).unwrap();
        assert!(first.code.starts_with(b"\x7fELF"));
        assert_eq!(first.origin, Origin::Compiler);
        let second = KernelCache::in_folder(&folder).compile("twice", SOURCE, ARCHITECTURE).unwrap();
        assert_eq!(second, CachedCode { code: first.code, origin: Origin::File });

        assert_eq!(origin(&folder, OTHER_SOURCE, ARCHITECTURE), Origin::Compiler);
        assert_eq!(origin(&folder, SOURCE, "sm_75"), Origin::Compiler);
        assert_eq!(origin(&folder, SOURCE, ARCHITECTURE), Origin::File, "all of them are kept");
        assert_eq!(list_files(&folder).len(), 3, "and nothing else");
    }

    #[test]
    fn damaged_files_are_compiled_and_written_again() {
        if !has_compiler() {
            return;
        }
        let folder = make_folder();
        let cache = KernelCache::in_folder(folder.path());
        let good = cache.compile("twice", SOURCE, ARCHITECTURE).unwrap().code;
        let file = list_files(folder.path()).remove(0);
        let bytes = fs::read(&file).unwrap();
        let flipped = |index: usize| {
            let mut bytes = bytes.clone();
            bytes[index] ^= 1;
            bytes
        };
        let last = bytes.len() - 1;
        let damages = [
            flipped(0),
            flipped(DIGEST_BYTES),
            flipped(last),
            bytes[..last].to_vec(),
            bytes[..DIGEST_BYTES].to_vec(),
            bytes[..7].to_vec(),
            Vec::new(),
            [&bytes[..], b"\0"].concat(),
        ];
        for damage in damages {
            fs::write(&file, damage).unwrap();
            let again = cache.compile("twice", SOURCE, ARCHITECTURE).unwrap();
            assert_eq!(again, CachedCode { code: good.clone(), origin: Origin::Compiler });
            assert_eq!(fs::read(&file).unwrap(), bytes);
        }
        assert_eq!(origin(folder.path(), SOURCE, ARCHITECTURE), Origin::File);
    }

    #[test]
    fn a_folder_that_cannot_be_used_fails_nothing() {
        if !has_compiler() {
            return;
        }
        let folder = make_folder();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for unusable in [file.clone(), file.join("below")] {
            assert_eq!(origin(&unusable, SOURCE, ARCHITECTURE), Origin::Compiler);
            assert_eq!(origin(&unusable, SOURCE, ARCHITECTURE), Origin::Compiler);
        }
    }

    #[test]
    fn kernels_are_not_taken_from_a_folder_in_which_others_may_write() {
        if !has_compiler() {
            return;
        }
        let folder = make_folder();
        assert_eq!(origin(folder.path(), SOURCE, ARCHITECTURE), Origin::Compiler);
        assert_eq!(origin(folder.path(), SOURCE, ARCHITECTURE), Origin::File);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(origin(folder.path(), SOURCE, ARCHITECTURE), Origin::Compiler);
        assert_eq!(origin(folder.path(), OTHER_SOURCE, ARCHITECTURE), Origin::Compiler);
        assert_eq!(list_files(folder.path()).len(), 1, "and nothing is written there");
    }

    #[test]
    fn a_folder_is_used_only_if_its_owner_alone_may_write_in_it() {
        let parent = make_folder();
        let folder = parent.path().join("of/kernels");
        prepare(&folder).unwrap();
        prepare(&folder).unwrap();
        let user = fs::metadata(&folder).unwrap().uid();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, FOLDER_MODE);

        let error = check_owner(&folder, user + 1).unwrap_err();
        assert!(error.to_string().contains(&format!("belongs to user {user}")), "{error}");
        let link = parent.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(check_owner(&link, user).is_ok() && check_owner(&link, user + 1).is_err());
        // The last one is that of a folder made in one that passes its group on.
        for (mode, is_used) in
            [(0o770, false), (0o702, false), (0o1777, false), (0o755, true), (0o2700, true)]
        {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            assert_eq!(prepare(&folder).is_ok(), is_used, "{mode:o}");
        }
    }

    #[test]
    fn threads_that_compile_the_same_at_once_keep_one_good_file() {
        if !has_compiler() {
            return;
        }
        let folder = make_folder();
        let compile =
            || KernelCache::in_folder(folder.path()).compile("twice", SOURCE, ARCHITECTURE).unwrap().code;
        let codes: HashSet<Vec<u8>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(compile)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(codes.len(), 1);
        assert_eq!(list_files(folder.path()).len(), 1, "nothing unfinished is left");
        assert_eq!(origin(folder.path(), SOURCE, ARCHITECTURE), Origin::File);
    }

    #[test]
    fn a_mistake_in_a_source_is_an_error_and_is_not_kept() {
        if !has_compiler() {
            return;
        }
        let folder = make_folder();
        let cache = KernelCache::in_folder(folder.path());
        for _ in 0..2 {
            let error = cache.compile("wrong", "nonsense", ARCHITECTURE).unwrap_err();
            assert!(matches!(error, CudaError::Compile { .. }), "{error}");
        }
        assert!(list_files(folder.path()).is_empty());
    }

    #[test]
    fn writers_and_readers_at_once_see_whole_files_only() {
        let folder = make_folder();
        let key = Key::new(SOURCE, &[], "13.5");
        let file = folder.path().join(key.file_name());
        let code = vec![7; 1 << 16];
        write(&file, &key, &code).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(|_| write(&file, &key, &code).unwrap()));
            scope.spawn(|| (0..200).for_each(|_| write(&file, &key, &code).unwrap()));
            scope.spawn(|| (0..400).for_each(|_| assert!(read(&file, &key).unwrap() == Some(code.clone()))));
        });
        assert_eq!(list_files(folder.path()), [file]);
    }

    #[test]
    fn a_key_depends_on_all_that_code_depends_on() {
        let options = |options: &[&str]| options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>();
        let keys = [
            Key::new("a", &options(&["b", "c"]), "13.5"),
            Key::new("a ", &options(&["b", "c"]), "13.5"),
            Key::new("a", &options(&["b"]), "13.5"),
            Key::new("a", &options(&["bc"]), "13.5"),
            Key::new("a", &options(&["c", "b"]), "13.5"),
            Key::new("a", &options(&["b", "c"]), "12.9"),
        ];
        let names: HashSet<String> = keys.iter().map(Key::file_name).collect();
        assert_eq!(names.len(), keys.len());
        // A file under the name of another is none of its own.
        let folder = make_folder();
        let file = folder.path().join("a.cubin");
        write(&file, &keys[0], b"code").unwrap();
        assert_eq!(read(&file, &keys[0]).unwrap().as_deref(), Some(&b"code"[..]));
        assert!(read(&file, &keys[1]).is_err());
    }
}
