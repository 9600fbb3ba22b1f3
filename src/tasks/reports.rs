//! Reports what this process does, for the others of its database: so an API knows the bottleneck of the workers.

use std::sync::Arc;
use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::model::ids::ProcessId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

use crate::own_process::OwnProcess;
use crate::supervision::restart_after_panic;

/// Time between two reports: as long as the pipeline measures its stages.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// How long the last word of a process may take. Without it the report expires by itself.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports until it is stopped.
pub struct Reporter {
    store: Store,
    id: ProcessId,
    /// `None` where nobody would read the reports.
    task: Option<JoinHandle<()>>,
}

/// Starts to report. A process that is alone does not: the API asks it directly.
pub fn start(store: &Store, own: Arc<OwnProcess>, stopped: &watch::Receiver<bool>) -> Reporter {
    let id = own.id;
    let task = (!own.is_alone(store)).then(|| {
        let (store, own) = (store.clone(), Arc::clone(&own));
        let start = move |_| report_forever(store.clone(), Arc::clone(&own));
        tokio::spawn(restart_after_panic("report", stopped.clone(), start))
    });
    Reporter { store: store.clone(), id, task }
}

impl Reporter {
    /// Stops and removes the report, so that nobody takes this process for a running one.
    pub async fn stop(self) {
        let Some(task) = self.task else { return };
        task.abort();
        // A report that is being written must not follow the removal. The error says that it was aborted.
        drop(task.await);
        match timeout(FAREWELL_TIMEOUT, self.store.processes.remove(self.id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to remove the report of this process"),
            Err(_) => tracing::warn!("failed to remove the report of this process in 1 s"),
        }
    }
}

async fn report_forever(store: Store, own: Arc<OwnProcess>) {
    let mut interval = tokio::time::interval(REPORT_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    let mut faces_as_of = None;
    loop {
        interval.tick().await;
        let mut process = own.describe();
        if own.role.has_api() {
            // Kept as it was when the database does not respond: then nothing is reported either.
            match store.faces_as_of().await {
                Ok(as_of) => faces_as_of = Some(as_of),
                Err(error) => tracing::debug!(%error, "failed to bring the face index up to date"),
            }
        }
        process.report.faces_as_of = faces_as_of;
        let reported = store.processes.report(&process).await;
        // Once per outage: every two seconds would bury all other lines.
        if let Err(error) = &reported
            && !is_failing
        {
            tracing::warn!(%error, "failed to report this process, retrying every 2 s");
        }
        is_failing = reported.is_err();
    }
}
