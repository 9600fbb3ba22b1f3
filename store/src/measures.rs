//! Gauges of what is stored, which a task sets again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::timeout;

use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::credit::TenantBalance;
use crate::store::Store;

/// How long the measures of the queue may take until they count as unknown: about as long as one is used.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(10);

/// The organizations with a gauge of their credits. It lasts as long as the process, and so do they.
#[derive(Debug, Default)]
pub struct MeasuredCredits(BTreeSet<String>);

impl Store {
    /// Sets the gauges of the queue: how many photos wait, and for how long the oldest of them has waited. Both are NaN
    /// while they cannot be measured: an old value would keep workers running, or keep them from being started.
    ///
    /// # Errors
    /// `Unavailable`, also when the database does not respond within 10 seconds.
    pub async fn measure_queue(&self) -> Result<(), StoreError> {
        let late = |_| Err(StoreError::new(StoreErrorKind::Unavailable, "measure the queue"));
        let measured = timeout(MEASURE_TIMEOUT, self.load_queue_measures()).await.unwrap_or_else(late);
        let (depth, age) = measured.as_ref().map_or((f64::NAN, f64::NAN), |measures| *measures);
        metrics::gauge!(metric_names::QUEUE_DEPTH).set(depth);
        metrics::gauge!(metric_names::QUEUE_AGE_SECONDS).set(age);
        measured.map(drop)
    }

    /// Returns how many photos wait, and how many seconds the oldest of them has waited.
    async fn load_queue_measures(&self) -> Result<(f64, f64), StoreError> {
        let depth = self.queue.depth().await?;
        let since = self.queue.waiting_since().await?;
        // Never negative: the clock of the machine that confirmed the photo may be ahead of this one.
        let age = since.map_or(0.0, |since| (OffsetDateTime::now_utc() - since).as_seconds_f64().max(0.0));
        Ok((depth as f64, age))
    }

    /// Sets the gauge of what live keys can still use, where credits are enforced. It is NaN for those of `measured` that are not
    /// there any more, and for all while nothing can be measured: an old value would be taken for one of today.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn measure_credits(&self, measured: &mut MeasuredCredits) -> Result<(), StoreError> {
        if !self.credits.settings().is_enforced {
            return Ok(());
        }
        let listed = self.credits.list_balances().await;
        let available =
            |found: &TenantBalance| (found.organization.clone(), found.balance.available().to_f64());
        let available: BTreeMap<String, f64> = listed.iter().flatten().map(available).collect();
        measured.0.extend(available.keys().cloned());
        for organization in &measured.0 {
            let credits = available.get(organization).copied().unwrap_or(f64::NAN);
            metrics::gauge!(metric_names::CREDITS_AVAILABLE, "organization" => organization.clone())
                .set(credits);
        }
        listed.map(drop)
    }
}
