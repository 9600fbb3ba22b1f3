//! Where the objects are: on the local disk or in a bucket, as the storage URL says.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use url::Url;

use crate::blobs::cloud::{BucketLocation, CHECK_OBJECT, CloudObjects, CloudSettings};
use crate::blobs::local::{self, LocalFiles, LocalSettings};
use crate::blobs::object_ops::ListedObject;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::object_key::ObjectKey;
use crate::traits::{Blobs, Result};

/// Settings of [`Storage::open`].
pub(crate) struct StorageSettings<'s> {
    /// `file:` and a folder, or the URL of a bucket.
    pub(crate) url: &'s str,
    /// Settings of a bucket.
    pub(crate) cloud: &'s CloudSettings,
    /// How signed local URLs begin.
    pub(crate) public_url: &'s Url,
    /// Signs local URLs.
    pub(crate) signing_secret: [u8; 32],
    /// Whether the database contains photos.
    pub(crate) has_photos: bool,
}

/// The storage that a URL names. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Storage {
    Local(Arc<LocalFiles>),
    Cloud(Arc<CloudObjects>),
}

impl Storage {
    /// Opens a folder or a bucket. A missing folder is created if the database contains no photos. A bucket is looked into only
    /// if it does, and need not respond: [`Storage::check`] finds out whether it does.
    ///
    /// # Errors
    /// `Invalid` for a URL of an unknown kind or settings that do not fit it, and for a bucket without the photos in the
    /// database; `Unavailable` if the disk fails.
    pub(crate) async fn open(settings: StorageSettings<'_>) -> Result<Self> {
        if let Some(location) = BucketLocation::parse(settings.url)? {
            let objects = CloudObjects::open(location, settings.cloud)?;
            if settings.has_photos {
                refuse_wrong_bucket(&objects, settings.url).await?;
            }
            return Ok(Self::Cloud(Arc::new(objects)));
        }
        let files = LocalFiles::open_folder(LocalSettings {
            root: local::parse_folder_url(settings.url)?,
            has_photos: settings.has_photos,
            public_url: settings.public_url.clone(),
            signing_secret: settings.signing_secret,
        });
        Ok(Self::Local(Arc::new(files.await?)))
    }

    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        match self {
            Self::Local(files) => Arc::clone(files) as _,
            Self::Cloud(objects) => Arc::clone(objects) as _,
        }
    }

    /// Returns the files behind signed local URLs; `None` for a bucket, which serves its URLs itself.
    pub(crate) fn local(&self) -> Option<Arc<LocalFiles>> {
        match self {
            Self::Local(files) => Some(Arc::clone(files)),
            Self::Cloud(_) => None,
        }
    }

    /// Lists all objects of photos and selfies, in any order.
    pub(crate) fn list(&self) -> BoxStream<'_, Result<ListedObject>> {
        match self {
            Self::Local(files) => files.list(),
            Self::Cloud(objects) => objects.list(),
        }
    }

    /// Lists the objects of an album, in any order.
    pub(crate) fn list_album(
        &self,
        organization: OrganizationId,
        album: AlbumId,
    ) -> BoxStream<'_, Result<ListedObject>> {
        self.list_below(&ObjectKey::album_prefix(organization, album))
    }

    /// Lists the objects of an organization, in any order.
    pub(crate) fn list_organization(
        &self,
        organization: OrganizationId,
    ) -> BoxStream<'_, Result<ListedObject>> {
        self.list_below(&ObjectKey::organization_prefix(organization))
    }

    fn list_below(&self, prefix: &str) -> BoxStream<'_, Result<ListedObject>> {
        match self {
            Self::Local(files) => files.list_below(prefix),
            Self::Cloud(objects) => objects.list_below(prefix),
        }
    }

    /// Whether it keeps older versions of objects, so that what is deleted is still there. `None` when that is not known: before
    /// the first [`Self::check`], and where the cloud does not say so.
    pub(crate) fn keeps_versions(&self) -> Option<bool> {
        match self {
            Self::Local(_) => Some(false),
            Self::Cloud(objects) => objects.keeps_versions(),
        }
    }

    /// Checks that objects can be written.
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

/// Refuses a bucket or prefix without the photos in the database: with a mistyped one each photo that waits would fail as missing.
/// One that cannot be looked into is used: its outage is no mistake, and fails no photo.
async fn refuse_wrong_bucket(objects: &CloudObjects, url: &str) -> Result<()> {
    match objects.was_used().await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let what = format!(
                "{url} does not contain the photos in the database: are bucket and prefix right, and the photos copied? To begin \
                 with an empty one, store an object {CHECK_OBJECT} below the prefix"
            );
            Err(StoreError::new(StoreErrorKind::Invalid, what))
        }
        Err(error) => {
            let error = error.to_string_with_causes();
            tracing::warn!(error, "cannot look whether the bucket has photos, and uses it");
            Ok(())
        }
    }
}

/// Checks a storage URL without opening anything.
///
/// # Errors
/// `Invalid` for a URL of an unknown kind; the message says what is wrong with it.
pub fn check_url(url: &str) -> Result<()> {
    match BucketLocation::parse(url)? {
        Some(_) => Ok(()),
        None => local::parse_folder_url(url).map(drop),
    }
}
