//! Garbage collection: removes exactly the objects that no database row needs.

use std::time::Duration;

use bytes::Bytes;

use crate::blobs::gc::{GcOptions, GcReport};
use crate::conformance::fixture::{AlbumFixture, LONG, face};
use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId, WatermarkUploadId};
use crate::model::object_key::{ObjectKey, ObjectRole};
use crate::model::photo::FailureReason;
use crate::store::Store;

const ROLES: [ObjectRole; 4] = ObjectRole::ALL;

const BYTES: &[u8] = b"twelve bytes";

/// Objects, and whether garbage collection must keep them.
struct Objects<'s> {
    store: &'s Store,
    keys: Vec<(ObjectKey, bool)>,
}

impl Objects<'_> {
    async fn add(&mut self, key: ObjectKey, stays: bool) {
        self.store.blobs.write(&key, "image/jpeg", Bytes::from_static(BYTES)).await.expect("writes");
        self.keys.push((key, stays));
    }

    /// Writes the original and the pictures of a photo.
    async fn add_photo(&mut self, fixture: &AlbumFixture, photo: PhotoId, stay: [bool; 4]) {
        for (role, stays) in ROLES.into_iter().zip(stay) {
            let key = ObjectKey::photo(fixture.tenant.organization, fixture.album, photo, role);
            self.add(key, stays).await;
        }
    }

    async fn add_probe(&mut self, fixture: &AlbumFixture, probe: ProbeId, stays: bool) {
        self.add(ObjectKey::probe(fixture.tenant.organization, fixture.album, probe), stays).await;
    }

    /// Counts the objects that must be removed.
    fn count_orphans(&self) -> u64 {
        self.keys.iter().filter(|(_, stays)| !stays).count() as u64
    }

    async fn assert_present(&self, expected: impl Fn(bool) -> bool) {
        for (key, stays) in &self.keys {
            let found = self.store.blobs.head(key).await.expect("reads").is_some();
            assert_eq!(found, expected(*stays), "{key}");
        }
    }
}

async fn collect_garbage(store: &Store, older_than: Duration, is_dry: bool) -> GcReport {
    store
        .collect_garbage(GcOptions { min_age: older_than, is_dry_run: is_dry })
        .await
        .expect("collects garbage")
}

/// Checks the garbage collection of a storage.
pub async fn gc_suite(store: &Store) {
    // Removes what earlier tests left.
    let before = collect_garbage(store, Duration::ZERO, false).await;
    let mut objects = Objects { store, keys: Vec::new() };
    let fixture = AlbumFixture::create(store).await;
    add_photos_of_every_kind(&mut objects, &fixture).await;
    add_unrecognised_objects(&mut objects, &fixture).await;
    // An album whose rows are deleted and whose objects are not.
    let deleted = AlbumFixture::create(store).await;
    let photo = deleted.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], Vec::new()).await;
    objects.add_photo(&deleted, photo, [false; 4]).await;
    let probe = deleted.store.probes.create(deleted.album, LONG).await.expect("creates a selfie").id;
    objects.add_probe(&deleted, probe, false).await;
    deleted.delete().await;

    let nothing_young = collect_garbage(store, LONG, false).await;
    assert_eq!((nothing_young.removed, nothing_young.removed_bytes), (0, 0));
    let dry = collect_garbage(store, Duration::ZERO, true).await;
    objects.assert_present(|_| true).await;
    let swept = collect_garbage(store, Duration::ZERO, false).await;
    assert_eq!(swept, dry, "a dry sweep says what goes");
    objects.assert_present(|stays| stays).await;
    assert_eq!(
        (swept.removed, swept.removed_bytes),
        (objects.count_orphans(), objects.count_orphans() * BYTES.len() as u64)
    );
    assert_eq!(swept.unrecognised, before.unrecognised + 3);
    assert_eq!(swept.listed, before.listed - before.removed + objects.keys.len() as u64);
    let again = collect_garbage(store, Duration::ZERO, false).await;
    assert_eq!((again.removed, again.listed), (0, swept.listed - swept.removed));
    an_interrupted_deletion_is_completed(store).await;
    let organization = fixture.tenant.organization;
    store.blobs.delete_album(organization, fixture.album).await.expect("deletes");
    fixture.delete().await;
    a_photo_whose_pictures_were_collected_is_not_shown_until_it_has_others(store).await;
}

