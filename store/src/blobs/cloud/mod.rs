//! Bytes in a bucket of S3, Google Cloud Storage or Azure, and the presigned URLs by which partners put them there and
//! runners fetch them: the transfers never pass through this service.
//!
//! Knows no rows and no HTTP of ours. Every call ends: with an answer, or with `Unavailable` within [`Patience::call`].

pub(crate) mod client;
pub(crate) mod location;
pub(crate) mod timeouts;
pub(crate) mod upload;

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
use self::upload::PART_BYTES;
use crate::blobs::object_ops;
use crate::blobs::storage::ListedObject;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::object_key::{ObjectKey, ROOT};
use crate::traits::{ANY_IMAGE, Blobs, Result, UploadConditions};

/// The longest that a presigned URL may hold. S3 and Google refuse longer ones when they are used, which is too late.
pub const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is written to see whether anything can be, and its folder.
const CHECK_OBJECT: &str = "check/writable";
const CHECK_FOLDER: &str = "check";

/// For so long it is enough to look at [`CHECKED`]: readiness is asked every few seconds by many, writes cost more, and
/// a bucket with versions keeps each of them.
const WRITE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

const CONTENT_TYPE: HeaderName = HeaderName::from_static("content-type");

/// The objects of a bucket.
pub struct CloudObjects {
    objects: Arc<dyn ObjectStore>,
    signer: Arc<dyn Signer>,
    binds_parameters: bool,
    prefix: String,
    patience: Timeouts,
    last_write: Mutex<Option<Instant>>,
}

impl CloudObjects {
    /// The objects of a place. Asks nothing of the network: a bucket that does not answer now may do so later.
    ///
    /// # Errors
    /// `Corrupt` when the settings do not fit the cloud.
    pub fn open(place: BucketLocation, settings: &CloudSettings) -> Result<Self> {
        let client::BucketClients { objects, signer, binds_parameters: binds } =
            client::build_clients(&place, settings)?;
        let (prefix, patience) = (place.prefix, settings.patience);
        Ok(Self { objects, signer, binds_parameters: binds, prefix, patience, last_write: Mutex::new(None) })
    }

    /// Whether the bucket is there and takes bytes. Writes at most once a minute.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check(&self) -> Result<()> {
        let path = self.path(CHECK_OBJECT);
        let check = async {
            let written = *self.last_write.lock().unwrap_or_else(PoisonError::into_inner);
            if written.is_some_and(|at| at.elapsed() < WRITE_CHECK_INTERVAL)
                && object_ops::head(&*self.objects, &path).await?.is_some()
            {
                return Ok(());
            }
            // A list first: there are servers that make a bucket of any name for a write.
            self.check_bucket_exists().await?;
            let written = self.objects.put(&path, "photofinish".into()).await;
            written.map_err(|cause| bucket_unavailable("write to the storage", cause))?;
            *self.last_write.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            Ok(())
        };
        within(self.patience.read, &path, check).await
    }

    /// All objects below the prefix, a page of a thousand at a time.
    pub(crate) fn list(&self) -> BoxStream<'_, Result<ListedObject>> {
        let root = self.path(ROOT);
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let found = self.objects.list(Some(&root));
        let pages = (found, root, prefix);
        stream::try_unfold(pages, async |(mut found, root, prefix)| {
            let next = async { found.try_next().await.map_err(|cause| object_ops::failure(&root, cause)) };
            let Some(meta) = within(self.patience.call, &root, next).await? else { return Ok(None) };
            Ok(Some((object_ops::stored(&meta, &prefix)?, (found, root, prefix))))
        })
        .boxed()
    }

    /// Whether there is a bucket of this name. S3 says 404 for an object and for a bucket; a list tells them apart.
    async fn check_bucket_exists(&self) -> Result<()> {
        match self.objects.list(Some(&self.path(CHECK_FOLDER))).next().await {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(cause)) => Err(bucket_unavailable("list the bucket", cause)),
        }
    }

    /// The place of `name` in the bucket.
    fn path(&self, name: &str) -> Path {
        if self.prefix.is_empty() { Path::from(name) } else { Path::from(format!("{}/{name}", self.prefix)) }
    }

    /// An answer about one object, in time. That something is not there counts only from a bucket that is: a bucket's
    /// name with a typing error must not fail every photo for its missing bytes.
    async fn query_object<T>(
        &self,
        path: &Path,
        call: impl Future<Output = Result<Option<T>>>,
    ) -> Result<Option<T>> {
        let call = async {
            let answer = call.await?;
            if answer.is_none() {
                self.check_bucket_exists().await?;
            }
            Ok(answer)
        };
        within(self.patience.call, path, call).await
    }

    async fn sign_url(&self, method: Method, key: &ObjectKey, terms: SignOptions) -> Result<Url> {
        let path = self.path(key.as_str());
        let ttl = terms.ttl.clamp(Duration::from_secs(1), LONGEST_TTL);
        let options = if self.binds_parameters { terms.parameters } else { SignedUrlOptions::default() };
        let signing = async {
            let signed = self.signer.signed_url_opts(method, &path, ttl, &options).await;
            signed.map_err(|cause| bucket_unavailable("sign a url", cause))
        };
        // Credentials may have to be fetched or renewed first.
        within(self.patience.call, &path, signing).await
    }
}

