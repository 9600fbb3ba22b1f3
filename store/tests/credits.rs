//! Credits and rate limits on both databases: the conformance suites, several processes that share a balance, and random
//! histories that end in the middle.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use photofinish_servers::Postgres;
use photofinish_store::conformance::{self, AlbumFixture};
use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::{CreditSettings, Credits, NewGrant, Prices};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::key::KeyMode;
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::Reprocessed;
use photofinish_store::{Store, StoreSettings};
use sqlx::{Connection, PgConnection, SqliteConnection};
use support::TestStore;

/// What the suite expects of a store that declines.
fn enforced() -> CreditSettings {
    CreditSettings {
        prices: Prices {
            photo: Credits::whole(1),
            face_search: Credits::from_thousandths(250),
            text_search: Credits::from_thousandths(500),
            download: Credits::from_thousandths(125),
        },
        is_enforced: true,
        mock_credits: Credits::whole(100),
        low_percent: 10,
    }
}

async fn open_enforcing(test_store: &TestStore) -> Store {
    Store::open(StoreSettings { credits: enforced(), ..test_store.settings() }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_of_credits_passes_on_sqlite() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    assert!(store.rate_windows.is_none(), "a process alone counts in memory");
    conformance::credits_suite(&store, &open_enforcing(&test_store).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suites_of_credits_and_rates_pass_on_postgres() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    conformance::credits_suite(&store, &open_enforcing(&test_store).await).await;
    conformance::rates_suite(&**store.rate_windows.as_ref().unwrap()).await;
}

/// Grants of test keys that are no refill of a day, of which each day has one.
const GRANTS_BESIDE_REFILLS: &str =
    "select count(*) from credit_grant where mode = 'test' and refill_day is null";

/// A test of a partner may set the balance before each of its steps. Every confirmation adds up all grants.
async fn set_a_balance_often(store: &Store) {
    let organization = AlbumFixture::create(store).await.tenant.organization;
    for credits in 1..=100 {
        let set = store.credits.set_mock_balance(organization, Credits::whole(credits)).await.unwrap();
        assert_eq!(set.available(), Credits::whole(credits));
    }
    let balance = store.credits.balance(&Tenant { organization, mode: KeyMode::Test }).await.unwrap();
    assert_eq!(balance.available(), Credits::whole(100));
}

#[tokio::test]
async fn a_balance_that_is_set_a_hundred_times_is_one_grant_on_sqlite() {
    let test_store = TestStore::new();
    set_a_balance_often(&test_store.open().await).await;
    let mut connection = SqliteConnection::connect(&test_store.settings().database_url).await.unwrap();
    let (beside,): (i64,) = sqlx::query_as(GRANTS_BESIDE_REFILLS).fetch_one(&mut connection).await.unwrap();
    assert_eq!(beside, 0);
}

#[tokio::test]
async fn a_balance_that_is_set_a_hundred_times_is_one_grant_on_postgres() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    set_a_balance_often(&TestStore::with_database(url.clone()).open().await).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let (beside,): (i64,) = sqlx::query_as(GRANTS_BESIDE_REFILLS).fetch_one(&mut connection).await.unwrap();
    assert_eq!(beside, 0);
}

/// Two processes with an API, 2000 confirmations at once, and a balance for 500: what is accepted beyond it is at most what
/// the other process was committing at that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_share_a_balance() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let stores = [open_enforcing(&test_store).await, open_enforcing(&test_store).await];
    let fixture = AlbumFixture::create(&stores[0]).await;
    let grant = NewGrant {
        tenant: fixture.tenant,
        amount: Credits::whole(500),
        note: String::new(),
        granted_by: String::new(),
    };
    stores[0].credits.grant(grant).await.unwrap();
    let photos: Vec<PhotoId> = fixture.create_photos(2000).await;
    let calls = photos.iter().enumerate().map(async |(number, photo)| {
        stores[number % 2].queue.confirm(fixture.album, &[*photo]).await.unwrap().len()
    });
    let accepted: usize = join_all(calls).await.into_iter().sum();
    assert!((500..=564).contains(&accepted), "{accepted} photos for 500 credits");
    let balance = stores[1].credits.balance(&fixture.tenant).await.unwrap();
    assert_eq!(balance.held, Credits::whole(accepted as i64));
    let counts = stores[0].photos.count_by_state(fixture.album).await.unwrap();
    assert_eq!((counts.queued, counts.awaiting_upload), (accepted as u64, 2000 - accepted as u64));
}

#[tokio::test]
async fn reprocessing_is_no_error_while_photos_are_asked_for_again() {
    let test_store = TestStore::new();
    let store = open_enforcing(&test_store).await;
    let fixture = AlbumFixture::create(&store).await;
    let grant = async |credits: i64| {
        let (tenant, amount) = (fixture.tenant, Credits::whole(credits));
        let grant = NewGrant { tenant, amount, note: String::new(), granted_by: "a test".into() };
        store.credits.grant(grant).await.unwrap();
    };
    grant(2).await;
    fixture.queue_photos(2).await;
    let leases = fixture.lease_fresh(2, Duration::from_secs(3600)).await;
    store.queue.fail(&leases[0], FailureReason::CorruptImage, "damaged").await.unwrap();
    grant(-1).await;
    let reprocessed = store.queue.reprocess(fixture.album).await.unwrap();
    assert_eq!(reprocessed, Reprocessed { queued: 0, declined: 1 });
}

