//! Credits in the database: balances, charges of searches, usage. Photos are held and charged by the transactions of the
//! queue, through [`ledger`].

pub(crate) mod acceptance;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod ageing;
pub(crate) mod balances;
pub(crate) mod ledger;
pub(crate) mod rates;
pub(crate) mod task;
pub(crate) mod usage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::balances::{AmpleBalances, Refills, add_to_refill, load_balance};
use self::ledger::{Ledger, LedgerEntries, Writer};
use self::usage::UsageMeter;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::Tenant;
use crate::model::credit::{
    Balance, ChargedRequest, CreditSettings, Credits, NewGrant, TenantBalance, UsageOperation, UsageQuery,
    UsageRow,
};
use crate::model::encoding::now_micros;
use crate::model::ids::{AlbumId, GrantId, OrganizationId};
use crate::model::key::KeyMode;
use crate::model::process::TaskLease;
use crate::sql::database::{Database, Transaction, commit_counts};
use crate::sql::row_types::parse_key_mode;
use crate::sql::statement::query;
use crate::sql::tasks::fence;
use crate::traits::{CreditLedger, LedgerTask, Result};
use async_trait::async_trait;

/// How old a balance may be that only hints at what will be declined.
const RECENT: Duration = Duration::from_secs(5);

/// Tenants whose recent balance is remembered.
const MAX_RECENT: usize = 4096;

/// What the ledger and the queue of one process share.
pub(crate) struct SharedLedger {
    pub(crate) ledger: Ledger,
    pub(crate) refills: Refills,
    pub(crate) ample: AmpleBalances,
}

impl SharedLedger {
    pub(crate) fn new(settings: CreditSettings) -> Arc<Self> {
        let ledger = Ledger::new(settings);
        Arc::new(Self { ledger, refills: Refills::default(), ample: AmpleBalances::default() })
    }
}

pub(crate) struct SqlCredits {
    database: Database,
    shared: Arc<SharedLedger>,
    meter: UsageMeter,
    recent: Mutex<HashMap<Tenant, (Instant, Balance)>>,
}

impl SqlCredits {
    pub(crate) fn new(database: Database, shared: Arc<SharedLedger>) -> Self {
        Self { database, shared, meter: UsageMeter::default(), recent: Mutex::default() }
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, HashMap<Tenant, (Instant, Balance)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, tenant: &Tenant, balance: Balance) -> Balance {
        let mut recent = self.recent();
        if recent.len() > MAX_RECENT {
            recent.clear();
        }
        recent.insert(*tenant, (Instant::now(), balance));
        balance
    }

    async fn refilled_balance(
        &self,
        transaction: &mut Transaction,
        tenant: &Tenant,
        now: i64,
    ) -> Result<Balance> {
        let mock = self.settings().mock_credits;
        self.shared.refills.refilled_balance(transaction, tenant, mock, now).await
    }

    /// Marks a selfie as charged; returns whether it was not.
    async fn claim_charge(
        &self,
        transaction: &mut Transaction,
        request: ChargedRequest,
        now: i64,
    ) -> Result<bool> {
        let ChargedRequest::FaceSearch(probe, _) = request else { return Ok(true) };
        let claim = "update probe set charged_at = $2 where id = $1 and charged_at is null";
        let claimed = query("charge requests", claim).bind(probe).bind(now).execute(transaction).await?;
        Ok(claimed > 0)
    }
}

#[async_trait]
impl CreditLedger for SqlCredits {
    fn settings(&self) -> &CreditSettings {
        &self.shared.ledger.settings
    }

    async fn balance(&self, tenant: &Tenant) -> Result<Balance> {
        const OPERATION: &str = "read a balance";
        // By this machine's clock: when the refill of test keys comes matters to nobody to the second.
        let now = now_micros();
        if !self.shared.refills.is_due(tenant, now) {
            let mut reader = self.database.acquire_reader(OPERATION).await?;
            return Ok(self.remember(tenant, load_balance(&mut reader, OPERATION, tenant).await?));
        }
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let balance = self.refilled_balance(&mut transaction, tenant, now).await?;
        transaction.commit(OPERATION).await?;
        self.shared.refills.remember(tenant, now);
        Ok(self.remember(tenant, balance))
    }

    async fn recent_balance(&self, tenant: &Tenant) -> Result<Balance> {
        let known = self.recent().get(tenant).copied();
        match known {
            Some((read_at, balance)) if read_at.elapsed() < RECENT => Ok(balance),
            _ => self.balance(tenant).await,
        }
    }

    async fn grant_once(&self, id: GrantId, grant: NewGrant) -> Result<Balance> {
        const OPERATION: &str = "grant credits";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        // The refill of the day comes first, so that it does not take the grant away.
        self.refilled_balance(&mut transaction, &grant.tenant, now).await?;
        insert_grant(&mut transaction, id, &grant, now).await?;
        let balance = load_balance(&mut transaction, OPERATION, &grant.tenant).await?;
        transaction.commit(OPERATION).await?;
        self.shared.ample.forget(&grant.tenant);
        Ok(self.remember(&grant.tenant, balance))
    }

    async fn set_mock_balance(&self, organization: OrganizationId, available: Credits) -> Result<Balance> {
        const OPERATION: &str = "set mock credits";
        let tenant = Tenant { organization, mode: KeyMode::Test };
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let before = self.refilled_balance(&mut transaction, &tenant, now).await?;
        add_to_refill(&mut transaction, &tenant, available - before.available(), now).await?;
        let balance = load_balance(&mut transaction, OPERATION, &tenant).await?;
        transaction.commit(OPERATION).await?;
        self.shared.ample.forget(&tenant);
        Ok(self.remember(&tenant, balance))
    }