/// How long a signature holds and what it covers besides method and object.
struct SignOptions {
    ttl: Duration,
    parameters: SignedUrlOptions,
}

#[async_trait]
impl Blobs for CloudObjects {
    async fn read(&self, key: &ObjectKey, at_most: u64) -> Result<Bytes> {
        let path = self.path(key.as_str());
        let read = async {
            match object_ops::read(&*self.objects, &path, at_most).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let read = self.query_object(&path, read).await?;
        read.ok_or_else(|| StoreError::not_found(format!("object {path}")))
    }

    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(key.as_str());
        if bytes.len() > PART_BYTES {
            return upload::put_multipart(&*self.objects, &self.patience, &path, (content_type, bytes)).await;
        }
        within(self.patience.call, &path, upload::put_whole(&*self.objects, &path, (content_type, bytes)))
            .await
    }

    async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url> {
        let mut bound = SignedUrlOptions::default();
        if upload.content_type != ANY_IMAGE {
            let value = HeaderValue::from_str(upload.content_type).map_err(|cause| {
                StoreError::new(StoreErrorKind::Corrupt, "a content type no header can hold")
                    .with_source(cause)
            })?;
            bound = bound.with_signed_header(CONTENT_TYPE, value);
        }
        self.sign_url(Method::PUT, key, SignOptions { ttl: upload.ttl, parameters: bound }).await
    }

    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
        // As local files are sent: whatever type the sender of an original declared, no browser takes it for a page.
        let answered = [
            ("response-content-type", key.content_type()),
            ("response-cache-control", "private, max-age=3600"),
        ];
        let bound = SignedUrlOptions::default().with_query(answered);
        self.sign_url(Method::GET, key, SignOptions { ttl, parameters: bound }).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
        let path = self.path(key.as_str());
        self.query_object(&path, object_ops::head(&*self.objects, &path)).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<()> {
        let path = self.path(key.as_str());
        within(self.patience.call, &path, object_ops::delete(&*self.objects, &path)).await
    }

    /// Lists and removes a thousand at a time. What is left after an error is found by the next call.
    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
        let prefix = self.path(&ObjectKey::album_prefix(organization, album));
        let found = self.objects.list(Some(&prefix)).map_ok(|object| object.location).boxed();
        let mut removed = self.objects.delete_stream(found);
        let mut next = async || match removed.next().await {
            None => Ok(false),
            Some(Ok(_) | Err(object_store::Error::NotFound { .. })) => Ok(true),
            Some(Err(cause)) => Err(object_ops::failure(&prefix, cause)),
        };
        while within(self.patience.call, &prefix, next()).await? {}
        Ok(())
    }
}

/// A failure that is the bucket's, whatever it says.
fn bucket_unavailable(what: &str, cause: object_store::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, what).with_source(cause)
}

/// The answer, or `Unavailable` when there is none in time.
async fn within<T>(limit: Duration, path: &Path, call: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(elapsed) => {
            let what = format!("object {path}: no answer for {:.1} s", limit.as_secs_f64());
            Err(StoreError::new(StoreErrorKind::Unavailable, what).with_source(elapsed))
        }
    }
}
