//! A service of its own for a measurement: the real binary on a free port, with an empty data directory that goes
//! away with it.

pub(crate) mod album;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::client::Client;
use crate::paths::InputPaths;

/// How long models may take to load.
const START_LIMIT: Duration = Duration::from_secs(120);

/// How long a stop may take before it is a kill.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A running service. Ends when dropped.
pub struct Service {
    child: Child,
    client: Client,
    log: PathBuf,
    // After the child: the directory must outlive the process that writes into it.
    _data: tempfile::TempDir,
}

/// How to run it.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Cores that processing may use; the service's own default when absent.
    pub threads: Option<usize>,
    /// Readers of painted marks in place of networks.
    pub fake_models: bool,
    /// Further settings, `PHOTOFINISH_*`.
    pub settings: Vec<(String, String)>,
}

impl Service {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When the binary is missing, or the service does not get ready; its log's end is in the error.
    pub fn start(places: &InputPaths, setup: &Setup) -> anyhow::Result<Self> {
        let binary = places.find_or_build_binary()?;
        let data = tempfile::Builder::new().prefix("photofinish-bench-").tempdir()?;
        let log = data.path().join("service.log");
        let listen = format!("127.0.0.1:{}", free_port()?);
        let url = format!("http://{listen}");
        let mut settings = vec![
            ("PHOTOFINISH_LISTEN".to_owned(), listen),
            ("PHOTOFINISH_PUBLIC_URL".to_owned(), url.clone()),
            ("PHOTOFINISH_DATA_DIR".to_owned(), data.path().join("data").display().to_string()),
        ];
        settings.extend(network_settings(places, setup)?);
        settings.extend(setup.settings.iter().cloned());

        let command = |arguments: &[&str]| {
            let mut command = Command::new(&binary);
            command.args(arguments).envs(settings.iter().cloned()).stdin(Stdio::null());
            command
        };
        let out = std::fs::File::create(&log)?;
        let child = command(&["all"]).stdout(out.try_clone()?).stderr(out).spawn();
        let child = child.with_context(|| format!("starting {}", binary.display()))?;
        let mut service = Self { child, client: Client::new(&url, ""), log, _data: data };
        service.wait_until_ready(&url)?;
        service.client = Client::new(&url, &create_key(command(&KEY_ARGUMENTS))?);
        Ok(service)
    }

    /// A partner with all scopes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn wait_until_ready(&mut self, url: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("the service ended while starting ({status}):\n{}", self.log_tail());
            }
            let answer = ureq::get(format!("{url}/readyz")).call();
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "the service did not get ready:\n{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SIGTERM first, so that the service can end its work; the standard library can only kill.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        let deadline = Instant::now() + STOP_LIMIT;
        while asked.is_ok() && Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // Nothing to be done about a failure here: the process is gone or cannot be ended.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

const KEY_ARGUMENTS: [&str; 12] = [
    "key",
    "create",
    "--organization",
    "bench",
    "--mode",
    "test",
    "--scope",
    "search:read",
    "--scope",
    "photo:upload",
    "--scope",
    "album:manage",
];

fn create_key(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().context("creating a key")?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "creating a key failed: {error}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn network_settings(places: &InputPaths, setup: &Setup) -> anyhow::Result<Vec<(String, String)>> {
    let mut settings = Vec::new();
    if setup.fake_models {
        settings.push(("PHOTOFINISH_MODELS".to_owned(), "fake".to_owned()));
    } else {
        settings.push(("PHOTOFINISH_ONNXRUNTIME".to_owned(), places.find_runtime()?.display().to_string()));
        settings.push(("PHOTOFINISH_MODELS_DIR".to_owned(), places.find_models_dir()?.display().to_string()));
    }
    if let Some(threads) = setup.threads {
        settings.push(("PHOTOFINISH_PROCESSING_THREADS".to_owned(), threads.to_string()));
    }
    Ok(settings)
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
