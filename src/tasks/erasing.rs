//! Finishes erasures that a request or a process which has died left behind, in one process at a time.

use std::convert::Infallible;
use std::time::Duration;

use photofinish_store::model::erasure::Erasure;
use photofinish_store::model::ids::{ErasureId, ProcessId};
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep};

/// How often it looks for something to finish. A request finishes its own erasure meanwhile, most of the time.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// So many times as long as cleaning and looking took it pauses at least: cleaning the files of a large database takes a server
/// minutes, and one cleaning is enough for all erasures that were asked for meanwhile. Deleting objects has no pause: what is left
/// of them is all that there is to do.
const PAUSE_FACTOR: u32 = 10;
/// How long a process has the task after it last took or renewed it: as long as nothing is finished after it was killed.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// How often it renews the task while it deletes: the objects and rows of a large album take minutes, and another process would
/// begin with the same.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after each erasure.
const PAUSE: Duration = Duration::from_millis(20);

/// Finishes what is to be finished, until it is dropped.
pub async fn erase_forever(store: &Store, holder: ProcessId) {
    let mut is_failing = false;
    let mut pause = POLL_INTERVAL;
    loop {
        sleep(pause).await;
        let mut round = Round::new(store, holder, RENEW_INTERVAL);
        let ended = round.run().await;
        pause = round.pause();
        if round.finished > 0 {
            tracing::info!(erasures = round.finished, "finished erasures");
        }
        match &ended {
            Ok(()) => {}
            // Another process has the task.
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            Err(error) if !is_failing => {
                tracing::warn!(%error, "failed to finish erasures, retrying every 5 s");
            }
            Err(_) => {}
        }
        is_failing = ended.is_err();
    }
}

/// Gives the task back, so that another process goes on at once.
pub async fn release(store: &Store, holder: ProcessId) {
    if let Err(error) = store.tasks.release(lease_of(holder)).await {
        tracing::warn!(%error, "failed to release the finishing of erasures");
    }
}

fn lease_of(holder: ProcessId) -> TaskLease {
    TaskLease { task: Task::Erasing, holder }
}

/// One look at what is running.
struct Round<'s> {
    store: &'s Store,
    holder: ProcessId,
    renew_interval: Duration,
    /// How many erasures are done.
    finished: u64,
    /// How long cleaning and looking took.
    finishing: Duration,
}

impl<'s> Round<'s> {
    fn new(store: &'s Store, holder: ProcessId, renew_interval: Duration) -> Self {
        Self { store, holder, renew_interval, finished: 0, finishing: Duration::ZERO }
    }

