//! The service that publishes and sends: the release binary, without a pipeline, on the database of the measurement.

use std::time::Duration;

use photofinish_launcher::{Installation, ServiceProcess, log_tail};
use photofinish_servers::{Receiver, free_port};

use crate::paths::InputPaths;
use crate::store::backends::BenchDatabase;

/// The longest start and stop.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The master secret of the stores that the measurement opens, in base64.
const SECRET_KEY: &str = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=";

/// A running service. Stopped when dropped.
pub struct Sender(ServiceProcess);

impl Sender {
    /// Starts it, and waits until it is ready.
    ///
    /// # Errors
    /// When the binary is missing or does not become ready; the end of its log is in the error.
    pub fn start(paths: &InputPaths, database: &BenchDatabase, receiver: &Receiver) -> anyhow::Result<Self> {
        let (binary, data) = (paths.find_or_build_binary(&["fakes"])?, database.folder().join("data"));
        std::fs::create_dir_all(&data)?;
        let port = free_port();
        let installation = Installation::new(binary, &data)
            .isolated()
            .with_setting("PHOTOFINISH_MODELS", "fake")
            .with_setting("PHOTOFINISH_PUBLIC_URL", format!("http://127.0.0.1:{port}"))
            .with_setting("PHOTOFINISH_DATABASE_URL", database.url())
            .with_setting("PHOTOFINISH_SECRET_KEY", SECRET_KEY)
            .with_setting("PHOTOFINISH_WEBHOOK_HTTP", "on")
            .with_setting("PHOTOFINISH_WEBHOOK_ALLOW", format!("127.0.0.1:{}", receiver.port()));
        let mut process = installation.start("serve", port, &database.folder().join("service.log"))?;
        process.wait_until_ready(START_TIMEOUT)?;
        Ok(Self(process))
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        log_tail(&self.0.log())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Err(error) = self.0.terminate(STOP_TIMEOUT) {
            eprintln!("{error:#}");
        }
    }
}
