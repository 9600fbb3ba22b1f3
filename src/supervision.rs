//! Tasks that run as long as the process does, and begin again after a panic: one that ended would be missed by nobody until
//! the process ends.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use photofinish_store::panic_message;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::shutdown::wait_until_stopped;
use crate::telemetry::metrics::TASK_PANICS;

/// The pause before a task begins again, doubled with each panic.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// A task that ran this long before its panic begins again after [`MIN_PAUSE`].
const STABLE: Duration = Duration::from_secs(300);

/// Runs a task until it returns, or until its panic after the stop. `start` begins it with what tells it of the stop.
pub async fn restart_after_panic<F>(
    task: &'static str,
    stopped: watch::Receiver<bool>,
    start: impl Fn(watch::Receiver<bool>) -> F,
) where
    F: Future<Output = ()>,
{
    let mut pause = MIN_PAUSE;
    loop {
        let begun = Instant::now();
        let Err(panic) = AssertUnwindSafe(start(stopped.clone())).catch_unwind().await else { return };
        metrics::counter!(TASK_PANICS, "task" => task).increment(1);
        if begun.elapsed() > STABLE {
            pause = MIN_PAUSE;
        }
        let (reason, retry_in_seconds) = (panic_message(&*panic), pause.as_secs());
        tracing::error!(task, reason, retry_in_seconds, "a task panicked, starting it again");
        tokio::select! {
            () = wait_until_stopped(stopped.clone()) => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_begins_again_and_ends_when_it_returns() {
        let (_stop, stopped) = watch::channel(false);
        let starts = AtomicU32::new(0);
        restart_after_panic("test", stopped, |_| async {
            assert!(starts.fetch_add(1, Ordering::SeqCst) == 1, "a panic of this test");
        })
        .await;
        assert_eq!(starts.into_inner(), 2);
    }

    #[tokio::test]
    async fn a_task_that_panics_does_not_begin_again_after_the_stop() {
        let (stop, stopped) = watch::channel(false);
        let starts = AtomicU32::new(0);
        restart_after_panic("test", stopped, |_| async {
            starts.fetch_add(1, Ordering::SeqCst);
            stop.send_replace(true);
            panic!("a panic of this test");
        })
        .await;
        assert_eq!(starts.into_inner(), 1);
    }
}
