//! A nats-server of its own for each test, on a free port and in a folder of its own; nobody else's is touched.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::consumer::PullConsumer;
use photofinish_store::QueueSettings;
use tempfile::TempDir;

/// Nothing here takes so long unless it never ends.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The name of the stream in tests.
pub const STREAM: &str = "test";

/// A running server; killed with this.
pub struct NatsServer {
    program: PathBuf,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts one; `None`, said loudly, where the program is not there.
    ///
    /// # Panics
    /// Without the program, when nothing may be skipped (`REQUIRE_SHARED=1`).
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            let why = "no nats-server: PHOTOFINISH_TEST_NATS_SERVER names none, and set-up has not built one";
            assert!(!is_required(), "{test}: {why} (REQUIRE_SHARED=1 forbids skipping)");
            eprintln!("SKIPPED: {test}: {why}");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { program, port, folder: tempfile::tempdir().unwrap(), child: None };
        server.run();
        Some(server)
    }

    /// Starts the program, on the same port and with what is on the disk.
    pub fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = Command::new(&self.program)
            .args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"])
            .arg(self.disk())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(start.elapsed() < DEADLINE, "nats-server does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Takes its disk away; only while it does not run.
    pub fn lose_disk(&mut self) {
        assert!(self.child.is_none(), "a running server keeps its files open");
        std::fs::remove_dir_all(self.disk()).unwrap();
    }

    /// How a queue reaches it. The times are those of a service that is in a hurry.
    pub fn settings(&self) -> QueueSettings {
        QueueSettings {
            url: format!("nats://127.0.0.1:{}", self.port),
            credentials: None,
            stream: STREAM.into(),
            replicas: 1,
            ack_wait: Duration::from_secs(2),
            sweep_every: Duration::from_secs(2),
        }
    }

    /// The stream as the server sees it.
    pub async fn stream(&self) -> jetstream::stream::State {
        let stream = self.context().await.get_stream(STREAM).await.unwrap();
        stream.cached_info().state.clone()
    }

    /// The workers' consumer as the server sees it.
    pub async fn consumer(&self) -> PullConsumer {
        let stream = self.context().await.get_stream(STREAM).await.unwrap();
        stream.get_consumer("workers").await.unwrap()
    }

    /// A way to the server past the queue.
    pub async fn context(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.settings().url).await.unwrap())
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program of the variable, or the one that set-up built.
fn program() -> Option<PathBuf> {
    let set_up = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.photofinish/nats/nats-server");
    let program = variable("PHOTOFINISH_TEST_NATS_SERVER").map_or_else(set_up, PathBuf::from);
    program.is_file().then_some(program)
}

fn is_required() -> bool {
    variable("REQUIRE_SHARED").is_some_and(|value| value != "0")
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what they may use")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
