//! Objects in a bucket of S3, Google Cloud Storage or Azure, and the presigned URLs with which partners upload and
//! runners download them: these transfers never pass through this service.
//!
//! Every call ends: with a result, or with `Unavailable` within [`Timeouts::total`]; reading a photo's file has longer, by
//! the size that it may have.

mod client;
mod location;
mod timeouts;
mod upload;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::signer::{HeaderName, HeaderValue, Method, SignedUrlOptions, Signer};
use object_store::{ObjectStore, ObjectStoreExt};
use url::Url;

pub use self::client::{Addressing, CloudSettings};
pub use self::location::{BucketLocation, CloudProvider};
pub use self::timeouts::Timeouts;
use self::timeouts::with_timeout;
use self::upload::PART_BYTES;
use crate::blobs::object_ops::{self, ListedObject};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::object_key::{KEY_ROOT, ObjectKey};
use crate::traits::{ANY_IMAGE, Blobs, Result, UploadConditions};

/// The longest validity of a presigned URL. S3 and Google refuse longer ones only when they are used, which is too late.
pub const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// The object that is written to check the bucket, and its folder.
pub(crate) const CHECK_OBJECT: &str = "check/writable";
const CHECK_FOLDER: &str = "check";

/// More bytes than [`CHECK_OBJECT`] has.
const MAX_CHECK_BYTES: u64 = 1 << 10;

/// For how long after a write a check only reads [`CHECK_OBJECT`]: many clients request readiness every few seconds,
/// writes cost more, and a bucket with versions keeps each of them.
const WRITE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

const CONTENT_TYPE: HeaderName = HeaderName::from_static("content-type");

/// The objects of a bucket.
pub struct CloudObjects {
    objects: Arc<dyn ObjectStore>,
    signer: Arc<dyn Signer>,
    binds_parameters: bool,
    prefix: String,
    timeouts: Timeouts,
    last_check: Mutex<Option<WriteCheck>>,
    /// Whether a write tells the version that it made only where the bucket keeps older ones.
    tells_versions: bool,
}

/// A write that checked the bucket.
#[derive(Clone, Copy)]
struct WriteCheck {
    at: Instant,
    made_version: bool,
}

impl CloudObjects {
    /// Opens a bucket without accessing the network: a bucket that does not respond now may do so later.
    ///
    /// # Errors
    /// `Invalid` if the settings do not fit the cloud.
    pub fn open(location: BucketLocation, settings: &CloudSettings) -> Result<Self> {
        let client::BucketClients { objects, signer, binds_parameters } =
            client::build_clients(&location, settings)?;
        // Google numbers every object, whether or not it keeps older ones.
        let tells_versions = location.provider != CloudProvider::Gcs;
        let (prefix, timeouts, last_check) = (location.prefix, settings.timeouts, Mutex::new(None));
        Ok(Self { objects, signer, binds_parameters, prefix, timeouts, last_check, tells_versions })
    }

    /// Checks that the bucket exists and can be written. Writes at most once a minute.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check(&self) -> Result<()> {
        let path = self.path(CHECK_OBJECT);
        let check = async {
            if self.last_check().is_some_and(|check| check.at.elapsed() < WRITE_CHECK_INTERVAL)
                && object_ops::head(&*self.objects, &path).await?.is_some()
            {
                return Ok(());
            }
            // Listed first: some servers create a missing bucket on a write.
            self.check_bucket_exists().await?;
            let written = self.objects.put(&path, "photofinish".into()).await;
            let written = written.map_err(|cause| bucket_unavailable("write to the storage", cause))?;
            let check = WriteCheck { at: Instant::now(), made_version: written.version.is_some() };
            *self.last_check.lock().unwrap_or_else(PoisonError::into_inner) = Some(check);
            Ok(())
        };
        with_timeout(self.timeouts.read, &path, check).await
    }

    /// Whether anything says that photos of this service were ever here: an object of one, or that of a check, for a place whose
    /// photos were all deleted, or never uploaded.
    ///
    /// # Errors
    /// `Unavailable`, also where the credentials may not list the bucket.
    pub(crate) async fn was_used(&self) -> Result<bool> {
        let (root, check) = (self.path(KEY_ROOT), self.path(CHECK_OBJECT));
        let look = async {
            match self.objects.list(Some(&root)).next().await {
                Some(Ok(_)) => Ok(true),
                Some(Err(cause)) => Err(bucket_unavailable("list the bucket", cause)),
                None => Ok(object_ops::head(&*self.objects, &check).await?.is_some()),
            }
        };
        with_timeout(self.timeouts.read, &root, look).await
    }

    /// Whether the bucket keeps older versions of objects, so that what is deleted is still there; `None` when it does not say so,
    /// and before the first check.
    pub fn keeps_versions(&self) -> Option<bool> {
        self.last_check().filter(|_| self.tells_versions).map(|check| check.made_version)
    }

    fn last_check(&self) -> Option<WriteCheck> {
        *self.last_check.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists all objects below the prefix, in pages of a thousand.
    pub(crate) fn list(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.list_below(KEY_ROOT)
    }

    /// Lists the objects below a prefix.
    pub(crate) fn list_below(&self, prefix: &str) -> BoxStream<'_, Result<ListedObject>> {
        let root = self.path(prefix);
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let found = self.objects.list(Some(&root));
        let pages = (found, root, prefix);
        stream::try_unfold(pages, async |(mut found, root, prefix)| {
            let next =
                async { found.try_next().await.map_err(|cause| object_ops::object_error(&root, cause)) };
            let Some(meta) = with_timeout(self.timeouts.total, &root, next).await? else { return Ok(None) };
            Ok(Some((ListedObject::from_meta(&meta, &prefix)?, (found, root, prefix))))
        })
        .boxed()
    }

    /// Checks that the bucket exists. S3 responds with 404 to a missing object and to a missing bucket; a list tells
    /// them apart.
    async fn check_bucket_exists(&self) -> Result<()> {
        match self.objects.list(Some(&self.path(CHECK_FOLDER))).next().await {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(cause)) => Err(bucket_unavailable("list the bucket", cause)),
        }
    }

    /// Returns the path of `name` in the bucket.
    fn path(&self, name: &str) -> Path {
        if self.prefix.is_empty() { Path::from(name) } else { Path::from(format!("{}/{name}", self.prefix)) }
    }

    /// Runs a query about one object with a time limit. An object counts as missing only if the bucket exists: a mistyped
    /// bucket name must not fail every photo.
    async fn query_object<T>(
        &self,
        limit: Duration,
        path: &Path,
        query: impl Future<Output = Result<Option<T>>>,
    ) -> Result<Option<T>> {
        let query = async {
            let found = query.await?;
            if found.is_none() {
                self.check_bucket_exists().await?;
            }
            Ok(found)
        };
        with_timeout(limit, path, query).await
    }

    async fn sign_url(&self, method: Method, key: &ObjectKey, options: SignOptions) -> Result<Url> {
        let path = self.path(key.as_str());
        let ttl = options.ttl.clamp(Duration::from_secs(1), LONGEST_TTL);
        let parameters = if self.binds_parameters { options.parameters } else { SignedUrlOptions::default() };
        let signing = async {
            let signed = self.signer.signed_url_opts(method, &path, ttl, &parameters).await;
            signed.map_err(|cause| bucket_unavailable("sign a url", cause))
        };
        // Limited because credentials may have to be fetched or renewed first.
        with_timeout(self.timeouts.total, &path, signing).await
    }
}

