//! A Postgres server, run by a script that ends with its input, so that no server outlives its process.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use uuid::Uuid;

use crate::environment::{read_variable, skip_or_fail};
use crate::ports::free_port;

/// Where Debian's package puts the server's programs.
const DEBIAN_PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Tests restart servers, but never cut a machine's power.
const FAST_OPTIONS: &str = "-c fsync=off";
const DURABLE_OPTIONS: &str = "";

/// A running server; it ends with this, and with the process.
pub struct Postgres {
    port: u16,
    script: Mutex<Script>,
}

/// What runs the server; it ends with its input.
struct Script {
    commands: ChildStdin,
    responses: BufReader<ChildStdout>,
    _process: Child,
}

impl Postgres {
    /// The server that all tests of this binary share, started at the first that wants it; `None`, said loudly, where
    /// there is no Postgres.
    ///
    /// # Panics
    /// When there is none and nothing may be skipped (`REQUIRE_SHARED=1`), and when it does not start.
    pub fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
        SERVER.get_or_init(Self::start_private).as_ref()
    }

    /// One that nobody else uses, and that may be stopped. It does not wait for its disk.
    pub fn start_private() -> Option<Self> {
        find_programs().map(|programs| Self::start(&programs, FAST_OPTIONS))
    }

    /// One that waits for its disk, as in production: to measure with.
    pub fn start_durable() -> Option<Self> {
        find_programs().map(|programs| Self::start(&programs, DURABLE_OPTIONS))
    }

    fn start(programs: &Path, options: &str) -> Self {
        // The server refuses to run as root.
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            // The other user may not write to a folder of ours.
            command.args(["-u", "postgres", "--", "sh"]).env("TMPDIR", "/tmp");
            command
        } else {
            Command::new("sh")
        };
        let port = free_port();
        let mut process = command
            .args(["-c", include_str!("postgres.sh"), "postgres.sh"])
            .arg(programs)
            .args([&port.to_string(), options])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut script = Script { commands: orders, responses: answers, _process: process };
        // Its folder, which the server's socket is in too; nobody here needs it.
        script.read_response();
        Self { port, script: Mutex::new(script) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of a new, empty database.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", Uuid::now_v7().simple());
        self.send_command(&format!("create {name}"));
        self.url_through(&name, self.address())
    }

    /// The URL of a database for a client that reaches the server through `address`.
    pub fn url_through(&self, database: &str, address: SocketAddr) -> String {
        format!("postgres://photofinish@{address}/{database}")
    }

    /// Ends the server as a power cut would and starts it again.
    pub fn restart(&self) {
        self.send_command("restart");
    }

    /// Ends the server as a power cut would.
    pub fn stop(&self) {
        self.send_command("stop");
    }

    /// Starts it again.
    pub fn start_again(&self) {
        self.send_command("start");
    }

    fn send_command(&self, order: &str) {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(script.commands, "{order}").unwrap();
        assert_eq!(script.read_response(), "done", "{order}");
    }
}

impl Script {
    fn read_response(&mut self) -> String {
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the server did not do as it was told, see above");
        line.trim_end().to_owned()
    }
}

fn find_programs() -> Option<PathBuf> {
    let folder =
        read_variable("PHOTOFINISH_TEST_POSTGRES_BIN").map_or_else(|| DEBIAN_PROGRAMS.into(), PathBuf::from);
    if folder.join("initdb").is_file() {
        return Some(folder);
    }
    skip_or_fail("Postgres", "PHOTOFINISH_TEST_POSTGRES_BIN does not name the folder of its programs");
    None
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
