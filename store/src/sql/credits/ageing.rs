//! Days that pass for credits, for tests of what is done once on each.

use super::SharedLedger;
use super::ledger::MICROS_PER_DAY;
use crate::model::ids::OrganizationId;
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::Result;

/// Makes the grants and refills of an organization lie so many days further in the past, also those that this process
/// remembers.
pub(crate) async fn age_credits(
    database: &Database,
    shared: &SharedLedger,
    organization: OrganizationId,
    days: i64,
) -> Result<()> {
    const OPERATION: &str = "let days pass";
    let mut transaction = database.begin_write(OPERATION).await?;
    // By way of negative days, so that at no moment two refills of a tenant are of one day.
    let negate = "update credit_grant set refill_day = -refill_day where organization = $1";
    query(OPERATION, negate).bind(organization).execute(&mut transaction).await?;
    let age = "update credit_grant set refill_day = -refill_day - $2, created_at = created_at - $3 \
               where organization = $1";
    query(OPERATION, age)
        .bind(organization)
        .bind(days)
        .bind(days.saturating_mul(MICROS_PER_DAY))
        .execute(&mut transaction)
        .await?;
    transaction.commit(OPERATION).await?;
    shared.refills.age(organization, days);
    Ok(())
}
