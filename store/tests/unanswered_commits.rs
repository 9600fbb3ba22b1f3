//! Commits that a server makes and whose answer does not come: whoever waits for it knows neither that they were made nor that
//! they were not. And others that take long or fail.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use photofinish_servers::{Postgres, Proxy, ProxyFault};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::cost::{CostQuery, SELFIE_STAGE};
use photofinish_store::model::credit::{UsageOperation, UsageQuery};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::traits::{Lease, LeaseKind, LeaseRequest, NamedLease, PhotoRef, Reprocessed, Result};
use photofinish_store::{ServerLimits, Store, StoreErrorKind, StoreSettings};
use sqlx::{Connection, PgConnection, SqliteConnection};
use support::TestStore;

/// The duration of leases that must not expire during a test.
const LONG: Duration = Duration::from_secs(3600);

/// A store that reaches its server through a proxy.
struct ProxiedStore {
    store: Store,
    proxy: Proxy,
    /// Has the folder of the photos.
    test_store: TestStore,
}

impl ProxiedStore {
    /// `None` where there is no server to test with.
    async fn open() -> Option<Self> {
        let server = Postgres::shared()?;
        let direct_url = server.create_database();
        let name = direct_url.rsplit('/').next().unwrap();
        let proxy = Proxy::in_front_of(server.address()).await;
        let test_store = TestStore::with_database(server.url_through(name, proxy.address()));
        let server_limits = ServerLimits { connections: 1, ..ServerLimits::default() };
        let settings = StoreSettings { server_limits, ..test_store.settings() };
        let store = Store::open(settings).await.unwrap();
        Some(Self { store, proxy, test_store })
    }

    /// Repeats a call until its commit was made and not answered: before that it may find that its connection is closed.
    async fn lose_answer<T: Debug>(&self, mut call: impl AsyncFnMut() -> Result<T>) {
        self.proxy.set_fault(ProxyFault::CutCommit { connections: 1 });
        while self.proxy.cut_connections() == 0 {
            let failed = call().await.unwrap_err();
            assert_eq!(failed.kind, StoreErrorKind::Unavailable, "{failed}");
        }
    }
}

