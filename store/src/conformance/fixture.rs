//! An album with its owner, and short calls that bring photos into each state.

use std::time::Duration;

use uuid::Uuid;

use crate::model::album::{AlbumConfig, DEFAULT_BIB_PATTERN, NewAlbum, Recognition, RecognitionMode, Tenant};
use crate::model::gallery::{Gallery, GalleryChange, GalleryLink, GallerySettings};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::key::{Key, KeyMode, NewKey, Scope};
use crate::model::photo::{
    BoundingBox, DetectedFace, DetectedText, Embedding, NewPhoto, PhotoQuery, PhotoSize, PhotoState,
    StateCounts, TextIndexState,
};
use crate::model::rate::RateLimits;
use crate::store::Store;
use crate::traits::{Lease, LeaseKind, LeaseRequest, PhotoResults, PictureSizes};

/// The duration of leases that must not expire during a test.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// An album with an organization and a key of its own.
pub struct AlbumFixture {
    /// The store that contains it.
    pub store: Store,
    /// Its owner.
    pub tenant: Tenant,
    /// The owner's key.
    pub key: Key,
    /// The album.
    pub album: AlbumId,
}

impl AlbumFixture {
    /// Creates the organization, the key and the album.
    pub async fn create(store: &Store) -> Self {
        let key = create_key(store, &format!("organization {}", Uuid::now_v7())).await;
        Self::create_with_key(store, key, album_config()).await
    }

    /// Creates another album of the same organization.
    pub async fn create_album(&self, config: AlbumConfig) -> Self {
        Self::create_with_key(&self.store, self.key.clone(), config).await
    }

    async fn create_with_key(store: &Store, key: Key, config: AlbumConfig) -> Self {
        let album = NewAlbum {
            tenant: key.tenant,
            created_by: key.id,
            title: "Night run".into(),
            cover_url: None,
            tags: vec!["night".into(), "5 km".into()],
            config,
        };
        let album = store.albums.create(album).await.expect("creates an album").id;
        Self { store: store.clone(), tenant: key.tenant, key, album }
    }

    /// Opens the gallery of the album, for the first time.
    pub async fn open_gallery(&self) -> Gallery {
        let link = GalleryLink { text: self.album.to_string(), digest: random_digest() };
        let (album, settings) = (self.album, GallerySettings::default());
        let change = GalleryChange { album, enabled: true, link, settings, expires_at: None, replaces: None };
        self.store.galleries.save(change).await.expect("opens a gallery")
    }

    /// Creates photos that wait for their upload.
    pub async fn create_photos(&self, count: usize) -> Vec<PhotoId> {
        let photos = (0..count)
            .map(|i| NewPhoto { filename: format!("{i}.jpg"), content_type: "image/jpeg".into() })
            .collect();
        self.store.photos.create(self.album, photos).await.expect("creates photos")
    }

    /// Creates and confirms photos.
    pub async fn queue_photos(&self, count: usize) -> Vec<PhotoId> {
        let photos = self.create_photos(count).await;
        let confirmed = self.store.queue.confirm(self.album, &photos).await.expect("confirms photos");
        assert_eq!(confirmed, photos);
        photos
    }

    /// Leases fresh photos, of any album.
    pub async fn lease_fresh(&self, limit: usize, ttl: Duration) -> Vec<Lease> {
        let request = LeaseRequest { limit, ttl, kind: LeaseKind::Fresh };
        self.store.queue.lease(request).await.expect("leases photos")
    }

    /// Leases a crash suspect of any album, if there is one.
    pub async fn lease_suspect(&self, ttl: Duration) -> Option<Lease> {
        let request = LeaseRequest { limit: 10, ttl, kind: LeaseKind::CrashSuspect };
        let mut leases = self.store.queue.lease(request).await.expect("leases a suspect");
        assert!(leases.len() <= 1, "suspects are leased alone");
        leases.pop()
    }

    /// Creates, confirms and finishes a photo with these detections. No other photo may be waiting.
    pub async fn add_ready_photo(&self, faces: Vec<DetectedFace>, texts: Vec<DetectedText>) -> PhotoId {
        let photo = self.queue_photos(1).await[0];
        self.process_next_photo(faces, texts).await;
        photo
    }

