//! The service as a child process.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::process::capture_output;

/// Where a partner would expect it; the next free one is taken when somebody else is there.
const FIRST_PORT: u16 = 8080;
const PORTS: u16 = 50;

/// Networks are loaded in a second or two; a first start on a slow disk takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Lines of the log that an error repeats.
const REPEATED_LINES: usize = 15;

/// A running service; stopped when dropped.
pub struct Service {
    process: Child,
    address: String,
    log: PathBuf,
    settings: Settings,
}

/// What each of the service's commands must be told alike.
struct Settings {
    program: PathBuf,
    folder: PathBuf,
    variables: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl Service {
    /// Starts `command` with a free address and waits until it is ready; its log goes beside its data.
    pub fn start(mut command: Command, data: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        command.env("PHOTOFINISH_LISTEN", format!("127.0.0.1:{port}"));
        let settings = Settings::of(&command);
        let log = data.join("service.log");
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.arg("all").stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let process = command.spawn().context("cannot start the service")?;
        let mut service = Self { process, address: format!("http://127.0.0.1:{port}"), log, settings };
        service.wait_until_ready()?;
        Ok(service)
    }

    /// `http://host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it logs.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Another command of the same program, with the same settings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.settings.program);
        command
            .current_dir(&self.settings.folder)
            .envs(self.settings.variables.iter().cloned())
            .args(arguments);
        command
    }

    /// A key that may do everything.
    pub fn new_key(&self) -> anyhow::Result<String> {
        let arguments =
            ["key", "create", "--organization", "Demo", "--mode", "test", "--label", "cargo xtask demo"];
        let scopes = ["--scope", "search:read", "--scope", "photo:upload", "--scope", "album:manage"];
        capture_output(&mut self.command(&[arguments.as_slice(), scopes.as_slice()].concat()))
            .context("cannot make a key")
    }

    /// Leaves it running until it ends or somebody presses Ctrl-C, which reaches it too.
    pub fn wait(mut self) -> anyhow::Result<()> {
        println!("\nThe service goes on at {}; Ctrl-C stops it.", self.address);
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the service ended: {status}\n{}", self.last_words());
        }
        Ok(())
    }

    /// Stops it and waits until it has put everything away.
    pub fn stop(mut self) -> anyhow::Result<()> {
        // The shell's own `kill`: a small system need not have the program.
        capture_output(Command::new("sh").arg("-c").arg(format!("kill {}", self.process.id())))?;
        let status = self.process.wait()?;
        println!("\nThe service has stopped ({status}).");
        Ok(())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let url = format!("{}/readyz", self.address);
        while capture_output(Command::new("curl").args(["--fail", "--silent", "--max-time", "5", &url]))
            .is_err()
        {
            if let Some(status) = self.process.try_wait()? {
                bail!("the service ended before it was ready: {status}\n{}", self.last_words());
            }
            if start.elapsed() > PATIENCE {
                bail!("the service is not ready after {} s\n{}", PATIENCE.as_secs(), self.last_words());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(REPEATED_LINES)..].join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as good.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Settings {
    fn of(command: &Command) -> Self {
        let variables = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        Self {
            program: command.get_program().into(),
            folder: command.get_current_dir().unwrap_or(Path::new(".")).to_owned(),
            variables,
        }
    }
}

fn free_port() -> anyhow::Result<u16> {
    let ports = FIRST_PORT..FIRST_PORT + PORTS;
    let mut free = ports.clone().filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().with_context(|| format!("every port from {} to {} is taken", ports.start, ports.end - 1))
}
