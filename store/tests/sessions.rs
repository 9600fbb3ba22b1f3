//! Sessions on a Postgres server that begin at the moment in which the password of their account changes.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::time::{Duration, Instant};

use photofinish_servers::Postgres;
use photofinish_store::Store;
use photofinish_store::model::account::{
    Account, LinkPurpose, LinkUse, NewAccount, NewLink, NewSession, Role, TokenDigest,
};
use photofinish_store::model::ids::SessionId;
use sqlx::{Connection, PgConnection, Transaction};
use support::TestStore;
use time::OffsetDateTime;

/// The hash of the password that the account chooses first.
const HASH: &str = "a hash";

/// How long a test waits for a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// An account with one session on a database of its own, and connections beside its store.
struct ServerFixture {
    store: Store,
    account: Account,
    session: SessionId,
    connection: PgConnection,
    observer: PgConnection,
    /// Has the folder of the photos.
    _test_store: TestStore,
}

impl ServerFixture {
    /// `None` where there is no server to test with.
    async fn create() -> Option<Self> {
        let url = Postgres::shared()?.create_database();
        let test_store = TestStore::with_database(url.clone());
        let store = test_store.open().await;
        let organization = store.keys.get_or_create_organization("Harbour Run").await.unwrap();
        let email = "anna@race.example".to_owned();
        let account = NewAccount { organization, email, role: Role::Owner, is_operator: false };
        let link = new_link(LinkPurpose::Welcome, [1; 32]);
        store.accounts.invite(account, link).await.unwrap();
        let account = store.accounts.use_link(usage(link, HASH, [2; 32])).await.unwrap();
        let session = store.accounts.list_sessions(account.id).await.unwrap()[0].id;
        let connection = PgConnection::connect(&url).await.unwrap();
        let observer = PgConnection::connect(&url).await.unwrap();
        Some(Self { store, account, session, connection, observer, _test_store: test_store })
    }

    async fn list_sessions(&self) -> Vec<SessionId> {
        let sessions = self.store.accounts.list_sessions(self.account.id).await.unwrap();
        sessions.into_iter().map(|session| session.id).collect()
    }
}

fn new_link(purpose: LinkPurpose, digest: TokenDigest) -> NewLink {
    NewLink { purpose, digest, expires_at: OffsetDateTime::now_utc() + time::Duration::HOUR }
}

fn new_session(digest: TokenDigest) -> NewSession {
    let expires_at = OffsetDateTime::now_utc() + time::Duration::DAY;
    NewSession { digest, device: "a browser".into(), expires_at }
}

fn usage(link: NewLink, hash: &str, session: TokenDigest) -> LinkUse {
    let session = new_session(session);
    LinkUse { digest: link.digest, password: Some(hash.into()), name: None, session }
}

/// As a process that has written a session, after a password that was right, and has not committed it yet.
async fn write_session<'c>(
    connection: &'c mut PgConnection,
    account: &Account,
    digest: TokenDigest,
) -> Transaction<'c, sqlx::Postgres> {
    let mut transaction = connection.begin().await.unwrap();
    let lock = "update account set last_seen_at = 1 where id = $1";
    sqlx::query(lock).bind(account.id.0).execute(&mut *transaction).await.unwrap();
    let insert = "insert into account_session (id, digest, account, device, created_at, last_seen_at, expires_at) \
                  select $1, $2, id, 'a browser', 1, 1, 9000000000000000 from account where id = $3";
    sqlx::query(insert)
        .bind(SessionId::generate().0)
        .bind(digest.to_vec())
        .bind(account.id.0)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction
}

/// Commits once another transaction of the database waits for a lock.
async fn commit_when_waited_for(transaction: Transaction<'_, sqlx::Postgres>, observer: &mut PgConnection) {
    let count = "select count(*) from pg_stat_activity \
                 where datname = current_database() and wait_event_type = 'Lock'";
    let start = Instant::now();
    loop {
        let waiting: i64 = sqlx::query_scalar(count).fetch_one(&mut *observer).await.unwrap();
        if waiting > 0 {
            break;
        }
        assert!(start.elapsed() < WAIT_LIMIT, "nobody waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    transaction.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_begins_before_the_password_changes_ends_with_it() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let accounts = &server.store.accounts;
    let begun = write_session(&mut server.connection, &server.account, [3; 32]).await;
    let change = accounts.set_password(server.account.id, "another hash".into(), server.session);
    let (changed, ()) = tokio::join!(change, commit_when_waited_for(begun, &mut server.observer));
    changed.unwrap();
    assert_eq!(server.list_sessions().await, [server.session]);

    let reset = new_link(LinkPurpose::Reset, [4; 32]);
    accounts.make_link(server.account.id, reset).await.unwrap();
    let begun = write_session(&mut server.connection, &server.account, [5; 32]).await;
    let change = accounts.use_link(usage(reset, "a third", [6; 32]));
    let (changed, ()) = tokio::join!(change, commit_when_waited_for(begun, &mut server.observer));
    changed.unwrap();
    assert!(accounts.find_session(&[6; 32]).await.unwrap().is_some(), "that of the link");
    assert_eq!(server.list_sessions().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_begins_with_a_password_that_is_about_to_be_another() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let mut change = server.connection.begin().await.unwrap();
    let set = "update account set password = 'another hash' where id = $1";
    sqlx::query(set).bind(server.account.id.0).execute(&mut *change).await.unwrap();
    let begin = server.store.accounts.begin_session(server.account.id, HASH, new_session([3; 32]));
    let (begun, ()) = tokio::join!(begin, commit_when_waited_for(change, &mut server.observer));
    assert_eq!(begun.unwrap(), None);
    assert_eq!(server.list_sessions().await, [server.session]);
}
