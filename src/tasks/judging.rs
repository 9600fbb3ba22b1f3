//! Learns the formats of bibs, and judges photos again whose album got another start list or format, in one process at a
//! time. Photos are not read again.

use std::time::Duration;

use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep};

/// How often it looks for something to judge.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a process has the task after it last took it, and how often it takes it again.
const LEASE_TTL: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after each step, so that an album of half a million photos leaves the database to others.
const PAUSE: Duration = Duration::from_millis(20);

/// Judges what is to be judged, until it is dropped.
pub async fn judge_forever(store: &Store, holder: ProcessId) {
    let mut is_failing = false;
    loop {
        sleep(POLL_INTERVAL).await;
        let judged = judge_due(store, holder).await;
        match &judged {
            Ok(0) => {}
            Ok(photos) => tracing::info!(photos, "judged photos by their start lists"),
            // Another process has the task.
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            Err(error) if !is_failing => {
                tracing::warn!(%error, "failed to judge photos or to learn a format of bibs, retrying every second");
            }
            Err(_) => {}
        }
        is_failing = judged.is_err();
    }
}

/// Gives the task back, so that another process goes on at once.
pub async fn release(store: &Store, holder: ProcessId) {
    if let Err(error) = store.tasks.release(TaskLease { task: Task::Judging, holder }).await {
        tracing::warn!(%error, "failed to release the judging of photos");
    }
}

/// Judges all that is due if this process has or gets the task; returns how many photos.
async fn judge_due(store: &Store, holder: ProcessId) -> Result<u64, StoreError> {
    let mut photos = 0;
    let mut taken_at: Option<Instant> = None;
    while store.judging.is_due().await? {
        if taken_at.is_none_or(|at| at.elapsed() >= RENEW_INTERVAL) {
            taken_at = Some(Instant::now());
            if store.tasks.take(Task::Judging, holder, LEASE_TTL).await?.is_none() {
                break;
            }
        }
        photos += store.judging.judge(TaskLease { task: Task::Judging, holder }).await?.photos;
        sleep(PAUSE).await;
    }
    Ok(photos)
}
