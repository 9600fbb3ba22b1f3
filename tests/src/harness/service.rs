//! The service as a child process: started, killed and started again on the same port and data.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use photofinish_servers::free_port;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use ureq::Agent;

use super::binary::{self, CommandOutput};
use super::partner::Partner;
use crate::harness::test_data;

/// The organization of keys whose organization does not matter.
const ORGANIZATION: &str = "Harbour Run";
/// What the real networks take on a busy machine, which compiles them first. A service that ends is noticed at once.
const START_TIMEOUT: Duration = Duration::from_secs(240);
const ALL_SCOPES: [&str; 3] = ["search:read", "photo:upload", "album:manage"];

/// How to run the service.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    role: &'static str,
    settings: Vec<(String, String)>,
}

impl ServiceOptions {
    /// API and pipeline with networks that read painted marks: no weights, no runtime, fast.
    pub fn with_fake_models() -> Self {
        Self { role: "all", settings: Vec::new() }
            .with_setting("PHOTOFINISH_MODELS", "fake")
            .with_setting("PHOTOFINISH_LOG", "info,photofinish=debug")
    }

    /// API and pipeline with the real networks; says what is missing when they cannot be had here.
    ///
    /// # Errors
    /// The missing piece in words.
    pub fn with_real_models() -> Result<Self, String> {
        let (runtime, models) = (test_data::find_runtime_library()?, test_data::find_models_dir()?);
        Ok(Self { role: "all", settings: Vec::new() }
            .with_setting("PHOTOFINISH_ONNXRUNTIME", runtime.to_string_lossy())
            .with_setting("PHOTOFINISH_MODELS_DIR", models.to_string_lossy()))
    }

    /// With this setting.
    #[must_use]
    pub fn with_setting(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((name.to_owned(), value.into()));
        self
    }

    /// In this role: `all`, `serve` or `work`.
    #[must_use]
    pub fn with_role(mut self, role: &'static str) -> Self {
        self.role = role;
        self
    }
}

/// A running service. Killed when dropped.
pub struct Service {
    options: ServiceOptions,
    port: u16,
    folder: Arc<TempDir>,
    child: Mutex<Option<Child>>,
    agent: Agent,
    key: Mutex<Option<String>>,
}

impl Service {
    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready; its log is in the message.
    pub fn start(options: ServiceOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the service");
        std::fs::create_dir(folder.path().join("data")).expect("an empty folder");
        let service = Self::new_stopped(options, Arc::new(folder));
        service.restart();
        service
    }

