//! Wrong passwords: by the address that was tried, and by where they came from.
//!
//! An address without an account is made to wait as one with an account, or the wait would tell which have one.

use std::time::Duration;

use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use crate::model::encoding::{from_micros, micros_after, to_micros};
use crate::model::ids::AccountId;
use crate::sql::database::{Database, Transaction};
use crate::sql::statement::query;
use crate::traits::Result;

/// Wrong passwords in a row that cost no wait.
const FREE_FAILURES: i64 = 5;
/// The wait after the first one that does; each doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);
/// Wrong passwords are forgotten after so long without another one, microseconds.
const MEMORY_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// Returns how long no password is tried after so many wrong ones.
fn wait_after(failures: i64) -> Duration {
    let doublings = failures - FREE_FAILURES - 1;
    if doublings < 0 {
        return Duration::ZERO;
    }
    let factor = 1_u32.checked_shl(u32::try_from(doublings).unwrap_or(u32::MAX)).unwrap_or(u32::MAX);
    FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT)
}

/// Addresses are kept as this: somebody may have typed one of a person who has no account.
fn digest(email: &str) -> Vec<u8> {
    Sha256::digest(email.to_lowercase()).to_vec()
}

/// Records a wrong password; returns until when no other is tried.
pub(super) async fn record(database: &Database, email: &str, at: OffsetDateTime) -> Result<OffsetDateTime> {
    const OPERATION: &str = "record a wrong password";
    let (address, at) = (digest(email), to_micros(at));
    let mut transaction = database.begin_write(OPERATION).await?;
    query(OPERATION, "delete from sign_in_wait where last_failure_at < $1")
        .bind(at - MEMORY_MICROS)
        .execute(&mut transaction)
        .await?;
    let count = "insert into sign_in_wait as wait (address, failures, blocked_until, last_failure_at) \
                 values ($1, 1, 0, $2) on conflict (address) do update \
                 set failures = wait.failures + 1, last_failure_at = excluded.last_failure_at returning failures";
    let (failures,): (i64,) =
        query(OPERATION, count).bind(address.clone()).bind(at).fetch_one(&mut transaction).await?;
    let until = micros_after(at, wait_after(failures));
    query(OPERATION, "update sign_in_wait set blocked_until = $2 where address = $1")
        .bind(address)
        .bind(until)
        .execute(&mut transaction)
        .await?;
    transaction.commit(OPERATION).await?;
    from_micros(until)
}

/// Returns until when no password of an address is tried; a time in the past when one is.
pub(super) async fn blocked_until(database: &Database, email: &str) -> Result<OffsetDateTime> {
    const OPERATION: &str = "find wrong passwords";
    let found: Option<(i64,)> = query(OPERATION, "select blocked_until from sign_in_wait where address = $1")
        .bind(digest(email))
        .fetch_optional(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    found.map_or(Ok(OffsetDateTime::UNIX_EPOCH), |(until,)| from_micros(until))
}

/// Forgets the wrong passwords of an account.
pub(super) async fn forget(transaction: &mut Transaction, account: AccountId) -> Result<()> {
    const OPERATION: &str = "forget wrong passwords";
    let found: Option<(String,)> = query(OPERATION, "select email from account where id = $1")
        .bind(account)
        .fetch_optional(&mut *transaction)
        .await?;
    if let Some((email,)) = found {
        query(OPERATION, "delete from sign_in_wait where address = $1")
            .bind(digest(&email))
            .execute(transaction)
            .await?;
    }
    Ok(())
}

pub(super) async fn count_from_network(database: &Database, source: &[u8; 32], hour: i64) -> Result<u64> {
    const OPERATION: &str = "count a wrong password";
    let mut transaction = database.begin_write(OPERATION).await?;
    let count = "insert into sign_in_attempt as attempt (source, hour, failures) values ($1, $2, 1) \
                 on conflict (source, hour) do update set failures = attempt.failures + 1 returning failures";
    let (failures,): (i64,) =
        query(OPERATION, count).bind(source.to_vec()).bind(hour).fetch_one(&mut transaction).await?;
    query(OPERATION, "delete from sign_in_attempt where hour < $1 - 24")
        .bind(hour)
        .execute(&mut transaction)
        .await?;
    transaction.commit(OPERATION).await?;
    Ok(failures.unsigned_abs())
}

pub(super) async fn count_of_network(database: &Database, source: &[u8; 32], hour: i64) -> Result<u64> {
    const OPERATION: &str = "count wrong passwords";
    let find = "select failures from sign_in_attempt where source = $1 and hour = $2";
    let found: Option<(i64,)> = query(OPERATION, find)
        .bind(source.to_vec())
        .bind(hour)
        .fetch_optional(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    Ok(found.map_or(0, |(failures,)| failures.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_wrong_passwords_doubles_up_to_a_quarter_of_an_hour() {
        let waits: Vec<u64> = (4..10).map(|failures| wait_after(failures).as_secs()).collect();
        assert_eq!(waits, [0, 0, 1, 2, 4, 8]);
        assert_eq!(wait_after(16), LONGEST_WAIT);
        assert_eq!(wait_after(i64::MAX), LONGEST_WAIT);
    }
}