async fn add_photos_of_every_kind(objects: &mut Objects<'_>, fixture: &AlbumFixture) {
    let queue = &fixture.store.queue;
    let again = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    assert_eq!(queue.reprocess(fixture.album).await.expect("requeues").queued, 1);
    let held = fixture.lease_fresh(1, LONG).await.pop().expect("it waits");
    assert_eq!(held.photo, again);
    objects.add_photo(fixture, again, [true; 4]).await;
    let ready = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    objects.add_photo(fixture, ready, [true; 4]).await;
    let failed = fixture.queue_photos(1).await[0];
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    objects.add_photo(fixture, failed, [true, false, false, false]).await;
    let expected = fixture.create_photos(1).await[0];
    objects.add_photo(fixture, expected, [true, false, false, false]).await;
    let deleted = fixture.create_photos(1).await[0];
    fixture.store.photos.delete(fixture.album, deleted).await.expect("deletes it");
    objects.add_photo(fixture, deleted, [false; 4]).await;
    let queued = fixture.queue_photos(1).await[0];
    objects.add_photo(fixture, queued, [true; 4]).await;
    let probes = &fixture.store.probes;
    let alive = probes.create(fixture.album, LONG).await.expect("creates a selfie").id;
    objects.add_probe(fixture, alive, true).await;
    let removed = probes.create(fixture.album, LONG).await.expect("creates a selfie").id;
    probes.remove(&[removed]).await.expect("removes it");
    objects.add_probe(fixture, removed, false).await;
    let upload = WatermarkUploadId::generate();
    let organization = fixture.tenant.organization;
    objects.add(ObjectKey::watermark(organization, fixture.album, upload), false).await;
}

/// Writes objects with unknown names, and objects of an organization that the database does not know.
async fn add_unrecognised_objects(objects: &mut Objects<'_>, fixture: &AlbumFixture) {
    let album = ObjectKey::album_prefix(fixture.tenant.organization, fixture.album);
    for path in [format!("{album}/x/1"), format!("{album}/p/{}/draft.jpg", PhotoId::generate())] {
        objects.add(ObjectKey::parse(&path).expect("a key"), true).await;
    }
    let (organization, album) = (OrganizationId::generate(), AlbumId::generate());
    let theirs = ObjectKey::photo(organization, album, PhotoId::generate(), ObjectRole::Original);
    objects.add(theirs, true).await;
}

async fn an_interrupted_deletion_is_completed(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut objects = Objects { store, keys: Vec::new() };
    let photo = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    objects.add_photo(&fixture, photo, [false; 4]).await;
    store.albums.close(&fixture.tenant, fixture.album).await.expect("closes it");
    assert_eq!(collect_garbage(store, LONG, false).await.finished_albums, 0, "it may be on its way");
    assert_eq!(collect_garbage(store, Duration::ZERO, false).await.finished_albums, 1);
    objects.assert_present(|stays| stays).await;
    assert_eq!(
        store.photos.count_by_state(fixture.album).await.expect("counts"),
        crate::model::photo::StateCounts::default()
    );
    assert_eq!(collect_garbage(store, Duration::ZERO, false).await.finished_albums, 0);
}

/// It was ready, and failed when it was processed again.
async fn a_photo_whose_pictures_were_collected_is_not_shown_until_it_has_others(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut objects = Objects { store, keys: Vec::new() };
    let photo = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    objects.add_photo(&fixture, photo, [true, false, false, false]).await;
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("requeues").queued, 1);
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("it waits");
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    collect_garbage(store, Duration::ZERO, false).await;
    objects.assert_present(|stays| stays).await;
    store.queue.retry(fixture.album, photo).await.expect("retries it");
    let shown = async || {
        let (photos, _) = store.photos.list_shown(fixture.album, None, 10).await.expect("lists them");
        let ids: Vec<PhotoId> = photos.iter().map(|photo| photo.id).collect();
        (ids, store.photos.count_shown(fixture.album).await.expect("counts"))
    };
    assert_eq!(shown().await, (Vec::new(), 0));
    let waiting = store.photos.get(fixture.album, photo).await.expect("gets it");
    assert_eq!((waiting.has_pictures(), waiting.size), (false, None));
    fixture.process_next_photo(Vec::new(), Vec::new()).await;
    assert_eq!(shown().await, (vec![photo], 1));
    store.blobs.delete_album(fixture.tenant.organization, fixture.album).await.expect("deletes");
    fixture.delete().await;
}
