//! The binary with the settings that all its commands share.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::process::ServiceProcess;

/// The binary, its settings and its data directory.
#[derive(Clone, Debug)]
pub struct Installation {
    binary: PathBuf,
    data_dir: PathBuf,
    settings: Vec<(OsString, OsString)>,
    is_isolated: bool,
}

/// What a command left behind.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Standard output of a success, trimmed. For tests.
    ///
    /// # Panics
    /// When the command failed.
    #[track_caller]
    pub fn expect_success(&self) -> &str {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout.trim()
    }

    /// Both streams.
    pub fn combined_output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Runs any command to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn of(command: &mut Command) -> anyhow::Result<Self> {
        let output = command
            .output()
            .with_context(|| format!("starting {}", command.get_program().to_string_lossy()))?;
        Ok(Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl Installation {
    /// The binary at this path, with its data in `data_dir`. Its commands inherit the environment of this process.
    pub fn new(binary: PathBuf, data_dir: &Path) -> Self {
        Self { binary, data_dir: data_dir.to_owned(), settings: Vec::new(), is_isolated: false }
    }

    /// Its commands run in the data directory, and no setting of this process's environment (`PHOTOFINISH_*`, `OTEL_*`)
    /// reaches them.
    #[must_use]
    pub fn isolated(self) -> Self {
        Self { is_isolated: true, ..self }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with_setting(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.settings.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Its data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A command of the binary, with no standard input.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.binary);
        if self.is_isolated {
            for (name, _) in std::env::vars_os() {
                let text = name.to_string_lossy();
                if text.starts_with("PHOTOFINISH_") || text.starts_with("OTEL_") {
                    command.env_remove(name);
                }
            }
            command.current_dir(&self.data_dir);
        }
        command.env("PHOTOFINISH_DATA_DIR", &self.data_dir);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command of the binary to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<CommandOutput> {
        CommandOutput::of(&mut self.command(arguments))
    }

    /// Creates an API key of a mode (`test` or `live`) and returns it.
    ///
    /// # Errors
    /// When the command fails; what it printed is in the error.
    pub fn create_key(&self, organization: &str, mode: &str, scopes: &[&str]) -> anyhow::Result<String> {
        let mut arguments = vec!["key", "create", "--organization", organization, "--mode", mode];
        for scope in scopes {
            arguments.extend(["--scope", scope]);
        }
        let output = self.run(arguments)?;
        anyhow::ensure!(output.code == Some(0), "creating a key failed: {}{}", output.stdout, output.stderr);
        Ok(output.stdout.trim().to_owned())
    }

    /// Starts a role (`all`, `serve` or `work`) that listens on a port of this machine, and does not wait for it. Its
    /// output is appended to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, role: &str, port: u16, log: &Path) -> anyhow::Result<ServiceProcess> {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let file = file.with_context(|| format!("opening {}", log.display()))?;
        let mut command = self.command([role]);
        command.env("PHOTOFINISH_LISTEN", format!("127.0.0.1:{port}"));
        command.stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("starting {}", self.binary.display()))?;
        let admin = self.settings.iter().rfind(|(name, _)| name == "PHOTOFINISH_ADMIN_LISTEN");
        let admin = admin.map(|(_, address)| format!("http://{}", address.to_string_lossy()));
        let health = admin.unwrap_or_else(|| format!("http://127.0.0.1:{port}"));
        Ok(ServiceProcess::new(child, health, log))
    }
}