/// Workers and APIs of several processes write the balance of one tenant at once, with deletions and reprocessing between;
/// whenever somebody looks, the sums are those of the photos.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn balances_are_the_sums_of_photos_at_any_moment() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_store = TestStore::with_database(url.clone());
    let stores: Vec<Store> = join_all((0..3).map(|_| test_store.open())).await;
    let fixtures = join_all((0..3).map(|_| AlbumFixture::create(&stores[0]))).await;
    let fixtures = Arc::new(fixtures);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        let (fixtures, store, stop) = (Arc::clone(&fixtures), store.clone(), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let mut round = number as u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                work_once(&store, &fixtures, round >> 33).await;
            }
        }));
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        check_sums(&mut connection).await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    check_sums(&mut connection).await;
    let (spent,): (i64,) = sqlx::query_as("select sum(spent)::bigint from credit_shard")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(spent > 0, "nothing became ready");
}

/// Does something with photos of one of the albums.
async fn work_once(store: &Store, fixtures: &[AlbumFixture], choice: u64) {
    use photofinish_store::model::photo::{NewPhoto, PhotoSize};
    use photofinish_store::traits::{LeaseKind, LeaseRequest, PhotoResults, PictureSizes};
    let fixture = &fixtures[(choice / 16) as usize % fixtures.len()];
    let lease = async |kind| {
        let ttl = if choice.is_multiple_of(5) { Duration::ZERO } else { Duration::from_secs(60) };
        store.queue.lease(LeaseRequest { limit: 8, ttl, kind }).await.unwrap()
    };
    match choice % 16 {
        0..6 => {
            let new = NewPhoto { filename: "a.jpg".into(), content_type: "image/jpeg".into() };
            let photos = store.photos.create(fixture.album, vec![new; 8]).await.unwrap();
            store.queue.confirm(fixture.album, &photos).await.unwrap();
            if choice.is_multiple_of(3) {
                store.photos.delete(fixture.album, photos[0]).await.unwrap();
            }
        }
        6..12 => {
            let leases = lease(LeaseKind::Fresh).await;
            let results = leases.into_iter().map(|lease| PhotoResults {
                lease,
                size: PhotoSize { width: 60, height: 40 },
                taken_at: None,
                camera: None,
                watermark_version: 0,
                pictures: PictureSizes::default(),
                skipped_runners: 0,
                faces: Vec::new(),
                texts: Vec::new(),
            });
            store.queue.finish(results.collect()).await.unwrap();
        }
        12 => {
            for lease in lease(LeaseKind::Fresh).await {
                store.queue.fail(&lease, FailureReason::CorruptImage, "").await.unwrap();
            }
        }
        13 => drop(lease(LeaseKind::CrashSuspect).await),
        14 => {
            store.queue.reprocess(fixture.album).await.unwrap();
        }
        _ => {
            let query = photofinish_store::model::photo::PhotoQuery { after: None, limit: 1, state: None };
            for photo in store.photos.list(fixture.album, query).await.unwrap().photos {
                // Another process may have deleted it.
                drop(store.photos.delete(fixture.album, photo.id).await);
            }
        }
    }
}

/// Compares, in one snapshot, what is held with the photos that are queued or processing, and what was charged with the
/// ledger. A paid photo that was deleted stays spent.
async fn check_sums(connection: &mut PgConnection) {
    type Row = (i64, i64, i64, i64, i64, i64);
    let (held, held_of_photos, waiting, spent, charged, credits): Row = sqlx::query_as(
        "select (select coalesce(sum(held), 0) from credit_shard)::bigint, \
         (select coalesce(sum(held), 0) from photo)::bigint, \
         (select 1000 * count(*) from photo where state in ('queued', 'processing') and charged_at is null)::bigint, \
         (select coalesce(sum(spent), 0) from credit_shard)::bigint, \
         (select 1000 * count(*) from photo where charged_at is not null)::bigint, \
         (select coalesce(sum(credits), 0) from usage_rollup)::bigint",
    )
    .fetch_one(connection)
    .await
    .unwrap();
    assert_eq!((held, held), (held_of_photos, waiting));
    assert_eq!(spent, credits);
    assert!(charged <= spent, "{charged} of {spent}");
}

/// The statements with which the version before credits finishes and fails photos.
#[tokio::test]
async fn photos_that_an_older_version_settles_are_charged_and_released() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_store = TestStore::with_database(url.clone());
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.queue_photos(4).await;
    assert_eq!(fixture.lease_fresh(3, Duration::from_secs(60)).await.len(), 3);
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let ready = "update photo set state = 'ready', settled_at = 86400000000 * 7, attempts = 0, lease = null, \
                 lease_until = 0 where id = any($1)";
    sqlx::query(ready).bind(&photos[..2]).execute(&mut connection).await.unwrap();
    let failed = "update photo set state = 'failed', failure = 'CORRUPT_IMAGE', settled_at = 1, attempts = 0, \
                  lease = null, lease_until = 0 where id = $1";
    sqlx::query(failed).bind(photos[2]).execute(&mut connection).await.unwrap();
    let balance = store.credits.balance(&fixture.tenant).await.unwrap();
    assert_eq!((balance.held, balance.spent), (Credits::whole(1), Credits::whole(2)));
    check_sums(&mut connection).await;
    // Read again, they cost nothing; the failed one does.
    assert_eq!(store.queue.reprocess(fixture.album).await.unwrap().queued, 3);
    let balance = store.credits.balance(&fixture.tenant).await.unwrap();
    assert_eq!((balance.held, balance.spent), (Credits::whole(2), Credits::whole(2)));
}
