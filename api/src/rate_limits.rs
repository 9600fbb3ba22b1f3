//! Limits how many requests a key may make in a minute.
//!
//! Windows are fixed, and begin at a second of the minute that differs from key to key, so that the limits of keys do not
//! all reset at once. Processes that share a database share the limits: each takes a hundredth of a limit at a time from the database and
//! spends it in memory. So the limit holds for all of them together, and a request costs a look into memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_store::StoreError;
use photofinish_store::model::ids::KeyId;
use photofinish_store::model::rate::{RateClass, RateShare};
use photofinish_store::traits::RateWindows;
use time::OffsetDateTime;
use warp::http::HeaderMap;
use warp::http::header::{HeaderName, HeaderValue};

/// The length of a window, seconds.
const WINDOW: i64 = 60;

/// A process takes a limit in so many parts: what it has taken and does not spend is lost to the others for this minute.
const PARTS: u32 = 100;

/// Windows in memory above which those that are over are looked for and forgotten.
const MIN_FORGOTTEN_ABOVE: usize = 4096;

/// The limits of all keys with requests to this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct RateLimiter(Arc<Mutex<Windows>>);

struct Windows {
    by_key: HashMap<(KeyId, RateClass), Window>,
    /// How many there must be for those that are over to be looked for: twice as many as were not over the last time, so that a
    /// request still costs one look into memory where very many are in use.
    forgotten_above: usize,
}

/// What a request wants to spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateClaim {
    pub(crate) key: KeyId,
    pub(crate) class: RateClass,
    /// The limit of this key, units a minute.
    pub(crate) limit: u32,
    /// What the request costs.
    pub(crate) units: u32,
}

/// Whether a request is admitted, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateDecision {
    pub(crate) is_admitted: bool,
    pub(crate) status: RateStatus,
}

/// What is left of a limit, as far as this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateStatus {
    pub(crate) class: RateClass,
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// Seconds until the next window.
    pub(crate) reset: u32,
}

/// What a key may spend of a limit in the running minute.
struct Window {
    /// Seconds since 1970.
    begins: i64,
    limit: u32,
    /// What this process has taken, and what it has spent of it.
    leased: u32,
    used: u32,
    /// What all processes had taken when this one last took something.
    taken: u32,
    /// The smallest share that was refused: all that are not smaller will be.
    refused_from: u32,
    /// Whoever takes more holds it: of many requests that need more, one asks the database.
    leasing: Arc<tokio::sync::Mutex<()>>,
}

enum Attempt {
    Decided(RateDecision),
    /// More must be taken from the database first.
    NeedsShare(NeededShare),
}

/// A share that a window needs.
struct NeededShare {
    /// When the window began, seconds since 1970.
    begins: i64,
    /// Held by whoever takes it.
    leasing: Arc<tokio::sync::Mutex<()>>,
}

impl RateLimiter {
    /// Spends what a request costs, if the limit permits. Without `shared` this process has the limit for itself.
    ///
    /// # Errors
    /// When the database does not respond.
    pub(crate) async fn spend(
        &self,
        shared: Option<&dyn RateWindows>,
        claim: &RateClaim,
    ) -> Result<RateDecision, StoreError> {
        self.spend_at(shared, claim, OffsetDateTime::now_utc().unix_timestamp()).await
    }

    /// As [`Self::spend`], at a time in seconds since 1970.
    async fn spend_at(
        &self,
        shared: Option<&dyn RateWindows>,
        claim: &RateClaim,
        now: i64,
    ) -> Result<RateDecision, StoreError> {
        let Some(shared) = shared else {
            return Ok(match self.try_spend(claim, now, false) {
                Attempt::Decided(decision) => decision,
                Attempt::NeedsShare(_) => unreachable!("a process alone needs no share"),
            });
        };
        loop {
            let NeededShare { leasing, .. } = match self.try_spend(claim, now, true) {
                Attempt::Decided(decision) => return Ok(decision),
                Attempt::NeedsShare(needed) => needed,
            };
            let _turn = leasing.lock().await;
            // Another request may have taken enough for both.
            let NeededShare { begins, .. } = match self.try_spend(claim, now, true) {
                Attempt::Decided(decision) => return Ok(decision),
                Attempt::NeedsShare(needed) => needed,
            };
            self.take_share(shared, claim, begins).await?;
        }
    }

