//! What processes of one database do for each other.

mod judging;
mod ledger;
mod reports;

use photofinish_store::model::ids::ProcessId;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use self::reports::Reporter;
pub use self::reports::RunningPipeline;
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
    ledger: JoinHandle<()>,
    judge: JoinHandle<()>,
}

impl Tasks {
    /// Starts them. They end when `stopped` becomes true.
    pub fn start(
        config: &Config,
        role: Role,
        webhooks: WebhookSender,
        pipeline: Option<RunningPipeline>,
        stopped: &watch::Receiver<bool>,
    ) -> Self {
        let process = ProcessId::generate();
        let store = webhooks.store().clone();
        let (publishing, keeping, judged) = (store.clone(), store.clone(), store.clone());
        let (sending, kept, judging_stopped, stopped) =
            (stopped.clone(), stopped.clone(), stopped.clone(), stopped.clone());
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
        let ledger = tokio::spawn(async move {
            if !role.has_api() {
                return;
            }
            tokio::select! {
                () = wait_until_stopped(kept) => {}
                () = ledger::keep_forever(&keeping, process) => {}
            }
            ledger::stop(&keeping).await;
        });
        Self { reporter: reports::start(&store, process, role, pipeline), publisher, sender, ledger, judge }
    }

    /// Waits until they have ended: others go on with what this process did.
    ///
    /// # Errors
    /// When a task has panicked.
    pub async fn stop(self) -> Result<(), JoinError> {
        self.reporter.stop().await;
        self.publisher.await?;
        self.sender.await?;
        self.judge.await?;
        self.ledger.await
    }
}
