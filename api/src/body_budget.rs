//! The memory of all request bodies together: a budget of bytes, of which one organization may use a share, and all visitors
//! together, who have no key, as much, each network of them a part.
//!
//! A request takes the declared length of its body before it reads it, so that every body that is being read has room to
//! its end, and gives it back when it is answered: until then what was parsed of the body may be as large as the body.
//! Clients that declare much and send little use up what their own organization, or their own network, may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::metrics as names;

/// Bytes of all bodies together: sixteen of the largest batches.
const BUDGET_BYTES: usize = 64 << 20;
/// The part of the budget that one organization may use, and all visitors: the others always find room.
const SHARE: usize = 4;
/// The part of the visitors' share that one network of them may use: sixteen requests that declare the most that most
/// operations accept. What visitors send has some hundred bytes.
const NETWORK_SHARE: usize = 16;
/// How long a request waits for room. A batch is read and answered in less.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// When a refused request may be repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Large bodies that are parsed at once, on threads of their own: one takes milliseconds.
const PARSERS: usize = 2;

/// The budget of all request bodies. Cheap to clone; clones share the budget.
#[derive(Clone)]
pub struct BodyBudget(Arc<Shared>);

struct Shared {
    total_bytes: usize,
    share_bytes: usize,
    network_bytes: usize,
    max_wait: Duration,
    used: Mutex<Used>,
    released: Notify,
    parsers: Arc<Semaphore>,
    gauge: metrics::Gauge,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    /// Of all visitors.
    by_visitors: usize,
    by_sender: HashMap<BodySender, usize>,
}

/// Who sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BodySender {
    /// A client with a key or a session of this organization.
    Organization(OrganizationId),
    /// A visitor, by the digest of the network.
    Visitor([u8; 32]),
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(BUDGET_BYTES, MAX_WAIT)
    }
}

impl BodyBudget {
    /// Creates a budget of `total_bytes` for which a request waits `max_wait` at most. Must be called after the recorder of
    /// metrics is installed.
    pub fn new(total_bytes: usize, max_wait: Duration) -> Self {
        Self(Arc::new(Shared {
            total_bytes,
            share_bytes: total_bytes / SHARE,
            network_bytes: total_bytes / SHARE / NETWORK_SHARE,
            max_wait,
            used: Mutex::default(),
            released: Notify::new(),
            parsers: Arc::new(Semaphore::new(PARSERS)),
            gauge: metrics::gauge!(names::BODY_BYTES),
        }))
    }

    /// Returns how many bytes the bodies of requests in flight have.
    pub fn bytes_in_use(&self) -> usize {
        self.0.lock().bytes
    }

    /// Takes the bytes of a body, if necessary after waiting for room.
    ///
    /// # Errors
    /// 429 where other requests use what the sender may have, 503 where all together use the budget.
    pub(crate) async fn acquire(&self, sender: BodySender, bytes: usize) -> Result<BodyPermit, ApiError> {
        let permit = || BodyPermit { shared: Arc::clone(&self.0), sender, bytes };
        if self.0.try_take(sender, bytes).is_ok() {
            return Ok(permit());
        }
        let deadline = Instant::now() + self.0.max_wait;
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            // Before the look at what is used: bytes that are released after it wake this task.
            released.as_mut().enable();
            let Err(no_room) = self.0.try_take(sender, bytes) else { return Ok(permit()) };
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                return Err(no_room.into());
            }
        }
    }

    /// Waits until a large body may be parsed.
    pub(crate) async fn parser(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.0.parsers).acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes if there is room for them, else says whose room is used up.
    fn try_take(&self, sender: BodySender, bytes: usize) -> Result<(), NoRoom> {
        let mut used = self.lock();
        let of_sender = used.by_sender.get(&sender).copied().unwrap_or_default();
        let is_in_share = match sender {
            BodySender::Organization(_) => of_sender + bytes <= self.share_bytes,
            BodySender::Visitor(_) => {
                of_sender + bytes <= self.network_bytes && used.by_visitors + bytes <= self.share_bytes
            }
        };
        if !is_in_share {
            return Err(NoRoom::InShare);
        }
        if used.bytes + bytes > self.total_bytes {
            return Err(NoRoom::InBudget);
        }
        used.bytes += bytes;
        if matches!(sender, BodySender::Visitor(_)) {
            used.by_visitors += bytes;
        }
        used.by_sender.insert(sender, of_sender + bytes);
        self.gauge.set(used.bytes as f64);
        Ok(())
    }

    fn give_back(&self, sender: BodySender, bytes: usize) {
        let mut used = self.lock();
        used.bytes -= bytes;
        if matches!(sender, BodySender::Visitor(_)) {
            used.by_visitors -= bytes;
        }
        if let Some(of_sender) = used.by_sender.get_mut(&sender) {
            *of_sender -= bytes;
            if *of_sender == 0 {
                used.by_sender.remove(&sender);
            }
        }
        self.gauge.set(used.bytes as f64);
        drop(used);
        self.released.notify_waiters();
    }
}

