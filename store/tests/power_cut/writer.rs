//! The traced process: it uses a store as the API and the pipeline do, and prints a line for each call that has returned.

use std::convert::Infallible;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use photofinish_store::Store;
use photofinish_store::blobs::local::uploads::UploadPace;
use photofinish_store::conformance::{self, AlbumFixture};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{
    FinishOutcome, Lease, LeaseKind, LeaseRequest, PhotoResults, PictureSizes, ProbeOutcome, UploadConditions,
};
use sqlx::Connection;

use super::{database_url, objects_folder, settings, support};

/// The bib and the face of every finished photo.
pub const BIB: &str = "1204";
pub const FACE: [f32; 4] = [0.5, 0.5, 0.5, 0.5];

const ROLES: [ObjectRole; 3] = [ObjectRole::Original, ObjectRole::Preview, ObjectRole::Thumbnail];
const HOUR: Duration = Duration::from_secs(3600);

/// How many photos are uploaded concurrently, and how often.
const CONCURRENT_UPLOADS: usize = 6;
const ROUNDS: usize = 3;

/// Uses a store in this folder.
pub async fn run_writer(folder: &Path) {
    let mut store = Store::open(settings(folder)).await.unwrap();
    let mut fixture = AlbumFixture::create(&store).await;
    let album = fixture.album;
    print_line(&format!("album {} {album}", fixture.tenant.organization));
    for round in 0..ROUNDS {
        let photos = upload_photos(&fixture).await;
        process_photos(&fixture).await;
        delete_photo(&fixture, photos[0]).await;
        delete_photo(&fixture, photos[CONCURRENT_UPLOADS - 1]).await;
        match round {
            0 => checkpoint_log(folder).await,
            1 => {
                drop(fixture);
                store.close().await;
                store = Store::open(settings(folder)).await.unwrap();
                store.embedded().unwrap().reclaim_leases().await.unwrap();
                fixture = support::reopen_fixture(&store, album).await;
            }
            _ => {}
        }
    }
    confirm_interrupted_upload(&fixture, folder).await;
    search_by_selfie(&fixture).await;
    delete_album(&store).await;
    store.close().await;
}

/// Returns the content of an object, different in bytes and length for each.
pub fn object_bytes(key: &ObjectKey) -> Vec<u8> {
    let seed = key.as_str().bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let length = 500 + seed % 9_000;
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Prints a line in one call, so that it is at one place of the recording.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{LINE_PREFIX}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The prefix of the writer's lines; the test harness prints others.
pub const LINE_PREFIX: &str = "said: ";

async fn upload_photos(fixture: &AlbumFixture) -> Vec<PhotoId> {
    let photos = fixture.create_photos(CONCURRENT_UPLOADS).await;
    let uploads = photos.iter().map(|photo| async move {
        upload(&fixture.store, &object_key(fixture, *photo, ObjectRole::Original)).await;
        let confirmed = fixture.store.queue.confirm(fixture.album, &[*photo]).await.unwrap();
        assert_eq!(confirmed, [*photo]);
        print_line(&format!("confirmed {photo}"));
    });
    join_all(uploads).await;
    photos
}

/// Uploads an object as `PUT /storage/..` does.
async fn upload(store: &Store, key: &ObjectKey) {
    let bytes = object_bytes(key);
    let terms = UploadConditions { content_type: "image/jpeg", max_bytes: 1 << 20, ttl: HOUR };
    let url = store.blobs.upload_url(key, terms).await.unwrap();
    let path = url.path().strip_prefix("/storage/").unwrap();
    let local = store.local.as_deref().unwrap();
    let grant = local.verify_upload(path, url.query().unwrap(), Some("image/jpeg")).unwrap();
    let chunks: Vec<_> =
        bytes.chunks(3000).map(|chunk| Ok::<_, Infallible>(Bytes::copy_from_slice(chunk))).collect();
    let started = local.begin_upload(grant, None, UploadPace::SERVICE).unwrap();
    let received = local.receive_upload(started, stream::iter(chunks)).await.unwrap();
    assert_eq!(local.publish_upload(received).await.unwrap(), bytes.len() as u64);
}

/// Confirms a photo as the API does after the process that stored it was killed: its folders are not synced.
async fn confirm_interrupted_upload(fixture: &AlbumFixture, folder: &Path) {
    let photo = fixture.create_photos(1).await[0];
    let key = object_key(fixture, photo, ObjectRole::Original);
    let path = objects_folder(folder).join(key.as_str());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&object_bytes(&key)).unwrap();
    file.sync_all().unwrap();
    assert!(fixture.store.blobs.head(&key).await.unwrap().is_some());
    fixture.store.blobs.make_durable(&key).await.unwrap();
    assert_eq!(fixture.store.queue.confirm(fixture.album, &[photo]).await.unwrap(), [photo]);
    print_line(&format!("confirmed {photo}"));
}

