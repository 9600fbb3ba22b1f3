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
    /// Held while one is loaded: the photos of an album come together, and decoding takes up to 64 MB.
    loading: Mutex<()>,
}

impl WatermarkCache {
    pub(crate) fn new(watermarks: Arc<dyn Watermarks>) -> Self {
        Self { watermarks, known: Mutex::default(), loading: Mutex::default() }
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
        let _loading = lock(&self.loading);
        // Another thread may have loaded it meanwhile.
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

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use image::{ImageFormat, Rgba, RgbaImage};
    use photofinish_store::model::ids::{OrganizationId, PhotoId};
    use photofinish_store::model::watermark::{
        AlbumToMark, MarkedPhoto, Watermark, WatermarkChange, WatermarkPlacement,
    };
    use photofinish_store::traits::Result;

    use super::*;
    use crate::engine::store_client::KillSwitch;
    use crate::testing::lease_of;

    /// One watermark for every album, which takes a while to load.
    struct SlowWatermarks {
        picture: Vec<u8>,
        loads: AtomicUsize,
    }

    #[async_trait]
    impl Watermarks for SlowWatermarks {
        async fn get(&self, _: AlbumId) -> Result<Option<Watermark>> {
            self.loads.fetch_add(1, Ordering::AcqRel);
            tokio::time::sleep(Duration::from_millis(100)).await;
            let (picture, placement) = (self.picture.clone().into(), WatermarkPlacement::default());
            Ok(Some(Watermark { version: 1, picture, placement }))
        }

        async fn set(&self, _: AlbumId, _: WatermarkChange) -> Result<Watermark> {
            unreachable!("photos only read watermarks")
        }

        async fn remove(&self, _: AlbumId) -> Result<()> {
            unreachable!("photos only read watermarks")
        }

        async fn count_unmarked(&self, _: AlbumId, _: i64) -> Result<u64> {
            unreachable!("photos only read watermarks")
        }

        async fn find_marked(&self, _: AlbumId) -> Result<Option<PhotoId>> {
            unreachable!("photos only read watermarks")
        }

        async fn list_albums_to_mark(&self) -> Result<Vec<AlbumToMark>> {
            unreachable!("photos only read watermarks")
        }

        async fn list_unmarked(
            &self,
            _: AlbumId,
            _: i64,
            _: Option<PhotoId>,
            _: u32,
        ) -> Result<Vec<PhotoId>> {
            unreachable!("photos only read watermarks")
        }

        async fn note_marked(&self, _: AlbumId, _: &[MarkedPhoto], _: i64) -> Result<()> {
            unreachable!("photos only read watermarks")
        }

        async fn note_all_marked(&self, _: AlbumToMark) -> Result<()> {
            unreachable!("photos only read watermarks")
        }
    }

    #[test]
    fn photos_that_come_together_load_the_watermark_of_their_album_once() {
        let mut picture = Cursor::new(Vec::new());
        RgbaImage::from_pixel(4, 2, Rgba([9; 4])).write_to(&mut picture, ImageFormat::Png).unwrap();
        let slow = Arc::new(SlowWatermarks { picture: picture.into_inner(), loads: AtomicUsize::new(0) });
        let cache = WatermarkCache::new(Arc::clone(&slow) as Arc<dyn Watermarks>);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() };
        let lease = Lease { watermark_version: 1, ..lease_of(OrganizationId::generate()) };
        std::thread::scope(|scope| {
            for number in 0..4 {
                let named = std::thread::Builder::new().name(format!("test-{number}"));
                let loaded = named.spawn_scoped(scope, || cache.get(&client, &lease).unwrap().is_some());
                drop(loaded.unwrap());
            }
        });
        assert!(cache.get(&client, &lease).unwrap().is_some());
        assert_eq!(slow.loads.load(Ordering::Acquire), 1);
    }
}
