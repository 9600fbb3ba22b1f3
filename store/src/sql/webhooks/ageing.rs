//! Time that passes for webhooks, for tests of schedules of days, and what passes at the same time.

use std::time::Duration;

use crate::model::encoding::micros_after;
use crate::model::ids::WebhookId;
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::Result;

/// Makes everything that is due or has failed lie so much further in the past.
pub(crate) async fn age_webhooks(database: &Database, time: Duration) -> Result<()> {
    const OPERATION: &str = "let time pass";
    let mut transaction = database.begin_write(OPERATION).await?;
    for age in [
        "update webhook_delivery set next_at = next_at - $1 where state = 'pending'",
        "update webhook set failing_since = failing_since - $1 where failing_since is not null",
    ] {
        query(OPERATION, age).bind(micros_after(0, time)).execute(&mut transaction).await?;
    }
    transaction.commit(OPERATION).await
}

/// Makes what was cancelled of a webhook pending, as a publisher leaves it that has read that the webhook is enabled, and
/// commits after it was disabled.
pub(crate) async fn publish_late(database: &Database, webhook: WebhookId) -> Result<()> {
    const OPERATION: &str = "publish late";
    let publish = "update webhook_delivery set state = 'pending' where webhook = $1 and state = 'cancelled'";
    let mut transaction = database.begin_write(OPERATION).await?;
    query(OPERATION, publish).bind(webhook).execute(&mut transaction).await?;
    transaction.commit(OPERATION).await
}
