//! Bytes on the local disk, and the signed URLs by which partners put them there and runners fetch them.
//!
//! The embedded profile's stand-in for S3: the service itself answers `PUT` and `GET` on `/storage/{key}`, with the
//! semantics of a presigned request. Knows nothing of HTTP: the API calls [`LocalFiles::verify_upload`], then
//! [`LocalFiles::receive`]; or [`LocalFiles::verify_download`], then [`LocalFiles::open`].

pub(crate) mod durable;
pub(crate) mod signing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;
use url::Url;

pub use self::durable::make_folder;
use self::durable::{ObjectDir, StagedFile};
pub use self::signing::{DownloadGrant, SignatureError, UploadGrant};
use self::signing::{SignedFields, SignedMethod, UnverifiedRequest, UrlSigner};
use crate::blobs::object_ops;
use crate::blobs::storage::{ListedObject, refused};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::object_key::{ObjectKey, ROOT};
use crate::traits::{Blobs, Result, UploadConditions};

/// How much of a file is read at once for a download.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// A part file that nobody has written to for this long belongs to an upload that died with its process. Younger
/// ones may belong to a service that runs now, while a command opens the same store.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Where half-received bodies lie, in the folder of all objects, whose keys all begin with another folder.
const SCRATCH_FOLDER: &str = "scratch";

/// What [`LocalFiles`] needs.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// The folder of the objects; made when missing.
    pub root: PathBuf,
    /// Whether the rows know photos already: a folder that holds nothing of them is another one, as when its disk is
    /// not mounted, and is refused.
    pub has_photos: bool,
    /// What the URLs begin with.
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
}

/// An object about to be sent.
pub struct LocalObject {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// As [`ObjectKey::served_as`] says.
    pub content_type: &'static str,
    /// The bytes, in order.
    pub body: BoxStream<'static, std::io::Result<Bytes>>,
}

/// Why a body was not kept. Nothing of it is left on the disk.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError<E> {
    /// It is larger than its URL permits.
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge {
        /// The limit of the URL.
        max_bytes: u64,
    },
    /// It ended early.
    #[error("the body broke off")]
    Body(#[source] E),
    /// The disk refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LocalFiles {
    /// Opens the folder, makes it when missing, and removes parts of uploads that died long ago.
    ///
    /// # Errors
    /// `Unavailable` when a folder cannot be made or read.
    pub async fn open_folder(settings: LocalSettings) -> Result<Self> {
        let LocalSettings { root, has_photos: is_known, public_url, signing_secret } = settings;
        let (folders, scratch, files) = run_blocking("open the storage folder", move || {
            if is_known && !ObjectDir::exists_at(&root)? {
                return Err(wrong_folder(&root));
            }
            durable::make_folder(&root)?;
            let folders = ObjectDir::open(&root)?;
            // Within the storage, so that a rename leads from one to the other.
            let scratch = folders.root().join(SCRATCH_FOLDER);
            let tidied = durable::make_folder(&scratch)
                .and_then(|()| durable::remove_abandoned_files(&scratch, ABANDONED_AFTER));
            if let Err(cause) = tidied {
                // A full or read-only disk can still be read.
                tracing::warn!(%cause, "the storage folder has no place for uploads");
            }
            let files = LocalFileSystem::new_with_prefix(folders.root())?;
            Ok((Arc::new(folders), scratch, files))
        })
        .await?;
        Ok(Self {
            object_dir: folders,
            scratch,
            file_system: files,
            signer: UrlSigner::new(public_url, signing_secret),
        })
    }

    /// Judges a `PUT`: `key` is the decoded path after `/storage/`, `query` the raw query string, `content_type` the
    /// request's header. Every error is answered with 403.
    ///
    /// # Errors
    /// See [`SignatureError`].
    pub fn verify_upload(
        &self,
        key: &str,
        query: &str,
        content_type: Option<&str>,
    ) -> std::result::Result<UploadGrant, SignatureError> {
        self.signer.verify_upload(
            UnverifiedRequest { key, query, received_at: OffsetDateTime::now_utc() },
            content_type,
        )
    }

    /// Judges a `GET` or `HEAD`, as [`Self::verify_upload`] does a `PUT`.
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

    /// Keeps a body under the granted key, replacing what was there; answers its size in bytes. Durable when it
    /// returns. A body that breaks off or grows too large leaves nothing.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub async fn receive_upload<S, E>(
        &self,
        grant: UploadGrant,
        body: S,
    ) -> std::result::Result<u64, ReceiveError<E>>
    where
        S: Stream<Item = std::result::Result<Bytes, E>>,
    {
        let failed = |cause| unavailable("receive an upload", cause);
        let max_bytes = grant.max_bytes();
        let (part, file) = StagedFile::create(&self.scratch).await.map_err(failed)?;
        let mut file = tokio::fs::File::from_std(file);
        let mut received: u64 = 0;
        let mut body = std::pin::pin!(body);
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(ReceiveError::Body)?;
            received += chunk.len() as u64;
            if received > max_bytes {
                return Err(ReceiveError::TooLarge { max_bytes });
            }
            file.write_all(&chunk).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        let file = file.into_std().await;
        let (folders, target) = (Arc::clone(&self.object_dir), self.path(grant.key()));
        run_blocking("keep an upload", move || folders.persist(part, file, &target)).await?;
        Ok(received)
    }

    /// Opens the granted object for sending.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    pub async fn open(&self, grant: &DownloadGrant) -> Result<LocalObject> {
        let key = grant.key();
        let opened = async {
            let file = tokio::fs::File::open(self.path(key)).await?;
            let size_bytes = file.metadata().await?.len();
            Ok::<_, std::io::Error>((file, size_bytes))
        };
        let (file, size_bytes) = match opened.await {
            Ok(opened) => opened,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                self.check_root().await?;
                return Err(StoreError::not_found(format!("object {key}")));
            }
            Err(cause) => return Err(unavailable("open an object", cause)),
        };
        let body = ReaderStream::with_capacity(file, READ_BUFFER_BYTES).boxed();
        Ok(LocalObject { size_bytes, content_type: key.content_type(), body })
    }

    /// Writes and removes a few bytes where uploads land.
    ///
    /// # Errors
    /// `Unavailable` when the disk is full, read-only or gone.
    pub async fn check(&self) -> Result<()> {
        let (part, mut file) = StagedFile::create(&self.scratch)
            .await
            .map_err(|cause| unavailable("write to the storage", cause))?;
        let folders = Arc::clone(&self.object_dir);
        run_blocking("write to the storage", move || {
            std::io::Write::write_all(&mut file, b"photofinish")?;
            drop(part);
            folders.check()
        })
        .await
    }

    /// All objects.
    pub(crate) fn list(&self) -> BoxStream<'_, Result<ListedObject>> {
        let root = Path::from(ROOT);
        let found = self.file_system.list(Some(&root));
        let found = found.map(move |meta| {
            object_ops::stored(&meta.map_err(|cause| object_ops::failure(&root, cause))?, "")
        });
        let checked = stream::once(self.check_root()).filter_map(async |checked| checked.err().map(Err));
        checked.chain(found).boxed()
    }

    /// An object is only missing while the folder of all objects is there: without it photos would fail for good.
    async fn check_root(&self) -> Result<()> {
        let folders = Arc::clone(&self.object_dir);
        run_blocking("find the storage folder", move || folders.check()).await
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        self.object_dir.root().join(key.as_str())
    }
}

