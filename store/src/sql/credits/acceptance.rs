//! Decides which of the photos that are confirmed together their tenants can pay for, in the order in which they came.

use std::collections::HashMap;

use uuid::Uuid;

use super::SharedLedger;
use super::ledger::{Ledger, LedgerEntries};
use crate::model::album::Tenant;
use crate::model::credit::Credits;
use crate::model::ids::{AlbumId, PhotoId};
use crate::sql::database::Transaction;
use crate::traits::{Decline, PhotoRef, Result};

/// What tenants can still use, in the transaction that confirms.
pub(crate) struct Acceptance<'l> {
    ledger: &'l Ledger,
    tenants: HashMap<AlbumId, Tenant>,
    /// What each tenant has left; empty where nothing is declined.
    available: HashMap<Tenant, Credits>,
    /// The holds of the accepted photos.
    pub(crate) entries: LedgerEntries,
}

impl<'l> Acceptance<'l> {
    /// For photos that are not paid yet. Reads the balances that may not cover them.
    pub(crate) async fn new(
        transaction: &mut Transaction,
        shared: &'l SharedLedger,
        photos: impl Iterator<Item = PhotoRef>,
        now: i64,
    ) -> Result<Self> {
        let SharedLedger { ledger, refills, ample } = shared;
        let mut acceptance = Self {
            ledger,
            tenants: HashMap::new(),
            available: HashMap::new(),
            entries: LedgerEntries::default(),
        };
        if ledger.price_of_photo() <= 0 {
            return Ok(acceptance);
        }
        acceptance.tenants = ledger.tenants_of(transaction, photos.map(|photo| photo.album)).await?;
        if !ledger.settings.is_enforced {
            return Ok(acceptance);
        }
        let mut tenants: Vec<Tenant> = acceptance.tenants.values().copied().collect();
        // In one order, because a refill locks.
        tenants.sort();
        tenants.dedup();
        for tenant in tenants {
            if ample.contains(&tenant) && !refills.is_due(&tenant, now) {
                continue;
            }
            let mock = ledger.settings.mock_credits;
            let balance = refills.refilled_balance(transaction, &tenant, mock, now).await?;
            let price = Credits::from_thousandths(ledger.price_of_photo());
            ample.record(&tenant, balance.available(), price);
            acceptance.available.insert(tenant, balance.available());
        }
        Ok(acceptance)
    }

    /// For any number of photos of an album: the balance is read, however recently it was ample.
    pub(crate) async fn of_many(
        transaction: &mut Transaction,
        shared: &'l SharedLedger,
        album: AlbumId,
        now: i64,
    ) -> Result<Self> {
        for tenant in shared.ledger.tenants_of(transaction, std::iter::once(album)).await?.values() {
            shared.ample.forget(tenant);
        }
        let any = PhotoRef { album, photo: PhotoId(Uuid::nil()) };
        Self::new(transaction, shared, std::iter::once(any), now).await
    }

    /// Of how many photos of an album that are not paid its tenant can pay the price.
    pub(crate) fn count_covered(&self, album: AlbumId) -> i64 {
        let available = self.tenants.get(&album).and_then(|tenant| self.available.get(tenant));
        available
            .map_or(i64::MAX, |available| (available.thousandths() / self.ledger.price_of_photo()).max(0))
    }

    /// Holds what several photos of an album cost together.
    pub(crate) fn hold_more(&mut self, album: AlbumId, thousandths: i64) {
        if let Some(tenant) = self.tenants.get(&album) {
            self.entries.hold(tenant, thousandths);
        }
    }

    /// Holds the price of a photo that is not paid; says why not if its tenant has too little left.
    pub(crate) fn hold(&mut self, photo: PhotoRef) -> std::result::Result<(), Decline> {
        let Some(tenant) = self.tenants.get(&photo.album) else { return Ok(()) };
        let price = Credits::from_thousandths(self.ledger.price_of_photo());
        if let Some(available) = self.available.get_mut(tenant) {
            if *available < price {
                return Err(Decline { balance: *available, price });
            }
            *available = *available - price;
        }
        self.entries.hold(tenant, price.thousandths());
        Ok(())
    }
}
