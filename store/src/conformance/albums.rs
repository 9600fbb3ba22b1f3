//! Albums: stored as created, hidden from other tenants, updated in part, deleted completely.

use std::time::Duration;

use time::OffsetDateTime;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, LONG, album_config, empty_results, face, text};
use crate::error::StoreErrorKind;
use crate::model::album::{Album, AlbumChange, AlbumQuery, NewAlbum, Tenant};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::key::KeyMode;
use crate::model::photo::{FailureReason, NewPhoto, PhotoQuery, StateCounts};
use crate::store::Store;
use crate::traits::{FinishOutcome, NamedLease, PhotoRef, TextQuery};

/// Checks the backend of [`crate::traits::Albums`].
pub async fn albums_suite(store: &Store) {
    an_album_is_stored_as_it_was_created(store).await;
    another_tenants_album_does_not_exist(store).await;
    an_update_leaves_other_fields_unchanged(store).await;
    pages_contain_every_album_once_newest_first(store).await;
    titles_are_found_regardless_of_case(store).await;
    nothing_of_a_deleted_album_is_left(store).await;
    a_closed_album_is_not_found_until_it_is_deleted(store).await;
}

fn new_album(tenant: Tenant, fixture: &AlbumFixture, title: &str) -> NewAlbum {
    NewAlbum {
        tenant,
        created_by: fixture.key.id,
        title: title.into(),
        cover_url: Some("https://example.org/cover.jpg".into()),
        tags: vec!["a \"b\"".into()],
        config: album_config(),
    }
}

async fn an_album_is_stored_as_it_was_created(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let made =
        store.albums.create(new_album(fixture.tenant, &fixture, "Marathon")).await.expect("creates one");
    assert_eq!((made.title.as_str(), made.tags.as_slice()), ("Marathon", &["a \"b\"".to_owned()][..]));
    assert_eq!((made.created_by, &made.config), (fixture.key.id, &album_config()));
    assert_eq!(store.albums.get(&fixture.tenant, made.id).await.expect("gets it"), made);
    let nobody = Tenant { organization: OrganizationId::generate(), mode: KeyMode::Live };
    assert_error_kind(store.albums.create(new_album(nobody, &fixture, "x")).await, StoreErrorKind::NotFound);
    fixture.delete().await;
}

async fn another_tenants_album_does_not_exist(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let stranger = AlbumFixture::create(store).await;
    let sandbox = Tenant { mode: KeyMode::Test, ..fixture.tenant };
    for tenant in [stranger.tenant, sandbox] {
        assert_error_kind(store.albums.get(&tenant, fixture.album).await, StoreErrorKind::NotFound);
        let change = AlbumChange { title: Some("taken over".into()), ..AlbumChange::default() };
        assert_error_kind(
            store.albums.update(&tenant, fixture.album, change).await,
            StoreErrorKind::NotFound,
        );
        assert_error_kind(store.albums.delete(&tenant, fixture.album).await, StoreErrorKind::NotFound);
    }
    assert_error_kind(store.albums.get(&fixture.tenant, AlbumId::generate()).await, StoreErrorKind::NotFound);
    let album = store.albums.get(&fixture.tenant, fixture.album).await.expect("gets it");
    assert_eq!(album.title, "Night run");
    fixture.delete().await;
    stranger.delete().await;
}