    /// Starts another process beside this one, on the same data and a port of its own.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn start_beside(&self, options: ServiceOptions) -> Self {
        let other = Self::new_stopped(options, Arc::clone(&self.folder));
        other.restart();
        other
    }

    /// The same data and port, stopped or killed before, now run in another way.
    ///
    /// # Panics
    /// When it still runs, or does not become ready.
    #[must_use]
    pub fn restart_with(self, options: ServiceOptions) -> Self {
        let service = self.spawn_with(options);
        assert!(
            service.wait_until_ready(),
            "the service ended at start; its log:\n{}",
            log_tail(&service.log())
        );
        service
    }

    /// As [`Service::again`], and does not wait for it to become ready.
    ///
    /// # Panics
    /// When it still runs.
    #[must_use]
    pub fn spawn_with(mut self, options: ServiceOptions) -> Self {
        self.options = options;
        self.spawn();
        self
    }

    /// One that does not run yet, with its data in the folder `data` of this one, which must be there.
    pub fn new_stopped(options: ServiceOptions, folder: Arc<TempDir>) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(Duration::from_secs(180)))
            .build();
        let (child, key) = (Mutex::new(None), Mutex::new(None));
        Self { options, port: free_port(), folder, child, agent: agent.into(), key }
    }

    /// Starts it again, on the same port and data.
    ///
    /// # Panics
    /// When it still runs, or does not become ready; its log is in the message.
    pub fn restart(&self) {
        assert!(self.try_restart(), "the service ended at start; its log:\n{}", log_tail(&self.log()));
    }

    /// Starts it again, on the same port and data; answers whether it became ready before it ended.
    ///
    /// # Panics
    /// When it still runs, or neither becomes ready nor ends.
    pub fn try_restart(&self) -> bool {
        self.spawn();
        self.wait_until_ready()
    }

    /// Starts it again, on the same port and data, and does not wait for anything.
    ///
    /// # Panics
    /// When it still runs.
    pub fn spawn(&self) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).expect("a log file");
        let child = self
            .new_command()
            .arg(self.options.role)
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let before = self.lock_child().replace(child);
        assert!(before.is_none(), "the service still runs");
    }

    /// Whether it answers requests.
    pub fn is_alive(&self) -> bool {
        self.agent.get(format!("{}/healthz", self.origin())).call().is_ok_and(|alive| alive.status() == 200)
    }

    /// Whether it has ended on its own.
    pub fn has_exited(&self) -> bool {
        let mut child = self.lock_child();
        let ended = child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()));
        if ended {
            *child = None;
        }
        ended
    }

    /// Ends it as a power cut would: `kill -9`.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&self) {
        let mut child = self.lock_child().take().expect("a running service");
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// Ends it as a supervisor would (`SIGTERM`); answers its exit code and how long it took.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    pub fn terminate(&self, limit: Duration) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        let mut child = self.lock_child().take().expect("a running service");
        signal_child(&child, Signal::TERM);
        loop {
            if let Some(status) = child.try_wait().expect("a child can be asked") {
                return (status.code(), begun.elapsed());
            }
            if begun.elapsed() > limit {
                child.kill().expect("a child can be killed");
                panic!("the service did not end within {limit:?} of SIGTERM; its log:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends it a signal that does not end it: [`Signal::STOP`], as a machine that hangs, or [`Signal::CONT`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn send_signal(&self, signal: Signal) {
        signal_child(self.lock_child().as_ref().expect("a running service"), signal);
    }

    /// A partner with a test key of every scope.
    pub fn partner(&self) -> Partner<'_> {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key.get_or_insert_with(|| self.create_key(&ALL_SCOPES, "test"));
        Partner::new(self, key.clone())
    }

    /// A partner with another key, or none (`""`).
    pub fn partner_with(&self, key: &str) -> Partner<'_> {
        Partner::new(self, key.to_owned())
    }

    /// A new key of the usual organization.
    pub fn create_key(&self, scopes: &[&str], mode: &str) -> String {
        self.create_key_for(ORGANIZATION, scopes, mode)
    }

    /// A new key.
    pub fn create_key_for(&self, organization: &str, scopes: &[&str], mode: &str) -> String {
        let mut arguments = vec!["key", "create", "--organization", organization, "--mode", mode];
        for scope in scopes {
            arguments.extend(["--scope", scope]);
        }
        self.run(&arguments).expect_success().to_owned()
    }

    /// Runs another command of the binary on the same settings.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        binary::run_command(self.new_command().args(arguments))
    }

    /// `http://127.0.0.1:<port>`.
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps everything.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Every file below the data folder that is an object of storage: not the database, not a secret.
    pub fn list_objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_files(&self.data_dir().join("objects/o"), &mut found);
        found.sort();
        found
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    fn new_command(&self) -> std::process::Command {
        let mut command = binary::isolated_command(&self.data_dir());
        command.env("PHOTOFINISH_LISTEN", format!("127.0.0.1:{}", self.port));
        command.envs(self.options.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    fn wait_until_ready(&self) -> bool {
        let begun = Instant::now();
        let url = self.readiness_url();
        while !self.agent.get(&url).call().is_ok_and(|ready| ready.status() == 200) {
            if self.has_exited() {
                return false;
            }
            assert!(
                begun.elapsed() < START_TIMEOUT,
                "not ready after {START_TIMEOUT:?}; its log:\n{}",
                log_tail(&self.log())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn readiness_url(&self) -> String {
        let admin = self.options.settings.iter().find(|(name, _)| name == "PHOTOFINISH_ADMIN_LISTEN");
        admin.map_or_else(
            || format!("{}/readyz", self.origin()),
            |(_, address)| format!("http://{address}/readyz"),
        )
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join(format!("service-{}.log", self.port))
    }

    fn lock_child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.lock_child().take()
            && child.kill().is_ok()
            && let Err(error) = child.wait()
        {
            eprintln!("the service could not be waited for: {error}");
        }
        if std::thread::panicking() {
            eprintln!("---- log of the service ----\n{}", log_tail(&self.log()));
        }
    }
}

fn signal_child(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("signals its own child");
}

/// Waits for what happens on its own.
///
/// # Panics
/// When it has not happened within a minute.
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The end of a log, where the failure usually is.
pub fn log_tail(log: &str) -> String {
    const LINES: usize = 120;
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

fn collect_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_files(&path, found);
        } else if File::open(&path).is_ok() {
            found.push(path);
        }
    }
}
