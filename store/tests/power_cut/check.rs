//! What must be true of a store after a power cut, given what was acknowledged to the writer before it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::conformance;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{Photo, PhotoQuery, PhotoState};
use photofinish_store::traits::{LeaseKind, LeaseRequest, TextQuery};
use sqlx::Connection;
use uuid::Uuid;

use super::writer::{BIB, FACE, finished, object_bytes};
use super::{database_url, objects_folder, settings};

const HOUR: Duration = Duration::from_secs(3600);

/// What was acknowledged to the writer.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    album: Option<(OrganizationId, AlbumId)>,
    confirmed: BTreeSet<PhotoId>,
    ready: BTreeSet<PhotoId>,
    failed: BTreeSet<PhotoId>,
    /// Photos by id, objects and albums by key. What is being deleted may or may not exist.
    deleting: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

impl Promises {
    /// Adds a line of the writer.
    pub fn add_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let id = |word: usize| words[word].parse::<Uuid>().unwrap();
        match words[0] {
            "album" => self.album = Some((OrganizationId(id(1)), AlbumId(id(2)))),
            "confirmed" => drop(self.confirmed.insert(PhotoId(id(1)))),
            "ready" => drop(self.ready.insert(PhotoId(id(1)))),
            "failed" => drop(self.failed.insert(PhotoId(id(1)))),
            "deleting" => drop(self.deleting.insert(words[1].to_owned())),
            "deleted" => drop(self.deleted.insert(words[1].to_owned())),
            other => panic!("unknown line of the writer: {other}"),
        }
    }

    fn may_be_gone(&self, photo: PhotoId) -> bool {
        self.deleting.contains(&photo.to_string())
    }
}

/// Opens the store in this folder and checks it.
///
/// # Errors
/// What was lost or duplicated.
pub async fn check_store(folder: &Path, promises: &Promises) -> Result<(), String> {
    let opened = Store::open(settings(folder)).await;
    let store =
        opened.map_err(|cause| format!("the store does not open: {}", cause.to_string_with_causes()))?;
    store
        .embedded()
        .unwrap()
        .reclaim_leases()
        .await
        .map_err(|cause| format!("failed to reclaim leases: {cause}"))?;
    check_database(folder).await?;
    check_deleted(folder, promises)?;
    if let Some((organization, album)) = promises.album {
        check_photos(&store, album, promises).await?;
        check_objects(&store, organization, album, promises).await?;
        check_searches(&store, album).await?;
        finish_queue(&store, album).await?;
        check_searches(&store, album).await?;
    }
    store.close().await;
    Ok(())
}

async fn check_database(folder: &Path) -> Result<(), String> {
    let mut connection = sqlx::SqliteConnection::connect(&database_url(folder)).await.map_err(to_text)?;
    let (integrity,): (String,) =
        sqlx::query_as("pragma integrity_check").fetch_one(&mut connection).await.map_err(to_text)?;
    let violations =
        sqlx::query("pragma foreign_key_check").fetch_all(&mut connection).await.map_err(to_text)?;
    connection.close().await.map_err(to_text)?;
    expect_equal("integrity of the database", &(integrity.as_str(), violations.len()), &("ok", 0))
}

