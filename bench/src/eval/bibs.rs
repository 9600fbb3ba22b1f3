//! Bib search over the labelled race photos, end to end: photos uploaded through the partner API, bibs searched
//! exactly. Recall counts the photos that a search returns; precision counts every bib text that the service indexed.
//!
//! Each photo is read several times, changed a little by each seed; figures are over all readings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use photofinish_client::{Client, PhotoDetail};

use super::options::BibOptions;
use super::tally::{self, Tally, estimate, estimate_gain, indexed_texts};
use super::variants::{Cost, Variant, add_cost_row, new_cost_table};
use crate::photos::enlarge::{load_picture, pick_evenly};
use crate::photos::jitter::Jitter;
use crate::photos::labels::{self, LabelledPhoto};
use crate::photos::score::trim_zeros;
use crate::report::goals::Goal;
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;

/// The figures of a row, in the order of their columns.
const FIGURES: [tally::Figure; 4] =
    [tally::RECALL_AS_LABELLED, tally::SEARCH_RECALL, tally::PRECISION, tally::SEARCHABLE_FACES];

/// The columns of the table of figures.
pub(super) const COLUMNS: [&str; 7] = [
    "photos",
    "variant",
    "bibs",
    "recall as labelled",
    "recall, zeros ignored",
    "precision",
    "searchable faces a photo",
];

/// What one variant found and what it took.
pub(super) struct VariantResult {
    pub(super) name: String,
    /// By photo, over all seeds.
    pub(super) photos: Vec<Tally>,
    /// In how many readings a line of the list of differences occurred.
    differences: BTreeMap<String, u32>,
    cost: Cost,
    peak_megabytes: f64,
}

/// Runs the evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(options: &BibOptions) -> anyhow::Result<Report> {
    let paths = &options.common.paths;
    let all = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let labels: Vec<&LabelledPhoto> = pick_evenly(&all, options.limit.unwrap_or(all.len()));
    let folder = paths.find_shared("photos/files")?;
    let variants = Variant::start_all(options)?;
    let mut results: Vec<VariantResult> =
        variants.iter().map(|variant| VariantResult::new(&variant.name, labels.len())).collect();
    let seeds: Vec<Option<u64>> = match options.unchanged {
        true => vec![None],
        false => (1..=u64::from(options.seeds)).map(Some).collect(),
    };
    for (number, seed) in seeds.iter().enumerate() {
        let changed = tempfile::tempdir()?;
        let draw = |name: &str| {
            let jitter = Jitter::draw((*seed)?, name);
            Some(options.only.map_or(jitter, |change| jitter.only(change)))
        };
        let files = make_photos(&labels, &folder, changed.path(), draw)?;
        for (variant, result) in variants.iter().zip(&mut results) {
            let (album, cost) = variant.read(changed.path(), &files)?;
            result.cost += &cost;
            result.add_readings(variant.client(), &album, &labels)?;
        }
        println!("reading {} of {}: done", number + 1, seeds.len());
    }
    for (variant, result) in variants.iter().zip(&mut results) {
        result.peak_megabytes = variant.peak_megabytes()?;
    }
    let mut report = build_report(options, &labels, &results);
    let runtime = paths.find_runtime()?;
    report.versions.extend(runtime.file_name().map(|name| name.to_string_lossy().into_owned()));
    Ok(report)
}

/// Writes the photos into `to`, each changed as `draw` says of its file, or as it is. Returns their names there, in the
/// order of the labels.
pub(super) fn make_photos(
    labels: &[&LabelledPhoto],
    from: &Path,
    to: &Path,
    draw: impl Fn(&str) -> Option<Jitter>,
) -> anyhow::Result<Vec<String>> {
    let make = |index: usize, photo: &LabelledPhoto| {
        let (name, original) = (format!("{index:04}.jpg"), from.join(&photo.file));
        match draw(&photo.file) {
            None => drop(std::fs::copy(original, to.join(&name))?),
            Some(jitter) => std::fs::write(to.join(&name), jitter.make_jpeg(&load_picture(&original)?)?)?,
        }
        Ok(name)
    };
    labels.iter().enumerate().map(|(index, photo)| make(index, photo)).collect()
}

impl VariantResult {
    pub(super) fn new(name: &str, photos: usize) -> Self {
        Self {
            name: name.to_owned(),
            photos: vec![Tally::default(); photos],
            differences: BTreeMap::new(),
            cost: Cost::default(),
            peak_megabytes: 0.0,
        }
    }

    /// Adds the readings of one seed. The photos of the album are in the order of the labels.
    pub(super) fn add_readings(
        &mut self,
        client: &Client,
        album: &UploadedAlbum,
        labels: &[&LabelledPhoto],
    ) -> anyhow::Result<()> {
        let mut returned: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let bibs = labels.iter().flat_map(|photo| &photo.bibs);
        for text in bibs.flat_map(|bib| [bib.as_str(), trim_zeros(bib)]) {
            if !returned.contains_key(text) {
                let hits = client.search_text(&album.id, text, true)?;
                returned.insert(text, hits.into_iter().map(|hit| hit.id).collect());
            }
        }
        for ((photo, label), sum) in album.photos.iter().zip(labels).zip(&mut self.photos) {
            let detail = client.get_photo(&album.id, &photo.id)?;
            let mut tally = Tally::of_photo(&detail, &label.bibs, &label.optional);
            for bib in &label.bibs {
                let exactly = returned[bib.as_str()].contains(&photo.id);
                tally.as_labelled += usize::from(exactly);
                tally.found += usize::from(exactly || returned[trim_zeros(bib)].contains(&photo.id));
            }
            *sum += tally;
            for line in list_differences(label, &detail) {
                *self.differences.entry(line).or_default() += 1;
            }
        }
        Ok(())
    }
}

