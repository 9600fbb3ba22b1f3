//! Objects on the local disk, and the signed URLs with which partners upload and runners download them.
//!
//! The embedded profile's substitute for S3: the service itself handles `PUT` and `GET` on `/storage/{key}`, with the
//! semantics of a presigned request. Knows no HTTP: the API calls [`LocalFiles::verify_upload`], then the steps of
//! [`uploads`]; or [`LocalFiles::verify_download`], then [`LocalFiles::open_object`].

mod durable;
mod signing;
pub mod uploads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use time::OffsetDateTime;
use tokio_util::io::ReaderStream;
use url::Url;

use self::durable::{ObjectDir, StagedFile};
pub use self::signing::{DownloadGrant, SignatureError, UploadGrant};
use self::signing::{SignedFields, SignedMethod, UnverifiedRequest, UploadLimits, UrlSigner};
use self::uploads::{SyncedUploads, UploadSlots};
use crate::blobs::object_ops::{self, ListedObject, invalid_url};
use crate::error::{StoreError, StoreErrorKind};
use crate::folder::make_folder;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::object_key::{KEY_ROOT, ObjectKey};
use crate::private::restrict_to_owner;
use crate::traits::{Blobs, Result, UploadConditions};

/// How many bytes of a file are read at once for a download.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// A staged file that was not written to for this long belongs to an upload that died with its process. Younger ones
/// may belong to a running service, while a command opens the same store.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// The folder of staged files, inside the storage folder. No object key begins with this name.
const SCRATCH_FOLDER: &str = "scratch";

/// Settings of [`LocalFiles`].
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// The folder of the objects; created if missing.
    pub root: PathBuf,
    /// Whether the database contains photos. If it does, a folder that never contained any is refused: it is not the
    /// right one, for example because its disk is not mounted.
    pub has_photos: bool,
    /// How signed URLs begin.
    pub public_url: Url,
    /// Signs the URLs.
    pub signing_secret: [u8; 32],
}

/// The objects of the embedded profile.
pub struct LocalFiles {
    object_dir: Arc<ObjectDir>,
    scratch: PathBuf,
    file_system: LocalFileSystem,
    signer: UrlSigner,
    upload_slots: UploadSlots,
    synced_uploads: SyncedUploads,
}

/// An object that is ready to be sent.
pub struct LocalObject {
    /// Size in bytes.
    pub size_bytes: u64,
    /// When it was written; objects are never changed, only replaced as a whole.
    pub written_at: SystemTime,
    /// See [`ObjectKey::content_type`].
    pub content_type: &'static str,
    /// The content.
    pub body: BoxStream<'static, std::io::Result<Bytes>>,
}

impl LocalFiles {
    /// Opens the folder, creates it if missing, and removes staged files of uploads that died long ago.
    ///
    /// # Errors
    /// `Unavailable` if a folder cannot be created or read.
    pub async fn open_folder(settings: LocalSettings) -> Result<Self> {
        let LocalSettings { root, has_photos, public_url, signing_secret } = settings;
        let (object_dir, scratch, file_system) = run_blocking("open the storage folder", move || {
            if has_photos && !ObjectDir::exists_at(&root)? {
                return Err(wrong_folder(&root));
            }
            make_folder(&root)?;
            let object_dir = ObjectDir::open(&root)?;
            restrict_to_owner(object_dir.root());
            // Inside the storage folder, so that files can be renamed from one to the other.
            let scratch = object_dir.root().join(SCRATCH_FOLDER);
            let prepared = make_folder(&scratch)
                .and_then(|()| durable::remove_abandoned_files(&scratch, ABANDONED_AFTER));
            if let Err(error) = prepared {
                // A full or read-only disk can still be read.
                tracing::warn!(%error, "failed to prepare the storage folder for uploads");
            }
            let file_system = LocalFileSystem::new_with_prefix(object_dir.root())?;
            Ok((Arc::new(object_dir), scratch, file_system))
        })
        .await?;
        let signer = UrlSigner::new(public_url, signing_secret);
        let (upload_slots, synced_uploads) = (UploadSlots::default(), SyncedUploads::default());
        Ok(Self { object_dir, scratch, file_system, signer, upload_slots, synced_uploads })
    }