#[track_caller]
fn assert_first_attempts(leases: &[Lease], photos: &BTreeSet<PhotoId>) {
    assert_eq!(leases.iter().map(|lease| lease.photo).collect::<BTreeSet<_>>(), *photos);
    assert!(leases.iter().all(|lease| lease.attempt == 1), "{leases:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn photos_whose_lease_was_not_answered_are_leased_again_at_once() {
    let Some(proxied) = ProxiedStore::open().await else { return };
    let store = &proxied.store;
    let fixture = AlbumFixture::create(store).await;
    let photos: BTreeSet<PhotoId> = fixture.queue_photos(3).await.into_iter().collect();
    let request = LeaseRequest { limit: 10, ttl: LONG, kind: LeaseKind::Fresh };
    proxied.lose_answer(async || store.queue.lease(request).await).await;
    let leases = fixture.lease_fresh(10, LONG).await;
    assert_first_attempts(&leases, &photos);

    store.queue.release(&leases).await.unwrap();
    let named: Vec<PhotoRef> =
        photos.iter().map(|photo| PhotoRef { album: fixture.album, photo: *photo }).collect();
    proxied.lose_answer(async || store.outbox_queue.lease_named(&named, LONG).await).await;
    let answers = store.outbox_queue.lease_named(&named, LONG).await.unwrap();
    let leased = answers.into_iter().filter_map(|answer| match answer {
        NamedLease::Leased(lease) => Some(lease),
        _ => None,
    });
    assert_first_attempts(&leased.collect::<Vec<_>>(), &photos);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_whose_commit_was_not_answered_are_not_written_again() {
    let Some(proxied) = ProxiedStore::open().await else { return };
    let store = &proxied.store;
    let fixture = AlbumFixture::create(store).await;
    fixture.open_gallery().await;
    let (tenant, album) = (fixture.tenant, fixture.album);
    store.credits.count(&tenant, album, UsageOperation::GalleryTextSearch);
    proxied.lose_answer(async || store.credits.flush_usage().await).await;
    store.costs.searches().count(album, SELFIE_STAGE);
    proxied.lose_answer(async || store.costs.flush_searches().await).await;
    store.galleries.count_opened(album);
    proxied.lose_answer(async || store.galleries.flush_visits().await).await;
    assert_written_once(&fixture).await;
}

/// Writes what is counted and not written, and checks that it makes one search of each kind and one visit.
async fn assert_written_once(fixture: &AlbumFixture) {
    let (store, tenant) = (&fixture.store, &fixture.tenant);
    store.credits.flush_usage().await.unwrap();
    store.costs.flush_searches().await.unwrap();
    store.galleries.flush_visits().await.unwrap();
    let gallery = store.galleries.get(fixture.album).await.unwrap().unwrap();
    assert_eq!((gallery.opened, gallery.searches), (1, 0));

    let (from, to, limit) = (CostQuery::FIRST_DAY, CostQuery::LAST_DAY, 10);
    let usage = UsageQuery { from, to, by_day: false, by_album: false, by_operation: true, limit };
    let usage = store.credits.usage(tenant, usage).await.unwrap();
    assert_eq!(usage.iter().map(|row| row.count).collect::<Vec<_>>(), [1]);
    let costs = CostQuery {
        from,
        to,
        album: None,
        by_day: false,
        by_album: false,
        by_stage: true,
        photos_only: false,
        limit,
    };
    let costs = store.costs.costs(tenant, costs).await.unwrap();
    assert_eq!(costs.iter().map(|row| row.photos).collect::<Vec<_>>(), [1]);
}

/// As when the disk is full, which a file says at the commit: by a constraint that is checked then.
#[tokio::test]
async fn counts_whose_commit_failed_in_a_file_are_written_later() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    fixture.open_gallery().await;
    let mut connection = SqliteConnection::connect(&test_store.settings().database_url).await.unwrap();
    for statement in [
        "create table parent (id integer primary key)",
        "create table child (parent integer references parent (id) deferrable initially deferred)",
        "create trigger refuse_usage after insert on usage_rollup begin insert into child values (1); end",
        "create trigger refuse_costs after insert on cost_rollup begin insert into child values (1); end",
        "create trigger refuse_visits after update on gallery begin insert into child values (1); end",
    ] {
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
    store.credits.count(&fixture.tenant, fixture.album, UsageOperation::GalleryTextSearch);
    store.costs.searches().count(fixture.album, SELFIE_STAGE);
    store.galleries.count_opened(fixture.album);
    store.credits.flush_usage().await.unwrap_err();
    store.costs.flush_searches().await.unwrap_err();
    store.galleries.flush_visits().await.unwrap_err();
    for statement in ["drop trigger refuse_usage", "drop trigger refuse_costs", "drop trigger refuse_visits"]
    {
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
    assert_written_once(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn photos_whose_lease_was_not_answered_wait_after_a_stop() {
    let Some(proxied) = ProxiedStore::open().await else { return };
    let fixture = AlbumFixture::create(&proxied.store).await;
    let photos: BTreeSet<PhotoId> = fixture.queue_photos(2).await.into_iter().collect();
    let request = LeaseRequest { limit: 10, ttl: LONG, kind: LeaseKind::Fresh };
    proxied.lose_answer(async || proxied.store.queue.lease(request).await).await;
    proxied.store.close().await;
    let leases = proxied.test_store.open().await.queue.lease(request).await.unwrap();
    assert_first_attempts(&leases, &photos);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_photo_whose_lease_is_being_committed_is_asked_for_again() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_store = TestStore::with_database(url.clone());
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let photo = fixture.queue_photos(1).await[0];
    let mut worker = PgConnection::connect(&url).await.unwrap();
    let mut transaction = worker.begin().await.unwrap();
    let lease = "update photo set state = 'processing', attempts = 1, lease = gen_random_uuid(), \
                 lease_until = 9000000000000000000 where id = $1 returning confirmed_at";
    let (leased_at,): (i64,) = sqlx::query_as(lease).bind(photo).fetch_one(&mut *transaction).await.unwrap();
    let (queue, album) = (Arc::clone(&store.queue), fixture.album);
    let reprocessing = tokio::spawn(async move { queue.reprocess(album).await });
    let mut observer = PgConnection::connect(&url).await.unwrap();
    let waiting = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock'";
    while !reprocessing.is_finished() {
        let (waiting,): (i64,) = sqlx::query_as(waiting).fetch_one(&mut observer).await.unwrap();
        if waiting > 0 {
            break;
        }
    }
    transaction.commit().await.unwrap();
    assert_eq!(reprocessing.await.unwrap().unwrap(), Reprocessed::default());
    let (asked_at,): (i64,) = sqlx::query_as("select confirmed_at from photo where id = $1")
        .bind(photo)
        .fetch_one(&mut observer)
        .await
        .unwrap();
    assert!(asked_at > leased_at, "its worker may have the settings of before");
}