    fn try_spend(&self, claim: &RateClaim, now: i64, is_shared: bool) -> Attempt {
        let begins = window_begin(claim.key, now);
        let mut windows = self.windows();
        windows.forget_those_over(now);
        let window = windows.by_key.entry((claim.key, claim.class)).or_insert_with(|| Window::new(begins));
        window.follow(begins, claim.limit, is_shared);
        let is_admitted = claim.units <= window.leased.saturating_sub(window.used);
        if is_admitted {
            window.used += claim.units;
        } else if is_shared && claim.units <= claim.limit && claim.units < window.refused_from {
            let leasing = Arc::clone(&window.leasing);
            return Attempt::NeedsShare(NeededShare { begins: window.begins, leasing });
        }
        let untaken = claim.limit.saturating_sub(window.taken);
        // Clients that see more than 0 try again at once.
        let remaining =
            if is_admitted { untaken.saturating_add(window.leased.saturating_sub(window.used)) } else { 0 };
        let status = RateStatus {
            class: claim.class,
            limit: claim.limit,
            remaining,
            reset: u32::try_from(window.begins + WINDOW - now).unwrap_or(0),
        };
        Attempt::Decided(RateDecision { is_admitted, status })
    }

    /// Takes a part of the limit, or what is needed where less than a part is left.
    async fn take_share(
        &self,
        shared: &dyn RateWindows,
        claim: &RateClaim,
        begins: i64,
    ) -> Result<(), StoreError> {
        let RateClaim { key, class, limit, units } = *claim;
        let part = (limit / PARTS).max(units).max(1);
        let needed = Some(units).filter(|units| *units < part);
        for share in std::iter::once(part).chain(needed) {
            let taken = shared.take(RateShare { key, class, begins, units: share, limit }).await?;
            let mut windows = self.windows();
            // The minute may be over.
            let Some(window) = windows.by_key.get_mut(&(key, class)).filter(|window| window.begins == begins)
            else {
                return Ok(());
            };
            if let Some(taken) = taken {
                window.leased += share;
                window.taken = taken;
                return Ok(());
            }
            window.refused_from = window.refused_from.min(share);
        }
        Ok(())
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Windows {
    fn default() -> Self {
        Self { by_key: HashMap::new(), forgotten_above: MIN_FORGOTTEN_ABOVE }
    }
}

impl Windows {
    fn forget_those_over(&mut self, now: i64) {
        if self.by_key.len() > self.forgotten_above {
            self.by_key.retain(|_, window| window.begins + WINDOW > now);
            self.forgotten_above = MIN_FORGOTTEN_ABOVE.max(2 * self.by_key.len());
        }
    }
}

impl Window {
    fn new(begins: i64) -> Self {
        let leasing = Arc::default();
        Self { begins, limit: 0, leased: 0, used: 0, taken: 0, refused_from: u32::MAX, leasing }
    }

    /// Begins the window of a later minute, and follows a limit that was changed. A clock that is set back begins none: what
    /// was spent in its window would be given out again.
    fn follow(&mut self, begins: i64, limit: u32, is_shared: bool) {
        if self.begins < begins {
            *self = Self { leasing: Arc::clone(&self.leasing), ..Self::new(begins) };
        }
        if self.limit != limit {
            self.limit = limit;
            self.refused_from = u32::MAX;
            if !is_shared {
                (self.leased, self.taken) = (limit, limit);
            }
        }
    }
}

/// When the window of a key began in which a time is: at a second of the minute that depends on the key.
fn window_begin(key: KeyId, now: i64) -> i64 {
    // The last bits of an id are random.
    let offset = (key.0.as_u128() % WINDOW as u128) as i64;
    now - (now - offset).rem_euclid(WINDOW)
}

impl RateStatus {
    /// When the next window begins.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_secs(u64::from(self.reset))
    }

    /// Adds what is left to the headers of a response: as the drafts of the IETF say since revision 8, and as revision 6 did,
    /// which today's clients read.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        let Self { class, limit, remaining, reset } = *self;
        let name = class.as_str();
        let texts = [
            ("ratelimit-policy", format!("\"{name}\";q={limit};w={WINDOW}")),
            ("ratelimit", format!("\"{name}\";r={remaining};t={reset}")),
        ];
        for (header, text) in texts {
            // Names of classes and numbers are valid in a header.
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(HeaderName::from_static(header), value);
            }
        }
        for (header, number) in
            [("ratelimit-limit", limit), ("ratelimit-remaining", remaining), ("ratelimit-reset", reset)]
        {
            headers.insert(HeaderName::from_static(header), HeaderValue::from(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use uuid::Uuid;

    use super::*;

    /// The windows of a database, for one key and class.
    #[derive(Default)]
    struct OneRow {
        taken: Mutex<HashMap<i64, u32>>,
        statements: AtomicU32,
    }

    #[async_trait]
    impl RateWindows for OneRow {
        async fn take(&self, share: RateShare) -> Result<Option<u32>, StoreError> {
            self.statements.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let mut taken = self.taken.lock().unwrap();
            let taken = taken.entry(share.begins).or_default();
            let is_granted = *taken + share.units <= share.limit;
            *taken += if is_granted { share.units } else { 0 };
            Ok(is_granted.then_some(*taken))
        }
    }

    /// A key whose windows begin with the minute.
    const KEY: KeyId = KeyId(Uuid::from_u128(120));

    fn claim(limit: u32, units: u32) -> RateClaim {
        RateClaim { key: KEY, class: RateClass::Search, limit, units }
    }

    #[tokio::test]
    async fn a_process_alone_admits_exactly_the_limit_in_each_window() {
        let limiter = RateLimiter::default();
        let spend =
            async |now: i64, units: u32| limiter.spend_at(None, &claim(10, units), now).await.unwrap();
        let first = spend(60, 4).await;
        let status = RateStatus { class: RateClass::Search, limit: 10, remaining: 6, reset: 60 };
        assert_eq!(first, RateDecision { is_admitted: true, status });
        let refused = spend(70, 7).await;
        assert_eq!((refused.is_admitted, refused.status.remaining, refused.status.reset), (false, 0, 50));
        assert!(spend(119, 6).await.is_admitted);
        let over = spend(119, 1).await;
        assert_eq!((over.is_admitted, over.status.remaining, over.status.reset), (false, 0, 1));
        assert!(spend(120, 10).await.is_admitted);
        // A limit that is raised in the middle of a window.
        let raised = limiter.spend_at(None, &claim(12, 2), 121).await.unwrap();
        assert_eq!((raised.is_admitted, raised.status.remaining), (true, 0));
    }

    #[tokio::test]
    async fn a_refused_request_has_nothing_left_whatever_others_have_taken() {
        let row = OneRow::default();
        let (this, other) = (RateLimiter::default(), RateLimiter::default());
        let spend = async |limiter: &RateLimiter, units: u32| {
            limiter.spend_at(Some(&row), &claim(1000, units), 60).await.unwrap()
        };
        // What this process knows is that a hundredth of the limit was taken.
        assert_eq!(spend(&this, 10).await.status.remaining, 990);
        assert!(spend(&other, 990).await.is_admitted);
        let refused = spend(&this, 1).await;
        assert_eq!((refused.is_admitted, refused.status.remaining), (false, 0));
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_gives_nothing_out_again() {
        let row = OneRow::default();
        for shared in [None, Some(&row as &dyn RateWindows)] {
            let limiter = RateLimiter::default();
            let spend = async |now: i64| limiter.spend_at(shared, &claim(10, 10), now).await.unwrap();
            assert!(spend(60).await.is_admitted);
            assert!(spend(120).await.is_admitted);
            // Back in the minute before: its requests count in the window of the later one, and wait for the end of it.
            let refused = spend(119).await;
            assert_eq!((refused.is_admitted, refused.status.reset), (false, 61));
            assert!(spend(180).await.is_admitted);
        }
    }

    #[tokio::test]
    async fn windows_of_keys_begin_at_different_times() {
        let begins: std::collections::HashSet<i64> = (0..WINDOW)
            .map(|id| window_begin(KeyId(Uuid::from_u128(id as u128)), 1000).rem_euclid(WINDOW))
            .collect();
        assert_eq!(begins.len(), WINDOW as usize);
        for id in 0..200 {
            let begin = window_begin(KeyId(Uuid::from_u128(id)), 1000);
            assert!(begin <= 1000 && begin > 1000 - WINDOW);
        }
    }

    #[test]
    fn windows_that_are_over_are_forgotten_and_looked_for_rarely() {
        let limiter = RateLimiter::default();
        let spend = |key: usize, now: i64| {
            let key = KeyId(Uuid::from_u128(key as u128));
            drop(limiter.try_spend(&RateClaim { key, ..claim(10, 1) }, now, false));
        };
        let count = |limiter: &RateLimiter| {
            let windows = limiter.windows();
            (windows.by_key.len(), windows.forgotten_above)
        };
        (0..=MIN_FORGOTTEN_ABOVE).for_each(|key| spend(key, 1000));
        assert_eq!(count(&limiter), (MIN_FORGOTTEN_ABOVE + 1, MIN_FORGOTTEN_ABOVE));
        // All are in use: the next look is at twice as many.
        spend(0, 1000);
        assert_eq!(count(&limiter), (MIN_FORGOTTEN_ABOVE + 1, 2 * (MIN_FORGOTTEN_ABOVE + 1)));
        (0..2 * MIN_FORGOTTEN_ABOVE + 3).for_each(|key| spend(key, 1000));
        spend(0, 1000 + WINDOW);
        assert_eq!(count(&limiter), (1, MIN_FORGOTTEN_ABOVE));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn processes_that_share_a_limit_admit_no_more_than_it_and_nearly_all_of_it() {
        for limit in [1, 7, 100, 1200] {
            let row = Arc::new(OneRow::default());
            let processes: Vec<RateLimiter> = (0..3).map(|_| RateLimiter::default()).collect();
            let admitted = Arc::new(AtomicU32::new(0));
            let callers = (0..24).map(|caller| {
                let (row, limiter) = (Arc::clone(&row), processes[caller % 3].clone());
                let admitted = Arc::clone(&admitted);
                tokio::spawn(async move {
                    for _ in 0..limit {
                        let decision = limiter.spend_at(Some(&*row), &claim(limit, 1), 60).await.unwrap();
                        assert!(decision.status.remaining <= limit);
                        admitted.fetch_add(u32::from(decision.is_admitted), Ordering::SeqCst);
                    }
                })
            });
            for caller in callers.collect::<Vec<_>>() {
                caller.await.unwrap();
            }
            let admitted = admitted.load(Ordering::SeqCst);
            assert!(
                admitted <= limit && f64::from(admitted) >= 0.97 * f64::from(limit),
                "{admitted} of {limit}"
            );
            let statements = row.statements.load(Ordering::SeqCst);
            // A hundred parts, and for each process what is left at the end.
            assert!(statements <= limit.min(PARTS) + 8 * 3, "{statements} statements for {limit}");
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_leaves_smaller_requests_their_part() {
        let (row, limiter) = (OneRow::default(), RateLimiter::default());
        let spend = async |units: u32| limiter.spend_at(Some(&row), &claim(100, units), 60).await.unwrap();
        assert!(spend(90).await.is_admitted);
        let refused = spend(50).await;
        assert_eq!((refused.is_admitted, refused.status.remaining), (false, 0));
        for left in (0..10).rev() {
            let decision = spend(1).await;
            assert_eq!((decision.is_admitted, decision.status.remaining), (true, left));
        }
        let over = spend(1).await;
        assert_eq!((over.is_admitted, over.status.remaining), (false, 0));
    }

    /// What a check costs is measured by `cargo xtask bench rates`.
    #[tokio::test]
    async fn a_check_is_a_look_into_memory_until_a_hundredth_of_the_limit_is_spent() {
        const LIMIT: u32 = 10_000;
        let (row, limiter) = (OneRow::default(), RateLimiter::default());
        let statements = || row.statements.load(Ordering::SeqCst);
        for parts in 1..=3 {
            for _ in 0..LIMIT / PARTS {
                assert!(limiter.spend_at(Some(&row), &claim(LIMIT, 1), 60).await.unwrap().is_admitted);
                assert_eq!(statements(), parts);
            }
        }
    }
}
