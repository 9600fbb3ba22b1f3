//! What a sweep must do with every storage: remove exactly what no row needs.

use std::time::Duration;

use bytes::Bytes;

use crate::conformance::fixture::{Event, LONG, face};
use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::model::object_key::{ObjectKey, ObjectRole};
use crate::model::photo::FailureReason;
use crate::{GcOptions, GcReport, Store};

const ROLES: [ObjectRole; 3] = [ObjectRole::Original, ObjectRole::Preview, ObjectRole::Thumbnail];

const BYTES: &[u8] = b"twelve bytes";

/// Objects, and whether they are to stay.
struct Objects<'s> {
    store: &'s Store,
    keys: Vec<(ObjectKey, bool)>,
}

impl Objects<'_> {
    async fn add(&mut self, key: ObjectKey, stays: bool) {
        self.store.blobs.write(&key, "image/jpeg", Bytes::from_static(BYTES)).await.expect("writes");
        self.keys.push((key, stays));
    }

    /// Original, preview and thumbnail of a photo.
    async fn add_photo(&mut self, event: &Event, photo: PhotoId, stay: [bool; 3]) {
        for (role, stays) in ROLES.into_iter().zip(stay) {
            let key = ObjectKey::photo(event.tenant.organization, event.album, photo, role);
            self.add(key, stays).await;
        }
    }

    async fn add_probe(&mut self, event: &Event, probe: ProbeId, stays: bool) {
        self.add(ObjectKey::probe(event.tenant.organization, event.album, probe), stays).await;
    }

    /// Those that are to go.
    fn count_orphans(&self) -> u64 {
        self.keys.iter().filter(|(_, stays)| !stays).count() as u64
    }

    async fn assert_present(&self, expected: impl Fn(bool) -> bool) {
        for (key, stays) in &self.keys {
            let found = self.store.blobs.head(key).await.expect("looks").is_some();
            assert_eq!(found, expected(*stays), "{key}");
        }
    }
}

async fn collect_garbage(store: &Store, older_than: Duration, is_dry: bool) -> GcReport {
    store.collect_garbage(GcOptions { min_age: older_than, is_dry_run: is_dry }).await.expect("sweeps")
}

/// Sweeps of the storage.
pub async fn gc_suite(store: &Store) {
    // What others left here.
    let before = collect_garbage(store, Duration::ZERO, false).await;
    let mut objects = Objects { store, keys: Vec::new() };
    let event = Event::make(store).await;
    add_photos_of_every_kind(&mut objects, &event).await;
    add_unrecognised_objects(&mut objects, &event).await;
    // An album whose rows went and whose bytes did not.
    let deleted = Event::make(store).await;
    let photo = deleted.ready(vec![face([1.0, 0.0, 0.0, 0.0])], Vec::new()).await;
    objects.add_photo(&deleted, photo, [false; 3]).await;
    let probe = deleted.store.probes.create(deleted.album, LONG).await.expect("expects a selfie").id;
    objects.add_probe(&deleted, probe, false).await;
    deleted.end().await;

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
    let organization = event.tenant.organization;
    store.blobs.delete_album(organization, event.album).await.expect("deletes");
    event.end().await;
}

async fn add_photos_of_every_kind(objects: &mut Objects<'_>, event: &Event) {
    let queue = &event.store.queue;
    let again = event.ready(Vec::new(), Vec::new()).await;
    assert_eq!(queue.reprocess(event.album).await.expect("queues"), 1);
    let held = event.leased(1, LONG).await.pop().expect("it waits");
    assert_eq!(held.photo, again);
    objects.add_photo(event, again, [true; 3]).await;
    let ready = event.ready(Vec::new(), Vec::new()).await;
    objects.add_photo(event, ready, [true; 3]).await;
    let failed = event.queued(1).await[0];
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    objects.add_photo(event, failed, [true, false, false]).await;
    let expected = event.expected(1).await[0];
    objects.add_photo(event, expected, [true, false, false]).await;
    let deleted = event.expected(1).await[0];
    event.store.photos.delete(event.album, deleted).await.expect("deletes it");
    objects.add_photo(event, deleted, [false; 3]).await;
    let queued = event.queued(1).await[0];
    objects.add_photo(event, queued, [true; 3]).await;
    let probes = &event.store.probes;
    let alive = probes.create(event.album, LONG).await.expect("expects a selfie").id;
    objects.add_probe(event, alive, true).await;
    let removed = probes.create(event.album, LONG).await.expect("expects a selfie").id;
    probes.remove(&[removed]).await.expect("removes it");
    objects.add_probe(event, removed, false).await;
}

/// Names of another making, and whole organizations that are not in these rows.
async fn add_unrecognised_objects(objects: &mut Objects<'_>, event: &Event) {
    let album = ObjectKey::album_prefix(event.tenant.organization, event.album);
    for path in [format!("{album}/x/1"), format!("{album}/p/{}/draft.jpg", PhotoId::generate())] {
        objects.add(ObjectKey::parse(&path).expect("a key"), true).await;
    }
    let (organization, album) = (OrganizationId::generate(), AlbumId::generate());
    let theirs = ObjectKey::photo(organization, album, PhotoId::generate(), ObjectRole::Original);
    objects.add(theirs, true).await;
}

async fn an_interrupted_deletion_is_completed(store: &Store) {
    let event = Event::make(store).await;
    let mut objects = Objects { store, keys: Vec::new() };
    let photo = event.ready(Vec::new(), Vec::new()).await;
    objects.add_photo(&event, photo, [false; 3]).await;
    store.albums.close(&event.tenant, event.album).await.expect("closes it");
    assert_eq!(collect_garbage(store, LONG, false).await.finished_albums, 0, "it may be on its way");
    assert_eq!(collect_garbage(store, Duration::ZERO, false).await.finished_albums, 1);
    objects.assert_present(|stays| stays).await;
    assert_eq!(
        store.photos.counts(event.album).await.expect("counts"),
        crate::model::photo::StateCounts::default()
    );
    assert_eq!(collect_garbage(store, Duration::ZERO, false).await.finished_albums, 0);
}
