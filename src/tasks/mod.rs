//! What processes of one database do for each other.

mod judging;
mod reports;

use std::sync::Arc;

use photofinish_pipeline::Pipeline;
use photofinish_store::model::ids::ProcessId;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use self::reports::Reporter;
use crate::config::Config;
use crate::events::publisher;
use crate::events::sender::WebhookSender;
use crate::role::Role;
use crate::shutdown::wait_until_stopped;

/// The tasks of this process.
pub struct Tasks {
    reporter: Reporter,
    publisher: JoinHandle<()>,
    sender: JoinHandle<()>,
    judge: JoinHandle<()>,
}

impl Tasks {
    /// Starts them. They end when `stopped` becomes true.
    pub fn start(
        config: &Config,
        role: Role,
        webhooks: WebhookSender,
        pipeline: Option<Arc<Pipeline>>,
        stopped: &watch::Receiver<bool>,
    ) -> Self {
        let process = ProcessId::generate();
        let store = webhooks.store().clone();
        let (publishing, sending, stopped) = (store.clone(), stopped.clone(), stopped.clone());
        let (judged, judging_stopped) = (store.clone(), stopped.clone());
        let retention = config.settings.api.event_retention;
        let publisher = tokio::spawn(async move {
            if !role.has_api() {
                return;
            }
            tokio::select! {
                () = wait_until_stopped(stopped) => {}
                () = publisher::publish_forever(&publishing, process, retention) => {}
            }
            publisher::release(&publishing, process).await;
        });
        let sender = tokio::spawn(async move {
            if role.has_api() {
                webhooks.send_until(wait_until_stopped(sending)).await;
            }
        });
        let judge = tokio::spawn(async move {
            if !role.has_api() {
                return;
            }
            tokio::select! {
                () = wait_until_stopped(judging_stopped) => {}
                () = judging::judge_forever(&judged, process) => {}
            }
            judging::release(&judged, process).await;
        });
        Self { reporter: reports::start(&store, process, role, pipeline), publisher, sender, judge }
    }

    /// Waits until they have ended: others go on with what this process did.
    ///
    /// # Errors
    /// When a task has panicked.
    pub async fn stop(self) -> Result<(), JoinError> {
        self.reporter.stop().await;
        self.publisher.await?;
        self.judge.await?;
        self.sender.await
    }
}