async fn an_update_leaves_other_fields_unchanged(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let change = async |change: AlbumChange| {
        store.albums.update(&fixture.tenant, fixture.album, change).await.expect("changes it")
    };
    let before = store.albums.get(&fixture.tenant, fixture.album).await.expect("gets it");
    let covered =
        change(AlbumChange { cover_url: Some(Some("https://c".into())), ..Default::default() }).await;
    assert!(covered.updated_at > before.updated_at);
    let cover_url = Some("https://c".into());
    assert_eq!(covered, Album { cover_url, updated_at: covered.updated_at, ..before.clone() });
    let mut config = album_config();
    config.face.confidence_threshold = 77.5;
    let changed = change(AlbumChange {
        title: Some("Day run".into()),
        cover_url: Some(None),
        tags: Some(Vec::new()),
        config: Some(config.clone()),
        judge_again: false,
        unchanged_since: Some(covered.updated_at),
    })
    .await;
    assert_eq!((changed.title.as_str(), &changed.cover_url), ("Day run", &None));
    assert_eq!((changed.tags.len(), &changed.config), (0, &config));
    assert_eq!(store.albums.get(&fixture.tenant, fixture.album).await.expect("gets it"), changed);
    let late = AlbumChange { unchanged_since: Some(covered.updated_at), ..AlbumChange::default() };
    assert_error_kind(
        store.albums.update(&fixture.tenant, fixture.album, late).await,
        StoreErrorKind::Conflict,
    );
    assert_eq!(store.albums.get(&fixture.tenant, fixture.album).await.expect("gets it"), changed);
    fixture.delete().await;
}

async fn pages_contain_every_album_once_newest_first(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut made = vec![fixture.album];
    for i in 0..6 {
        let album = new_album(fixture.tenant, &fixture, &format!("stage {i}"));
        made.push(store.albums.create(album).await.expect("creates one").id);
    }
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let query = AlbumQuery { after, limit: 3, title: None };
        let page = store.albums.list(&fixture.tenant, query).await.expect("lists them");
        assert_eq!(page.total, if after.is_none() { Some(7) } else { None }, "only the first page counts");
        listed.extend(page.albums.iter().map(|album| album.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    made.reverse();
    assert_eq!(listed, made);
    fixture.delete().await;
}

async fn titles_are_found_regardless_of_case(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    for title in ["Zürcher SILVESTERLAUF", "100 % Trail", "1000 Trails"] {
        store.albums.create(new_album(fixture.tenant, &fixture, title)).await.expect("creates one");
    }
    let found = async |title: &str| {
        let query = AlbumQuery { after: None, limit: 50, title: Some(title.into()) };
        let page = store.albums.list(&fixture.tenant, query).await.expect("lists them");
        assert_eq!(page.total, Some(page.albums.len() as u64));
        page.albums.into_iter().map(|album| album.title).collect::<Vec<_>>()
    };
    assert_eq!(found("ZÜRCHER silvester").await, ["Zürcher SILVESTERLAUF"]);
    assert_eq!(found("trail").await, ["1000 Trails", "100 % Trail"]);
    assert_eq!(found("0 % t").await, ["100 % Trail"]);
    assert_eq!(found("100_").await, [""; 0]);
    fixture.delete().await;
}

async fn nothing_of_a_deleted_album_is_left(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("1234", 0.99)]).await;
    let probe = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    fixture.queue_photos(3).await;
    let leases = fixture.lease_fresh(2, LONG).await;
    assert_eq!(leases.len(), 2);
    store.albums.delete(&fixture.tenant, fixture.album).await.expect("deletes it");
    let album = fixture.album;
    assert_error_kind(store.albums.get(&fixture.tenant, album).await, StoreErrorKind::NotFound);
    assert_error_kind(store.albums.delete(&fixture.tenant, album).await, StoreErrorKind::NotFound);
    assert_error_kind(store.photos.get(album, photo).await, StoreErrorKind::NotFound);
    assert_eq!(store.photos.count_by_state(album).await.expect("counts"), StateCounts::default());
    let query = PhotoQuery { after: None, limit: 10, state: None };
    assert_eq!(store.photos.list(album, query).await.expect("lists").total, 0);
    assert_eq!(store.photos.get_detections(album, photo).await.expect("reads"), (Vec::new(), Vec::new()));
    assert_error_kind(store.probes.get(album, probe.id).await, StoreErrorKind::NotFound);
    let query = TextQuery { text: "1234".into(), exact: false };
    assert_eq!(store.texts.search(album, &query).await.expect("searches"), []);
    let vector = face([1.0, 0.0, 0.0, 0.0]).embedding.expect("a searchable face");
    assert_error_kind(store.faces.nearest(album, &vector, 10, 0.0).await, StoreErrorKind::NotFound);
    assert!(fixture.lease_fresh(10, LONG).await.is_empty());
    let answers = store.queue.finish(leases.iter().map(empty_results).collect()).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Gone; 2]);
}