/// The way out is for who lost the photos, or moved them by other means than copying all of the folder.
fn wrong_folder(root: &std::path::Path) -> std::io::Error {
    std::io::Error::other(format!(
        "{folder} is not the folder that the photos were kept in: is its disk mounted? If it is to begin empty, make the file {folder}/{mark}",
        folder = root.display(),
        mark = durable::LOCK_FILE
    ))
}

#[async_trait]
impl Blobs for LocalFiles {
    async fn read(&self, key: &ObjectKey, at_most: u64) -> Result<Bytes> {
        let read = object_ops::read(&self.file_system, &Path::from(key.as_str()), at_most).await;
        if read.as_ref().is_err_and(|error| error.kind == StoreErrorKind::NotFound) {
            self.check_root().await?;
        }
        read
    }

    async fn write(&self, key: &ObjectKey, _content_type: &str, bytes: Bytes) -> Result<()> {
        let (scratch, folders, target) = (self.scratch.clone(), Arc::clone(&self.object_dir), self.path(key));
        run_blocking("write an object", move || {
            let (part, mut file) = StagedFile::create_blocking(&scratch)?;
            std::io::Write::write_all(&mut file, &bytes)?;
            folders.persist(part, file, &target)
        })
        .await
    }

    async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url> {
        Ok(self.signer.sign_url(&SignedFields {
            method: SignedMethod::Put,
            key: key.as_str(),
            expires: expiry_timestamp(upload.ttl),
            upload_limits: Some((upload.content_type, upload.max_bytes)),
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

    async fn delete(&self, key: &ObjectKey) -> Result<()> {
        let (folders, path) = (Arc::clone(&self.object_dir), self.path(key));
        run_blocking("remove an object", move || folders.remove_file(&path)).await
    }

    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
        let folders = Arc::clone(&self.object_dir);
        let folder = folders.root().join(ObjectKey::album_prefix(organization, album));
        run_blocking("remove an album's objects", move || folders.remove_folder(&folder)).await
    }
}

/// Unix seconds, `ttl` from now.
fn expiry_timestamp(ttl: Duration) -> i64 {
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::now_utc().unix_timestamp().saturating_add(seconds)
}

/// Runs file work away from the runtime's threads.
async fn run_blocking<T, F>(what: &'static str, work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> std::io::Result<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|cause| unavailable(what, cause)),
        Err(cause) => Err(StoreError::new(StoreErrorKind::Unavailable, what).with_source(cause)),
    }
}

/// A disk that refuses (full, read-only, gone) may serve again later.
fn unavailable(what: &'static str, cause: std::io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, what).with_source(cause)
}

/// The folder that a `file:` URL names; relative ones (`file:data/objects`) are relative to the working folder.
///
/// # Errors
/// `Corrupt` when it is another kind of URL or names no folder.
pub fn parse_folder_url(storage_url: &str) -> Result<PathBuf> {
    let kinds = "must begin with file:, s3://, gs:// or az://";
    let path = storage_url.strip_prefix("file:").ok_or_else(|| refused("of another kind", kinds))?;
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(refused(storage_url, "a folder must follow"));
    }
    Ok(PathBuf::from(path))
}
