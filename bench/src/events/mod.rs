//! Webhooks: photos become ready at a fixed rate, by calls of the store as workers make them, while the real service publishes
//! their events and sends them to an HTTP receiver on this machine. Measures how long after its commit the receiver has each
//! photo.

mod flow;
mod sender;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use photofinish_servers::{Answer, ReceivedRequest, Receiver};
use photofinish_store::model::event::EventType;
use photofinish_store::model::webhook::NewWebhook;
use serde_json::Value;

use self::sender::Sender;
use crate::paths::InputPaths;
use crate::report::goals::Goal;
use crate::report::statistics::percentile;
use crate::report::{OutputOptions, Report, Table};
use crate::store::backends::{Backend, BenchDatabase};
use crate::store::setup::create_album;

/// How long the receiver may wait for the last photos.
const TELL_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest body that receivers are advised to accept.
const TARGET_BODY_BYTES: f64 = 20_000.0;
/// The most bodies of 100,000 photos: 400 are full.
const TARGET_BODIES_PER_PHOTO: f64 = 420.0 / 100_000.0;
/// The 99th percentile from commit to receipt, seconds. Photos are gathered for two.
const TARGET_LAG: f64 = 3.0;
/// The share of the rate that must be reached for the lag to count.
const TARGET_RATE_SHARE: f64 = 0.98;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct EventOptions {
    /// Photos that become ready
    #[arg(long, default_value_t = 100_000)]
    pub photos: usize,
    /// Photos a second
    #[arg(long, default_value_t = 1000)]
    pub rate: usize,
    /// Folder for files while it runs; choose the disk to measure
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// What was measured on one database.
struct Findings {
    rate: f64,
    bodies: usize,
    longest_body: usize,
    /// From the commit of a photo to the receipt of its body.
    lags: Vec<Duration>,
    /// The part of it until its event was published.
    until_published: Vec<Duration>,
    /// Photos of several events.
    repeated: usize,
}

/// Runs the measurement.
///
/// # Errors
/// When a server or the service is not available, or a photo is not told.
pub fn run(options: &EventOptions) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    let title = format!("Webhooks: {} photos, {} a second", options.photos, options.rate);
    let mut report = Report::new("events", &title);
    let backends = Backend::start_databases().context("no Postgres: run `cargo xtask setup --all`")?;
    let columns = [
        "database",
        "photos per second",
        "bodies",
        "longest body, bytes",
        "lag p50 s",
        "lag p99 s",
        "lag most s",
        "until published p50 s",
        "until published p99 s",
        "from there p50 ms",
        "from there p99 ms",
    ];
    let mut table = Table::new("", &columns);
    for backend in &backends {
        let database = backend.create_database(options.folder.as_deref())?;
        let findings = runtime.block_on(measure(options, &database))?;
        add_row(&mut table, backend.name, &findings);
        add_goals(&mut report, backend.name, options, &findings);
    }
    report.tables.push(table);
    report.notes.push(
        "Photos are confirmed, leased and made ready 64 at a time by the calls of the store that API and workers make. The \
         service is the release binary in the role `serve`, whose publisher gathers photos for 2 s and looks every 250 ms, \
         as its sender does. The receiver answers 204 at once. Lag is from the commit of a photo to the receipt of the body \
         that has it; published is what the event says of itself. All share this machine's cores."
            .to_owned(),
    );
    Ok(report)
}

async fn measure(options: &EventOptions, database: &BenchDatabase) -> anyhow::Result<Findings> {
    let store = database.open_store().await?;
    let receiver = Receiver::start(|_| Answer::of(204));
    let fixture = create_album(&store).await?;
    let webhook = NewWebhook {
        tenant: fixture.tenant,
        created_by: fixture.key.id,
        url: receiver.url(),
        label: String::new(),
        types: vec![EventType::PhotoReady, EventType::PhotoFailed],
        album: None,
        secret: [1; 32],
    };
    store.webhooks.create(webhook, 1).await?;
    let sender = Sender::start(&options.paths, database, &receiver)?;
    let flow = flow::run(&fixture, options.photos, options.rate).await?;
    let told = wait_until_told(&receiver, options.photos).await;
    let told = told.with_context(|| sender.log_tail())?;
    let mut published = HashMap::new();
    let mut after = 0;
    loop {
        let events = store.events.read_after(after, 1000).await?;
        let Some(last) = events.last() else { break };
        after = last.sequence;
        published.extend(
            events.iter().map(|event| (event.id.0.simple().to_string(), SystemTime::from(event.created_at))),
        );
    }
    let mut findings = Findings {
        rate: flow.rate,
        bodies: told.len(),
        longest_body: told.iter().map(|request| request.body.len()).max().unwrap_or(0),
        lags: Vec::new(),
        until_published: Vec::new(),
        repeated: 0,
    };
    let mut ready_at = flow.ready_at;
    for request in &told {
        let id = request.headers.get("webhook-id").and_then(|id| id.strip_prefix("evt_"));
        let id = id.context("a delivery without its id")?;
        let event_at = published.get(id).context("an event that is not in the database")?;
        for photo in photos_of(request) {
            let Some(at) = ready_at.remove(&photo) else {
                findings.repeated += 1;
                continue;
            };
            findings.lags.push(request.at.duration_since(at).unwrap_or_default());
            findings.until_published.push(event_at.duration_since(at).unwrap_or_default());
        }
    }
    anyhow::ensure!(ready_at.is_empty(), "{} photos were not told", ready_at.len());
    store.close().await;
    Ok(findings)
}

