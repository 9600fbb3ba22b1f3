//! Selfie search, end to end. Runners: the face of a runner, cropped from one race photo, must find the runner's other
//! photos. Portraits: each portrait must find all others of its person and no other person.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use photofinish_client::{Client, ClientError, Hit, media_type};
use serde_json::{Value, json};

use super::options::EvalOptions;
use crate::photos::enlarge;
use crate::photos::labels::{self, LabelledFace};
use crate::photos::score::ratio;
use crate::report::goals::Goal;
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// Side of a probe picture as a multiple of the face box: the detector needs the head around the face.
const PROBE_MARGIN: f64 = 2.0;

/// Least side of the face in a probe, in pixels; smaller faces are enlarged. Faces in the race photos have 20 to 110, those
/// in selfies more.
const PROBE_FACE_SIDE: f64 = 112.0;

/// The results of one probe, without its own photo, best first.
struct ProbeSearch {
    /// Name of the probe in lists.
    name: String,
    /// Files that show the same person, without the probe's own.
    right: BTreeSet<String>,
    /// Files that show the person without a label: right when found, not counted when missed.
    unlabelled: BTreeSet<String>,
    /// Files with their confidence, 0 to 100.
    hits: Vec<(String, f64)>,
}

impl ProbeSearch {
    fn is_wrong(&self, file: &str) -> bool {
        !self.right.contains(file) && !self.unlabelled.contains(file)
    }
}

/// Runs the evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(options: &EvalOptions) -> anyhow::Result<Report> {
    let service = Service::start(&options.paths, &Setup::default())?;
    let client = service.client();
    let threshold = default_threshold(client)?;
    let runners = search_runners(client, options)?;
    let portraits = search_portraits(client, options)?;

    let mut report = Report::new("faces", "Selfie search, end to end");
    let runtime = options.paths.find_runtime()?;
    report.versions.extend(runtime.file_name().map(|name| name.to_string_lossy().into_owned()));
    report.tables = vec![
        summary_table(&runners, &portraits, threshold),
        threshold_table("Runners: what a threshold gives", &runners),
        threshold_table("Portraits: what a threshold gives", &portraits),
    ];
    let of_portraits = count_hits(&portraits, threshold);
    report.goals = vec![
        Goal::at_least("runners: rank 1, of all probes", rank_one_rate(&runners, 0.0, false), 0.85),
        Goal::at_least("portraits: recall at the default threshold", of_portraits.recall(), 1.0),
        Goal::at_most("portraits: wrong persons at the default threshold", of_portraits.wrong as f64, 0.0),
    ];
    report.notes = vec![
        format!("The default threshold of an album is {threshold}."),
        format!(
            "A runner's probe is the labelled face box with {PROBE_MARGIN} times its sides, enlarged so that the face is \
             {PROBE_FACE_SIDE} px across. Its own photo is left out of the hits. Rank 1: the best hit shows the runner."
        ),
        "A wrong hit among runners is a photo without the runner's bib in its labels. Three photos that show a \
         runner without a label (found by these searches, then checked by eye) count as right when found; the \
         column by labels alone counts them as wrong."
            .to_owned(),
    ];
    report.details = list_errors("runner", &runners, threshold)
        .chain(list_errors("portrait", &portraits, threshold))
        .collect();
    Ok(report)
}

/// Returns the default face threshold of an album.
fn default_threshold(client: &Client) -> anyhow::Result<f64> {
    let album = client.create_album("defaults", None)?;
    album.config["face"]["confidenceThreshold"].as_f64().context("an album without a face threshold")
}

/// Returns a configuration with threshold 0, so that one search has the hits for every threshold.
fn zero_threshold_config() -> Value {
    json!({ "face": { "confidenceThreshold": 0 } })
}

fn search_runners(client: &Client, options: &EvalOptions) -> anyhow::Result<Vec<ProbeSearch>> {
    let labels = labels::load_photos(&options.paths.find_shared("photos/bibs.csv")?)?;
    let faces = labels::load_faces(&options.paths.find_shared("photos/rbnr_boxes.csv")?, &labels)?;
    let folder = options.paths.find_shared("photos/files")?;
    let files: Vec<String> = labels.iter().map(|photo| photo.file.clone()).collect();
    let album = UploadedAlbum::ingest(client, Some(&zero_threshold_config()), &folder, &files)?;
    let mut searches = Vec::new();
    for face in &faces {
        let others = faces.iter().filter(|other| other.bib == face.bib && other.file != face.file);
        let right: BTreeSet<String> = others.map(|other| other.file.clone()).collect();
        if right.is_empty() {
            continue;
        }
        let probe = crop_probe(&folder, face)?;
        let hits = search_probe(client, &album, "image/png", &probe)?;
        let unlabelled =
            files.iter().filter(|file| labels::shows_unlabelled_runner(file, &face.bib)).cloned().collect();
        searches.push(ProbeSearch {
            name: format!("{} in {}", face.bib, face.file),
            right,
            unlabelled,
            hits: exclude_file(hits, &face.file),
        });
    }
    Ok(searches)
}