/// Why there is no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRoom {
    /// The sender's other requests in flight use what it may have, or those of other visitors do.
    InShare,
    /// All requests in flight together use the budget.
    InBudget,
}

impl From<NoRoom> for ApiError {
    fn from(no_room: NoRoom) -> Self {
        match no_room {
            NoRoom::InShare => Self::rate_limited(RETRY_AFTER),
            NoRoom::InBudget => Self::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(RETRY_AFTER)),
        }
    }
}

/// The bytes of one body; dropping it gives them back.
pub(crate) struct BodyPermit {
    shared: Arc<Shared>,
    sender: BodySender,
    bytes: usize,
}

impl BodyPermit {
    /// Gives back what is more than `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        if rest > 0 {
            self.bytes -= rest;
            self.shared.give_back(self.sender, rest);
        }
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_organization() -> BodySender {
        BodySender::Organization(OrganizationId::generate())
    }

    async fn status(budget: &BodyBudget, sender: BodySender, bytes: usize) -> u16 {
        budget.acquire(sender, bytes).await.map_or_else(|error| error.kind().status(), |_| 200)
    }

    #[tokio::test]
    async fn an_organization_has_a_share_and_all_together_the_budget() {
        let budget = BodyBudget::new(400, Duration::ZERO);
        let organizations: Vec<_> = (0..5).map(|_| any_organization()).collect();
        let mut permits = Vec::new();
        for organization in &organizations[..4] {
            permits.push(budget.acquire(*organization, 60).await.unwrap());
            assert_eq!(status(&budget, *organization, 41).await, 429);
            permits.push(budget.acquire(*organization, 40).await.unwrap());
        }
        assert_eq!((status(&budget, organizations[4], 1).await, budget.bytes_in_use()), (503, 400));
        permits[0].shrink_to(20);
        assert_eq!((status(&budget, organizations[4], 40).await, budget.bytes_in_use()), (200, 360));
        permits.clear();
        assert_eq!(budget.bytes_in_use(), 0);
        assert!(budget.0.lock().by_sender.is_empty());
    }

    #[tokio::test]
    async fn a_network_of_visitors_has_a_part_of_what_all_visitors_have() {
        let budget = BodyBudget::new(6400, Duration::ZERO);
        let network = |number: u8| BodySender::Visitor([number; 32]);
        let mut permits = vec![budget.acquire(network(0), 100).await.unwrap()];
        assert_eq!(status(&budget, network(0), 1).await, 429);
        for number in 1..16 {
            permits.push(budget.acquire(network(number), 100).await.unwrap());
        }
        // All visitors together have a share, which is not that of an organization.
        assert_eq!(status(&budget, network(16), 1).await, 429);
        assert_eq!(status(&budget, any_organization(), 1600).await, 200);
        permits[3].shrink_to(60);
        assert_eq!(status(&budget, network(16), 40).await, 200);
        permits.clear();
        let used = budget.0.lock();
        assert_eq!((used.bytes, used.by_visitors, used.by_sender.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_body_waits_for_room() {
        let budget = BodyBudget::new(400, Duration::from_secs(60));
        let organization = any_organization();
        let first = budget.acquire(organization, 100).await.unwrap();
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.acquire(organization, 80).await }
        });
        tokio::task::yield_now().await;
        drop(first);
        let second = waiting.await.unwrap().unwrap();
        assert_eq!(budget.bytes_in_use(), 80);
        drop(second);
        assert_eq!(budget.bytes_in_use(), 0);
    }
}
