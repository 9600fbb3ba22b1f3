//! Rules between settings of different groups. Each adds its problem to the list, with the variable, the value given and
//! what is allowed.

use std::time::Duration;

use photofinish_api::context::Environment;
use photofinish_store::QueueSettings;
use photofinish_store::blobs::cloud::LONGEST_TTL;

use super::Config;
#[cfg(feature = "fakes")]
use super::models::ModelKind;
use super::redact::redact_servers;
use super::storage::is_bucket;

/// Added to the longest time that bytes may be without a row, for clocks that differ.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);

/// How often photos are published again that the queue has lost.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(60);

impl Config {
    /// Nobody but this machine can follow links and URLs of local files that begin with localhost: allowed for a trial only.
    /// With a bucket, which has URLs of its own, what makes no links needs no base of them.
    pub(super) fn check_public_url(&self, makes_links: bool, problems: &mut Vec<String>) {
        let service = &self.settings.service;
        let is_default = self.settings.api.public_url.is_none() && service.listen.ip().is_unspecified();
        let is_trial = service.environment == Environment::Local;
        let is_needed = makes_links || self.storage_url.starts_with("file:");
        if is_default && is_needed && !is_trial {
            problems.push(
                "PHOTOFINISH_PUBLIC_URL is missing: must be the URL under which partners and visitors reach the service, as \
                 links and presigned URLs of a local storage begin with it"
                    .to_owned(),
            );
        }
    }

    /// Rules between the storage URL and other settings.
    pub(super) fn check_storage(&self, problems: &mut Vec<String>) {
        if let Some(endpoint) = &self.cloud.public_endpoint
            && !self.storage_url.starts_with("s3://")
        {
            problems.push(format!(
                "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT={endpoint}: must be left out unless the storage is s3://"
            ));
        }
        if !is_bucket(&self.storage_url) {
            return;
        }
        // Checked at the start: a bucket's URL ends after a week, and one promised for longer would fail much later.
        let lifetimes = [
            ("PHOTOFINISH_UPLOAD_SECONDS", self.settings.api.upload_ttl),
            ("PHOTOFINISH_DOWNLOAD_SECONDS", self.settings.api.download_ttl),
        ];
        for (name, ttl) in lifetimes.into_iter().filter(|(_, ttl)| *ttl > LONGEST_TTL) {
            let (given, max) = (ttl.as_secs(), LONGEST_TTL.as_secs());
            problems.push(format!("{name}={given}: must be {max} at most with a bucket"));
        }
    }

    /// A build without the decoder cannot switch it on.
    pub(super) fn check_heic(&self, problems: &mut Vec<String>) {
        if cfg!(not(feature = "heic")) && self.settings.storage.heic == Some(true) {
            problems.push(
                "PHOTOFINISH_HEIC=on: must be off or left out: this build reads no HEIC (it lacks the feature heic)"
                    .to_owned(),
            );
        }
    }

    /// The settings of a message queue; `None` where the database is the queue, which may also be given as its URL.
    pub(super) fn queue_settings(&self) -> Option<QueueSettings> {
        let given = &self.settings.queue;
        let url = given.queue_url.as_ref().filter(|url| **url != self.database_url)?;
        Some(QueueSettings {
            url: url.clone(),
            credentials: given.queue_credentials.clone(),
            stream: given.queue_stream.clone(),
            replicas: given.queue_replicas,
            ack_wait: self.settings.pipeline.lease_ttl,
            republish_interval: REPUBLISH_INTERVAL,
        })
    }

    /// The URL must be the database's or name NATS servers.
    pub(super) fn check_queue(&self, problems: &mut Vec<String>) {
        let Some(queue) = &self.queue else { return };
        let is_nats = |url: &str| ["nats://", "tls://"].iter().any(|scheme| url.trim().starts_with(scheme));
        if !queue.url.split(',').all(is_nats) {
            problems.push(format!(
                "PHOTOFINISH_QUEUE_URL={}: must begin with nats:// or tls://, or be left out: then the database is the queue",
                redact_servers(&queue.url)
            ));
        }
    }

    /// Bytes of an upload or a selfie in progress must be younger than the age at which bytes are removed.
    pub(super) fn check_gc(&self, problems: &mut Vec<String>) {
        let (api, pipeline) = (&self.settings.api, &self.settings.pipeline);
        let min = api.upload_ttl.max(api.probe_ttl) + pipeline.lease_ttl + CLOCK_TOLERANCE;
        let given = self.settings.gc.min_age;
        if given < min {
            problems.push(format!(
                "PHOTOFINISH_SWEEP_HOURS={}: must be at least {}, longer than an upload URL or a selfie and a lease last",
                given.as_secs() / 3600,
                min.as_secs().div_ceil(3600)
            ));
        }
    }

    #[cfg(feature = "fakes")]
    /// A delay beside real models is a mistake.
    pub(super) fn check_fakes(&self, problems: &mut Vec<String>) {
        let delay = self.settings.fakes.read_delay;
        if !delay.is_zero() && self.settings.models.models != ModelKind::Fake {
            problems.push(format!(
                "PHOTOFINISH_FAKE_DELAY_MS={}: must be left out unless PHOTOFINISH_MODELS is fake",
                delay.as_millis()
            ));
        }
    }
}