    /// Finishes the erasures that are running, if this process has or gets the task. One that fails does not keep the others from
    /// being finished. Without a master secret no receipt can be signed, and none is finished: what there is to remove is removed
    /// all the same.
    async fn run(&mut self) -> Result<(), StoreError> {
        let mut first_error = None;
        let mut after: Option<ErasureId> = None;
        loop {
            let running = self.store.erasures.list_running(after).await?;
            let Some(last) = running.last() else { break };
            after = Some(*last);
            let mut removed = Vec::new();
            let mut has_task = Ok(true);
            for id in running {
                let taken = self.store.tasks.take(Task::Erasing, self.holder, LEASE_TTL).await;
                has_task = taken.map(|lease| lease.is_some());
                if !matches!(has_task, Ok(true)) {
                    break;
                }
                match self.remove_objects(id).await {
                    Ok(_) => removed.push(id),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
                sleep(PAUSE).await;
            }
            // Also where another process has the task now: it may be long with an erasure before it comes to these.
            self.finish(&removed).await?;
            if !has_task? {
                break;
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Deletes the objects of an erasure, and keeps the task meanwhile.
    async fn remove_objects(&self, id: ErasureId) -> Result<Erasure, StoreError> {
        tokio::select! {
            removed = self.store.erasures.remove_objects(id) => removed,
            never = self.renew_forever() => match never {},
        }
    }

    async fn renew_forever(&self) -> Infallible {
        loop {
            sleep(self.renew_interval).await;
            // Two processes that delete the same do no harm.
            if let Err(error) = self.store.tasks.renew(lease_of(self.holder), LEASE_TTL).await {
                tracing::debug!(%error, "failed to renew the finishing of erasures");
            }
        }
    }

    async fn finish(&mut self, removed: &[ErasureId]) -> Result<(), StoreError> {
        if removed.is_empty() || !self.store.erasures.can_sign() {
            return Ok(());
        }
        let begun = Instant::now();
        let finished = self.store.erasures.finish(removed).await;
        self.finishing += begun.elapsed();
        self.finished += finished?;
        Ok(())
    }

    /// How long to wait before the next round.
    fn pause(&self) -> Duration {
        POLL_INTERVAL.max(self.finishing * PAUSE_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use photofinish_store::StoreSettings;
    use photofinish_store::conformance::{self, AlbumFixture};
    use photofinish_store::model::erasure::{ErasureState, ExpiringPart};
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;
    use crate::tasks::testing::{HeldErasures, WAIT_LIMIT};

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
        let mut round = Round::new(&store, ProcessId::generate(), RENEW_INTERVAL);
        round.run().await.unwrap();
        assert_eq!(round.finished, 0);
        assert_eq!(left().await, 0);
        assert_eq!(store.erasures.list_running(None).await.unwrap(), [], "nothing is left to be removed");
        let erasure = store.erasures.get(&fixture.tenant, id).await.unwrap();
        assert_eq!((erasure.state, erasure.receipt), (ErasureState::Running, None));
    }

    /// A store with an erasure that is running for each of these albums, and whose removals are held.
    async fn open_held(
        albums: usize,
        has_secret: bool,
    ) -> (TempDir, Store, Arc<HeldErasures>, Vec<ErasureId>) {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = conformance::test_settings(folder.path());
        settings.master_secret = settings.master_secret.filter(|_| has_secret);
        let mut store = Store::open(settings).await.unwrap();
        let held = HeldErasures::install(&mut store);
        let mut running = Vec::new();
        for _ in 0..albums {
            let fixture = AlbumFixture::create(&store).await;
            let id = store.erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await;
            running.push(id.unwrap());
        }
        (folder, store, held, running)
    }

    /// Waits until the task is held for longer than until now.
    async fn wait_for_renewal(store: &Store) {
        let held_until = async || store.tasks.list().await.unwrap().first().map(|task| task.held_until);
        let before = held_until().await.expect("somebody has the task");
        let renewed = async {
            while held_until().await.is_none_or(|now| now <= before) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(WAIT_LIMIT, renewed).await.expect("the task is renewed");
    }

    /// The lease of a process that deleted for longer than that was taken by the next, which began with the same album.
    #[tokio::test]
    async fn a_process_that_deletes_for_long_keeps_the_task_and_does_not_pause_for_it() {
        let (_folder, store, held, running) = open_held(1, false).await;
        let mut first = Round::new(&store, ProcessId::generate(), Duration::from_millis(1));
        let others = async {
            held.wait_until_removing().await;
            for _ in 0..3 {
                wait_for_renewal(&store).await;
            }
            let mut second = Round::new(&store, ProcessId::generate(), RENEW_INTERVAL);
            second.run().await.unwrap();
            assert_eq!(held.removals(), 1, "the other process has the task");
            held.let_one_end();
        };
        let (ended, ()) = tokio::join!(first.run(), others);
        ended.unwrap();
        assert_eq!((held.removals(), running.len()), (1, 1));
        assert_eq!(first.pause(), POLL_INTERVAL, "nothing was cleaned");
    }

    #[tokio::test]
    async fn what_was_removed_is_finished_by_a_process_that_has_lost_the_task() {
        let (_folder, store, held, running) = open_held(2, true).await;
        let (first, second) = (ProcessId::generate(), ProcessId::generate());
        let mut round = Round::new(&store, first, RENEW_INTERVAL);
        let others = async {
            held.wait_until_removing().await;
            store.tasks.release(lease_of(first)).await.unwrap();
            let taken = store.tasks.take(Task::Erasing, second, WAIT_LIMIT).await.unwrap();
            assert_eq!(taken, Some(lease_of(second)));
            held.let_one_end();
        };
        let (ended, ()) = tokio::join!(round.run(), others);
        ended.unwrap();
        assert_eq!((held.removals(), held.finished()), (1, vec![running[0]]));
    }
}
