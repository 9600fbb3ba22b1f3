//! What rate limits cost a request: the same requests to two services on one database server, one that limits and one that
//! does not, in turns of a second, by CPU time of the services and by the time that the caller waits.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_client::{Client, ClientOptions};
use photofinish_launcher::{ALL_SCOPES, Installation, ServiceProcess};
use photofinish_servers::free_port;
use serde_json::{Value, json};

use crate::paths::InputPaths;
use crate::process::process_tree_cpu;
use crate::report::goals::Goal;
use crate::report::statistics::{estimate_mean, median};
use crate::report::{OutputOptions, Report, Table};
use crate::store::backends::{Backend, BenchDatabase};
use crate::turns::{Pair, take_turns};

/// The longest start and stop.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The master secret of the services, in base64.
const SECRET_KEY: &str = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=";

/// Requests of a turn with one key. A limit is a little more, so that none is refused, and each turn has a key of its own: so
/// a process takes as many shares of the limit as for a key that uses all of it.
const REQUESTS: usize = 1000;
const LIMIT: usize = 1200;

/// The most that a limit may cost a request, microseconds.
const TARGET_MICROSECONDS: f64 = 20.0;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct RateOptions {
    /// Turns of each service, of a thousand requests each
    #[arg(long, default_value_t = 20)]
    pub turns: usize,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the measurement.
///
/// # Errors
/// When a server or the service is not available.
pub fn run(options: &RateOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("rates", "What rate limits cost a request");
    let backends = Backend::start_databases().context("no Postgres: run `cargo xtask setup --all`")?;
    let columns = [
        "database",
        "requests",
        "CPU us a request without limits",
        "with limits",
        "difference, 95 % interval",
        "wait us without limits",
        "with limits",
    ];
    let mut table = Table::new("", &columns);
    for backend in &backends {
        let databases = [backend.create_database(None)?, backend.create_database(None)?];
        let [without, with] = [false, true].map(|is_limited| {
            Limited::start(&options.paths, &databases[usize::from(is_limited)], is_limited, options.turns)
        });
        let (without, with) = (without?, with?);
        let turns = take_turns(options.turns, |turn| without.take_turn(turn), |turn| with.take_turn(turn))?;
        let of = |value: fn(&Pair<Turn>) -> f64| turns.iter().map(value).collect::<Vec<f64>>();
        let difference = estimate_mean(&of(|pair| pair.second.cpu - pair.first.cpu));
        let middle = |value: fn(&Pair<Turn>) -> f64| format!("{:.0}", median(&of(value)));
        table.add_row([
            backend.name.to_owned(),
            (REQUESTS * turns.len()).to_string(),
            middle(|pair| pair.first.cpu),
            middle(|pair| pair.second.cpu),
            format!("{:.1} ± {:.1}", difference.mean, difference.margin),
            middle(|pair| pair.first.wait),
            middle(|pair| pair.second.wait),
        ]);
        let goal = format!("CPU of rate limits a request, us, {}", backend.name);
        report.goals.push(Goal::at_most(&goal, (difference.mean * 10.0).round() / 10.0, TARGET_MICROSECONDS));
    }
    report.tables.push(table);
    report.notes.push(format!(
        "`albums/list` of an empty organization, one caller on one connection, {REQUESTS} requests of each service in turn, \
         with a key of its own each turn and a limit of {LIMIT} a minute: on Postgres the service takes a hundredth of it at a \
         time from the table that replicas share, on SQLite it counts in memory. CPU is that of the service's process, \
         without Postgres's; waits are the medians of turns, and share the machine's two cores with the caller."
    ));
    Ok(report)
}

/// A service with or without limits, and a key for each turn.
struct Limited {
    process: ServiceProcess,
    clients: Vec<Client>,
}

impl Limited {
    fn start(
        paths: &InputPaths,
        database: &BenchDatabase,
        is_limited: bool,
        keys: usize,
    ) -> anyhow::Result<Self> {
        let (binary, data) = (paths.find_or_build_binary(&["fakes"])?, database.folder().join("data"));
        std::fs::create_dir_all(&data)?;
        let (port, limit) = (free_port(), if is_limited { LIMIT } else { 0 });
        let url = format!("http://127.0.0.1:{port}");
        let installation = Installation::new(binary, &data)
            .isolated()
            .with_setting("PHOTOFINISH_MODELS", "fake")
            .with_setting("PHOTOFINISH_PUBLIC_URL", &url)
            .with_setting("PHOTOFINISH_DATABASE_URL", database.url())
            .with_setting("PHOTOFINISH_SECRET_KEY", SECRET_KEY)
            .with_setting("PHOTOFINISH_RATE_LIMITS", format!("read={limit}"));
        let mut process = installation.start("serve", port, &database.folder().join("service.log"))?;
        process.wait_until_ready(START_TIMEOUT)?;
        let client = |key: String| Client::new(&url, &key, ClientOptions::default());
        let clients = (0..keys).map(|_| Ok(client(installation.create_key("bench", "test", &ALL_SCOPES)?)));
        let clients = clients.collect::<anyhow::Result<_>>()?;
        Ok(Self { process, clients })
    }

    /// Sends the requests of a turn.
    fn take_turn(&self, turn: usize) -> anyhow::Result<Turn> {
        let client = &self.clients[turn];
        // The service has looked the key up before its requests count.
        client.call::<Value>("albums/list", &json!({}))?;
        let cpu = process_tree_cpu(self.process.id())?;
        let begun = Instant::now();
        for _ in 0..REQUESTS {
            client.call::<Value>("albums/list", &json!({}))?;
        }
        let wait = begun.elapsed();
        let cpu = process_tree_cpu(self.process.id())?.saturating_sub(cpu);
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
        Ok(Turn { cpu: per_request(cpu), wait: per_request(wait) })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Err(error) = self.process.terminate(STOP_TIMEOUT) {
            eprintln!("{error:#}");
        }
    }
}

/// Microseconds a request.
struct Turn {
    cpu: f64,
    wait: f64,
}