fn search_portraits(client: &Client, options: &EvalOptions) -> anyhow::Result<Vec<ProbeSearch>> {
    let portraits = labels::load_portraits(&options.paths.find_shared("photos/faces.csv")?)?;
    let folder = options.paths.find_shared("photos/files")?;
    let files: Vec<String> = portraits.iter().map(|portrait| portrait.file.clone()).collect();
    let album = UploadedAlbum::ingest(client, Some(&zero_threshold_config()), &folder, &files)?;
    let mut searches = Vec::new();
    for portrait in &portraits {
        let same =
            portraits.iter().filter(|other| other.person == portrait.person && other.file != portrait.file);
        let bytes = std::fs::read(folder.join(&portrait.file))?;
        let hits = search_probe(client, &album, media_type(&portrait.file).unwrap_or("image/jpeg"), &bytes)?;
        searches.push(ProbeSearch {
            name: format!("{} in {}", portrait.person, portrait.file),
            right: same.map(|other| other.file.clone()).collect(),
            unlabelled: BTreeSet::new(),
            hits: exclude_file(hits, &portrait.file),
        });
    }
    Ok(searches)
}

/// Returns the hits of a probe as file and confidence; none for a probe without a face.
fn search_probe(
    client: &Client,
    album: &UploadedAlbum,
    media_type: &str,
    probe: &[u8],
) -> anyhow::Result<Vec<(String, f64)>> {
    let image = client.upload_selfie(&album.id, media_type, probe)?;
    let hits = match client.search_face(&album.id, &image) {
        Ok(hits) => hits,
        Err(ClientError::Refused { error, .. }) if error.data["declineCode"] == "NO_FACE" => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    let with_file = |hit: &Hit| Some((album.find_file(&hit.id)?.to_owned(), hit.confidence));
    Ok(hits.iter().filter_map(with_file).collect())
}

fn exclude_file(mut hits: Vec<(String, f64)>, own: &str) -> Vec<(String, f64)> {
    hits.retain(|(file, _)| file != own);
    hits
}

/// Returns the face with its margin, enlarged, as PNG.
fn crop_probe(folder: &Path, face: &LabelledFace) -> anyhow::Result<Vec<u8>> {
    let photo = enlarge::load_picture(&folder.join(&face.file))?;
    let [left, top, right, bottom] = face.face_box;
    let side = (right - left).max(bottom - top);
    let half = side * PROBE_MARGIN / 2.0;
    let (x, y) = ((left + right) / 2.0, (top + bottom) / 2.0);
    let clamp = |position: f64, length: u32| position.round().clamp(0.0, f64::from(length)) as u32;
    let (x0, x1) = (clamp(x - half, photo.width()), clamp(x + half, photo.width()));
    let (y0, y1) = (clamp(y - half, photo.height()), clamp(y + half, photo.height()));
    anyhow::ensure!(x1 > x0 && y1 > y0, "{}: the face box is outside the photo", face.file);
    let crop = image::imageops::crop_imm(&photo, x0, y0, x1 - x0, y1 - y0).to_image();
    let scale = (PROBE_FACE_SIDE / side).max(1.0);
    let larger = |length: u32| (f64::from(length) * scale).round() as u32;
    let probe = enlarge::resample(&crop, larger(crop.width()), larger(crop.height()))?;
    let mut bytes = std::io::Cursor::new(Vec::new());
    probe.write_to(&mut bytes, image::ImageFormat::Png)?;
    Ok(bytes.into_inner())
}

/// Counts over all probes at a threshold.
#[derive(Default)]
struct HitCount {
    found: usize,
    missed: usize,
    wrong: usize,
}

impl HitCount {
    fn recall(&self) -> f64 {
        ratio(self.found, self.found + self.missed)
    }
}

fn count_hits(searches: &[ProbeSearch], threshold: f64) -> HitCount {
    let mut count = HitCount::default();
    for search in searches {
        let above = || search.hits.iter().filter(|(_, confidence)| *confidence >= threshold);
        let found = above().filter(|(file, _)| search.right.contains(file)).count();
        count.found += found;
        count.missed += search.right.len() - found;
        count.wrong += above().filter(|(file, _)| search.is_wrong(file)).count();
    }
    count
}

/// Returns the part of the probes whose best hit, at or above a threshold, shows the right person.
fn rank_one_rate(searches: &[ProbeSearch], threshold: f64, strict: bool) -> f64 {
    let first = |search: &&ProbeSearch| {
        let Some((file, confidence)) = search.hits.first() else { return false };
        let right = if strict { search.right.contains(file) } else { !search.is_wrong(file) };
        right && *confidence >= threshold
    };
    ratio(searches.iter().filter(first).count(), searches.len())
}

fn summary_table(runners: &[ProbeSearch], portraits: &[ProbeSearch], threshold: f64) -> Table {
    let columns = [
        "probes",
        "without a face",
        "rank 1",
        "by labels alone",
        "at the default threshold",
        "recall there",
        "wrong hits there",
    ];
    let mut table = Table::new("", &columns);
    for (name, searches) in [("runners", runners), ("portraits", portraits)] {
        let count = count_hits(searches, threshold);
        table.add_row([
            format!("{name}: {}", searches.len()),
            searches.iter().filter(|search| search.hits.is_empty()).count().to_string(),
            format!("{:.3}", rank_one_rate(searches, 0.0, false)),
            format!("{:.3}", rank_one_rate(searches, 0.0, true)),
            format!("{:.3}", rank_one_rate(searches, threshold, false)),
            format!("{:.3}", count.recall()),
            count.wrong.to_string(),
        ]);
    }
    table
}

fn threshold_table(caption: &str, searches: &[ProbeSearch]) -> Table {
    let columns = ["confidence", "recall", "right", "wrong", "wrong a search", "right of hits"];
    let mut table = Table::new(caption, &columns);
    for threshold in [5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0] {
        let count = count_hits(searches, threshold);
        table.add_row([
            format!("{threshold:.0}"),
            format!("{:.3}", count.recall()),
            count.found.to_string(),
            count.wrong.to_string(),
            format!("{:.2}", ratio(count.wrong, searches.len())),
            format!("{:.3}", ratio(count.found, count.found + count.wrong)),
        ]);
    }
    table
}

/// Lists wrong hits and missed photos at a threshold.
fn list_errors<'a>(
    kind: &'a str,
    searches: &'a [ProbeSearch],
    threshold: f64,
) -> impl Iterator<Item = String> + 'a {
    searches.iter().flat_map(move |search| {
        let confidences: BTreeMap<&str, f64> =
            search.hits.iter().map(|(file, c)| (file.as_str(), *c)).collect();
        let wrong = search.hits.iter().filter(move |(file, c)| *c >= threshold && search.is_wrong(file));
        let wrong = wrong.map(move |(file, c)| format!("wrong   {kind} {}: {file} at {c:.1}", search.name));
        let missed = search.right.iter().filter_map(move |file| {
            let confidence = confidences.get(file.as_str()).copied();
            let below = confidence.is_none_or(|c| c < threshold);
            let how = confidence.map_or_else(|| "no face indexed".to_owned(), |c| format!("at {c:.1}"));
            below.then(|| format!("missed  {kind} {}: {file} {how}", search.name))
        });
        wrong.chain(missed).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[&str]) -> BTreeSet<String> {
        files.iter().map(|&file| file.to_owned()).collect()
    }

    fn search(right: &[&str], unlabelled: &[&str], hits: &[(&str, f64)]) -> ProbeSearch {
        ProbeSearch {
            name: String::new(),
            right: files(right),
            unlabelled: files(unlabelled),
            hits: hits.iter().map(|&(file, confidence)| (file.to_owned(), confidence)).collect(),
        }
    }

    #[test]
    fn hits_are_counted_at_a_threshold() {
        let hits = [("a", 90.0), ("x", 60.0), ("b", 40.0)];
        let searches = [search(&["a", "b"], &[], &hits), search(&["c"], &[], &[])];
        let count = count_hits(&searches, 50.0);
        assert_eq!((count.found, count.missed, count.wrong), (1, 2, 1));
        assert_eq!(rank_one_rate(&searches, 50.0, true), 0.5);
        assert_eq!(rank_one_rate(&searches, 95.0, true), 0.0);
    }

    #[test]
    fn a_photo_known_to_show_the_runner_is_right_when_found_and_not_missed_otherwise() {
        let searches = [search(&["a"], &["u"], &[("u", 90.0)]), search(&["a"], &["u"], &[("a", 80.0)])];
        let count = count_hits(&searches, 50.0);
        assert_eq!((count.found, count.missed, count.wrong), (1, 1, 0));
        assert_eq!((rank_one_rate(&searches, 50.0, false), rank_one_rate(&searches, 50.0, true)), (1.0, 0.5));
    }
}