    /// Verifies a `PUT`: `key` is the decoded path after `/storage/`, `query` the raw query string, `content_type` the
    /// header of the request. The API responds to every error with 403.
    ///
    /// # Errors
    /// See [`SignatureError`].
    pub fn verify_upload(
        &self,
        key: &str,
        query: &str,
        content_type: Option<&str>,
    ) -> std::result::Result<UploadGrant, SignatureError> {
        let request = UnverifiedRequest { key, query, received_at: OffsetDateTime::now_utc() };
        self.signer.verify_upload(request, content_type)
    }

    /// Verifies a `GET` or `HEAD`, like [`Self::verify_upload`].
    ///
    /// # Errors
    /// See [`SignatureError`].
    pub fn verify_download(
        &self,
        key: &str,
        query: &str,
    ) -> std::result::Result<DownloadGrant, SignatureError> {
        self.signer.verify_download(UnverifiedRequest { key, query, received_at: OffsetDateTime::now_utc() })
    }

    /// Opens the granted object for sending.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    pub async fn open_object(&self, grant: &DownloadGrant) -> Result<LocalObject> {
        let key = grant.key();
        let opened = async {
            let file = tokio::fs::File::open(self.path(key)).await?;
            let metadata = file.metadata().await?;
            Ok::<_, std::io::Error>((file, metadata.len(), metadata.modified()?))
        };
        let (file, size_bytes, written_at) = match opened.await {
            Ok(opened) => opened,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                self.check_root().await?;
                return Err(StoreError::not_found(format!("object {key}")));
            }
            Err(cause) => return Err(unavailable("open an object", cause)),
        };
        let body = ReaderStream::with_capacity(file, READ_BUFFER_BYTES).boxed();
        Ok(LocalObject { size_bytes, written_at, content_type: key.content_type(), body })
    }

    /// Checks that uploads can be stored by writing and removing a few bytes.
    ///
    /// # Errors
    /// `Unavailable` if the disk is full, read-only or gone.
    pub async fn check(&self) -> Result<()> {
        let (staged, mut file) = StagedFile::create(&self.scratch)
            .await
            .map_err(|cause| unavailable("write to the storage", cause))?;
        let object_dir = Arc::clone(&self.object_dir);
        run_blocking("write to the storage", move || {
            std::io::Write::write_all(&mut file, b"photofinish")?;
            drop(staged);
            object_dir.check()
        })
        .await
    }

    /// Removes staged files of uploads that died long ago, as opening the folder does: for a process that runs for months
    /// after one that was killed.
    ///
    /// # Errors
    /// `Unavailable` if they cannot be listed, or one of them not be removed.
    pub async fn remove_abandoned_uploads(&self) -> Result<()> {
        let scratch = self.scratch.clone();
        let remove = move || durable::remove_abandoned_files(&scratch, ABANDONED_AFTER);
        run_blocking("remove abandoned uploads", remove).await
    }

    /// Lists all objects.
    pub(crate) fn list(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.list_below(KEY_ROOT)
    }

    /// Lists the objects of a folder.
    pub(crate) fn list_below(&self, folder: &str) -> BoxStream<'_, Result<ListedObject>> {
        let root = Path::from(folder);
        let found = self.file_system.list(Some(&root));
        let found = found.map(move |meta| {
            let meta = meta.map_err(|cause| object_ops::object_error(&root, cause))?;
            ListedObject::from_meta(&meta, "")
        });
        let checked = stream::once(self.check_root()).filter_map(async |checked| checked.err().map(Err));
        checked.chain(found).boxed()
    }

    /// Checks that the storage folder exists. Only then does a missing file mean that the object does not exist;
    /// otherwise photos would fail permanently.
    async fn check_root(&self) -> Result<()> {
        let object_dir = Arc::clone(&self.object_dir);
        run_blocking("find the storage folder", move || object_dir.check()).await
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        self.object_dir.root().join(key.as_str())
    }
}

/// Returns the error for a folder without the expected photos. The hint is for operators who lost the photos, or moved
/// them without copying the whole folder.
fn wrong_folder(root: &std::path::Path) -> std::io::Error {
    std::io::Error::other(format!(
        "{folder} does not contain the photos in the database: is its disk mounted? To begin with an empty folder, create the file {folder}/{lock_file}",
        folder = root.display(),
        lock_file = durable::LOCK_FILE
    ))
}

#[async_trait]
impl Blobs for LocalFiles {
    async fn read(&self, key: &ObjectKey, max_bytes: u64) -> Result<Bytes> {
        self.read_into(key, max_bytes, Vec::new()).await.map(Bytes::from)
    }

