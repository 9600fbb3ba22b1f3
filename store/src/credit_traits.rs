//! Credits, usage and rate limits. The traits are part of [`crate::traits`].

use async_trait::async_trait;

use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::cost::{CostQuery, CostRow, CostWeights, PhotoCost, SearchCosts, StoredObjects};
use crate::model::credit::{
    Balance, ChargedRequest, CreditSettings, Credits, NewGrant, TenantBalance, UsageOperation, UsageQuery,
    UsageRow,
};
use crate::model::ids::{AlbumId, GrantId, OrganizationId, PhotoId};
use crate::model::process::TaskLease;
use crate::model::rate::RateShare;

type Result<T> = std::result::Result<T, StoreError>;

/// Why photos were not queued: the balance of their tenant does not cover them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decline {
    /// What the tenant has left.
    pub balance: Credits,
    /// What one photo costs.
    pub price: Credits,
}

/// What became of a call of [`crate::traits::Queue::confirm_uploads`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfirmedUploads {
    /// The photos that exist and are not declined, in order, also those that were confirmed before.
    pub photos: Vec<PhotoId>,
    /// The photos that were not queued.
    pub declined: Vec<PhotoId>,
    /// Why, at the first of them; `None` if none was declined.
    pub decline: Option<Decline>,
}

/// What became of a call of [`crate::traits::Queue::reprocess`], in photos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reprocessed {
    /// Those that were queued, without those that are being processed.
    pub queued: u64,
    /// Those that were not, because they are not paid and the balance does not cover them.
    pub declined: u64,
}

/// What tenants have and use. Photos are charged by [`crate::traits::Queue`].
#[async_trait]
pub trait CreditLedger: Send + Sync {
    /// What things cost, and whether what is not covered is declined.
    fn settings(&self) -> &CreditSettings;
    /// Returns the balance of a tenant. That of test keys is refilled first, if it was not yet on this day.
    async fn balance(&self, tenant: &Tenant) -> Result<Balance>;
    /// Returns the balance as it was at most five seconds ago.
    async fn recent_balance(&self, tenant: &Tenant) -> Result<Balance>;
    /// Adds a grant; returns the balance with it. `NotFound` without the organization.
    async fn grant(&self, grant: NewGrant) -> Result<Balance> {
        self.grant_once(GrantId::generate(), grant).await
    }
    /// Adds a grant of this id unless it is there already; returns the balance with it. `Conflict` when there is another grant with
    /// the id, `NotFound` without the organization.
    async fn grant_once(&self, id: GrantId, grant: NewGrant) -> Result<Balance>;
    /// Gives the test keys of an organization so much that they can use this amount; returns the balance. However often on a day,
    /// it is one grant.
    async fn set_mock_balance(&self, organization: OrganizationId, available: Credits) -> Result<Balance>;
    /// Charges requests that have a price, all of them or none, searches once for each selfie. `InsufficientCredits` when the
    /// balance does not cover them together.
    async fn charge_requests(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        requests: &[ChargedRequest],
    ) -> Result<()>;
    /// Counts something that costs nothing. Written by [`Self::flush_usage`], with what came before.
    fn count(&self, tenant: &Tenant, album: AlbumId, operation: UsageOperation);
    /// Writes what was counted since the last call; keeps it when that fails, unless it may have been written.
    async fn flush_usage(&self) -> Result<()>;
    /// Sums up the usage of a tenant, by day, album and operation.
    async fn usage(&self, tenant: &Tenant, query: UsageQuery) -> Result<Vec<UsageRow>>;
    /// Returns the balances of all tenants with grants, live keys only, for operators.
    async fn list_balances(&self) -> Result<Vec<TenantBalance>>;
}

/// What one process at a time does with credits.
#[async_trait]
pub trait LedgerTask: Send + Sync {
    /// Whether there is something to do. Writes nothing.
    async fn is_due(&self) -> Result<bool>;
    /// Tells tenants whose credits have become low, and deletes what is no longer needed. `Conflict` when another process
    /// has the task.
    async fn run(&self, lease: TaskLease) -> Result<()>;
}

/// The rate limits that processes of one database share.
#[async_trait]
pub trait RateWindows: Send + Sync {
    /// Takes a part of a limit; returns how much all processes have taken with it. `None` when it would be more than the
    /// limit: nothing is taken.
    async fn take(&self, share: RateShare) -> Result<Option<u32>>;
}

/// What photos and searches have cost. That of photos is written by [`crate::traits::Queue`] with the outcome of each attempt.
#[async_trait]
pub trait Costs: Send + Sync {
    /// Sums up the costs of a tenant, by day, album and stage.
    async fn costs(&self, tenant: &Tenant, query: CostQuery) -> Result<Vec<CostRow>>;
    /// Returns what is stored of a tenant's photos, of all or of one album. Costs the same however many photos there are.
    async fn stored(&self, tenant: &Tenant, album: Option<AlbumId>) -> Result<StoredObjects>;
    /// Returns the dearest of the `newest` photos of an album, at most `limit`, the dearest first. The caller has checked that
    /// the album belongs to the tenant.
    async fn dearest(
        &self,
        album: AlbumId,
        newest: u32,
        weights: CostWeights,
        limit: u32,
    ) -> Result<Vec<PhotoCost>>;
    /// Returns whose an album is; `None` if there is none.
    async fn owner_of(&self, album: AlbumId) -> Result<Option<Tenant>>;
    /// What searches of this process cost, until it is written.
    fn searches(&self) -> &SearchCosts;
    /// Writes what searches of this process cost; keeps it when that fails, unless it may have been written.
    async fn flush_searches(&self) -> Result<()>;
}
