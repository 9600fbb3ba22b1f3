//! An S3 server that checks signatures. `cargo xtask test` sets its program up.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::DEADLINE;
use crate::environment::find_program;
use crate::ports::free_port;

/// The bucket that there is.
pub const BUCKET: &str = "photos";
const KEY: &str = "test-key";
const SECRET: &str = "test-secret";

/// The server; killed with this.
pub struct S3Server {
    program: PathBuf,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl S3Server {
    /// A server with an empty bucket; `None`, said loudly, where its program was not set up.
    ///
    /// # Panics
    /// When it was not and `REQUIRE_SHARED=1`, and when it does not start.
    pub fn start() -> Option<Self> {
        let program = find_program("S3 server", "PHOTOFINISH_TEST_S3_SERVER", "s3-server/bin/s3s-fs")?;
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { program, port: free_port(), folder, child: None };
        std::fs::create_dir_all(server.bucket()).unwrap();
        server.run();
        Some(server)
    }

    /// Ends it as a machine ends that loses its power.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.child.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Starts it again, where it was and with what it had.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// Starts the program, on the same port and with what is on the disk.
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
            let words = || std::fs::read_to_string(&log).unwrap();
            let has_ended = running.try_wait().unwrap();
            assert!(has_ended.is_none(), "the S3 server ended before it listened: {}", words());
            assert!(start.elapsed() < DEADLINE, "the S3 server does not answer: {}", words());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The bucket's folder.
    pub fn bucket(&self) -> PathBuf {
        self.disk().join(BUCKET)
    }

    /// What a client of it is told by the usual variables.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables_through(self.address())
    }

    /// The same for a client that reaches it through `address`.
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

/// How many files are below a folder.
pub fn count_files_below(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|p| if p.is_dir() { count_files_below(&p) } else { 1 })
        .sum()
}
