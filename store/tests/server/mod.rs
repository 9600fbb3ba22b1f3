//! A real Postgres server for this test binary: started at the first test that wants it, stopped when the process ends,
//! and a database of its own for each test. Nothing that was there before is touched.

#![allow(dead_code, reason = "each test binary uses some of it")]
#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

/// Where Debian's package puts the server's programs.
const DEBIAN: &str = "/usr/lib/postgresql/15/bin";

/// The server of this test binary.
pub struct Server {
    folder: PathBuf,
    script: Mutex<Script>,
}

/// What runs the server; it ends with its input.
struct Script {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    _process: Child,
}

impl Server {
    /// The server, or `None` (said loudly) where there is no Postgres.
    ///
    /// # Panics
    /// When there is none and `REQUIRE_SHARED=1`, or it does not start.
    pub fn get() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<Server>> = OnceLock::new();
        let server = SERVER.get_or_init(|| programs().map(|programs| Self::start(&programs)));
        if server.is_none() {
            assert!(variable("REQUIRE_SHARED").as_deref() != Some("1"), "REQUIRE_SHARED=1, and no Postgres");
            eprintln!(
                "SKIPPED: no Postgres: set PHOTOFINISH_TEST_POSTGRES_BIN to the folder of its programs"
            );
        }
        server.as_ref()
    }

    /// One that no other test uses, and that may be stopped.
    pub fn of_its_own() -> Option<Self> {
        Self::get()?;
        programs().map(|programs| Self::start(&programs))
    }

    fn start(programs: &Path) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/postgres.sh");
        let text = std::fs::read_to_string(script).unwrap();
        // The server refuses to run as root.
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let mut process = command
            .args(["-c", &text, "postgres.sh"])
            .arg(programs)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut script = Script { orders, answers, _process: process };
        let folder = PathBuf::from(script.answer());
        Self { folder, script: Mutex::new(script) }
    }

    /// The URL of a new, empty database.
    pub async fn database(&self) -> String {
        let name = format!("test_{}", Uuid::now_v7().simple());
        let mut connection = PgConnection::connect(&self.url("postgres")).await.unwrap();
        let create = AssertSqlSafe(format!("create database {name}"));
        sqlx::query(create).execute(&mut connection).await.unwrap();
        self.url(&name)
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://photofinish@localhost/{database}?host={}", self.folder.display())
    }

    /// Ends the server as a power cut would and starts it again.
    pub fn restart(&self) {
        self.order("restart");
    }

    pub fn stop(&self) {
        self.order("stop");
    }

    pub fn start_again(&self) {
        self.order("start");
    }

    fn order(&self, order: &str) {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(script.orders, "{order}").unwrap();
        assert_eq!(script.answer(), "done", "{order}");
    }
}

impl Script {
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the server did not start");
        line.trim_end().to_owned()
    }
}

fn programs() -> Option<PathBuf> {
    let folder = variable("PHOTOFINISH_TEST_POSTGRES_BIN").map_or_else(|| DEBIAN.into(), PathBuf::from);
    folder.join("initdb").is_file().then_some(folder)
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0)
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what they may use")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