    async fn read_into(&self, key: &ObjectKey, max_bytes: u64, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let path = Path::from(key.as_str());
        let read = object_ops::read_into(&self.file_system, &path, max_bytes, buffer).await;
        if read.as_ref().is_err_and(|error| error.kind == StoreErrorKind::NotFound) {
            self.check_root().await?;
        }
        read
    }

    async fn write(&self, key: &ObjectKey, _content_type: &str, bytes: Bytes) -> Result<()> {
        let (scratch, object_dir) = (self.scratch.clone(), Arc::clone(&self.object_dir));
        let target = self.path(key);
        run_blocking("write an object", move || {
            let (staged, mut file) = StagedFile::create_blocking(&scratch)?;
            std::io::Write::write_all(&mut file, &bytes)?;
            object_dir.persist(staged, file, &target)
        })
        .await
    }

    async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url> {
        let UploadConditions { content_type, max_bytes, ttl } = upload;
        Ok(self.signer.sign_url(&SignedFields {
            method: SignedMethod::Put,
            key: key.as_str(),
            expires: expiry_timestamp(ttl),
            upload_limits: Some(UploadLimits { content_type, max_bytes }),
        }))
    }

    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
        Ok(self.signer.sign_url(&SignedFields {
            method: SignedMethod::Get,
            key: key.as_str(),
            expires: expiry_timestamp(ttl),
            upload_limits: None,
        }))
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
        let size = object_ops::head(&self.file_system, &Path::from(key.as_str())).await?;
        if size.is_none() {
            self.check_root().await?;
        }
        Ok(size)
    }

    async fn is_refused(&self, key: &ObjectKey, error: &StoreError) -> Result<bool> {
        let path = Path::from(key.as_str());
        Ok(object_ops::is_refused(&self.file_system, &path, error, self.check()).await)
    }

    /// Costs nothing after an upload to this process, which has synced the folders. After one to another process, or to one that
    /// was killed, each folder is synced, up to that of the storage.
    async fn make_durable(&self, key: &ObjectKey) -> Result<()> {
        if self.synced_uploads.take(key) && !self.upload_slots.is_uploading(key) {
            return Ok(());
        }
        let (object_dir, path) = (Arc::clone(&self.object_dir), self.path(key));
        run_blocking("sync the folders of an object", move || object_dir.sync_parents(&path)).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<()> {
        let (object_dir, path) = (Arc::clone(&self.object_dir), self.path(key));
        run_blocking("remove an object", move || object_dir.remove_file(&path)).await
    }

    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
        let object_dir = Arc::clone(&self.object_dir);
        let folder = object_dir.root().join(ObjectKey::album_prefix(organization, album));
        run_blocking("remove an album's objects", move || object_dir.remove_folder(&folder)).await
    }
}

/// Returns the time after `ttl` in Unix seconds.
fn expiry_timestamp(ttl: Duration) -> i64 {
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::now_utc().unix_timestamp().saturating_add(seconds)
}

/// Runs file operations without blocking the runtime's threads; `operation` names them in errors.
async fn run_blocking<T, F>(operation: &'static str, work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> std::io::Result<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|cause| unavailable(operation, cause)),
        Err(cause) => Err(StoreError::new(StoreErrorKind::Unavailable, operation).with_source(cause)),
    }
}

/// Returns the error of a disk that fails (full, read-only, gone): it may work again later.
fn unavailable(operation: &'static str, cause: std::io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation).with_source(cause)
}

/// Returns whether a folder was prepared for objects. A start prepares another one only where the database contains no photos.
/// Changes nothing.
///
/// # Errors
/// When it cannot be looked into.
pub fn is_prepared_folder(root: &std::path::Path) -> std::io::Result<bool> {
    ObjectDir::exists_at(root)
}

/// Prepares an existing folder for objects, whatever the database contains: for one that is deleted again.
///
/// # Errors
/// When it does not exist.
pub fn prepare_folder(root: &std::path::Path) -> std::io::Result<()> {
    ObjectDir::open(root).map(drop)
}

/// Returns the folder that a `file:` URL names; relative ones (`file:data/objects`) are relative to the working
/// directory.
///
/// # Errors
/// `Invalid` if it is another kind of URL or names no folder.
pub fn parse_folder_url(storage_url: &str) -> Result<PathBuf> {
    let kinds = "must begin with file:, s3://, gs:// or az://";
    let path = storage_url.strip_prefix("file:").ok_or_else(|| invalid_url("of another kind", kinds))?;
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(invalid_url(storage_url, "a folder must follow"));
    }
    Ok(PathBuf::from(path))
}
