//! The watermarks of the albums whose photos are processed, decoded once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use photofinish_store::BoundedCache;
use photofinish_store::model::ids::AlbumId;
use photofinish_store::traits::{Lease, Watermarks};

use crate::engine::fault::{Component, Outage};
use crate::engine::store_client::StoreClient;
use crate::engine::sync::lock;
use crate::image::watermark::WatermarkPicture;

/// Memory of the watermarks that are kept, bytes: decoded, and scaled for the previews that they were drawn on. Albums take turns,
/// so that those of all that are in use should fit. One has 16 MB at most, and as much again of what is scaled of it; most have
/// less than one.
const KEPT_BYTES: usize = 128 << 20;

/// What a watermark takes beside its pixels, bytes: many small ones are bounded too.
const ENTRY_BYTES: usize = 1 << 10;

/// The watermarks of some albums; shared by the threads of a stage.
pub(crate) struct WatermarkCache {
    watermarks: Arc<dyn Watermarks>,
    known: Mutex<BoundedCache<AlbumId, Arc<WatermarkPicture>>>,
    /// Of each album whose watermark is loaded, what is held meanwhile: its other photos wait for it, those of other albums do not.
    loading: Mutex<HashMap<AlbumId, Arc<Mutex<()>>>>,
    /// Held while one is decoded, which takes up to 64 MB.
    decoding: Mutex<()>,
}

impl WatermarkCache {
    pub(crate) fn new(watermarks: Arc<dyn Watermarks>) -> Self {
        Self { watermarks, known: Mutex::default(), loading: Mutex::default(), decoding: Mutex::default() }
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
        if let Some(picture) = self.find(lease) {
            return Ok(Some(picture));
        }
        let turn = Arc::clone(lock(&self.loading).entry(lease.album).or_default());
        let loading = lock(&turn);
        // Another thread may have loaded it meanwhile.
        let loaded = match self.find(lease) {
            Some(picture) => Ok(Some(picture)),
            None => self.load(store_client, lease),
        };
        drop(loading);
        self.end_turn(lease.album, turn);
        loaded
    }

    /// Returns the watermark, if it is known in the lease's version or a newer one.
    fn find(&self, lease: &Lease) -> Option<Arc<WatermarkPicture>> {
        let mut known = lock(&self.known);
        let picture = Arc::clone(known.get(lease.album)?);
        // It may have become larger since it was loaded.
        make_room(&mut known);
        (picture.version() >= lease.watermark_version).then_some(picture)
    }

    fn load(
        &self,
        store_client: &StoreClient,
        lease: &Lease,
    ) -> Result<Option<Arc<WatermarkPicture>>, Outage> {
        let loaded = store_client
            .call_cancellable(Component::Database, self.watermarks.get(lease.album))?
            .map_err(|error| Outage::from_store_error(Component::Database, error))?;
        let Some(watermark) = loaded else { return Ok(None) };
        let decoding = lock(&self.decoding);
        let decoded = WatermarkPicture::open(&watermark);
        drop(decoding);
        let picture = match decoded {
            Ok(picture) => Arc::new(picture),
            Err(error) => {
                // It was decoded when it was set.
                tracing::error!(album.id = %lease.album, %error, "cannot decode a watermark");
                return Ok(None);
            }
        };
        let mut known = lock(&self.known);
        known.insert(lease.album, Arc::clone(&picture));
        make_room(&mut known);
        Ok(Some(picture))
    }

    /// Forgets what is held while the watermark of an album is loaded, unless others wait for it.
    fn end_turn(&self, album: AlbumId, turn: Arc<Mutex<()>>) {
        let mut loading = lock(&self.loading);
        drop(turn);
        // Who waits has another copy, and copies are made under this lock.
        if loading.get(&album).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            loading.remove(&album);
        }
    }
}

fn make_room(known: &mut BoundedCache<AlbumId, Arc<WatermarkPicture>>) {
    known.shrink_to(KEPT_BYTES, |picture| picture.size_bytes() + ENTRY_BYTES);
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
    use tokio::runtime::Runtime;

    use super::*;
    use crate::engine::store_client::KillSwitch;
    use crate::testing::lease_of;

    /// One small watermark for every album, which takes this long to load.
    struct SlowWatermarks {
        picture: Vec<u8>,
        delay: Duration,
        loads: AtomicUsize,
    }

    impl SlowWatermarks {
        fn new(delay: Duration) -> Arc<Self> {
            Self::of_size(4, 2, delay)
        }

        fn of_size(width: u32, height: u32, delay: Duration) -> Arc<Self> {
            let mut picture = Cursor::new(Vec::new());
            let pixels = RgbaImage::from_pixel(width, height, Rgba([9; 4]));
            pixels.write_to(&mut picture, ImageFormat::Png).unwrap();
            Arc::new(Self { picture: picture.into_inner(), delay, loads: AtomicUsize::new(0) })
        }
    }

    #[async_trait]
    impl Watermarks for SlowWatermarks {
        async fn get(&self, _: AlbumId) -> Result<Option<Watermark>> {
            self.loads.fetch_add(1, Ordering::AcqRel);
            tokio::time::sleep(self.delay).await;
            let (picture, placement) = (self.picture.clone().into(), WatermarkPlacement::default());
            Ok(Some(Watermark { version: 1, picture, placement }))
        }

        async fn version(&self, _: AlbumId) -> Result<i64> {
            unreachable!("photos read the whole watermark")
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

    fn store_client() -> (Runtime, StoreClient) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() };
        (runtime, client)
    }

    fn marked_lease() -> Lease {
        Lease { watermark_version: 1, ..lease_of(OrganizationId::generate()) }
    }

    #[test]
    fn photos_that_come_together_load_the_watermark_of_their_album_once() {
        let slow = SlowWatermarks::new(Duration::from_millis(100));
        let cache = WatermarkCache::new(Arc::clone(&slow) as Arc<dyn Watermarks>);
        let (_runtime, client) = store_client();
        let lease = marked_lease();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let named = std::thread::Builder::new().name(format!("test-{number}"));
                let loaded = named.spawn_scoped(scope, || cache.get(&client, &lease).unwrap().is_some());
                drop(loaded.unwrap());
            }
        });
        assert!(cache.get(&client, &lease).unwrap().is_some());
        assert_eq!(slow.loads.load(Ordering::Acquire), 1);
        assert!(lock(&cache.loading).is_empty());
    }

    /// Asserts that so many albums load their watermarks once when they take turns.
    fn assert_loaded_once(watermarks: &Arc<SlowWatermarks>, albums: usize) {
        let cache = WatermarkCache::new(Arc::clone(watermarks) as Arc<dyn Watermarks>);
        let (_runtime, client) = store_client();
        let leases: Vec<Lease> = (0..albums).map(|_| marked_lease()).collect();
        for _ in 0..3 {
            for lease in &leases {
                assert!(cache.get(&client, lease).unwrap().is_some());
            }
        }
        assert_eq!(watermarks.loads.load(Ordering::Acquire), albums);
    }

    #[test]
    fn albums_that_take_turns_load_their_watermarks_once() {
        assert_loaded_once(&SlowWatermarks::new(Duration::ZERO), 16);
    }

    #[test]
    fn albums_with_large_watermarks_take_turns_too() {
        // 16 MB each.
        assert_loaded_once(&SlowWatermarks::of_size(2000, 2000, Duration::ZERO), 8);
    }
}
