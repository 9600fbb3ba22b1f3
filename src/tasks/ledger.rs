//! Keeps the ledger: writes what was counted in memory, in every process; and in one at a time tells organizations that their
//! credits are low and deletes what is old.

use std::time::Duration;

use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::{MeasuredCredits, Store, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, sleep, timeout};

use crate::shutdown::wait_until_stopped;

/// How often counts are written: what a process that dies has counted since is lost.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// How often balances are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(60);
/// How long a process has the task.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// How long the last counts of a process may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes what is left to be written: after the last request was answered.
pub async fn write_last_counts(store: &Store) {
    match timeout(FAREWELL_TIMEOUT, flush(store)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "failed to write the last counts of usage"),
        Err(_) => tracing::warn!("failed to write the last counts of usage in 2 s"),
    }
}

/// Writes what this process has counted.
async fn flush(store: &Store) -> Result<(), StoreError> {
    store.credits.flush_usage().await?;
    store.galleries.flush_visits().await?;
    store.costs.flush_searches().await
}

/// Writes counts every [`FLUSH_INTERVAL`] until the stop. Counts that are being written then have some time left: they are
/// in no memory any more.
pub async fn flush_until_stopped(store: &Store, stopped: watch::Receiver<bool>) {
    let mut interval = interval(FLUSH_INTERVAL);
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = wait_until_stopped(stopped.clone()) => return,
            _ = interval.tick() => {}
        }
        let out_of_time = async {
            wait_until_stopped(stopped.clone()).await;
            sleep(FAREWELL_TIMEOUT).await;
        };
        let written = tokio::select! {
            written = flush(store) => written,
            () = out_of_time => return tracing::warn!("failed to write counts of usage within 2 s of the stop"),
        };
        // Once per outage.
        if let Err(error) = &written
            && !is_failing
        {
            tracing::warn!(%error, "failed to write counts of usage, retrying every 5 s");
        }
        is_failing = written.is_err();
    }
}

/// Looks at balances, and deletes what is old, until it is dropped.
pub async fn watch_forever(store: &Store, holder: ProcessId) {
    let mut interval = interval(WATCH_INTERVAL);
    let mut measured = MeasuredCredits::default();
    loop {
        interval.tick().await;
        match watch(store, holder, &mut measured).await {
            // Another process has the task.
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            Err(error) => tracing::warn!(%error, "failed to look at balances, retrying in 60 s"),
            Ok(()) => {}
        }
    }
}

async fn watch(store: &Store, holder: ProcessId, measured: &mut MeasuredCredits) -> Result<(), StoreError> {
    store.measure_credits(measured).await?;
    if !store.ledger_task.is_due().await? {
        return Ok(());
    }
    if let Some(lease) = store.tasks.take(Task::Ledger, holder, LEASE_TTL).await? {
        store.ledger_task.run(lease).await?;
        store.tasks.release(TaskLease { task: Task::Ledger, holder }).await?;
    }
    Ok(())
}

fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use metrics_exporter_prometheus::PrometheusBuilder;
    use photofinish_store::StoreSettings;
    use photofinish_store::conformance::{AlbumFixture, test_settings};
    use photofinish_store::model::credit::{CreditSettings, Credits, NewGrant};
    use tempfile::TempDir;

    use super::*;
    use crate::tasks::testing::{HeldCosts, WAIT_LIMIT};

    /// They are in no memory any more: a write that is dropped loses them.
    #[tokio::test]
    async fn counts_that_are_being_written_at_the_stop_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let costs = HeldCosts::install(&mut store);
        let (stop, stopped) = watch::channel(false);
        let mut flushing = std::pin::pin!(flush_until_stopped(&store, stopped));
        tokio::select! {
            () = &mut flushing => panic!("it ends at the stop"),
            () = costs.wait_until_begun() => {}
        }
        stop.send_replace(true);
        assert!(flushing.as_mut().now_or_never().is_none(), "the stop ended the flush");
        costs.let_one_end();
        flushing.await;
        assert_eq!(costs.written(), 1);
    }

    #[tokio::test]
    async fn counts_that_cannot_be_written_do_not_keep_the_process_from_ending() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let costs = HeldCosts::install(&mut store);
        let (stop, stopped) = watch::channel(false);
        let flushing = async {
            flush_until_stopped(&store, stopped).await;
            write_last_counts(&store).await;
        };
        let stopping = async {
            costs.wait_until_begun().await;
            stop.send_replace(true);
        };
        let ended = timeout(WAIT_LIMIT, futures_util::future::join(flushing, stopping)).await;
        assert!(ended.is_ok(), "it waits for a database that does not respond");
        assert_eq!(costs.written(), 0);
    }

    #[tokio::test]
    async fn visits_of_galleries_are_among_the_counts() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let other = Store::open(test_settings(folder.path())).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        fixture.open_gallery().await;
        store.galleries.count_opened(fixture.album);
        write_last_counts(&store).await;
        assert_eq!(other.galleries.get(fixture.album).await.unwrap().unwrap().opened, 1);
    }

    /// A store that enforces credits, with nothing in it.
    async fn open_enforcing() -> (TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let credits = CreditSettings { is_enforced: true, ..CreditSettings::default() };
        let store = Store::open(StoreSettings { credits, ..test_settings(folder.path()) }).await.unwrap();
        (folder, store)
    }

    #[test]
    fn credits_of_who_is_gone_and_those_that_cannot_be_measured_are_unknown() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        // On this thread alone, whose recorder it is.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        metrics::with_local_recorder(&recorder, || {
            runtime.block_on(async {
                let (_folder, store) = open_enforcing().await;
                let fixture = AlbumFixture::create(&store).await;
                let name = &fixture.key.organization_name;
                let exported = |value: &str| {
                    let line = format!("photofinish_credits_available{{organization=\"{name}\"}} {value}");
                    let page = page.render();
                    assert!(page.lines().any(|found| found == line), "{line}: {page}");
                };
                let (amount, note, granted_by) = (Credits::whole(5), "test".to_owned(), "test".to_owned());
                let grant = NewGrant { tenant: fixture.tenant, amount, note, granted_by };
                store.credits.grant(grant).await.unwrap();
                let mut measured = MeasuredCredits::default();
                store.measure_credits(&mut measured).await.unwrap();
                exported("5");
                // As if it were erased: another database has no such organization.
                let (_other_folder, other) = open_enforcing().await;
                other.measure_credits(&mut measured).await.unwrap();
                exported("NaN");
                store.measure_credits(&mut measured).await.unwrap();
                exported("5");
                store.close().await;
                store.measure_credits(&mut measured).await.unwrap_err();
                exported("NaN");
            });
        });
    }
}
