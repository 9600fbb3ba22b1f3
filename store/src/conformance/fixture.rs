//! An album with its owner, and the short ways to bring photos into each state.

use std::time::Duration;

use uuid::Uuid;

use crate::Store;
use crate::model::album::{AlbumConfig, DEFAULT_BIB_PATTERN, NewAlbum, Recognition, RecognitionMode, Tenant};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::key::{Key, KeyMode, NewKey, Scope};
use crate::model::photo::{
    BoundingBox, DetectedFace, DetectedText, Embedding, NewPhoto, PhotoSize, TextIndexState,
};
use crate::traits::{Lease, LeaseRequest, PhotoResults};

/// A lease that no test outlives.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// An organization of its own, a key and an album.
pub struct Event {
    /// Where it is.
    pub store: Store,
    /// Its owner.
    pub tenant: Tenant,
    /// The owner's key.
    pub key: Key,
    /// The album.
    pub album: AlbumId,
}

impl Event {
    /// Makes one.
    pub async fn make(store: &Store) -> Self {
        let key = make_key(store, &format!("organization {}", Uuid::now_v7())).await;
        let album = NewAlbum {
            tenant: key.tenant,
            created_by: key.id,
            title: "Night run".into(),
            cover_url: None,
            tags: vec!["night".into(), "5 km".into()],
            config: config(),
        };
        let album = store.albums.create(album).await.expect("makes an album").id;
        Self { store: store.clone(), tenant: key.tenant, key, album }
    }

    /// Photos that wait for their upload.
    pub async fn expected(&self, count: usize) -> Vec<PhotoId> {
        let photos = (0..count)
            .map(|i| NewPhoto { filename: format!("{i}.jpg"), content_type: "image/jpeg".into() })
            .collect();
        self.store.photos.create(self.album, photos).await.expect("expects photos")
    }

    /// Photos in the queue.
    pub async fn queued(&self, count: usize) -> Vec<PhotoId> {
        let photos = self.expected(count).await;
        let confirmed = self.store.queue.confirm(self.album, &photos).await.expect("confirms photos");
        assert_eq!(confirmed, photos);
        photos
    }

    /// Leases of fresh photos.
    pub async fn leased(&self, limit: usize, ttl: Duration) -> Vec<Lease> {
        let request = LeaseRequest { limit, ttl, suspects: false };
        self.store.queue.lease(request).await.expect("leases photos")
    }

    /// The lease of a suspect, if there is one.
    pub async fn leased_suspect(&self, ttl: Duration) -> Option<Lease> {
        let request = LeaseRequest { limit: 10, ttl, suspects: true };
        let mut leases = self.store.queue.lease(request).await.expect("leases a suspect");
        assert!(leases.len() <= 1, "suspects are leased alone");
        leases.pop()
    }

    /// A photo in which this was seen.
    pub async fn ready(&self, faces: Vec<DetectedFace>, texts: Vec<DetectedText>) -> PhotoId {
        let photo = self.queued(1).await[0];
        self.read(faces, texts).await;
        photo
    }

    /// Leases the next photo and finishes it with what was seen.
    pub async fn read(&self, faces: Vec<DetectedFace>, texts: Vec<DetectedText>) {
        let lease = self.leased(1, LONG).await.pop().expect("a photo waits");
        let photos = vec![PhotoResults { faces, texts, ..finished(&lease) }];
        let answers = self.store.queue.finish(photos).await.expect("finishes a photo");
        assert_eq!(answers, [crate::traits::Finish::Done]);
    }

    /// Takes the album and all that is in it away, so that its photos are no longer in the queue.
    pub async fn end(self) {
        self.store.albums.delete(&self.tenant, self.album).await.expect("deletes the album");
    }
}

/// A key of an organization of that name.
pub(super) async fn make_key(store: &Store, organization: &str) -> Key {
    let organization =
        store.keys.get_or_create_organization(organization).await.expect("makes an organization");
    let key = NewKey {
        organization,
        mode: KeyMode::Live,
        label: "suite".into(),
        hint: "svc_live_abcd".into(),
        scopes: Scope::ALL.to_vec(),
        expires_at: None,
        digest: random_digest(),
    };
    store.keys.create(key).await.expect("keeps a key")
}

/// One that no other key has.
pub(super) fn random_digest() -> [u8; 32] {
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(a.as_bytes());
    digest[16..].copy_from_slice(b.as_bytes());
    digest
}

pub(super) fn config() -> AlbumConfig {
    let recognition =
        Recognition { enabled: true, confidence_threshold: 50.0, mode: RecognitionMode::Photo, grid: None };
    AlbumConfig {
        face: recognition.clone(),
        text: recognition,
        preview_max_dimension: 2048,
        thumbnail_max_dimension: 512,
        bib_pattern: DEFAULT_BIB_PATTERN.into(),
    }
}

/// A photo read under this lease, nothing seen in it.
pub(super) fn finished(lease: &Lease) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: Some(
            time::OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(1_754_000_000_123_456),
        ),
        camera: Some("Canon EOS R5".into()),
        faces: Vec::new(),
        texts: Vec::new(),
    }
}

/// Where the `i`th thing of a photo is.
pub(super) fn bounding_box(i: usize) -> BoundingBox {
    BoundingBox { top: 0.125, left: 0.01 * i as f64, width: 0.0625, height: 0.25 }
}

/// A searchable face with this vector, scaled to unit length.
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

/// A bib that can be searched.
pub fn text(text: &str, confidence: f64) -> DetectedText {
    DetectedText {
        text: text.into(),
        bounding_box: bounding_box(2),
        confidence,
        index_state: TextIndexState::Indexed,
    }
}