/// Processes photos as the pipeline does: previews first, then the results of a batch. One photo fails, one is released
/// and one stays leased.
async fn process_photos(fixture: &AlbumFixture) {
    let request = LeaseRequest { limit: CONCURRENT_UPLOADS, ttl: HOUR, kind: LeaseKind::Fresh };
    let mut leases = fixture.store.queue.lease(request).await.unwrap();
    let _stays_leased = leases.pop();
    fixture.store.queue.release(&[leases.pop().unwrap()]).await.unwrap();
    let corrupt = leases.pop().unwrap();
    join_all(leases.iter().map(|lease| write_previews(fixture, lease))).await;
    let photos = leases.iter().map(finished).collect();
    let results = fixture.store.queue.finish(photos).await.unwrap();
    assert!(results.iter().all(|result| *result == FinishOutcome::Done));
    leases.iter().for_each(|lease| print_line(&format!("ready {}", lease.photo)));
    fixture.store.queue.fail(&corrupt, FailureReason::CorruptImage, "ends early").await.unwrap();
    print_line(&format!("failed {}", corrupt.photo));
}

async fn write_previews(fixture: &AlbumFixture, lease: &Lease) {
    for role in &ROLES[1..] {
        let key = object_key(fixture, lease.photo, *role);
        fixture.store.blobs.write(&key, "image/jpeg", object_bytes(&key).into()).await.unwrap();
    }
}

/// Returns the results of a photo.
pub fn finished(lease: &Lease) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: photofinish_store::model::photo::PhotoSize { width: 600, height: 400 },
        taken_at: None,
        camera: None,
        watermark_version: 0,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
        faces: vec![conformance::face(FACE)],
        texts: vec![conformance::text(BIB, 0.99)],
    }
}

/// Deletes a photo as the API does: the objects before and after the row.
async fn delete_photo(fixture: &AlbumFixture, photo: PhotoId) {
    print_line(&format!("deleting {photo}"));
    let delete_objects = || async {
        for role in ROLES {
            fixture.store.blobs.delete(&object_key(fixture, photo, role)).await.unwrap();
        }
    };
    delete_objects().await;
    fixture.store.photos.delete(fixture.album, photo).await.unwrap();
    delete_objects().await;
    print_line(&format!("deleted {photo}"));
}

/// Checkpoints the log while the store is open, as SQLite does itself after many more commits: the next commit restarts
/// the log.
async fn checkpoint_log(folder: &Path) {
    let mut connection = sqlx::SqliteConnection::connect(&database_url(folder)).await.unwrap();
    sqlx::query("pragma synchronous = full").execute(&mut connection).await.unwrap();
    sqlx::query("pragma wal_checkpoint(passive)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Searches as the API does: the selfie is removed as soon as its embedding is computed.
async fn search_by_selfie(fixture: &AlbumFixture) {
    let probe = fixture.store.probes.create(fixture.album, HOUR).await.unwrap();
    let key = ObjectKey::probe(fixture.tenant.organization, fixture.album, probe.id);
    upload(&fixture.store, &key).await;
    print_line(&format!("deleting {key}"));
    let face = conformance::face(FACE).embedding.unwrap();
    fixture.store.probes.set_outcome(probe.id, ProbeOutcome::Embedded(face)).await.unwrap();
    fixture.store.blobs.delete(&key).await.unwrap();
    print_line(&format!("deleted {key}"));
}

/// Creates and deletes another album with a photo.
async fn delete_album(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (organization, album) = (fixture.tenant.organization, fixture.album);
    let photo = fixture.create_photos(1).await[0];
    upload(store, &object_key(&fixture, photo, ObjectRole::Original)).await;
    let prefix = ObjectKey::album_prefix(organization, album);
    print_line(&format!("deleting {prefix}"));
    store.blobs.delete_album(organization, album).await.unwrap();
    store.albums.delete(&fixture.tenant, album).await.unwrap();
    store.blobs.delete_album(organization, album).await.unwrap();
    print_line(&format!("deleted {prefix}"));
}

fn object_key(fixture: &AlbumFixture, photo: PhotoId, role: ObjectRole) -> ObjectKey {
    ObjectKey::photo(fixture.tenant.organization, fixture.album, photo, role)
}
