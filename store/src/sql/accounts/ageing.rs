//! Time that passes for accounts, for tests of links and sessions that last for days.

use std::time::Duration;

use crate::model::encoding::micros_after;
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::Result;

/// Makes the ends of all links lie so much further in the past, and the beginnings, uses and ends of all sessions.
pub(crate) async fn age_accounts(database: &Database, time: Duration) -> Result<()> {
    const OPERATION: &str = "let time pass";
    let mut transaction = database.begin_write(OPERATION).await?;
    for age in [
        "update account_link set expires_at = expires_at - $1",
        "update account_session set created_at = created_at - $1, last_seen_at = last_seen_at - $1, \
         expires_at = expires_at - $1",
    ] {
        query(OPERATION, age).bind(micros_after(0, time)).execute(&mut transaction).await?;
    }
    transaction.commit(OPERATION).await
}
