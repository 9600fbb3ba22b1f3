//! Where the bytes lie: on the local disk or in a cloud's object store, as the storage URL says. Knows no rows.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use time::OffsetDateTime;

use crate::StoreSettings;
use crate::blobs::cloud::{BucketLocation, CloudObjects};
use crate::blobs::local::{self, LocalFiles, LocalSettings};
use crate::error::{StoreError, StoreErrorKind};
use crate::traits::{Blobs, Result};

/// An object as the storage lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedObject {
    /// As [`crate::model::object_key::ObjectKey`] spells it, when it is one.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    /// When it was last written, by the storage's clock.
    pub(crate) modified_at: OffsetDateTime,
}

/// The storage that a URL names. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Storage {
    Local(Arc<LocalFiles>),
    Cloud(Arc<CloudObjects>),
}

impl Storage {
    /// Opens what `settings.storage_url` names, for rows that know photos or none. A folder is made when missing and none
    /// are known; a bucket is not looked at: whether it answers is for [`Storage::check`] to say, again and again.
    ///
    /// # Errors
    /// `Corrupt` for a URL of no known kind or settings that do not fit it, `Unavailable` for a disk that refuses.
    pub(crate) async fn open(settings: &StoreSettings, is_known: bool) -> Result<Self> {
        if let Some(place) = BucketLocation::parse(&settings.storage_url)? {
            return Ok(Self::Cloud(Arc::new(CloudObjects::open(place, &settings.cloud)?)));
        }
        let files = LocalFiles::open_folder(LocalSettings {
            root: local::parse_folder_url(&settings.storage_url)?,
            has_photos: is_known,
            public_url: settings.public_url.clone(),
            signing_secret: settings.signing_secret,
        });
        Ok(Self::Local(Arc::new(files.await?)))
    }

    /// What the rest of the house asks.
    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        match self {
            Self::Local(files) => Arc::clone(files) as _,
            Self::Cloud(objects) => Arc::clone(objects) as _,
        }
    }

    /// What answers signed local URLs.
    pub(crate) fn local(&self) -> Option<Arc<LocalFiles>> {
        match self {
            Self::Local(files) => Some(Arc::clone(files)),
            Self::Cloud(_) => None,
        }
    }

    /// All objects of photos and selfies, in any order.
    pub(crate) fn list(&self) -> BoxStream<'_, Result<ListedObject>> {
        match self {
            Self::Local(files) => files.list(),
            Self::Cloud(objects) => objects.list(),
        }
    }

    /// Whether bytes can be written now.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) async fn check(&self) -> Result<()> {
        match self {
            Self::Local(files) => files.check().await,
            Self::Cloud(objects) => objects.check().await,
        }
    }
}

/// Judges a storage URL without opening anything.
///
/// # Errors
/// `Corrupt` for a URL of no known kind; the message says what is wrong with it.
pub fn check_url(url: &str) -> Result<()> {
    match BucketLocation::parse(url)? {
        Some(_) => Ok(()),
        None => local::parse_folder_url(url).map(drop),
    }
}

/// A storage URL that cannot be used, and why.
pub(crate) fn refused(url: &str, why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("storage url {url}: {why}"))
}
