//! What processes of one database do for each other.

mod erasing;
mod judging;
mod ledger;
mod marking;
mod reports;
mod retention;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use photofinish_store::Store;
use photofinish_store::model::ids::ProcessId;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use self::marking::Marker;
use self::reports::Reporter;
use crate::config::Config;
use crate::events::publisher;
use crate::events::sender::WebhookSender;
use crate::own_process::OwnProcess;
use crate::shutdown::wait_until_stopped;
use crate::supervision::restart_after_panic;

/// The tasks of this process.
pub struct Tasks {
    store: Store,
    reporter: Reporter,
    /// Those that end at the stop.
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
        let (role, process) = (own.role, own.id);
        let store = webhooks.store().clone();
        let reporter = reports::start(&store, own, stopped);
        let mut tasks = Spawner { stopped, store: store.clone(), process, tasks: Vec::new() };
        if role.has_api() {
            let api = &config.settings.api;
            let (event_retention, retention_max) =
                (api.event_retention, api.retention_max.unwrap_or_default());
            tasks.spawn("send webhooks", move |_, _, stopped| {
                let webhooks = webhooks.clone();
                async move { webhooks.send_until(wait_until_stopped(stopped)).await }
            });
            tasks.spawn("publish events", publish_events);
            tasks.spawn("remove old events", move |store, process, stopped| async move {
                let removing = publisher::remove_old_forever(&store, process, event_retention);
                run_until_stopped(removing, stopped).await;
            });
            tasks.spawn("judge photos", judge_photos);
            tasks.spawn("count usage", |store, _, stopped| async move {
                ledger::flush_until_stopped(&store, stopped).await;
            });
            tasks.spawn("watch balances", |store, process, stopped| async move {
                run_until_stopped(ledger::watch_forever(&store, process), stopped).await;
            });
            tasks.spawn("finish erasures", finish_erasures);
            tasks.spawn("retention", move |store, process, stopped| async move {
                run_until_stopped(retention::retain_forever(&store, process, retention_max), stopped).await;
            });
        }
        // In every role: where workers are started when photos wait, there may be none.
        tasks.spawn("draw watermarks", move |store, process, stopped| {
            let marker = if role.has_pipeline() {
                Marker::beside_photos(process)
            } else {
                Marker::beside_requests(process)
            };
            draw_watermarks(store, marker, stopped)
        });
        Self { tasks: tasks.tasks, reporter, store }
    }

    /// Waits until those have ended that end at the stop: others go on with what this process did.
    ///
    /// # Errors
    /// When a task has panicked.
    pub async fn stop(&mut self) -> Result<(), JoinError> {
        wait_for_all(std::mem::take(&mut self.tasks)).await
    }

    /// Ends what this process does for others while it answers requests and processes photos, as it does for a while after
    /// the stop: reports, by which others know that it has faces in memory, and counts of usage.
    pub async fn finish(self) {
        self.reporter.stop().await;
        ledger::write_last_counts(&self.store).await;
    }
}

/// Starts tasks, each again after a panic.
struct Spawner<'s> {
    stopped: &'s watch::Receiver<bool>,
    store: Store,
    process: ProcessId,
    tasks: Vec<JoinHandle<()>>,
}

impl Spawner<'_> {
    fn spawn<F>(
        &mut self,
        name: &'static str,
        start: impl Fn(Store, ProcessId, watch::Receiver<bool>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (store, process) = (self.store.clone(), self.process);
        let start = move |stopped| start(store.clone(), process, stopped);
        self.tasks.push(tokio::spawn(restart_after_panic(name, self.stopped.clone(), start)));
    }
}

async fn run_until_stopped(task: impl Future<Output = ()>, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = task => {}
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

async fn publish_events(store: Store, process: ProcessId, stopped: watch::Receiver<bool>) {
    run_until_stopped(publisher::publish_forever(&store, process), stopped).await;
    publisher::release(&store, process).await;
}

async fn judge_photos(store: Store, process: ProcessId, stopped: watch::Receiver<bool>) {
    run_until_stopped(judging::judge_forever(&store, process), stopped).await;
    judging::release(&store, process).await;
}

async fn draw_watermarks(store: Store, marker: Marker, stopped: watch::Receiver<bool>) {
    run_until_stopped(marking::mark_forever(&store, marker), stopped).await;
    marking::release(&store, marker).await;
}

async fn finish_erasures(store: Store, process: ProcessId, stopped: watch::Receiver<bool>) {
    run_until_stopped(erasing::erase_forever(&store, process), stopped).await;
    erasing::release(&store, process).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use photofinish_store::conformance::test_settings;
    use tempfile::TempDir;

    use super::testing::{CountedReports, HeldCosts, WatchedMarking};
    use super::*;
    use crate::config::tests::config;
    use crate::events::client::{SystemLookup, WebhookClients};
    use crate::role::Role;

    /// Opens a store that has nothing to do, except for what a test sees of it.
    async fn open_store() -> (TempDir, Store, Arc<CountedReports>, Arc<HeldCosts>) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let (reports, costs) = (CountedReports::install(&mut store), HeldCosts::install(&mut store));
        (folder, store, reports, costs)
    }

    /// Starts the tasks of a process with this role.
    fn start(store: &Store, role: Role, stopped: &watch::Receiver<bool>) -> Tasks {
        let config = config::<&str>(&[]).unwrap();
        let rules = config.settings.webhooks.address_rules();
        let clients = WebhookClients::new(rules, Arc::new(SystemLookup)).unwrap();
        let own = Arc::new(OwnProcess::new(role, None));
        Tasks::start(&config, own, WebhookSender::new(store.clone(), clients), stopped)
    }

    /// The process answers requests for a while after the stop.
    #[tokio::test]
    async fn reports_and_counts_of_usage_last_beyond_the_stop_until_the_end() {
        let (_folder, store, reports, costs) = open_store().await;
        let (stop, stopped) = watch::channel(false);
        let mut tasks = start(&store, Role::Work, &stopped);
        reports.wait_for_another().await;
        stop.send_replace(true);
        tasks.stop().await.unwrap();
        reports.wait_for_another().await;
        assert_eq!((reports.now().is_removed, costs.written()), (false, 0));
        costs.let_one_end();
        tasks.finish().await;
        assert_eq!((reports.now().is_removed, costs.written()), (true, 1));
    }

    /// With workers scaled to none nobody else draws them.
    #[tokio::test]
    async fn a_process_with_the_api_alone_looks_for_watermarks_to_draw() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let marking = WatchedMarking::install(&mut store);
        let (stop, stopped) = watch::channel(false);
        let mut tasks = start(&store, Role::Serve, &stopped);
        marking.wait_until_asked().await;
        stop.send_replace(true);
        tasks.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_stop_waits_for_counts_of_usage_that_are_being_written() {
        let (_folder, store, _reports, costs) = open_store().await;
        let (stop, stopped) = watch::channel(false);
        let mut tasks = start(&store, Role::Serve, &stopped);
        costs.wait_until_begun().await;
        stop.send_replace(true);
        // The task notices the stop before the write has ended.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        costs.let_one_end();
        tasks.stop().await.unwrap();
        assert_eq!(costs.written(), 1);
    }

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
