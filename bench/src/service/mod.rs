//! A service for one measurement: the release binary on a free port, with an empty data directory that is removed
//! afterwards.

pub(crate) mod album;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use photofinish_client::{Client, ClientOptions};
use photofinish_launcher::{ALL_SCOPES, Installation, ServiceProcess, log_tail};
use photofinish_servers::free_port;

use crate::paths::InputPaths;

/// The longest start: models are loaded in it.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest stop, after which the service is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running service. Stopped when dropped.
pub struct Service {
    /// Ended first.
    worker: Option<ServiceProcess>,
    process: ServiceProcess,
    client: Client,
    // After the process: the directory must outlive what writes into it.
    data: Arc<tempfile::TempDir>,
}

/// How to run it.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Cores that processing may use; the service's own default when absent.
    pub threads: Option<usize>,
    /// Fake models, which read painted marks, in place of the real ones.
    pub fake_models: bool,
    /// An API and a worker as two processes, in place of one process for all.
    pub has_worker_apart: bool,
    /// Further settings, `PHOTOFINISH_*`.
    pub settings: Vec<(String, String)>,
}

impl Service {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When the binary is missing, or the service does not become ready; the end of its log is in the error.
    pub fn start(paths: &InputPaths, setup: &Setup) -> anyhow::Result<Self> {
        // What ships has no fake models; only measurements with them build another binary.
        let features: &[&str] = if setup.fake_models { &["fakes"] } else { &[] };
        let binary = paths.find_or_build_binary(features)?;
        let data = tempfile::Builder::new().prefix("photofinish-bench-").tempdir()?;
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let installation = installation(binary, data.path(), paths, setup)?;
        let installation = installation.with_setting("PHOTOFINISH_PUBLIC_URL", &url);
        let role = if setup.has_worker_apart { "serve" } else { "all" };
        let mut process = installation.start(role, port, &data.path().join("service.log"))?;
        process.wait_until_ready(START_TIMEOUT)?;
        let mut worker = None;
        if setup.has_worker_apart {
            let started = installation.start("work", free_port(), &data.path().join("worker.log"))?;
            worker.insert(started).wait_until_ready(START_TIMEOUT)?;
        }
        let key = installation.create_key("bench", "test", &ALL_SCOPES)?;
        let client = Client::new(&url, &key, ClientOptions::default());
        Ok(Self { worker, process, client, data: Arc::new(data) })
    }

    /// A partner with all scopes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The id of the process that reads photos.
    pub fn worker_pid(&self) -> u32 {
        self.worker.as_ref().unwrap_or(&self.process).id()
    }

    /// Its folder, whose `data` is the data directory; it is removed with the last of service and clones.
    pub fn data(&self) -> Arc<tempfile::TempDir> {
        Arc::clone(&self.data)
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        log_tail(&self.process.log())
    }

    /// Its metrics, in the Prometheus text format.
    ///
    /// # Errors
    /// When it does not respond with them.
    pub fn read_metrics(&self) -> anyhow::Result<String> {
        let response = self.client.raw("GET", "/metrics", &[], b"")?;
        anyhow::ensure!(response.status == 200, "/metrics: status {}", response.status);
        Ok(response.text())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SIGTERM first, so that it can end its work; a service that does not stop in time is killed.
        for process in self.worker.iter_mut().chain([&mut self.process]) {
            if let Err(error) = process.terminate(STOP_TIMEOUT) {
                eprintln!("{error:#}");
            }
        }
    }
}

fn installation(
    binary: PathBuf,
    folder: &Path,
    paths: &InputPaths,
    setup: &Setup,
) -> anyhow::Result<Installation> {
    // Settings of the caller's environment would be measured and not be reported. It starts in its data folder.
    let data = folder.join("data");
    std::fs::create_dir_all(&data).with_context(|| format!("creating {}", data.display()))?;
    let mut installation = Installation::new(binary, &data).isolated();
    if setup.fake_models {
        installation = installation.with_setting("PHOTOFINISH_MODELS", "fake");
    } else {
        installation = installation
            .with_setting("PHOTOFINISH_ONNXRUNTIME", paths.find_runtime()?)
            .with_setting("PHOTOFINISH_MODELS_DIR", paths.find_models_dir()?);
    }
    if let Some(threads) = setup.threads {
        installation = installation.with_setting("PHOTOFINISH_PROCESSING_THREADS", threads.to_string());
    }
    let settings = setup.settings.iter();
    Ok(settings.fold(installation, |installation, (name, value)| installation.with_setting(name, value)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_measured_service_has_the_settings_of_its_set_up_alone() {
        let folder = tempfile::tempdir().unwrap();
        let paths = InputPaths { binary: None, runtime: None, models_dir: None, shared: None };
        let setup = Setup {
            threads: Some(3),
            fake_models: true,
            settings: vec![("PHOTOFINISH_MAX_RUNNERS".to_owned(), "40".to_owned())],
            ..Setup::default()
        };
        let installation = installation("photofinish".into(), folder.path(), &paths, &setup).unwrap();
        let command = installation.command(["all"]);
        // That of one that is isolated from the environment.
        assert_eq!(command.get_current_dir(), Some(folder.path().join("data").as_path()));
        assert!(folder.path().join("data").is_dir());
        for (name, value) in [
            ("PHOTOFINISH_MODELS", "fake"),
            ("PHOTOFINISH_PROCESSING_THREADS", "3"),
            ("PHOTOFINISH_MAX_RUNNERS", "40"),
        ] {
            let setting = command.get_envs().find(|(set, _)| *set == OsStr::new(name));
            assert_eq!(setting.and_then(|(_, value)| value), Some(OsStr::new(value)), "{name}");
        }
    }
}
