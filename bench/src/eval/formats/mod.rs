//! What the format that an album shows does to bib search: on the labelled race photos through the API, and on drawn
//! events in the store.

mod drawn;
mod events;

use std::time::{Duration, Instant};

use photofinish_client::Client;
use serde_json::{Value, json};

use super::bibs::{COLUMNS, VariantResult, add_rows, make_photos};
use super::options::BibOptions;
use super::tally::indexed_texts;
use super::variants::Variant;
use crate::photos::enlarge::pick_evenly;
use crate::photos::jitter::Jitter;
use crate::photos::labels::{self, LabelledPhoto};
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;

/// Learning and judging begin within a second; an album where nothing changes for so long has been judged.
const QUIET: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const JUDGING_LIMIT: Duration = Duration::from_secs(300);

/// The albums: each race alone, and both in one.
const SETS: [&str; 3] = ["set1", "set2", ""];

/// Runs the evaluation.
///
/// # Errors
/// When the service, the store or the labelled photos are not available.
pub fn run(options: &BibOptions) -> anyhow::Result<Report> {
    let paths = &options.common.paths;
    let all = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let labels: Vec<&LabelledPhoto> = pick_evenly(&all, options.limit.unwrap_or(all.len()));
    let folder = paths.find_shared("photos/files")?;
    let variants = Variant::start_all(options)?;
    let seeds = if options.unchanged { 1 } else { u64::from(options.seeds) };
    let caption = format!(
        "{seeds} readings of each photo; the same readings with the format and without; 90 % intervals."
    );
    let mut table = Table::new(&caption, &COLUMNS);
    let mut shown = Table::new(
        "The formats that the albums showed.",
        &["photos", "seed", "format", "share", "different bibs"],
    );
    for set in SETS {
        let labels: Vec<&LabelledPhoto> =
            labels.iter().copied().filter(|label| label.file.contains(set)).collect();
        let mut results = ["with the format", "without"].map(|name| VariantResult::new(name, labels.len()));
        for seed in 1..=seeds {
            let changed = tempfile::tempdir()?;
            let draw = |name: &str| (!options.unchanged).then(|| Jitter::draw(seed, name));
            let files = make_photos(&labels, &folder, changed.path(), draw)?;
            let (album, _) = variants[0].read(changed.path(), &files)?;
            let client = variants[0].client();
            for (result, format) in results.iter_mut().zip(["auto", "off"]) {
                let format = judge_by(client, &album, format)?;
                result.add_readings(client, &album, &labels)?;
                if result.name != "without" {
                    let name = if set.is_empty() { "all" } else { set };
                    let learned = format["learned"].as_str().unwrap_or("none").to_owned();
                    let (share, readings) = (format["share"].to_string(), format["readings"].to_string());
                    shown.add_row([name.to_owned(), seed.to_string(), learned, share, readings]);
                }
            }
        }
        add_rows(&mut table, set, &labels, &results);
        println!("{} photos: done", labels.len());
    }
    let mut report = Report::new("bibs with formats", "Bib search with the format that an album shows");
    report.tables = vec![table, shown];
    drawn::add_to(&mut report, u64::from(options.seeds))?;
    Ok(report)
}

/// Sets the format of an album, and waits until its texts are judged by it. Returns the format that it shows.
fn judge_by(client: &Client, album: &UploadedAlbum, format: &str) -> anyhow::Result<Value> {
    let config = json!({ "albumId": album.id, "config": { "bibFormat": format } });
    let _: Value = client.call("albums/update", &config)?;
    let read = || -> anyhow::Result<(Value, usize)> {
        let state: Value = client.call("albums/get", &json!({ "albumId": album.id }))?;
        let mut indexed = 0;
        for photo in &album.photos {
            indexed += indexed_texts(&client.get_photo(&album.id, &photo.id)?).len();
        }
        Ok((state["bibFormat"].clone(), indexed))
    };
    let (begun, mut quiet_since, mut last) = (Instant::now(), Instant::now(), read()?);
    while quiet_since.elapsed() < QUIET {
        anyhow::ensure!(begun.elapsed() < JUDGING_LIMIT, "judging took too long");
        std::thread::sleep(POLL_INTERVAL);
        let now = read()?;
        if now != last {
            (quiet_since, last) = (Instant::now(), now);
        }
    }
    Ok(last.0)
}
