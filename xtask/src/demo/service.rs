//! The demonstrated service: the release binary as a child process, on the port where a partner expects it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use photofinish_launcher::{ALL_SCOPES, Installation, ServiceProcess, log_tail};

/// The port in the documentation; the next free one is used when it is taken.
const FIRST_PORT: u16 = 8080;
const PORTS: u16 = 50;

/// Whose account the demonstration signs in with.
const DEMO_EMAIL: &str = "demo@race.example";

/// The longest start. Models are loaded in a second or two; a first start on a slow disk takes longer.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest stop, after which the service is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// A running service; killed when dropped.
pub struct Service {
    installation: Installation,
    process: ServiceProcess,
    address: String,
    log: PathBuf,
}

impl Service {
    /// Starts it on a free port and waits until it is ready. Its log is beside its data.
    pub fn start(installation: Installation) -> anyhow::Result<Self> {
        let port = find_free_port()?;
        let log = installation.data_dir().join("service.log");
        std::fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
        let installation = installation.with_setting("PHOTOFINISH_LISTEN", format!("127.0.0.1:{port}"));
        let mut process = installation.start("all", port, &log)?;
        process.wait_until_ready(START_TIMEOUT)?;
        Ok(Self { installation, process, address: format!("http://127.0.0.1:{port}"), log })
    }

    /// `http://host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The file that it logs to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Another command of the same binary with the same settings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.installation.command(arguments)
    }

    /// Creates a key of all scopes.
    pub fn create_key(&self) -> anyhow::Result<String> {
        self.installation.create_key("Demo", "test", &ALL_SCOPES)
    }

    /// Makes an account, and returns the link under which it is signed in once.
    pub fn create_console_link(&self) -> anyhow::Result<String> {
        let account = ["--organization", "Demo", "--email", DEMO_EMAIL];
        let invite =
            [&["account", "invite", "--role", "owner", "--operator", "--enter"], &account[..]].concat();
        let invited = self.installation.run(&invite)?;
        if invited.code == Some(0) {
            return Ok(invited.stdout.trim().to_owned());
        }
        // An earlier demonstration with this folder has it, and somebody chose a password.
        let again = self.installation.run(["account", "link", "--email", DEMO_EMAIL])?;
        ensure!(again.code == Some(0), "no account: {}{}", invited.stderr, again.stderr);
        Ok(again.stdout.trim().to_owned())
    }

    /// Leaves it running until it ends by itself or by Ctrl-C, which reaches it too.
    pub fn wait(mut self) -> anyhow::Result<()> {
        println!("\nThe service keeps running at {}; Ctrl-C stops it.", self.address);
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the service ended: {status}\n{}", log_tail(&self.process.log()));
        }
        Ok(())
    }

    /// Stops it, and waits until it has finished its work in progress.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let exit = self.process.terminate(STOP_TIMEOUT)?;
        let status = exit.code.map_or_else(|| "by a signal".to_owned(), |code| format!("exit code {code}"));
        println!("\nThe service has stopped ({status}).");
        Ok(())
    }
}

fn find_free_port() -> anyhow::Result<u16> {
    let ports = FIRST_PORT..FIRST_PORT + PORTS;
    let mut free = ports.clone().filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().with_context(|| format!("every port from {} to {} is taken", ports.start, ports.end - 1))
}
