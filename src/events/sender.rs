//! Sends deliveries to webhooks. Every process with an API sends; they share the work through the database.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error as _;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use photofinish_api::context::{RefusedUrl, WebhookGateway};
use photofinish_api::webhook_body;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::ids::WebhookId;
use photofinish_store::model::webhook::{Attempt, AttemptOutcome, Delivery, DueDelivery};
use photofinish_store::traits::DeliveryRoom;
use photofinish_store::{Store, StoreError, StoreErrorKind};
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::client::WebhookClients;
use super::schedule::pause_after;
use super::signature::sign;

/// How often a process looks for due deliveries.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a process has a delivery. Longer than an attempt takes.
pub const LEASE_TTL: Duration = Duration::from_secs(60);
/// Attempts at a time, of a process, of one tenant and of one webhook.
const MAX_ATTEMPTS: usize = 32;
const MAX_ATTEMPTS_PER_TENANT: usize = 8;
const MAX_ATTEMPTS_PER_WEBHOOK: usize = 4;
/// How long an attempt may take: connecting, sending and the head of the response.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// How much of a response is read, and how much of it is kept.
const MAX_ANSWER_BYTES: usize = 64 << 10;
const KEPT_ANSWER_BYTES: usize = 1 << 10;
/// How long attempts may go on when the process stops. What is cut off is sent again by another, after its lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends deliveries. Cheap to clone.
#[derive(Clone)]
pub struct WebhookSender {
    store: Store,
    clients: Arc<WebhookClients>,
    running: Arc<RunningAttempts>,
}

/// Attempts that are being made.
#[derive(Default)]
struct RunningAttempts(Mutex<AttemptCounts>);

#[derive(Default)]
struct AttemptCounts {
    of_tenants: HashMap<Tenant, usize>,
    of_webhooks: HashMap<WebhookId, usize>,
}

impl RunningAttempts {
    fn counts(&self) -> MutexGuard<'_, AttemptCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeliveryRoom for RunningAttempts {
    fn of_tenant(&self, tenant: &Tenant) -> usize {
        let running = self.counts().of_tenants.get(tenant).copied().unwrap_or_default();
        MAX_ATTEMPTS_PER_TENANT.saturating_sub(running)
    }

    fn of_webhook(&self, webhook: WebhookId) -> usize {
        let running = self.counts().of_webhooks.get(&webhook).copied().unwrap_or_default();
        MAX_ATTEMPTS_PER_WEBHOOK.saturating_sub(running)
    }
}