/// Checks that no deleted object has come back.
fn check_deleted(folder: &Path, promises: &Promises) -> Result<(), String> {
    let mut folders = vec![objects_folder(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(to_text)? {
            let path = entry.map_err(to_text)?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let path = path.display().to_string();
            if let Some(deleted) = promises.deleted.iter().find(|deleted| path.contains(*deleted)) {
                return Err(format!("{deleted} was deleted, but {path} exists"));
            }
        }
    }
    Ok(())
}

async fn check_photos(store: &Store, album: AlbumId, promises: &Promises) -> Result<(), String> {
    let photos = list_photos(store, album).await?;
    let ids: BTreeSet<PhotoId> = photos.iter().map(|photo| photo.id).collect();
    expect_equal("photos listed once", &ids.len(), &photos.len())?;
    let state = |id: &PhotoId| photos.iter().find(|photo| photo.id == *id).map(|photo| photo.state);
    for photo in &promises.confirmed {
        let found = state(photo);
        let is_unconfirmed = matches!(found, None | Some(PhotoState::AwaitingUpload));
        if is_unconfirmed && !promises.may_be_gone(*photo) {
            return Err(format!("{photo} was confirmed, but is {found:?}"));
        }
        if found.is_some() && promises.deleted.contains(&photo.to_string()) {
            return Err(format!("{photo} was deleted, but is {found:?}"));
        }
    }
    for (ended, expected) in [(&promises.ready, PhotoState::Ready), (&promises.failed, PhotoState::Failed)] {
        for photo in ended.iter().filter(|photo| !promises.may_be_gone(**photo)) {
            expect_equal(&photo.to_string(), &state(photo), &Some(expected))?;
        }
    }
    Ok(())
}

/// Checks that every confirmed photo has its original, and every ready one its pictures and results.
async fn check_objects(
    store: &Store,
    organization: OrganizationId,
    album: AlbumId,
    promises: &Promises,
) -> Result<(), String> {
    for photo in list_photos(store, album).await? {
        if photo.state == PhotoState::AwaitingUpload || promises.may_be_gone(photo.id) {
            continue;
        }
        let mut roles = vec![ObjectRole::Original];
        if photo.state == PhotoState::Ready {
            roles.extend([ObjectRole::Preview, ObjectRole::Thumbnail]);
            let (faces, texts) = store.photos.get_detections(album, photo.id).await.map_err(to_text)?;
            expect_equal(&format!("detections in {}", photo.id), &(faces.len(), texts.len()), &(1, 1))?;
        }
        for role in roles {
            let key = ObjectKey::photo(organization, album, photo.id, role);
            let bytes = store.blobs.read(&key, 1 << 20).await;
            let bytes = bytes.map_err(|cause| format!("{:?} photo, {key}: {cause}", photo.state))?;
            if bytes != object_bytes(&key) {
                return Err(format!("{:?} photo, {key}: not the bytes that were uploaded", photo.state));
            }
        }
    }
    Ok(())
}

/// Checks that searches find each ready photo once, and nothing else.
async fn check_searches(store: &Store, album: AlbumId) -> Result<(), String> {
    let photos = list_photos(store, album).await?;
    let ready = photos.iter().filter(|photo| photo.state == PhotoState::Ready).map(|photo| photo.id);
    let ready: Vec<PhotoId> = ready.collect();
    let face = conformance::face(FACE).embedding.unwrap();
    let by_face = store.faces.nearest(album, &face, 1000, 0.9).await.map_err(to_text)?;
    expect_equal("found by face", &sorted(by_face.iter().map(|hit| hit.photo)), &ready)?;
    let query = TextQuery { text: BIB.into(), exact: true };
    let by_bib = store.texts.search(album, &query).await.map_err(to_text)?;
    expect_equal("found by bib", &sorted(by_bib.iter().map(|hit| hit.photo)), &ready)
}

/// Checks that all waiting photos can be processed.
async fn finish_queue(store: &Store, album: AlbumId) -> Result<(), String> {
    let before = store.photos.count_by_state(album).await.map_err(to_text)?;
    for kind in [LeaseKind::Fresh, LeaseKind::CrashSuspect] {
        loop {
            let request = LeaseRequest { limit: 100, ttl: HOUR, kind };
            let leases = store.queue.lease(request).await.map_err(to_text)?;
            if leases.is_empty() {
                break;
            }
            store.queue.finish(leases.iter().map(finished).collect()).await.map_err(to_text)?;
        }
    }
    let after = store.photos.count_by_state(album).await.map_err(to_text)?;
    expect_equal("unfinished photos", &(after.queued, after.processing), &(0, 0))?;
    expect_equal("failed", &after.failed, &before.failed)?;
    expect_equal("ready", &after.ready, &(before.ready + before.queued + before.processing))
}

/// Lists the photos in order.
async fn list_photos(store: &Store, album: AlbumId) -> Result<Vec<Photo>, String> {
    let query = PhotoQuery { after: None, limit: 1000, state: None };
    let page = store.photos.list(album, query).await.map_err(to_text)?;
    expect_equal("photos in the album", &page.photos.len(), &usize::try_from(page.total).unwrap())?;
    Ok(page.photos)
}

fn sorted(photos: impl Iterator<Item = PhotoId>) -> Vec<PhotoId> {
    let mut photos: Vec<PhotoId> = photos.collect();
    photos.sort();
    photos
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, not {expected:?}")) }
}

fn to_text(cause: impl std::fmt::Display) -> String {
    cause.to_string()
}
