//! ZIP files of photos, made while they are sent: nothing of them is stored.

mod archive;
mod names;
mod pace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use photofinish_store::StoreError;
use photofinish_store::model::account::TokenDigest;
use photofinish_store::model::download::{Download, DownloadFile};
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::photo::Photo;
use photofinish_store::traits::Blobs;
use sha2::{Digest, Sha256};

pub(crate) use self::archive::{plan, send};
pub(crate) use self::names::{archive_name, file_name};
pub(crate) use self::pace::{ReadPace, send_in_time};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// The path under which downloads are.
pub(crate) const DOWNLOADS_PREFIX: &str = "/downloads/";

/// For how long a ticket can be used.
pub(crate) const TICKET_TTL: Duration = Duration::from_mins(15);
/// Base-62 digits of 256 bits.
pub(crate) const TICKET_LENGTH: usize = 43;
/// How many objects are asked for their size at once.
const CONCURRENT_HEADS: usize = 32;

/// Files that a process sends at once: each has some photos in memory.
const MAX_DOWNLOADS: usize = 4;
/// How many of them the clients of one network may have: somebody who reads slowly keeps no other network from downloading.
const MAX_OF_NETWORK: usize = 2;
/// How many of them may be of one organization: those who read its photos slowly, from several networks, leave a place to others.
const MAX_OF_ORGANIZATION: usize = MAX_DOWNLOADS - 1;
/// When one may have ended.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The places of downloads in progress. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct DownloadPlaces(Arc<Mutex<Vec<PlaceOwner>>>);

/// Whose a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlaceOwner {
    /// The digest of the client's network.
    network: [u8; 32],
    /// Whose photos are downloaded.
    organization: OrganizationId,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct DownloadPlace {
    places: DownloadPlaces,
    owner: PlaceOwner,
}

impl DownloadPlaces {
    /// Takes a place for a client of a network, and photos of an organization.
    ///
    /// # Errors
    /// 503 when all are taken, or as many as one network or one organization may have.
    pub(crate) fn take_place(
        &self,
        network: [u8; 32],
        organization: OrganizationId,
    ) -> Result<DownloadPlace, ApiError> {
        let owner = PlaceOwner { network, organization };
        let mut taken = self.taken();
        let of_network = taken.iter().filter(|place| place.network == network).count();
        let of_organization = taken.iter().filter(|place| place.organization == organization).count();
        if taken.len() >= MAX_DOWNLOADS
            || of_network >= MAX_OF_NETWORK
            || of_organization >= MAX_OF_ORGANIZATION
        {
            return Err(ApiError::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(RETRY_AFTER)));
        }
        taken.push(owner);
        drop(taken);
        Ok(DownloadPlace { places: self.clone(), owner })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<PlaceOwner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DownloadPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(index) = taken.iter().position(|place| *place == self.owner) {
            taken.swap_remove(index);
        }
    }
}

/// Returns the digest by which the store finds a ticket.
pub(crate) fn ticket_digest(ticket: &str) -> TokenDigest {
    Sha256::digest(ticket.as_bytes()).into()
}

/// Returns those photos that have the file, in the order of the ids.
pub(crate) async fn select_files(
    ctx: &Context,
    album: AlbumId,
    ids: &[PhotoId],
    file: DownloadFile,
) -> Result<Vec<Photo>, ApiError> {
    let mut photos = ctx.store.photos.get_many(album, ids).await?;
    photos.retain(|photo| photo.has_pictures() && (file != DownloadFile::Marked || photo.is_marked));
    // An id that is repeated has its first place.
    let places: HashMap<PhotoId, usize> =
        ids.iter().enumerate().rev().map(|(place, id)| (*id, place)).collect();
    photos.sort_by_key(|photo| places.get(&photo.id).copied());
    Ok(photos)
}

/// Returns the sizes of objects, in order; `None` for one that is not there.
pub(crate) async fn load_sizes(
    blobs: &Arc<dyn Blobs>,
    keys: Vec<ObjectKey>,
) -> Result<Vec<Option<u64>>, StoreError> {
    let sizes = stream::iter(keys).map(|key| {
        let blobs = Arc::clone(blobs);
        async move { blobs.head(&key).await }
    });
    sizes.buffered(CONCURRENT_HEADS).try_collect().await
}

/// Returns the photos of a download that are still there.
pub(crate) async fn select_photos(ctx: &Context, download: &Download) -> Result<Vec<Photo>, ApiError> {
    select_files(ctx, download.album, &download.photos, download.file).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_does_not_take_all_places() {
        let places = DownloadPlaces::default();
        let take = |network: u8| places.take_place([network; 32], OrganizationId::generate());
        let (first, second) = (take(1).unwrap(), take(1).unwrap());
        assert!(take(1).is_err());
        let others = [take(2).unwrap(), take(3).unwrap()];
        assert!(take(4).is_err(), "all are taken");
        drop(first);
        let again = take(1).unwrap();
        drop((second, others, again));
        assert!(places.taken().is_empty());
    }
}