impl WebhookSender {
    pub fn new(store: Store, clients: WebhookClients) -> Self {
        Self { store, clients: Arc::new(clients), running: Arc::default() }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Sends what is due until `stopped` ends, then waits for the attempts that are being made.
    pub async fn send_until(&self, stopped: impl Future<Output = ()>) {
        let mut attempts = JoinSet::new();
        tokio::select! {
            () = stopped => {}
            () = self.send_forever(&mut attempts) => {}
        }
        // The rest is sent again when its lease has expired.
        let ended = async { while attempts.join_next().await.is_some() {} };
        drop(timeout(STOP_TIMEOUT, ended).await);
    }

    async fn send_forever(&self, attempts: &mut JoinSet<()>) {
        let mut is_failing = false;
        loop {
            sleep(POLL_INTERVAL).await;
            while attempts.try_join_next().is_some() {}
            let sent = self.start_due(attempts).await;
            // Once per outage: four lines a second would bury all others.
            if let Err(error) = &sent
                && !is_failing
            {
                tracing::warn!(%error, "failed to find due deliveries, retrying every 250 ms");
            }
            is_failing = sent.is_err();
        }
    }

    async fn start_due(&self, attempts: &mut JoinSet<()>) -> Result<(), StoreError> {
        let room = MAX_ATTEMPTS.saturating_sub(attempts.len());
        if room == 0 || !self.store.deliveries.is_due().await? {
            return Ok(());
        }
        for due in self.store.deliveries.lease(room, LEASE_TTL, &*self.running).await? {
            let (sender, running) = (self.clone(), RunningAttempt::new(&self.running, &due));
            attempts.spawn(async move {
                let webhook = due.webhook;
                match sender.send_now(due).await {
                    Ok(_) => {}
                    // It was disabled or deleted meanwhile.
                    Err(error) if matches!(error.kind, StoreErrorKind::Conflict | StoreErrorKind::NotFound) => {}
                    Err(error) => {
                        tracing::warn!(webhook.id = %webhook, %error, "failed to record a delivery, sending it again in 60 s");
                    }
                }
                drop(running);
            });
        }
        Ok(())
    }

    async fn send_now(&self, due: DueDelivery) -> Result<Delivery, StoreError> {
        let (attempt, outcome) = self.attempt(&due).await;
        let outcome = match outcome {
            // A test is made once, also where whoever asked for it is gone and its lease has ended; unless somebody has it sent
            // again, from when on its attempts start again from one.
            AttemptOutcome::Retry(_) if due.is_test() && due.attempt == due.number => AttemptOutcome::Failed,
            other => other,
        };
        self.store.deliveries.finish(&due, &attempt, outcome).await
    }

    /// Makes one attempt; returns what came of it.
    async fn attempt(&self, due: &DueDelivery) -> (Attempt, AttemptOutcome) {
        let (at, begun) = (OffsetDateTime::now_utc(), Instant::now());
        let attempt =
            |status, error, answer| Attempt { at, duration: begun.elapsed(), status, error, answer };
        let Some(content) = &due.content else {
            let error = "the event is no longer kept".to_owned();
            return (attempt(None, Some(error), String::new()), AttemptOutcome::Failed);
        };
        let retry = |retry_after| match pause_after(due.attempt, rand::random(), retry_after) {
            Some(pause) => AttemptOutcome::Retry(pause),
            None => AttemptOutcome::Failed,
        };
        let body = webhook_body(content);
        let posted = match timeout(ATTEMPT_TIMEOUT, self.post(due, body)).await {
            Ok(posted) => posted,
            Err(_) => Err(format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs())),
        };
        let mut response = match posted {
            Ok(response) => response,
            Err(error) => return (attempt(None, Some(error), String::new()), retry(None)),
        };
        let status = response.status();
        let retry_after = read_retry_after(&response);
        let left = ATTEMPT_TIMEOUT.saturating_sub(begun.elapsed());
        let mut answer = Vec::new();
        // Of an answer that does not end in time, what has arrived.
        drop(timeout(left, read_answer(&mut response, &mut answer)).await);
        answer.truncate(KEPT_ANSWER_BYTES);
        let answer = String::from_utf8_lossy(&answer).replace('\0', "");
        let (error, outcome) = match status.as_u16() {
            200..=299 => (None, AttemptOutcome::Delivered),
            410 => (Some("status 410".to_owned()), AttemptOutcome::Gone),
            429 | 503 => (Some(format!("status {}", status.as_u16())), retry(retry_after)),
            other => (Some(format!("status {other}")), retry(None)),
        };
        (attempt(Some(status.as_u16()), error, answer), outcome)
    }

    async fn post(&self, due: &DueDelivery, body: String) -> Result<reqwest::Response, String> {
        let url = Url::parse(&due.url).map_err(|error| error.to_string())?;
        let client = self.clients.choose(&url)?;
        let (id, timestamp) =
            (format!("evt_{}", due.event.0.simple()), OffsetDateTime::now_utc().unix_timestamp());
        let signature = sign(&due.secrets, &id, timestamp, &body);
        let request = client
            .post(url)
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(body);
        // Its own words are only that the request failed; the URL is known.
        request.send().await.map_err(|error| describe(&error.without_url()))
    }
}

#[async_trait]
impl WebhookGateway for WebhookSender {
    async fn check_url(&self, url: &str) -> Result<(), RefusedUrl> {
        self.clients.check_url(url).await.map_err(RefusedUrl)
    }

    async fn send_test(&self, due: DueDelivery) -> Result<Delivery, StoreError> {
        self.send_now(due).await
    }
}

/// An attempt that counts as running until this is dropped.
struct RunningAttempt {
    running: Arc<RunningAttempts>,
    tenant: Tenant,
    webhook: WebhookId,
}

impl RunningAttempt {
    fn new(running: &Arc<RunningAttempts>, due: &DueDelivery) -> Self {
        let DueDelivery { tenant, webhook, .. } = *due;
        let mut counts = running.counts();
        *counts.of_tenants.entry(tenant).or_default() += 1;
        *counts.of_webhooks.entry(webhook).or_default() += 1;
        drop(counts);
        Self { running: Arc::clone(running), tenant, webhook }
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        let mut counts = self.running.counts();
        count_down(&mut counts.of_tenants, self.tenant);
        count_down(&mut counts.of_webhooks, self.webhook);
    }
}

/// Removes what counts nothing any more.
fn count_down<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Seconds; the other form of the header, a date, is not worth its clocks.
fn read_retry_after(response: &reqwest::Response) -> Option<Duration> {
    let seconds = response.headers().get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

async fn read_answer(response: &mut reqwest::Response, answer: &mut Vec<u8>) {
    while let Ok(Some(chunk)) = response.chunk().await {
        answer.extend_from_slice(&chunk);
        if answer.len() >= MAX_ANSWER_BYTES {
            return;
        }
    }
}

/// An error with its causes, the last of which says what happened.
fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}