    /// Leases the next photo and finishes it with these detections.
    pub async fn process_next_photo(&self, faces: Vec<DetectedFace>, texts: Vec<DetectedText>) {
        let lease = self.lease_fresh(1, LONG).await.pop().expect("a photo waits");
        let photos = vec![PhotoResults { faces, texts, ..empty_results(&lease) }];
        let answers = self.store.queue.finish(photos).await.expect("finishes a photo");
        assert_eq!(answers, [crate::traits::FinishOutcome::Done]);
    }

    /// Counts the photos by state the long way, page by page, and checks that the store gives the same counts.
    pub async fn check_counts(&self) -> StateCounts {
        let photos = &self.store.photos;
        let mut counted = StateCounts::default();
        let mut query = PhotoQuery { after: None, limit: 1000, state: None };
        loop {
            let page = photos.list(self.album, query.clone()).await.expect("lists photos");
            for photo in &page.photos {
                *counted.get_mut(photo.state) += 1;
            }
            query.after = page.next;
            if query.after.is_none() {
                assert_eq!(page.total, counted.total());
                break;
            }
        }
        assert_eq!(photos.count_by_state(self.album).await.expect("counts"), counted);
        for state in PhotoState::ALL {
            let of_state = PhotoQuery { after: None, limit: 1, state: Some(state) };
            let page = photos.list(self.album, of_state).await.expect("lists photos");
            assert_eq!(page.total, counted.get(state), "{state:?}");
        }
        counted
    }

    /// Deletes the album, so that its photos are no longer in the queue.
    pub async fn delete(self) {
        self.store.albums.delete(&self.tenant, self.album).await.expect("deletes the album");
    }
}

/// Creates a key of the organization of this name.
pub(super) async fn create_key(store: &Store, organization: &str) -> Key {
    let organization =
        store.keys.get_or_create_organization(organization).await.expect("creates an organization");
    let key = NewKey {
        organization,
        mode: KeyMode::Live,
        label: "suite".into(),
        hint: "svc_live_abcd".into(),
        scopes: Scope::ALL.to_vec(),
        limits: RateLimits::default(),
        expires_at: None,
        digest: random_digest(),
    };
    store.keys.create(key).await.expect("stores a key")
}

/// A digest that no other key has.
pub(super) fn random_digest() -> [u8; 32] {
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(a.as_bytes());
    digest[16..].copy_from_slice(b.as_bytes());
    digest
}

/// How a test's album is processed.
pub fn album_config() -> AlbumConfig {
    let recognition = Recognition {
        enabled: true,
        confidence_threshold: 50.0,
        threshold_chosen: Some(false),
        mode: RecognitionMode::Photo,
        grid: None,
    };
    AlbumConfig {
        face: recognition.clone(),
        text: recognition,
        preview_max_dimension: 2048,
        preview_watermarked: false,
        thumbnail_max_dimension: 512,
        former_thumbnail_max_dimension: None,
        bib_pattern: DEFAULT_BIB_PATTERN.into(),
        start_list: Default::default(),
        bib_format: Default::default(),
        retention: Default::default(),
        rest: Default::default(),
    }
}

/// Results of a photo without detections.
pub(super) fn empty_results(lease: &Lease) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: Some(
            time::OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(1_754_000_000_123_456),
        ),
        camera: Some("Canon EOS R5".into()),
        watermark_version: lease.watermark_version,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
        faces: Vec::new(),
        texts: Vec::new(),
    }
}

/// The box of the `i`th detection of a photo.
pub(super) fn bounding_box(i: usize) -> BoundingBox {
    BoundingBox { top: 0.125, left: 0.01 * i as f64, width: 0.0625, height: 0.25 }
}

/// A searchable face with this embedding, scaled to unit length.
pub fn face(vector: [f32; 4]) -> DetectedFace {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    let vector = vector.iter().map(|value| value / length).collect();
    DetectedFace {
        bounding_box: bounding_box(1),
        confidence: 0.875,
        unindexed: None,
        embedding: Some(Embedding { model: "suite@1".into(), vector }),
    }
}

/// A searchable bib.
pub fn text(text: &str, confidence: f64) -> DetectedText {
    DetectedText {
        text: text.into(),
        bounding_box: bounding_box(2),
        confidence,
        max_confidence: 1.0,
        index_state: TextIndexState::Indexed,
        read: None,
        lattice: None,
    }
}
