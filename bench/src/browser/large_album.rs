//! An album of very many ready photos, put into the database directly: what is measured is how it is shown. All have the same
//! thumbnail.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use photofinish_store::conformance::test_settings;
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::photo::{NewPhoto, PhotoSize};
use photofinish_store::traits::{LeaseKind, LeaseRequest, PhotoResults};
use photofinish_store::{Store, StoreSettings};
use time::OffsetDateTime;

use crate::store::queue::finish_with_faces;
use crate::store::setup::PHOTOS_PER_CALL;

/// Photos of one transaction.
const BATCH: usize = 64;
/// Sizes of photos; they cycle through the list, as cameras are turned.
const SIZES: [(u32, u32); 5] = [(6000, 4000), (6000, 4000), (4000, 6000), (6000, 4000), (4000, 5000)];

/// Fills an album of a service that is not running. `album_id` names it, `folder` is the album's folder in the storage, and
/// `thumbnail` a file that all photos share.
///
/// # Errors
/// When the database or a file cannot be written.
pub async fn fill(data: &Path, album: &AlbumPlace, photos: usize) -> anyhow::Result<()> {
    let settings = StoreSettings {
        database_url: format!("sqlite:{}", data.join("photofinish.sqlite").display()),
        ..test_settings(data)
    };
    let store = Store::open(settings).await?;
    let id = album.id.parse::<AlbumId>().ok().context("the id of an album")?;
    for first in (0..photos).step_by(PHOTOS_PER_CALL) {
        let count = PHOTOS_PER_CALL.min(photos - first);
        let new_photo =
            |number| NewPhoto { filename: format!("IMG_{number:05}.jpg"), content_type: "image/jpeg".into() };
        let created = store.photos.create(id, (first..first + count).map(new_photo).collect()).await?;
        store.queue.confirm(id, &created).await?;
        for photo in &created {
            let folder = album.folder.join("p").join(photo.to_string());
            std::fs::create_dir_all(&folder)?;
            // A name more for the same bytes: 50,000 copies would fill the disk.
            std::fs::hard_link(&album.thumbnail, folder.join("thumbnail.jpg"))?;
        }
        finish(&store, first, count).await?;
    }
    store.close().await;
    Ok(())
}

/// Where an album is.
pub struct AlbumPlace {
    /// Its id.
    pub id: String,
    /// Its folder in the storage.
    pub folder: PathBuf,
    /// The thumbnail that all its photos share, on the same file system.
    pub thumbnail: PathBuf,
}

/// Makes photos that wait ready; the first of them is the `first` of the album.
async fn finish(store: &Store, first: usize, count: usize) -> anyhow::Result<()> {
    let request = LeaseRequest { limit: BATCH, ttl: Duration::from_secs(600), kind: LeaseKind::Fresh };
    let mut done = 0;
    while done < count {
        let leases = store.queue.lease(request).await?;
        anyhow::ensure!(!leases.is_empty(), "{} photos are not in the queue", count - done);
        let results: Vec<PhotoResults> = (first + done..)
            .zip(&leases)
            .map(|(number, lease)| {
                let (width, height) = SIZES[number % SIZES.len()];
                let taken =
                    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_778_990_400 + number as u64 / 4);
                PhotoResults {
                    size: PhotoSize { width, height },
                    taken_at: Some(taken),
                    ..finish_with_faces(lease, Vec::new())
                }
            })
            .collect();
        done += leases.len();
        store.queue.finish(results).await?;
    }
    Ok(())
}
