//! The watermarks of the albums whose photos are processed, decoded once.

use std::sync::{Arc, Mutex};

use photofinish_store::model::ids::AlbumId;
use photofinish_store::traits::{Lease, Watermarks};

use crate::engine::fault::{Component, Outage};
use crate::engine::store_client::StoreClient;
use crate::engine::sync::lock;
use crate::image::watermark::WatermarkPicture;

/// Albums whose watermark is kept. One has 16 MB at most, most have less than one.
const KEPT: usize = 8;

/// The watermarks of some albums; shared by the threads of a stage.
pub(crate) struct WatermarkCache {
    watermarks: Arc<dyn Watermarks>,
    /// The latest loaded last.
    known: Mutex<Vec<(AlbumId, Arc<WatermarkPicture>)>>,
}

impl WatermarkCache {
    pub(crate) fn new(watermarks: Arc<dyn Watermarks>) -> Self {
        Self { watermarks, known: Mutex::default() }
    }

    /// Returns the watermark that is drawn on a photo: the lease's version, or a newer one.
    pub(crate) fn get(
        &self,
        store_client: &StoreClient,
        lease: &Lease,
    ) -> Result<Option<Arc<WatermarkPicture>>, Outage> {
        if lease.watermark_version == 0 {
            return Ok(None);
        }
        let find = |known: &[(AlbumId, Arc<WatermarkPicture>)]| {
            let mut known = known.iter().filter(|(album, _)| *album == lease.album);
            let (_, picture) = known.find(|(_, picture)| picture.version() >= lease.watermark_version)?;
            Some(Arc::clone(picture))
        };
        if let Some(picture) = find(&lock(&self.known)) {
            return Ok(Some(picture));
        }
        let loaded = store_client
            .call_cancellable(Component::Database, self.watermarks.get(lease.album))?
            .map_err(|error| Outage::from_store_error(Component::Database, error))?;
        let Some(watermark) = loaded else { return Ok(None) };
        let picture = match WatermarkPicture::open(&watermark) {
            Ok(picture) => Arc::new(picture),
            Err(error) => {
                // It was decoded when it was set.
                tracing::error!(album.id = %lease.album, %error, "cannot decode a watermark");
                return Ok(None);
            }
        };
        let mut known = lock(&self.known);
        known.retain(|(album, _)| *album != lease.album);
        if known.len() >= KEPT {
            known.remove(0);
        }
        known.push((lease.album, Arc::clone(&picture)));
        Ok(Some(picture))
    }
}