    async fn charge_requests(
        &self,
        tenant: &Tenant,
        album: AlbumId,
        requests: &[ChargedRequest],
    ) -> Result<()> {
        const OPERATION: &str = "charge requests";
        let prices = self.settings().prices;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let mut entries = LedgerEntries::default();
        let (mut claimed, mut price) = (0, Credits::ZERO);
        for request in requests {
            if self.claim_charge(&mut transaction, *request, now).await? {
                let own = request.price(&prices);
                entries.spend(tenant, own.thousandths());
                entries.count(tenant, album, request.operation(), own.thousandths());
                (claimed, price) = (claimed + 1, price + own);
            }
        }
        if claimed == 0 {
            return transaction.rollback(OPERATION).await;
        }
        if self.settings().is_enforced {
            let balance = self.refilled_balance(&mut transaction, tenant, now).await?;
            if balance.available() < price {
                transaction.rollback(OPERATION).await?;
                self.remember(tenant, balance);
                return Err(StoreError::new(StoreErrorKind::InsufficientCredits, OPERATION));
            }
        }
        entries.write(&mut transaction, &self.shared.ledger, Writer::Api, now).await?;
        transaction.commit(OPERATION).await
    }

    fn count(&self, tenant: &Tenant, album: AlbumId, operation: UsageOperation) {
        self.meter.count(tenant, album, operation);
    }

    async fn flush_usage(&self) -> Result<()> {
        const OPERATION: &str = "write usage";
        let counts = self.meter.take();
        if counts.is_empty() {
            return Ok(());
        }
        let written = async {
            let mut transaction = self.database.begin_write(OPERATION).await?;
            let now = transaction.read_clock(OPERATION).await?;
            let entries = usage::entries_of(&counts);
            entries.write(&mut transaction, &self.shared.ledger, Writer::Api, now).await?;
            Ok::<Transaction, StoreError>(transaction)
        };
        let written = written.await;
        commit_counts(written, OPERATION, || self.meter.put_back(counts)).await
    }

    async fn usage(&self, tenant: &Tenant, query: UsageQuery) -> Result<Vec<UsageRow>> {
        let mut reader = self.database.acquire_reader("sum up usage").await?;
        usage::load_usage(&mut reader, tenant, &query).await
    }

    async fn list_balances(&self) -> Result<Vec<TenantBalance>> {
        const OPERATION: &str = "list balances";
        const LIST: &str = "select organization.id, organization.name, g.mode from organization join \
             (select distinct organization, mode from credit_grant where mode = 'live') as g \
             on g.organization = organization.id order by organization.name limit 1000";
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        let rows: Vec<(OrganizationId, String, String)> =
            query(OPERATION, LIST).fetch_all(&mut reader).await?;
        let mut balances = Vec::with_capacity(rows.len());
        for (organization, name, mode) in rows {
            let tenant = Tenant { organization, mode: parse_key_mode(&mode)? };
            let balance = load_balance(&mut reader, OPERATION, &tenant).await?;
            balances.push(TenantBalance { organization: name, tenant, balance });
        }
        Ok(balances)
    }
}

/// Adds a grant in a transaction, unless it is there.
///
/// # Errors
/// `Conflict` when there is another one with its id.
async fn insert_grant(transaction: &mut Transaction, id: GrantId, grant: &NewGrant, now: i64) -> Result<()> {
    const OPERATION: &str = "grant credits";
    let insert = "insert into credit_grant (id, organization, mode, amount, note, granted_by, created_at) \
                  values ($1, $2, $3, $4, $5, $6, $7) on conflict (id) do nothing";
    let inserted = query(OPERATION, insert)
        .bind(id)
        .bind(grant.tenant.organization)
        .bind(grant.tenant.mode.as_str())
        .bind(grant.amount.thousandths())
        .bind(grant.note.as_str())
        .bind(grant.granted_by.as_str())
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    if inserted > 0 {
        return Ok(());
    }
    let find = "select organization, mode, amount, note from credit_grant where id = $1";
    let (organization, mode, amount, note): (OrganizationId, String, i64, String) =
        query(OPERATION, find).bind(id).fetch_one(transaction).await?;
    let tenant = Tenant { organization, mode: parse_key_mode(&mode)? };
    if (tenant, amount, note) == (grant.tenant, grant.amount.thousandths(), grant.note.clone()) {
        return Ok(());
    }
    Err(StoreError::new(StoreErrorKind::Conflict, format!("grant {id} has other values")))
}

#[async_trait]
impl LedgerTask for SqlCredits {
    async fn is_due(&self) -> Result<bool> {
        const OPERATION: &str = task::OPERATION;
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        let has_crossed = !task::find_crossings(&mut reader, self.settings()).await?.is_empty();
        Ok(has_crossed || task::has_expired(&mut reader, now_micros()).await?)
    }

    async fn run(&self, lease: TaskLease) -> Result<()> {
        const OPERATION: &str = task::OPERATION;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        fence(&mut transaction, OPERATION, lease).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let crossings = task::find_crossings(&mut transaction, self.settings()).await?;
        task::tell(&mut transaction, &crossings, now).await?;
        task::remove_expired(&mut transaction, now).await?;
        transaction.commit(OPERATION).await
    }
}
