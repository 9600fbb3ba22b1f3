//! A nats-server with JetStream.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::DEADLINE;
use crate::environment::find_program;
use crate::ports::free_port;

/// A running server; killed on drop.
pub struct NatsServer {
    program: PathBuf,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts a server; returns `None`, and prints why, if the program is not installed.
    ///
    /// # Panics
    /// If the program is not installed and tests must not be skipped (`REQUIRE_SHARED=1`).
    pub fn start() -> Option<Self> {
        let program = find_program("nats-server", "PHOTOFINISH_TEST_NATS_SERVER", "nats/nats-server")?;
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { program, port: free_port(), folder, child: None };
        server.run();
        Some(server)
    }

    /// Starts the program on the same port, with the data on its disk.
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
        while TcpStream::connect(self.address()).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(start.elapsed() < DEADLINE, "nats-server does not respond: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the process, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Removes its data; only while it does not run.
    pub fn lose_disk(&mut self) {
        assert!(self.child.is_none(), "a running server keeps its files open");
        std::fs::remove_dir_all(self.disk()).unwrap();
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
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
