//! An S3 server that verifies signatures. `cargo xtask test` installs its program.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::DEADLINE;
use crate::environment::find_program;
use crate::ports::free_port;

/// The only bucket.
pub const BUCKET: &str = "photos";
const KEY: &str = "test-key";
const SECRET: &str = "test-secret";

/// A running server; killed on drop.
pub struct S3Server {
    program: PathBuf,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl S3Server {
    /// Starts a server with an empty bucket; returns `None`, and prints why, if its program is not installed.
    ///
    /// # Panics
    /// If it is not installed and tests must not be skipped (`REQUIRE_SHARED=1`), and if it does not start.
    pub fn start() -> Option<Self> {
        let program = find_program("S3 server", "PHOTOFINISH_TEST_S3_SERVER", "s3-server/bin/s3s-fs")?;
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { program, port: free_port(), folder, child: None };
        std::fs::create_dir_all(server.bucket()).unwrap();
        server.run();
        Some(server)
    }

    /// Kills the process, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.child.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Kills it and starts it again on the same port, with the data on its disk.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// Starts the program on the same port, with the data on its disk.
    fn run(&mut self) {
        let (address, log) = (self.address(), self.folder.path().join("log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let child = Command::new(&self.program)
            .args(["--host", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--access-key", KEY, "--secret-key", SECRET])
            .arg(self.disk())
            .env("RUST_LOG", "s3s_fs=info")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let running = self.child.insert(child);
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            let log_text = || std::fs::read_to_string(&log).unwrap();
            let has_ended = running.try_wait().unwrap();
            assert!(has_ended.is_none(), "the S3 server ended before it listened: {}", log_text());
            assert!(start.elapsed() < DEADLINE, "the S3 server does not respond: {}", log_text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the bucket's folder.
    pub fn bucket(&self) -> PathBuf {
        self.disk().join(BUCKET)
    }

    /// Returns the usual environment variables for a client.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables_through(self.address())
    }

    /// Returns the variables for a client that connects to `address`.
    pub fn variables_through(&self, address: SocketAddr) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "eu-central-1".to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Counts the files below a folder.
pub fn count_files_below(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|p| if p.is_dir() { count_files_below(&p) } else { 1 })
        .sum()
}
