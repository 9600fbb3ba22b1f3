//! The database of the cluster: the conformance suites on a real Postgres, and guarantees of a server that several
//! processes share.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use photofinish_servers::Postgres;
use photofinish_store::conformance::{self, AlbumFixture, face, text};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{DetectedFace, PhotoState};
use photofinish_store::traits::{
    FinishOutcome, Lease, LeaseKind, LeaseRequest, PhotoRef, PhotoResults, PictureSizes,
};
use photofinish_store::{ServerLimits, Store, StoreErrorKind, StoreSettings};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use support::TestStore;

/// The duration of leases that must not expire during a test.
const LONG: Duration = Duration::from_secs(3600);

/// How long a test waits for a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suites_pass() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    conformance::run_all_suites(&test_store.open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_process_finds_the_same_person_however_the_album_came_into_memory() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    support::check_that_all_processes_find_the_same(&test_store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_that_start_together_create_the_tables_once() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_stores: Vec<TestStore> = (0..8).map(|_| TestStore::with_database(url.clone())).collect();
    let stores =
        join_all(test_stores.iter().map(|test_store| async {
            Store::open(settings_with_few_connections(test_store)).await.unwrap()
        }))
        .await;
    let fixture = AlbumFixture::create(&stores[0]).await;
    let photos = fixture.queue_photos(3).await;
    for store in &stores {
        store.check_database().await.unwrap();
        assert_eq!(store.photos.count_by_state(fixture.album).await.unwrap().queued, photos.len() as u64);
        assert!(store.embedded().is_none(), "no process may reclaim the leases of all others");
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let (applied, left): (i64, i64) = sqlx::query_as(
        "select (select count(*) from _sqlx_migrations where success), \
         (select count(*) from pg_locks l join pg_database d on d.oid = l.database \
         where l.locktype = 'advisory' and d.datname = current_database())",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres")).unwrap();
    assert_eq!((applied as usize, left), (files.count(), 0));
}

/// Settings with few connections: eight stores share the server with other tests.
fn settings_with_few_connections(test_store: &TestStore) -> StoreSettings {
    let server_limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    StoreSettings { server_limits, ..test_store.settings() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restarted_server_is_reconnected_and_has_the_confirmed_photos() {
    let Some(server) = Postgres::start_private() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let limits = ServerLimits { acquire_timeout: Duration::from_secs(3), ..ServerLimits::default() };
    let store = Store::open(StoreSettings { server_limits: limits, ..test_store.settings() }).await.unwrap();
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.queue_photos(5).await;
    server.stop();
    for refused in [
        store.check_database().await.unwrap_err(),
        store.queue.depth().await.unwrap_err(),
        store.queue.confirm(fixture.album, &photos).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}: {:?}", refused.source);
        assert!(refused.retry_after.is_some());
    }
    server.start_again();
    wait_until_available(&store).await;
    assert_eq!(store.queue.depth().await.unwrap(), 5);
    // Restarts again during calls: they fail as outages or succeed, and what succeeded is durable.
    let more = fixture.create_photos(200).await;
    let confirm = async {
        let mut confirmed = Vec::new();
        for photo in &more {
            match store.queue.confirm(fixture.album, &[*photo]).await {
                Ok(answer) => confirmed.extend(answer),
                Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
            }
        }
        confirmed
    };
    let restart = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let (confirmed, server) = tokio::join!(confirm, restart);
    wait_until_available(&store).await;
    for photo in confirmed {
        assert_eq!(store.photos.get(fixture.album, photo).await.unwrap().state, PhotoState::Queued);
    }
    drop(server);
}

async fn wait_until_available(store: &Store) {
    let start = Instant::now();
    while let Err(error) = store.check_database().await {
        assert!(start.elapsed() < WAIT_LIMIT, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_connection_is_kept_to_a_read_only_server() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_store = TestStore::with_database(url.clone());
    let limits =
        ServerLimits { connections: 1, acquire_timeout: Duration::from_secs(2), ..ServerLimits::default() };
    let store = Store::open(StoreSettings { server_limits: limits, ..test_store.settings() }).await.unwrap();
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.create_photos(1).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    // As when the server fails and its name leads to a standby for a while.
    let name = url.rsplit('/').next().unwrap();
    let standby = format!("alter database {name} set default_transaction_read_only = on");
    sqlx::query(AssertSqlSafe(standby)).execute(&mut connection).await.unwrap();
    let others = "select pg_terminate_backend(pid, 30000) from pg_stat_activity \
                  where datname = current_database() and pid <> pg_backend_pid()";
    sqlx::query(others).execute(&mut connection).await.unwrap();
    // The first call fails for lack of the old connection.
    for _ in 0..2 {
        let refused = store.queue.confirm(fixture.album, &photos).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}: {:?}", refused.source);
    }
    let refused = Store::open(test_store.settings()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}: {:?}", refused.source);
    let primary = format!("alter database {name} reset default_transaction_read_only");
    sqlx::query(AssertSqlSafe(primary)).execute(&mut connection).await.unwrap();
    let mut more_tries = 0..5;
    while let Err(error) = store.queue.confirm(fixture.album, &photos).await {
        assert!(more_tries.next().is_some(), "{error}: {:?}", error.source);
    }
}

#[tokio::test]
async fn a_damaged_database_is_not_blamed_on_a_photo() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_store = TestStore::with_database(url.clone());
    let fixture = AlbumFixture::create(&test_store.open().await).await;
    fixture.queue_photos(1).await;
    let lease = lease_all(&fixture).await.remove(0);
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (code, is_its_own) in [("XX002", false), ("42501", false), ("22003", true)] {
        let fail = format!(
            "create or replace function fail() returns trigger language plpgsql as \
             $$ begin raise exception 'as the test wants it' using errcode = '{code}'; end $$"
        );
        sqlx::query(AssertSqlSafe(fail)).execute(&mut connection).await.unwrap();
        let trigger = "create or replace trigger failing before insert on face \
                       for each row execute function fail()";
        sqlx::query(trigger).execute(&mut connection).await.unwrap();
        let error = fixture.store.queue.finish(vec![results_for(&lease, 1)]).await.unwrap_err();
        assert_eq!((error.kind, error.is_rejected_value()), (StoreErrorKind::Corrupt, is_its_own), "{code}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_never_lease_the_same_photo() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_stores = [TestStore::with_database(url.clone()), TestStore::with_database(url)];
    let stores = [test_stores[0].open().await, test_stores[1].open().await];
    let fixtures = [AlbumFixture::create(&stores[0]).await, AlbumFixture::create(&stores[1]).await];
    let mut photos = HashSet::new();
    for fixture in &fixtures {
        photos.extend(fixture.queue_photos(300).await);
    }
    let names: Vec<PhotoRef> =
        photos.iter().map(|photo| PhotoRef { album: fixtures[0].album, photo: *photo }).collect();
    let by_asking = async |store: &Store| {
        let mut held = Vec::new();
        loop {
            let request = LeaseRequest { limit: 7, ttl: LONG, kind: LeaseKind::Fresh };
            let leases = store.queue.lease(request).await.unwrap();
            if leases.is_empty() && store.queue.depth().await.unwrap() == 0 {
                return held;
            }
            held.extend(leases.into_iter().map(|lease| lease.photo));
        }
    };
    let by_name = async |store: &Store| {
        let mut held = Vec::new();
        for names in names.chunks(11) {
            for answer in store.outbox_queue.lease_named(names, LONG).await.unwrap() {
                if let photofinish_store::traits::NamedLease::Leased(lease) = answer {
                    held.push(lease.photo);
                }
            }
        }
        held
    };
    let (a, b, c, d, e) = tokio::join!(
        by_asking(&stores[0]),
        by_asking(&stores[1]),
        by_asking(&stores[1]),
        by_name(&stores[0]),
        by_name(&stores[1]),
    );
    let held = [a, b, c, d, e].concat();
    assert_eq!(held.len(), photos.len(), "a photo was leased twice");
    assert_eq!(held.into_iter().collect::<HashSet<PhotoId>>(), photos);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_finish_the_same_albums_in_opposite_order_do_not_deadlock() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_stores = [TestStore::with_database(url.clone()), TestStore::with_database(url)];
    let stores = [test_stores[0].open().await, test_stores[1].open().await];
    let mut fixtures = Vec::new();
    for _ in 0..6 {
        fixtures.push(AlbumFixture::create(&stores[0]).await);
    }
    for round in 0..10 {
        let mut batches = [Vec::new(), Vec::new()];
        for fixture in &fixtures {
            fixture.queue_photos(8).await;
        }
        for (i, lease) in lease_all(&fixtures[0]).await.into_iter().enumerate() {
            batches[i % 2].push(results_for(&lease, round));
        }
        batches[0].sort_by_key(|finished| (finished.lease.album, finished.lease.photo));
        batches[1].sort_by_key(|finished| std::cmp::Reverse((finished.lease.album, finished.lease.photo)));
        let ids =
            batches.clone().map(|batch| batch.iter().map(|finished| finished.lease.id).collect::<Vec<_>>());
        let [forwards, backwards] = batches;
        let (f, b) = (forwards.len(), backwards.len());
        let all_ids: Vec<_> = ids.concat();
        let (renewed, a, b_answers) = tokio::join!(
            stores[0].queue.renew(&all_ids, LONG),
            stores[0].queue.finish(forwards),
            stores[1].queue.finish(backwards),
        );
        renewed.unwrap();
        // Of two deadlocked transactions the server ends one with an error.
        assert_eq!(a.unwrap(), vec![FinishOutcome::Done; f]);
        assert_eq!(b_answers.unwrap(), vec![FinishOutcome::Done; b]);
    }
    let probe = face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
    for fixture in &fixtures {
        let hits = stores[1].faces.nearest(fixture.album, &probe, 1000, 0.5).await.unwrap();
        assert_eq!(hits.len(), 80, "the index has every change of the album");
    }
}

async fn lease_all(fixture: &AlbumFixture) -> Vec<Lease> {
    let mut leases = Vec::new();
    loop {
        let more = fixture.lease_fresh(100, LONG).await;
        if more.is_empty() {
            return leases;
        }
        leases.extend(more);
    }
}

fn results_for(lease: &Lease, round: usize) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: photofinish_store::model::photo::PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        watermark_version: 0,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
        faces: vec![DetectedFace { confidence: 0.5, ..face([1.0, 0.0, 0.0, 0.0]) }],
        texts: vec![text(&format!("{round}"), 0.99)],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_album_is_reprocessed_and_deleted_while_workers_finish_its_photos() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_stores = [TestStore::with_database(url.clone()), TestStore::with_database(url)];
    let (store, other) = (test_stores[0].open().await, test_stores[1].open().await);
    let fixture = AlbumFixture::create(&store).await;
    fixture.queue_photos(300).await;
    let work = async |store: &Store| {
        loop {
            let request = LeaseRequest { limit: 16, ttl: LONG, kind: LeaseKind::Fresh };
            let leases = store.queue.lease(request).await.unwrap();
            if leases.is_empty() {
                return;
            }
            let batch = leases.iter().rev().map(|lease| results_for(lease, 1)).collect();
            for answer in store.queue.finish(batch).await.unwrap() {
                assert_ne!(answer, FinishOutcome::Superseded);
            }
        }
    };
    let reprocess = async {
        for _ in 0..3 {
            other.queue.reprocess(fixture.album).await.unwrap();
        }
    };
    tokio::join!(work(&store), work(&other), reprocess);
    store.queue.reprocess(fixture.album).await.unwrap();
    let delete = other.albums.delete(&fixture.tenant, fixture.album);
    let ((), (), deleted) = tokio::join!(work(&store), work(&other), delete);
    deleted.unwrap();
    assert_eq!(store.queue.depth().await.unwrap(), 0);
}

#[tokio::test]
async fn statement_and_lock_timeouts_are_outages() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let test_store = TestStore::with_database(url.clone());
    let limits = ServerLimits { lock_timeout: Duration::from_millis(200), ..ServerLimits::default() };
    let store = Store::open(StoreSettings { server_limits: limits, ..test_store.settings() }).await.unwrap();
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.create_photos(1).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut holder = connection.begin().await.unwrap();
    sqlx::query("lock table photo in access exclusive mode").execute(&mut *holder).await.unwrap();
    for refused in [
        store.queue.confirm(fixture.album, &photos).await.unwrap_err(),
        store.photos.get(fixture.album, photos[0]).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
    }
    holder.rollback().await.unwrap();
    assert_eq!(store.queue.confirm(fixture.album, &photos).await.unwrap(), photos);
    let limits = ServerLimits { statement_timeout: Duration::from_millis(200), ..ServerLimits::default() };
    let store = Store::open(StoreSettings { server_limits: limits, ..test_store.settings() }).await.unwrap();
    let mut holder = connection.begin().await.unwrap();
    sqlx::query("lock table photo in access exclusive mode").execute(&mut *holder).await.unwrap();
    let refused = store.photos.get(fixture.album, photos[0]).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
    holder.rollback().await.unwrap();
}

#[tokio::test]
async fn an_unreachable_server_and_an_invalid_url_are_refused() {
    let test_store = TestStore::with_database("postgres://nobody:secret@127.0.0.1:1/rows".into());
    let error = Store::open(test_store.settings()).await.err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let test_store = TestStore::with_database("postgres://nobody:secret@127.0.0.1:port/rows".into());
    let error = Store::open(test_store.settings()).await.err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::Invalid);
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}
