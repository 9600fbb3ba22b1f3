//! Opens what organizations have without photos: their keys, the accounts of their people and their credits.

use std::sync::Arc;

use crate::error::StoreError;
use crate::model::credit::CreditSettings;
use crate::sql::{Database, ServerLimits, SharedLedger, SqlAccounts, SqlCosts, SqlCredits, SqlKeys};
use crate::traits;

/// Opens (and creates, at first start) the database alone, for its organizations and keys.
///
/// # Errors
/// As [`crate::Store::open`].
pub async fn open_keys(
    database_url: &str,
    server_limits: &ServerLimits,
) -> Result<Arc<dyn traits::Keys>, StoreError> {
    Ok(Arc::new(SqlKeys::new(Database::open(database_url, server_limits).await?)))
}

/// Organizations, their keys, the accounts of their people and their credits.
pub struct Organizations {
    /// Organizations and API keys.
    pub keys: Arc<dyn traits::Keys>,
    /// Accounts of people.
    pub accounts: Arc<dyn traits::Accounts>,
    /// What tenants have and use.
    pub credits: Arc<dyn traits::CreditLedger>,
    /// What processing photos has cost.
    pub costs: Arc<dyn traits::Costs>,
}

/// Opens (and creates, at first start) the database alone, for what organizations have without photos.
///
/// # Errors
/// As [`crate::Store::open`].
pub async fn open_organizations(
    database_url: &str,
    server_limits: &ServerLimits,
    credits: CreditSettings,
) -> Result<Organizations, StoreError> {
    let database = Database::open(database_url, server_limits).await?;
    let ledger = SharedLedger::new(credits);
    Ok(Organizations {
        keys: Arc::new(SqlKeys::new(database.clone())),
        accounts: Arc::new(SqlAccounts::new(database.clone())),
        costs: Arc::new(SqlCosts::new(database.clone(), Arc::clone(&ledger), Arc::default())),
        credits: Arc::new(SqlCredits::new(database, ledger)),
    })
}
