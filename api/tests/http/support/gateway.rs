//! A sender of webhooks without a network.

use std::time::Duration;

use async_trait::async_trait;
use photofinish_api::context::{RefusedUrl, WebhookGateway};
use photofinish_store::model::webhook::{Attempt, AttemptOutcome, Delivery, DueDelivery};
use photofinish_store::{Store, StoreError};
use time::OffsetDateTime;

/// Takes every URL but those of one host, and "sends" without a network.
pub struct TestGateway {
    pub store: Store,
}

#[async_trait]
impl WebhookGateway for TestGateway {
    async fn check_url(&self, url: &str) -> Result<(), RefusedUrl> {
        let is_refused = url.contains("private.example");
        if is_refused { Err(RefusedUrl("10.0.0.1 is not a public address".to_owned())) } else { Ok(()) }
    }

    async fn send_test(&self, due: DueDelivery) -> Result<Delivery, StoreError> {
        let attempt = Attempt {
            at: OffsetDateTime::UNIX_EPOCH,
            duration: Duration::from_millis(7),
            status: Some(204),
            error: None,
            answer: "thanks".to_owned(),
        };
        self.store.deliveries.finish(&due, &attempt, AttemptOutcome::Delivered).await
    }
}
