//! An S3 server that checks signatures. `cargo xtask test` sets its program up.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::environment::program;

/// The bucket that there is.
pub const BUCKET: &str = "photos";
const KEY: &str = "test-key";
const SECRET: &str = "test-secret";

/// The server; killed with this.
pub struct S3Server {
    program: PathBuf,
    folder: TempDir,
    address: SocketAddr,
    running: Option<Child>,
}

impl S3Server {
    /// A server with an empty bucket; `None`, said loudly, where its program was not set up.
    ///
    /// # Panics
    /// When it was not and `REQUIRE_SHARED=1`, and when it does not start.
    pub fn start() -> Option<Self> {
        let program = program("S3 server", "PHOTOFINISH_TEST_S3_SERVER", "s3-server/bin/s3s-fs")?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let (running, address) = run(&program, folder.path(), 0);
        Some(Self { program, folder, address, running: Some(running) })
    }

    /// Ends it as a machine ends that loses its power.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Starts it again, where it was and with what it had.
    pub fn start_again(&mut self) {
        self.kill();
        self.running = Some(run(&self.program, self.folder.path(), self.address.port()).0);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The bucket's folder.
    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }

    /// What a client of it is told by the usual variables.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables_through(self.address)
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
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the program and waits until it says where it listens.
fn run(program: &Path, folder: &Path, port: u16) -> (Child, SocketAddr) {
    let mut running = Command::new(program)
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--access-key", KEY, "--secret-key", SECRET])
        .arg(folder)
        .env("RUST_LOG", "s3s_fs=info")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| address_in(&line)).expect("the server ended before it listened");
    // Nobody else empties the pipe; ends with the server.
    std::thread::Builder::new().name("s3 server's log".into()).spawn(move || lines.for_each(drop)).unwrap();
    (running, address)
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("running at http://")?;
    rest.split(|c: char| c == ',' || c.is_whitespace()).next()?.parse().ok()
}

/// How many files are below a folder.
pub fn files_below(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.map(|entry| entry.unwrap().path()).map(|p| if p.is_dir() { files_below(&p) } else { 1 }).sum()
}
