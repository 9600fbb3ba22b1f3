//! A Postgres server, run by a script that stops it when its input ends, so that no server outlives its process.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use uuid::Uuid;

use crate::environment::{read_variable, skip_or_fail};
use crate::ports::free_port;

/// Where Debian's package installs the server's programs.
const DEBIAN_PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Options of the server. Tests restart servers, but never cut a machine's power.
const FAST_OPTIONS: &str = "-c fsync=off";
const DURABLE_OPTIONS: &str = "";
/// As the fast ones, with counts of statements.
const COUNTING_OPTIONS: &str = "-c fsync=off -c shared_preload_libraries=pg_stat_statements";

/// A running server; stopped on drop and when the process ends.
pub struct Postgres {
    port: u16,
    script: Mutex<Script>,
}

/// The script that runs the server until its input ends.
struct Script {
    commands: ChildStdin,
    responses: BufReader<ChildStdout>,
    _process: Child,
}

impl Postgres {
    /// Returns the server that all tests of this binary share, started by the first; returns `None`, and prints why, if
    /// Postgres is not installed.
    ///
    /// # Panics
    /// If it is not installed and tests must not be skipped (`REQUIRE_SHARED=1`), and if it does not start.
    pub fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
        SERVER.get_or_init(Self::start_private).as_ref()
    }

    /// Starts a server that nothing else uses, and that may be stopped. It does not sync to disk.
    pub fn start_private() -> Option<Self> {
        find_programs().map(|programs| Self::start(&programs, FAST_OPTIONS))
    }

    /// Starts a server that counts statements, for [`Self::count_calls`].
    pub fn start_counting() -> Option<Self> {
        find_programs().map(|programs| Self::start(&programs, COUNTING_OPTIONS))
    }

    /// Starts a server that syncs to disk, as in production, for measurements.
    pub fn start_durable() -> Option<Self> {
        find_programs().map(|programs| Self::start(&programs, DURABLE_OPTIONS))
    }

    fn start(programs: &Path, options: &str) -> Self {
        // The server refuses to run as root.
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            // The other user may not write to this user's folders.
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
        let commands = process.stdin.take().unwrap();
        let responses = BufReader::new(process.stdout.take().unwrap());
        let mut script = Script { commands, responses, _process: process };
        // Its first line is the server's folder, which is not needed here.
        script.read_response();
        Self { port, script: Mutex::new(script) }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Creates an empty database and returns its URL.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", Uuid::now_v7().simple());
        self.send_command(&format!("create {name}"));
        self.url_through(&name, self.address())
    }

    /// Counts the calls of statements that contain a text, in a database of a server that counts them. The first call
    /// begins to count.
    ///
    /// # Panics
    /// If the server does not count statements.
    pub fn count_calls(&self, database_url: &str, containing: &str) -> u64 {
        let psql = find_programs().unwrap().join("psql");
        let count = format!(
            "create extension if not exists pg_stat_statements; select coalesce(sum(calls), 0) from pg_stat_statements \
             where query like '%{containing}%' and query not like '%pg_stat_statements%'"
        );
        let options =
            ["--quiet", "--no-align", "--tuples-only", "--no-psqlrc", "--command", &count, database_url];
        let output = Command::new(psql).args(options).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Returns the URL of a database for a client that connects to `address`.
    pub fn url_through(&self, database: &str, address: SocketAddr) -> String {
        format!("postgres://photofinish@{address}/{database}")
    }

    /// Stops the server as a power cut would and starts it again.
    pub fn restart(&self) {
        self.send_command("restart");
    }

    /// Stops the server as a power cut would.
    pub fn stop(&self) {
        self.send_command("stop");
    }

    /// Starts the server again after [`Self::stop`].
    pub fn start_again(&self) {
        self.send_command("start");
    }

    fn send_command(&self, command: &str) {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(script.commands, "{command}").unwrap();
        assert_eq!(script.read_response(), "done", "{command}");
    }
}

impl Script {
    fn read_response(&mut self) -> String {
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the server script failed, see above");
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
