//! A running service: waited for, signalled and stopped.

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_client::{Client, ClientOptions};
use rustix::process::{Pid, Signal, kill_process};

/// A running service. Killed when dropped.
#[derive(Debug)]
pub struct ServiceProcess {
    child: Child,
    health_url: String,
    log: PathBuf,
}

/// How a service stopped.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Time from the signal to the end.
    pub took: Duration,
}

impl ServiceProcess {
    pub(crate) fn new(child: Child, health_url: String, log: &Path) -> Self {
        Self { child, health_url, log: log.to_owned() }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything that was written to its log, by earlier processes too.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the service says that it is ready (`/readyz`).
    ///
    /// # Errors
    /// When it ends, or is not ready within `timeout`; the end of its log is in the error.
    pub fn wait_until_ready(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        let options = ClientOptions { timeout: Duration::from_secs(10), ..ClientOptions::default() };
        let client = Client::new(&self.health_url, "", options);
        while !client.raw("GET", "/readyz", &[], b"").is_ok_and(|response| response.status == 200) {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("the service ended at start ({status}); its log:\n{}", log_tail(&self.log()));
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "the service is not ready after {} s; its log:\n{}",
                timeout.as_secs(),
                log_tail(&self.log())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn has_exited(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().context("waiting for the service")
    }

    /// Ends it as a power cut would (`SIGKILL`), and waits for its end.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("killing the service")?;
        self.wait().map(drop)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send_signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal).context("sending a signal to the service")
    }

    /// Ends it as a supervisor would (`SIGTERM`), and kills it when that takes longer than `timeout`.
    ///
    /// # Errors
    /// When it had to be killed; its log is in the error.
    pub fn terminate(&mut self, timeout: Duration) -> anyhow::Result<Exit> {
        let begun = Instant::now();
        self.send_signal(Signal::TERM)?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Exit { code: status.code(), took: begun.elapsed() });
            }
            if begun.elapsed() > timeout {
                self.kill()?;
                anyhow::bail!(
                    "the service did not end within {timeout:?} of SIGTERM; its log:\n{}",
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as good.
        if self.child.kill().is_ok()
            && let Err(error) = self.child.wait()
        {
            eprintln!("waiting for the killed service failed: {error}");
        }
    }
}

/// The last lines of a log, where the failure usually is.
pub fn log_tail(log: &str) -> String {
    const LINES: usize = 120;
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
