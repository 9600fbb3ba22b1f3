//! The service as a child process: started, killed and started again on the same port and data.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use photofinish_client::{Client, ClientOptions};
use photofinish_launcher::{ALL_SCOPES, CommandOutput, Exit, Installation, ServiceProcess, Signal, log_tail};
use photofinish_servers::free_port;
use tempfile::TempDir;

use super::binary::binary_path;
use super::partner::Partner;
use super::test_data;

/// The organization of keys whose organization does not matter.
const ORGANIZATION: &str = "Harbour Run";
/// The longest start: real models are compiled first, which takes long on a busy machine. A service that ends is noticed at
/// once.
const START_TIMEOUT: Duration = Duration::from_secs(240);
/// The longest request, on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(180);

/// How to run the service.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    role: &'static str,
    settings: Vec<(String, String)>,
}

impl ServiceOptions {
    /// API and pipeline with fake models, which read painted marks: no weights, no runtime, fast.
    pub fn with_fake_models() -> Self {
        Self { role: "all", settings: Vec::new() }
            .with_setting("PHOTOFINISH_MODELS", "fake")
            .with_setting("PHOTOFINISH_LOG", "info,photofinish=debug")
    }

    /// API and pipeline with the real models.
    ///
    /// # Errors
    /// What is missing on this machine, for people.
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

    /// Without this setting, which has its default then.
    #[must_use]
    pub fn without_setting(mut self, name: &str) -> Self {
        self.settings.retain(|(set, _)| set != name);
        self
    }

    /// In this role: `all`, `serve` or `work`.
    #[must_use]
    pub fn with_role(mut self, role: &'static str) -> Self {
        self.role = role;
        self
    }
}

/// A service with its data in a folder of its own. Killed when dropped.
pub struct Service {
    options: ServiceOptions,
    port: u16,
    folder: Arc<TempDir>,
    process: Mutex<Option<ServiceProcess>>,
    client: Client,
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

    /// Starts it again on the same port and data with other options, once it was stopped or killed.
    ///
    /// # Panics
    /// When it still runs, or does not become ready.
    #[must_use]
    pub fn restart_with(mut self, options: ServiceOptions) -> Self {
        self.options = options;
        self.restart();
        self
    }

    /// As [`Service::restart_with`], without waiting until it is ready.
    ///
    /// # Panics
    /// When it still runs.
    #[must_use]
    pub fn spawn_with(mut self, options: ServiceOptions) -> Self {
        self.options = options;
        self.spawn();
        self
    }

    /// A service that does not run yet, with its data in the subfolder `data` of this folder, which must exist.
    pub fn new_stopped(options: ServiceOptions, folder: Arc<TempDir>) -> Self {
        let port = free_port();
        let client_options = ClientOptions {
            timeout: REQUEST_TIMEOUT,
            upload_timeout: REQUEST_TIMEOUT,
            ..ClientOptions::default()
        };
        let client = Client::new(&format!("http://127.0.0.1:{port}"), "", client_options);
        Self { options, port, folder, process: Mutex::default(), client, key: Mutex::default() }
    }

    /// Starts it again, on the same port and data.
    ///
    /// # Panics
    /// When it still runs, or does not become ready; its log is in the message.
    pub fn restart(&self) {
        assert!(self.try_restart(), "the service ended at start; its log:\n{}", log_tail(&self.log()));
    }