fn build_report(options: &BibOptions, labels: &[&LabelledPhoto], results: &[VariantResult]) -> Report {
    let (name, title, readings, caption) = describe_run(options);
    let mut report = Report::new(name, title);
    let mut table = Table::new(&caption, &COLUMNS);
    for set in ["set1", "set2", ""] {
        add_rows(&mut table, set, labels, results);
    }
    report.tables.push(table);
    let mut costs = new_cost_table();
    for result in results {
        add_cost_row(&mut costs, "all", &result.name, &result.cost, result.peak_megabytes);
    }
    report.tables.push(costs);
    let all = &results[0].photos;
    report.goals = vec![
        Goal::at_least(
            "recall of exact searches, label as it stands",
            estimate(all, tally::RECALL_AS_LABELLED).figure,
            0.965,
        ),
        Goal::at_least(
            "recall of exact searches, leading zeros ignored",
            estimate(all, tally::SEARCH_RECALL).figure,
            0.965,
        ),
        Goal::at_least("labelled precision of indexed bibs", estimate(all, tally::PRECISION).figure, 0.82),
    ];
    report.notes = vec![
        "A pair (photo, bib) is found when an exact search for the bib returns the photo. Precision counts the \
         distinct indexed texts of each photo; labels are incomplete, so it is a lower bound."
            .to_owned(),
    ];
    for result in results {
        let lines = result.differences.iter();
        report
            .details
            .extend(lines.map(|(line, count)| format!("{}: {count} of {readings}: {line}", result.name)));
    }
    report
}

/// Returns the name and the title of the report, how often each photo was read, and the caption of its table.
fn describe_run(options: &BibOptions) -> (&'static str, &'static str, u32, String) {
    if options.unchanged {
        let title = "Bib search on RBNR set1 + set2, end to end, photos as they are";
        return (
            "bibs unchanged",
            title,
            1,
            "One reading of each photo as it is; 90 % intervals.".to_owned(),
        );
    }
    let caption = format!(
        "{} readings of each photo, with other scales (.7 to 1.3), shifts, brightness and JPEG qualities (80 to 95){}; 90 % \
         intervals.",
        options.seeds,
        options.only.map_or_else(String::new, |change| format!(", of these the {change:?} only")),
    );
    ("bibs", "Bib search on RBNR set1 + set2, end to end", options.seeds, caption)
}

/// Adds a row for each variant over the photos of one set, and for two variants what the first gains on the second.
pub(super) fn add_rows(table: &mut Table, set: &str, labels: &[&LabelledPhoto], results: &[VariantResult]) {
    let of_set = |photos: &[Tally]| -> Vec<Tally> {
        let selected = photos.iter().zip(labels).filter(|(_, label)| label.file.contains(set));
        selected.map(|(tally, _)| *tally).collect()
    };
    let chosen: Vec<Vec<Tally>> = results.iter().map(|result| of_set(&result.photos)).collect();
    if chosen[0].is_empty() {
        return;
    }
    let name = format!("{}: {}", if set.is_empty() { "all" } else { set }, chosen[0].len());
    for (result, photos) in results.iter().zip(&chosen) {
        let whole = photos.iter().fold(Tally::default(), |sum, photo| sum + *photo);
        let bibs = whole.labelled() / (whole.readings / photos.len()).max(1);
        let mut row = vec![name.clone(), result.name.clone(), bibs.to_string()];
        row.extend(FIGURES.map(|figure| estimate(photos, figure).to_string()));
        table.add_row(row);
    }
    if let [photos, baseline] = &chosen[..] {
        let mut row = vec![name, "gained by the first".to_owned(), String::new()];
        row.extend(FIGURES.map(|figure| estimate_gain(photos, baseline, figure).to_string()));
        table.add_row(row);
    }
}

/// Lists the bibs of a photo that were missed, and accepted texts without a label.
fn list_differences(label: &LabelledPhoto, detail: &PhotoDetail) -> Vec<String> {
    let accepted = indexed_texts(detail);
    let same = |a: &str, b: &str| trim_zeros(a) == trim_zeros(b);
    let missed = label.bibs.iter().filter(|bib| !accepted.iter().any(|text| same(text, bib)));
    let unlabelled =
        accepted.iter().filter(|text| !label.bibs.iter().chain(&label.optional).any(|bib| same(text, bib)));
    let missed = missed.map(|bib| format!("missed      {}: {bib}", label.file));
    missed.chain(unlabelled.map(|text| format!("unlabelled  {}: {text}", label.file))).collect()
}
