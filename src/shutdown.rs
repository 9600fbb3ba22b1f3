//! Stop signals of the process, and the watch channel that passes them on to its tasks.

use std::future::Future;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// SIGTERM and SIGINT. Created before anything else starts: process 1 of a container has no default handlers, so a signal
/// that arrives while models are loading would be lost.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
        })
    }

    /// Waits for a signal; returns at once when one has arrived since [`Self::listen`].
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Runs `work` to its end, or drops it and returns `None` when a signal arrives first.
    pub async fn run_until_signal<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            output = work => Some(output),
            () = self.wait() => None,
        }
    }
}

/// Waits until `stopped` becomes true.
pub async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    // Fails only when the sender is dropped, which also means that the service has stopped.
    drop(stopped.wait_for(|stopped| *stopped).await);
}