    /// Starts it again, on the same port and data. Returns whether it became ready before it ended.
    ///
    /// # Panics
    /// When it still runs, or neither becomes ready nor ends.
    pub fn try_restart(&self) -> bool {
        self.spawn();
        let result = self.running().as_mut().expect("a running service").wait_until_ready(START_TIMEOUT);
        match result {
            Ok(()) => true,
            Err(_) if self.has_exited() => false,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Starts it again, on the same port and data, without waiting until it is ready.
    ///
    /// # Panics
    /// When it still runs.
    pub fn spawn(&self) {
        let process = self.installation().start(self.options.role, self.port, &self.log_path());
        let before = self.running().replace(process.expect("the binary starts"));
        assert!(before.is_none(), "the service still runs");
    }

    /// Whether it responds to requests.
    pub fn is_alive(&self) -> bool {
        self.client.raw("GET", "/healthz", &[], b"").is_ok_and(|response| response.status == 200)
    }

    /// Whether it has ended on its own.
    pub fn has_exited(&self) -> bool {
        let mut process = self.running();
        let has_exited = process.as_mut().is_none_or(|process| process.has_exited().unwrap_or(false));
        if has_exited {
            *process = None;
        }
        has_exited
    }

    /// Ends it as a power cut would (`SIGKILL`).
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&self) {
        self.take_process().kill().expect("a child can be killed");
    }

    /// Ends it as a supervisor would (`SIGTERM`).
    ///
    /// # Panics
    /// When it does not end within `timeout`.
    pub fn terminate(&self, timeout: Duration) -> Exit {
        self.take_process().terminate(timeout).expect("the service stops in time")
    }

    /// Sends it a signal that does not end it: [`Signal::STOP`], as a machine that hangs, or [`Signal::CONT`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn send_signal(&self, signal: Signal) {
        self.running().as_ref().expect("a running service").send_signal(signal).expect("a signal is sent");
    }

    /// A partner with a test key of every scope.
    pub fn partner(&self) -> Partner {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key.get_or_insert_with(|| self.create_key(&ALL_SCOPES, "test"));
        self.partner_with(key)
    }

    /// A partner with another key, or none (`""`).
    pub fn partner_with(&self, key: &str) -> Partner {
        Partner::new(self.client.with_key(key))
    }

    /// Creates a key of the usual organization.
    pub fn create_key(&self, scopes: &[&str], mode: &str) -> String {
        self.create_key_for(ORGANIZATION, scopes, mode)
    }

    /// Creates a key.
    pub fn create_key_for(&self, organization: &str, scopes: &[&str], mode: &str) -> String {
        self.installation().create_key(organization, mode, scopes).expect("a key is created")
    }

    /// Runs another command of the binary with the same settings.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.installation().run(arguments).expect("a command starts")
    }

    /// As [`Self::run`], for a command that asks.
    ///
    /// # Panics
    /// When it does not start.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(input.as_bytes()).and_then(|()| file.rewind()).expect("the input is written");
        let mut command = self.installation().command(arguments);
        CommandOutput::of(command.stdin(file)).expect("a command starts")
    }

    /// `http://127.0.0.1:<port>`.
    pub fn origin(&self) -> String {
        self.client.origin().to_owned()
    }

    /// The id of its process.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process_id(&self) -> u32 {
        self.running().as_ref().expect("a running service").id()
    }

    /// The id of its process, if it runs.
    pub fn find_process_id(&self) -> Option<u32> {
        self.running().as_ref().map(ServiceProcess::id)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps everything.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Every file below the data folder that is an object of storage: not the database, not a secret. Sorted.
    pub fn list_objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_files(&self.data_dir().join("objects/o"), &mut found);
        found.sort();
        found
    }

    /// Every file below the data folder. Sorted.
    pub fn list_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_files(&self.data_dir(), &mut found);
        found.sort();
        found
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn installation(&self) -> Installation {
        let installation = Installation::new(binary_path(), &self.data_dir()).isolated();
        let installation =
            installation.with_setting("PHOTOFINISH_LISTEN", format!("127.0.0.1:{}", self.port));
        let settings = self.options.settings.iter();
        settings.fold(installation, |installation, (name, value)| installation.with_setting(name, value))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join(format!("service-{}.log", self.port))
    }

    fn running(&self) -> MutexGuard<'_, Option<ServiceProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_process(&self) -> ServiceProcess {
        self.running().take().expect("a running service")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Ended first: its last lines belong to the log that is printed.
        drop(self.running().take());
        if std::thread::panicking() {
            eprintln!("---- log of the service ----\n{}", log_tail(&self.log()));
        }
    }
}

/// Waits for a condition, which is checked every 50 ms.
///
/// # Panics
/// When it does not hold within a minute.
#[track_caller]
pub fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{condition}: not within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
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
