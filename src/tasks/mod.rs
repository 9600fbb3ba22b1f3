//! What processes of one database do for each other.

mod erasing;
mod judging;
mod ledger;
mod marking;
mod reports;
mod retention;

use std::sync::Arc;
use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::model::album::RetentionConfig;
use photofinish_store::model::ids::ProcessId;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use self::reports::Reporter;
use crate::config::Config;
use crate::events::publisher;
use crate::events::sender::WebhookSender;
use crate::own_process::OwnProcess;
use crate::shutdown::wait_until_stopped;

/// The tasks of this process.
pub struct Tasks {
    reporter: Reporter,
    /// Those of a process with an API.
    tasks: Vec<JoinHandle<()>>,
}

impl Tasks {
    /// Starts them. They end when `stopped` becomes true.
    pub fn start(
        config: &Config,
        own: Arc<OwnProcess>,
        webhooks: WebhookSender,
        stopped: &watch::Receiver<bool>,
    ) -> Self {
        let process = own.id;
        let store = webhooks.store().clone();
        let mut tasks = Vec::new();
        if own.role.has_api() {
            let sent_until = wait_until_stopped(stopped.clone());
            tasks.push(tokio::spawn(async move { webhooks.send_until(sent_until).await }));
            let event_retention = config.settings.api.event_retention;
            let publish = publish(store.clone(), process, event_retention, stopped.clone());
            tasks.push(tokio::spawn(publish));
            tasks.push(tokio::spawn(judge(store.clone(), process, stopped.clone())));
            tasks.push(tokio::spawn(keep_ledger(store.clone(), process, stopped.clone())));
            let retention_max = config.settings.api.retention_max.unwrap_or_default();
            tasks.push(tokio::spawn(erase(store.clone(), process, retention_max, stopped.clone())));
        }
        if own.role.has_pipeline() {
            tasks.push(tokio::spawn(mark(store.clone(), process, stopped.clone())));
        }
        Self { reporter: reports::start(&store, own), tasks }
    }

    /// Waits until they have ended: others go on with what this process did.
    ///
    /// # Errors
    /// When a task has panicked.
    pub async fn stop(self) -> Result<(), JoinError> {
        self.reporter.stop().await;
        wait_for_all(self.tasks).await
    }
}

/// Waits for all of them, also where one has panicked: the others still give back what is theirs.
async fn wait_for_all(tasks: Vec<JoinHandle<()>>) -> Result<(), JoinError> {
    let mut ended = Ok(());
    for task in tasks {
        ended = ended.and(task.await);
    }
    ended
}

async fn publish(
    store: Store,
    process: ProcessId,
    event_retention: Duration,
    stopped: watch::Receiver<bool>,
) {
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = publisher::publish_forever(&store, process, event_retention) => {}
    }
    publisher::release(&store, process).await;
}

async fn judge(store: Store, process: ProcessId, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = judging::judge_forever(&store, process) => {}
    }
    judging::release(&store, process).await;
}

async fn keep_ledger(store: Store, process: ProcessId, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = ledger::keep_forever(&store, process) => {}
    }
    ledger::stop(&store).await;
}

/// Draws watermarks, where photos are processed.
async fn mark(store: Store, process: ProcessId, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = marking::mark_forever(&store, process) => {}
    }
    marking::release(&store, process).await;
}

/// Finishes erasures, and begins those of what is old.
async fn erase(
    store: Store,
    process: ProcessId,
    retention_max: RetentionConfig,
    stopped: watch::Receiver<bool>,
) {
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = erasing::erase_forever(&store, process) => {}
        () = retention::retain_forever(&store, process, retention_max) => {}
    }
    erasing::release(&store, process).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_the_other_tasks_where_one_has_panicked() {
        let has_released = Arc::new(AtomicBool::new(false));
        let release = {
            let has_released = Arc::clone(&has_released);
            async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                has_released.store(true, Ordering::SeqCst);
            }
        };
        let tasks = vec![tokio::spawn(async { panic!("a task of this test") }), tokio::spawn(release)];
        assert!(wait_for_all(tasks).await.is_err_and(|error| error.is_panic()));
        assert!(has_released.load(Ordering::SeqCst));
    }
}
