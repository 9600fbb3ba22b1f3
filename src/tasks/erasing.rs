//! Finishes erasures that a request or a process which has died left behind, in one process at a time.

use std::time::Duration;

use photofinish_store::model::ids::{ErasureId, ProcessId};
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep};

/// How often it looks for something to finish. A request finishes its own erasure meanwhile, most of the time.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// So many times as long as finishing took it pauses at least: cleaning the files of a large database takes a server minutes, and
/// one cleaning is enough for all erasures that were asked for meanwhile.
const PAUSE_FACTOR: u32 = 10;
/// How long a process has the task after it last took it, which it does before each erasure: as long as nothing is finished after
/// it was killed. An erasure that takes longer may be finished by two processes, which does no harm.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// The pause after each erasure.
const PAUSE: Duration = Duration::from_millis(20);

/// Finishes what is to be finished, until it is dropped.
pub async fn erase_forever(store: &Store, holder: ProcessId) {
    let mut is_failing = false;
    let mut pause = POLL_INTERVAL;
    loop {
        sleep(pause).await;
        let begun = Instant::now();
        let finished = finish_running(store, holder).await;
        pause = POLL_INTERVAL.max(begun.elapsed() * PAUSE_FACTOR);
        match &finished {
            Ok(0) => {}
            Ok(erasures) => tracing::info!(erasures, "finished erasures"),
            // Another process has the task.
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            Err(error) if !is_failing => {
                tracing::warn!(%error, "failed to finish erasures, retrying every 5 s");
            }
            Err(_) => {}
        }
        is_failing = finished.is_err();
    }
}

/// Gives the task back, so that another process goes on at once.
pub async fn release(store: &Store, holder: ProcessId) {
    if let Err(error) = store.tasks.release(TaskLease { task: Task::Erasing, holder }).await {
        tracing::warn!(%error, "failed to release the finishing of erasures");
    }
}

/// Finishes the erasures that are running, if this process has or gets the task; returns how many. One that fails does not
/// keep the others from being finished. Without a master secret no receipt can be signed, and none is finished: what there is
/// to remove is removed all the same.
async fn finish_running(store: &Store, holder: ProcessId) -> Result<u64, StoreError> {
    let (mut finished, mut first_error) = (0, None);
    let mut after: Option<ErasureId> = None;
    loop {
        let running = store.erasures.list_running(after).await?;
        let Some(last) = running.last() else { break };
        after = Some(*last);
        let mut removed = Vec::new();
        for id in running {
            if store.tasks.take(Task::Erasing, holder, LEASE_TTL).await?.is_none() {
                return Ok(finished);
            }
            match store.erasures.remove_objects(id).await {
                Ok(_) => removed.push(id),
                Err(error) => first_error = first_error.or(Some(error)),
            }
            sleep(PAUSE).await;
        }
        if store.erasures.can_sign() {
            finished += store.erasures.finish(&removed).await?;
        }
    }
    first_error.map_or(Ok(finished), Err)
}

#[cfg(test)]
mod tests {
    use photofinish_store::StoreSettings;
    use photofinish_store::conformance::{self, AlbumFixture};
    use photofinish_store::model::erasure::{ErasureState, ExpiringPart};

    use super::*;

    /// Retention begins by itself: its end must not wait for a key that an operator may never give.
    #[tokio::test]
    async fn without_a_master_secret_the_faces_of_an_old_album_go_and_no_receipt_is_signed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings { master_secret: None, ..conformance::test_settings(folder.path()) };
        let store = Store::open(settings).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        fixture.add_ready_photo(vec![conformance::face([0.1, 0.2, 0.3, 0.4])], Vec::new()).await;
        let album = store.erasures.get_ageing(&fixture.tenant, fixture.album).await.unwrap();
        let id = store.erasures.begin_expired(&album, ExpiringPart::Faces).await.unwrap();
        let left = async || store.erasures.verify(&fixture.tenant, id).await.unwrap().stores[0].left;
        assert!(left().await > 0, "the vector is there until its erasure is finished");
        assert_eq!(store.erasures.list_running(None).await.unwrap(), [id]);
        assert_eq!(finish_running(&store, ProcessId::generate()).await.unwrap(), 0);
        assert_eq!(left().await, 0);
        assert_eq!(store.erasures.list_running(None).await.unwrap(), [], "nothing is left to be removed");
        let erasure = store.erasures.get(&fixture.tenant, id).await.unwrap();
        assert_eq!((erasure.state, erasure.receipt), (ErasureState::Running, None));
    }
}
