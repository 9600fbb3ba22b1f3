//! What a request costs the service, beside another build of it: the same requests to both in turns, by the CPU time of their
//! processes. A small request is one that the database answers from a row or two: the rest is the service's own work.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::paths::InputPaths;
use crate::process::process_tree_cpu;
use crate::report::statistics::{estimate_mean, median};
use crate::report::{OutputOptions, Report, Table};
use crate::service::{Service, Setup};
use crate::turns::{Pair, take_turns};

/// Requests of a turn: many, because the kernel counts CPU time in hundredths of a second.
const REQUESTS: usize = 4000;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct RequestOptions {
    /// Another build of the service, to compare with
    #[arg(long, value_name = "FILE")]
    pub against_binary: PathBuf,
    /// Turns of each service, of four thousand requests of each kind
    #[arg(long, default_value_t = 10)]
    pub turns: usize,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// A service under measurement, with an album to ask for.
struct Measured {
    service: Service,
    album: String,
}

/// A kind of request.
struct Kind {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    /// The body, for an album.
    body: fn(&str) -> Value,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "albums/get",
        method: "POST",
        path: "/openapi/albums/get",
        body: |album| json!({ "albumId": album }),
    },
    Kind {
        name: "bib search",
        method: "POST",
        path: "/openapi/photos/search/text/list",
        body: |album| json!({ "albumId": album, "text": "1234" }),
    },
    Kind {
        name: "a page of photos",
        method: "POST",
        path: "/openapi/photos/photo/list",
        body: |album| json!({ "albumId": album }),
    },
    Kind { name: "/healthz", method: "GET", path: "/healthz", body: |_| Value::Null },
];

/// Runs the measurement.
///
/// # Errors
/// When a service does not start, or does not answer as it must.
pub fn run(options: &RequestOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("requests", "CPU of the service a request, beside another build");
    let other = InputPaths { binary: Some(options.against_binary.clone()), ..options.paths.clone() };
    let (this, other) = (Measured::start(&options.paths)?, Measured::start(&other)?);
    let columns =
        ["request", "requests", "CPU us of the other", "of this", "saved, 95 % interval", "times as much"];
    let mut table = Table::new("", &columns);
    for kind in &KINDS {
        let turns = take_turns(options.turns, |_| this.take_turn(kind), |_| other.take_turn(kind))?;
        let of = |value: fn(&Pair<f64>) -> f64| turns.iter().map(value).collect::<Vec<f64>>();
        let saved = estimate_mean(&of(|pair| pair.second - pair.first));
        let (this, other) = (median(&of(|pair| pair.first)), median(&of(|pair| pair.second)));
        table.add_row([
            kind.name.to_owned(),
            (REQUESTS * turns.len()).to_string(),
            format!("{other:.0}"),
            format!("{this:.0}"),
            format!("{:.1} ± {:.1}", saved.mean, saved.margin),
            format!("{:.2}", other / this),
        ]);
    }
    report.tables.push(table);
    report.notes.push(format!(
        "One caller on one connection, {REQUESTS} requests of each build in turn; the album has no photos, the database is \
         SQLite. CPU is that of the service's process, user and system, medians of turns. The other build: {}.",
        version_of(&options.against_binary)?
    ));
    Ok(report)
}

/// The name of a build: what it says of itself, since a path says nothing to others.
fn version_of(binary: &Path) -> anyhow::Result<String> {
    let output = Command::new(binary).arg("--version").output().context("its version")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Measured {
    fn start(paths: &InputPaths) -> anyhow::Result<Self> {
        let service = Service::start(paths, &Setup::default())?;
        let album = service.client().create_album("Requests", None)?.id;
        Ok(Self { service, album })
    }

    /// Sends the requests of a turn; returns the CPU time of one, microseconds.
    fn take_turn(&self, kind: &Kind) -> anyhow::Result<f64> {
        let (client, pid) = (self.service.client(), self.service.pid());
        let headers = [("content-type", "application/json")];
        let body = (kind.body)(&self.album).to_string();
        let body = if kind.method == "GET" { "" } else { &body };
        let send = || {
            let response = client.raw(kind.method, kind.path, &headers, body.as_bytes())?;
            anyhow::ensure!(response.status == 200, "{}: {}", kind.name, response.text());
            Ok(())
        };
        // The service has looked the key up before its requests count.
        send()?;
        let cpu = process_tree_cpu(pid)?;
        for _ in 0..REQUESTS {
            send()?;
        }
        let spent = process_tree_cpu(pid)?.saturating_sub(cpu);
        Ok(spent.as_secs_f64() * 1e6 / REQUESTS as f64)
    }
}
