//! Commits that a server makes and whose answer does not come: whoever waits for it knows neither that they were made nor that
//! they were not.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use photofinish_servers::{Postgres, Proxy, ProxyFault};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::cost::{CostQuery, SELFIE_STAGE};
use photofinish_store::model::credit::{UsageOperation, UsageQuery};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::traits::{Lease, LeaseKind, LeaseRequest, NamedLease, PhotoRef, Result};
use photofinish_store::{ServerLimits, Store, StoreErrorKind, StoreSettings};
use support::TestStore;

/// The duration of leases that must not expire during a test.
const LONG: Duration = Duration::from_secs(3600);

/// A store that reaches its server through a proxy.
struct ProxiedStore {
    store: Store,
    proxy: Proxy,
    /// Has the folder of the photos.
    _test_store: TestStore,
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
        Some(Self { store, proxy, _test_store: test_store })
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
    let (tenant, album) = (fixture.tenant, fixture.album);
    store.credits.count(&tenant, album, UsageOperation::GalleryTextSearch);
    proxied.lose_answer(async || store.credits.flush_usage().await).await;
    store.costs.searches().count(album, SELFIE_STAGE);
    proxied.lose_answer(async || store.costs.flush_searches().await).await;
    store.credits.flush_usage().await.unwrap();
    store.costs.flush_searches().await.unwrap();

    let (from, to, limit) = (CostQuery::FIRST_DAY, CostQuery::LAST_DAY, 10);
    let usage = UsageQuery { from, to, by_day: false, by_album: false, by_operation: true, limit };
    let usage = store.credits.usage(&tenant, usage).await.unwrap();
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
    let costs = store.costs.costs(&tenant, costs).await.unwrap();
    assert_eq!(costs.iter().map(|row| row.photos).collect::<Vec<_>>(), [1]);
}