/// How long a signature is valid, and what it covers in addition to method and object.
struct SignOptions {
    ttl: Duration,
    parameters: SignedUrlOptions,
}

#[async_trait]
impl Blobs for CloudObjects {
    /// With the time limit of other calls: requests wait for what this reads.
    async fn read(&self, key: &ObjectKey, max_bytes: u64) -> Result<Bytes> {
        let path = self.path(key.as_str());
        let read = self.read_into(key, max_bytes, Vec::new());
        with_timeout(self.timeouts.total, &path, read).await.map(Bytes::from)
    }

    fn time_to_receive(&self, max_bytes: u64) -> Duration {
        Timeouts::for_body(max_bytes)
    }

    async fn read_into(&self, key: &ObjectKey, max_bytes: u64, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let path = self.path(key.as_str());
        let read = async {
            match object_ops::read_into(&*self.objects, &path, max_bytes, buffer).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let read = self.query_object(self.timeouts.for_read(max_bytes), &path, read).await?;
        read.ok_or_else(|| StoreError::not_found(format!("object {path}")))
    }

    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(key.as_str());
        if bytes.len() > PART_BYTES {
            return upload::put_multipart(&*self.objects, &self.timeouts, &path, content_type, bytes).await;
        }
        let put = upload::put_whole(&*self.objects, &path, content_type, bytes);
        with_timeout(self.timeouts.total, &path, put).await
    }

    async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url> {
        let mut parameters = SignedUrlOptions::default();
        if upload.content_type != ANY_IMAGE {
            let value = HeaderValue::from_str(upload.content_type).map_err(|cause| {
                StoreError::new(StoreErrorKind::Corrupt, "a content type that is no header value")
                    .with_source(cause)
            })?;
            parameters = parameters.with_signed_header(CONTENT_TYPE, value);
        }
        self.sign_url(Method::PUT, key, SignOptions { ttl: upload.ttl, parameters }).await
    }

    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
        // The same headers as for local files: whatever type the uploader declared, no browser renders it as a page.
        let response_headers = [
            ("response-content-type", key.content_type()),
            ("response-cache-control", "private, max-age=3600"),
        ];
        let parameters = SignedUrlOptions::default().with_query(response_headers);
        self.sign_url(Method::GET, key, SignOptions { ttl, parameters }).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
        let path = self.path(key.as_str());
        self.query_object(self.timeouts.total, &path, object_ops::head(&*self.objects, &path)).await
    }

    async fn is_refused(&self, key: &ObjectKey, error: &StoreError) -> Result<bool> {
        let (path, check_path) = (self.path(key.as_str()), self.path(CHECK_OBJECT));
        let check = async {
            self.check().await?;
            // Read, not only found: a key of encryption may be denied that all objects have.
            object_ops::read_into(&*self.objects, &check_path, MAX_CHECK_BYTES, Vec::new()).await.map(drop)
        };
        let refused = async { Ok(object_ops::is_refused(&*self.objects, &path, error, check).await) };
        with_timeout(self.timeouts.total, &path, refused).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<()> {
        let path = self.path(key.as_str());
        with_timeout(self.timeouts.total, &path, object_ops::delete(&*self.objects, &path)).await
    }

    /// Lists and removes a thousand objects at a time. What is left after an error is removed by the next call.
    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
        let prefix = self.path(&ObjectKey::album_prefix(organization, album));
        let found = self.objects.list(Some(&prefix)).map_ok(|object| object.location).boxed();
        let mut removed = self.objects.delete_stream(found);
        let mut next = async || match removed.next().await {
            None => Ok(false),
            Some(Ok(_) | Err(object_store::Error::NotFound { .. })) => Ok(true),
            Some(Err(cause)) => Err(object_ops::object_error(&prefix, cause)),
        };
        while with_timeout(self.timeouts.total, &prefix, next()).await? {}
        Ok(())
    }
}

/// Returns the error for a failure of the bucket itself, whatever its kind.
fn bucket_unavailable(operation: &str, cause: object_store::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation).with_source(cause)
}