/// The photos of a body.
fn photos_of(request: &ReceivedRequest) -> Vec<String> {
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let photos = body["data"]["photos"].as_array().into_iter().flatten();
    photos.filter_map(|photo| photo["photoId"].as_str().map(str::to_owned)).collect()
}

/// How many photos bodies tell of; one that is told again counts once.
fn count_told(received: &[ReceivedRequest]) -> usize {
    received.iter().flat_map(photos_of).collect::<HashSet<_>>().len()
}

/// Waits until bodies with so many different photos have arrived; returns the bodies.
async fn wait_until_told(receiver: &Receiver, photos: usize) -> anyhow::Result<Vec<ReceivedRequest>> {
    let begun = std::time::Instant::now();
    loop {
        let received = receiver.received();
        let told = count_told(&received);
        if told >= photos {
            return Ok(received);
        }
        anyhow::ensure!(begun.elapsed() < TELL_TIMEOUT, "{told} of {photos} photos were told");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn add_row(table: &mut Table, name: &str, findings: &Findings) {
    let until = &findings.until_published;
    let from_there: Vec<Duration> =
        findings.lags.iter().zip(until).map(|(lag, until)| lag.saturating_sub(*until)).collect();
    let seconds = |times: &[Duration], share: f64| format!("{:.2}", percentile(times, share).as_secs_f64());
    let milliseconds =
        |times: &[Duration], share: f64| format!("{:.0}", percentile(times, share).as_secs_f64() * 1e3);
    table.add_row([
        name.to_owned(),
        format!("{:.0}", findings.rate),
        findings.bodies.to_string(),
        findings.longest_body.to_string(),
        seconds(&findings.lags, 0.5),
        seconds(&findings.lags, 0.99),
        seconds(&findings.lags, 1.0),
        seconds(until, 0.5),
        seconds(until, 0.99),
        milliseconds(&from_there, 0.5),
        milliseconds(&from_there, 0.99),
    ]);
}

fn add_goals(report: &mut Report, name: &str, options: &EventOptions, findings: &Findings) {
    let lag = (percentile(&findings.lags, 0.99).as_secs_f64() * 100.0).round() / 100.0;
    let least_rate = options.rate as f64 * TARGET_RATE_SHARE;
    let most_bodies = (options.photos as f64 * TARGET_BODIES_PER_PHOTO).ceil();
    report.goals.extend([
        Goal::at_least(&format!("photos per second, {name}"), findings.rate.round(), least_rate),
        Goal::at_most(&format!("lag p99 s, {name}"), lag, TARGET_LAG),
        Goal::at_most(&format!("bodies, {name}"), findings.bodies as f64, most_bodies),
        Goal::at_most(
            &format!("longest body, bytes, {name}"),
            findings.longest_body as f64,
            TARGET_BODY_BYTES,
        ),
        Goal::at_most(&format!("photos told twice, {name}"), findings.repeated as f64, 0.0),
    ]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_photo_that_is_told_again_is_not_another_one() {
        let request = |photos: &[&str]| {
            let photos: Vec<Value> = photos.iter().map(|id| serde_json::json!({ "photoId": id })).collect();
            ReceivedRequest {
                at: SystemTime::UNIX_EPOCH,
                line: "POST / HTTP/1.1".to_owned(),
                headers: BTreeMap::new(),
                body: serde_json::json!({ "data": { "photos": photos } }).to_string(),
                status: 204,
            }
        };
        let received = [request(&["1", "2"]), request(&["1", "2"]), request(&["3"])];
        assert_eq!(count_told(&received[..2]), 2);
        assert_eq!(count_told(&received), 3);
    }
}