async fn a_closed_album_is_not_found_until_it_is_deleted(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (album, tenant) = (fixture.album, fixture.tenant);
    let vector = face([1.0, 0.0, 0.0, 0.0]).embedding.expect("a searchable face");
    fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("1234", 0.99)]).await;
    assert_eq!(store.faces.nearest(album, &vector, 10, 0.0).await.expect("searches").len(), 1);
    let probe = store.probes.create(album, LONG).await.expect("creates a selfie");
    let lapsed = fixture.queue_photos(1).await[0];
    assert_eq!(fixture.lease_fresh(1, Duration::ZERO).await[0].photo, lapsed);
    fixture.queue_photos(3).await;
    let held = fixture.lease_fresh(2, LONG).await;
    let fresh = fixture.queue_photos(1).await;
    let expected = fixture.create_photos(1).await;
    let stranger = Tenant { organization: OrganizationId::generate(), mode: KeyMode::Live };
    assert_error_kind(store.albums.close(&stranger, album).await, StoreErrorKind::NotFound);
    for _ in 0..2 {
        store.albums.close(&tenant, album).await.expect("closes it");
    }
    assert_error_kind(store.albums.get(&tenant, album).await, StoreErrorKind::NotFound);
    assert_error_kind(
        store.albums.update(&tenant, album, AlbumChange::default()).await,
        StoreErrorKind::NotFound,
    );
    let query = AlbumQuery { after: None, limit: 10, title: None };
    let page = store.albums.list(&tenant, query).await.expect("lists them");
    assert_eq!((page.albums, page.total), (Vec::new(), Some(0)));
    assert_error_kind(store.faces.nearest(album, &vector, 10, 0.0).await, StoreErrorKind::NotFound);
    assert_error_kind(store.probes.get(album, probe.id).await, StoreErrorKind::NotFound);
    let more = NewPhoto { filename: "late.jpg".into(), content_type: "image/jpeg".into() };
    assert_error_kind(store.photos.create(album, vec![more]).await, StoreErrorKind::NotFound);
    assert_eq!(store.queue.confirm(album, &expected).await.expect("confirms none"), []);
    assert!(fixture.lease_fresh(10, LONG).await.is_empty());
    assert!(fixture.lease_suspect(LONG).await.is_none());
    let named = [PhotoRef { album, photo: lapsed }, PhotoRef { album, photo: fresh[0] }];
    let answers = store.outbox_queue.lease_named(&named, LONG).await.expect("leases none");
    assert!(answers.iter().all(|answer| matches!(answer, NamedLease::Obsolete)), "{answers:?}");
    let waiting = store.outbox_queue.list_unpublished(1000).await.expect("reads").photos;
    assert!(waiting.iter().all(|waiting| waiting.photo.album != album), "its photos are not offered");
    let answers = store.queue.finish(vec![empty_results(&held[0])]).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Gone]);
    let answer = store.queue.fail(&held[1], FailureReason::CorruptImage, "late").await.expect("fails");
    assert_eq!(answer, FinishOutcome::Gone);
    // An interrupted deletion is listed, and completed by calling again.
    let later = OffsetDateTime::now_utc() + LONG;
    let closed = async || store.albums.list_closed(later).await.expect("reads").contains(&(tenant, album));
    assert!(closed().await);
    assert_eq!(store.albums.list_closed(OffsetDateTime::UNIX_EPOCH).await.expect("reads"), []);
    store.albums.delete(&tenant, album).await.expect("deletes it");
    assert!(!closed().await);
    assert_error_kind(store.albums.close(&tenant, album).await, StoreErrorKind::NotFound);
}
