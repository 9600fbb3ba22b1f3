//! Bib search over the labelled race photos, end to end: photos uploaded through the partner API, bibs searched
//! exactly. Recall counts the photos that a search returns; precision counts every bib text that the service indexed.

use std::collections::{BTreeMap, BTreeSet};

use photofinish_client::{Client, PhotoDetail};

use super::options::EvalOptions;
use crate::photos::labels::{self, LabelledPhoto};
use crate::photos::score::{BibScore, ratio, trim_zeros};
use crate::report::goals::Goal;
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// Results for the labelled photos.
struct BibFindings {
    /// By label: files that an exact search for it returns.
    as_labelled: BTreeMap<String, BTreeSet<String>>,
    /// The same for the label without its leading zeros.
    without_zeros: BTreeMap<String, BTreeSet<String>>,
    /// Details by file.
    details: BTreeMap<String, PhotoDetail>,
}

/// Runs the evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(options: &EvalOptions) -> anyhow::Result<Report> {
    let labels = labels::load_photos(&options.paths.find_shared("photos/bibs.csv")?)?;
    let folder = options.paths.find_shared("photos/files")?;
    let files: Vec<String> = labels.iter().map(|photo| photo.file.clone()).collect();
    let service = Service::start(&options.paths, &Setup::default())?;
    let client = service.client();
    let album = UploadedAlbum::ingest(client, None, &folder, &files)?;
    let findings = search_bibs(client, &album, &labels)?;
    let mut report = build_report(&labels, &findings);
    let runtime = options.paths.find_runtime()?;
    report.versions.extend(runtime.file_name().map(|name| name.to_string_lossy().into_owned()));
    Ok(report)
}

fn search_bibs(
    client: &Client,
    album: &UploadedAlbum,
    labels: &[LabelledPhoto],
) -> anyhow::Result<BibFindings> {
    let bibs: BTreeSet<&String> = labels.iter().flat_map(|photo| &photo.bibs).collect();
    let files = |text: &str| -> anyhow::Result<BTreeSet<String>> {
        let hits = client.search_text(&album.id, text, true)?;
        Ok(hits.iter().filter_map(|hit| album.find_file(&hit.id)).map(str::to_owned).collect())
    };
    let mut findings = BibFindings {
        as_labelled: BTreeMap::new(),
        without_zeros: BTreeMap::new(),
        details: BTreeMap::new(),
    };
    for bib in bibs {
        findings.as_labelled.insert(bib.clone(), files(bib)?);
        findings.without_zeros.insert(bib.clone(), files(trim_zeros(bib))?);
    }
    for photo in &album.photos {
        findings.details.insert(photo.file.clone(), client.get_photo(&album.id, &photo.id)?);
    }
    Ok(findings)
}

fn build_report(labels: &[LabelledPhoto], findings: &BibFindings) -> Report {
    let mut report = Report::new("bibs", "Bib search on RBNR set1 + set2, end to end");
    let mut table = Table::new(
        "",
        &[
            "photos",
            "bibs",
            "found as labelled",
            "recall",
            "found, zeros ignored",
            "recall ",
            "unlabelled",
            "precision",
            "F1",
        ],
    );
    let mut all = (0, 0, BibScore::default());
    for set in ["set1", "set2", ""] {
        let photos: Vec<&LabelledPhoto> = labels.iter().filter(|photo| photo.file.contains(set)).collect();
        let name = if set.is_empty() { "all" } else { set };
        all = add_row(&mut table, name, &photos, findings);
    }
    let (as_labelled, found, score) = all;
    report.tables.push(table);
    let bibs = score.right + score.missed;
    report.goals = vec![
        Goal::at_least("recall of exact searches, label as it stands", ratio(as_labelled, bibs), 0.94),
        Goal::at_least("recall of exact searches, leading zeros ignored", ratio(found, bibs), 0.94),
        Goal::at_least("labelled precision of indexed bibs", score.precision(), 0.77),
    ];
    report.notes = vec![
        "A pair (photo, bib) is found when an exact search for the bib returns the photo. Precision counts the \
         distinct indexed texts of each photo; labels are incomplete, so it is a lower bound."
            .to_owned(),
    ];
    report.details = list_differences(labels, findings);
    report
}

/// Adds a row for some photos. Returns the pairs found as labelled, the pairs found without leading zeros, and the score of
/// the indexed texts.
fn add_row(
    table: &mut Table,
    name: &str,
    photos: &[&LabelledPhoto],
    findings: &BibFindings,
) -> (usize, usize, BibScore) {
    let (mut as_labelled, mut found) = (0, 0);
    let mut score = BibScore::default();
    for photo in photos {
        for bib in &photo.bibs {
            let exactly = findings.as_labelled[bib].contains(&photo.file);
            as_labelled += usize::from(exactly);
            found += usize::from(exactly || findings.without_zeros[bib].contains(&photo.file));
        }
        score.add_photo(&indexed_texts(&findings.details[&photo.file]), &photo.bibs, &photo.optional);
    }
    let bibs = score.right + score.missed;
    table.add_row([
        format!("{name}: {}", photos.len()),
        bibs.to_string(),
        as_labelled.to_string(),
        format!("{:.3}", ratio(as_labelled, bibs)),
        found.to_string(),
        format!("{:.3}", ratio(found, bibs)),
        score.unlabelled.to_string(),
        format!("{:.3}", score.precision()),
        format!("{:.3}", score.f1()),
    ]);
    (as_labelled, found, score)
}

fn indexed_texts(detail: &PhotoDetail) -> BTreeSet<String> {
    detail.texts.iter().filter(|text| text.indexed).map(|text| text.text.clone()).collect()
}

/// Lists missed bibs with the texts that were read, and accepted texts without a label.
fn list_differences(labels: &[LabelledPhoto], findings: &BibFindings) -> Vec<String> {
    let mut lines = Vec::new();
    for photo in labels {
        let detail = &findings.details[&photo.file];
        let accepted = indexed_texts(detail);
        let same = |a: &str, b: &str| trim_zeros(a) == trim_zeros(b);
        let missed: Vec<&String> =
            photo.bibs.iter().filter(|bib| !accepted.iter().any(|t| same(t, bib))).collect();
        let unlabelled: Vec<&String> =
            accepted.iter().filter(|text| !photo.bibs.iter().any(|bib| same(text, bib))).collect();
        if !missed.is_empty() {
            let read: Vec<&str> = detail.texts.iter().map(|text| text.text.as_str()).collect();
            lines.push(format!("missed      {}: {missed:?}, read {read:?}", photo.file));
        }
        if !unlabelled.is_empty() {
            lines.push(format!("unlabelled  {}: {unlabelled:?}, labels {:?}", photo.file, photo.bibs));
        }
    }
    lines
}
