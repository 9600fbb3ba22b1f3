//! Sessions of accounts.
//!
//! Whoever begins or uses a session, or ends all of an account, locks the account before its sessions. So nobody who ends them
//! because the password is another one misses a session that begins at the same moment with the one until then.

use time::OffsetDateTime;

use super::failures;
use super::rows::{SessionOfAccountRow, SessionRow, account_columns};
use crate::error::StoreError;
use crate::model::account::{Account, NewSession, Session, TokenDigest};
use crate::model::encoding::{now_micros, to_micros};
use crate::model::ids::{AccountId, SessionId};
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::convert_rows;
use crate::sql::statement::query;
use crate::traits::Result;

/// The time of last use is written again when the stored one is at least this much older, microseconds.
const TOUCH_INTERVAL_MICROS: i64 = 60_000_000;

macro_rules! session_columns {
    () => {
        "s.id as session_id, s.device, s.created_at as session_created_at, s.last_seen_at as session_seen_at, \
         s.expires_at as session_expires_at"
    };
}

/// Inserts a session of an account that is locked; returns its id.
pub(super) async fn insert(
    transaction: &mut Transaction,
    account: AccountId,
    session: NewSession,
) -> Result<SessionId> {
    const OPERATION: &str = "begin a session";
    let id = SessionId::generate();
    let insert = "insert into account_session (id, digest, account, device, created_at, last_seen_at, expires_at) \
                  values ($1, $2, $3, $4, $5, $5, $6)";
    query(OPERATION, insert)
        .bind(id)
        .bind(session.digest.to_vec())
        .bind(account)
        .bind(session.device)
        .bind(now_micros())
        .bind(to_micros(session.expires_at))
        .execute(transaction)
        .await?;
    Ok(id)
}

/// Ends the sessions of an account that is locked, all or all but one.
pub(super) async fn end_all(
    transaction: &mut Transaction,
    account: AccountId,
    kept: Option<SessionId>,
) -> Result<()> {
    const OPERATION: &str = "end sessions";
    // No session has the nil id.
    let kept = kept.unwrap_or(SessionId(uuid::Uuid::nil()));
    query(OPERATION, "delete from account_session where account = $1 and id <> $2")
        .bind(account)
        .bind(kept)
        .execute(transaction)
        .await?;
    Ok(())
}

/// `None` if the hash of the account's password is not this one any more, or the account is disabled.
pub(super) async fn begin(
    database: &Database,
    account: AccountId,
    hash: &str,
    session: NewSession,
) -> Result<Option<Session>> {
    const OPERATION: &str = "begin a session";
    let mut transaction = database.begin_write(OPERATION).await?;
    // A server waits here for whoever sets another password, and looks at that one then.
    let lock = "update account set last_seen_at = $3 where id = $1 and password = $2 and disabled_at is null";
    let locked =
        query(OPERATION, lock).bind(account).bind(hash).bind(now_micros()).execute(&mut transaction).await?;
    if locked == 0 {
        transaction.rollback(OPERATION).await?;
        return Ok(None);
    }
    query(OPERATION, "delete from account_session where expires_at <= $1")
        .bind(now_micros())
        .execute(&mut transaction)
        .await?;
    failures::forget(&mut transaction, account).await?;
    let id = insert(&mut transaction, account, session).await?;
    let find = concat!("select ", session_columns!(), " from account_session s where s.id = $1");
    let row: SessionRow = query(OPERATION, find).bind(id).fetch_one(&mut transaction).await?;
    transaction.commit(OPERATION).await?;
    Session::try_from(row).map(Some)
}

pub(super) async fn find(database: &Database, digest: &TokenDigest) -> Result<Option<(Session, Account)>> {
    const OPERATION: &str = "find a session";
    let find = concat!(
        "select ",
        session_columns!(),
        ", ",
        account_columns!(),
        " join account_session s on s.account = a.id where s.digest = $1"
    );
    let row: Option<SessionOfAccountRow> = query(OPERATION, find)
        .bind(digest.to_vec())
        .fetch_optional(&mut database.acquire_key_reader(OPERATION).await?)
        .await?;
    row.map(|row| Ok((row.session.try_into()?, row.account.try_into()?))).transpose()
}

pub(super) async fn touch(database: &Database, session: SessionId, at: OffsetDateTime) -> Result<()> {
    const OPERATION: &str = "record the use of a session";
    let at = to_micros(at);
    let mut transaction = database.begin_write(OPERATION).await?;
    let touch = "update account set last_seen_at = $2 where id = (select account from account_session \
                 where id = $1 and last_seen_at <= $2 - $3)";
    let touched = query(OPERATION, touch)
        .bind(session)
        .bind(at)
        .bind(TOUCH_INTERVAL_MICROS)
        .execute(&mut transaction)
        .await?;
    if touched > 0 {
        let seen = "update account_session set last_seen_at = $2 where id = $1";
        query(OPERATION, seen).bind(session).bind(at).execute(&mut transaction).await?;
    }
    transaction.commit(OPERATION).await
}

pub(super) async fn list(database: &Database, account: AccountId) -> Result<Vec<Session>> {
    const OPERATION: &str = "list sessions";
    let list = concat!(
        "select ",
        session_columns!(),
        " from account_session s where s.account = $1 and s.expires_at > $2 order by s.id desc"
    );
    let rows: Vec<SessionRow> = query(OPERATION, list)
        .bind(account)
        .bind(now_micros())
        .fetch_all(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    convert_rows(rows)
}

pub(super) async fn end(database: &Database, account: AccountId, session: SessionId) -> Result<()> {
    const OPERATION: &str = "end a session";
    let mut transaction = database.begin_write(OPERATION).await?;
    let ended = query(OPERATION, "delete from account_session where id = $1 and account = $2")
        .bind(session)
        .bind(account)
        .execute(&mut transaction)
        .await?;
    if ended == 0 {
        return Err(StoreError::not_found(format!("session {session}")));
    }
    transaction.commit(OPERATION).await
}
