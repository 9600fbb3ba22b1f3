//! Bib search over the labelled race photos with start lists: the same readings, judged by each list in turn as an organizer
//! would have them judged, through the API.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use photofinish_client::Client;
use serde_json::{Value, json};

use super::bibs::{COLUMNS, VariantResult, add_rows, make_photos};
use super::options::BibOptions;
use super::variants::Variant;
use crate::photos::enlarge::pick_evenly;
use crate::photos::jitter::Jitter;
use crate::photos::labels::{self, LabelledPhoto};
use crate::photos::random::SplitMix;
use crate::photos::score::trim_zeros;
use crate::report::{Report, Table};

/// Judging begins within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const JUDGING_LIMIT: Duration = Duration::from_secs(300);

/// A start list to draw.
#[derive(Clone, Copy)]
struct ListKind {
    name: &'static str,
    /// The part of all numbers of a length that it has.
    density: f64,
    /// The part of the labelled runners who are not on it.
    missing: f64,
}

const LISTS: [ListKind; 4] = [
    ListKind { name: "a tenth of all numbers", density: 0.1, missing: 0.0 },
    ListKind { name: "half of all numbers", density: 0.5, missing: 0.0 },
    ListKind { name: "a tenth, without a tenth of the runners", density: 0.1, missing: 0.1 },
    ListKind { name: "half, without a tenth of the runners", density: 0.5, missing: 0.1 },
];

/// A drawn list.
struct DrawnList {
    bibs: BTreeSet<String>,
    /// Labelled bibs that are not on it.
    missing: BTreeSet<String>,
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
    let variant = &variants[0];
    let names = ["no list"].into_iter().chain(LISTS.map(|list| list.name));
    let mut results: Vec<VariantResult> = names.map(|name| VariantResult::new(name, labels.len())).collect();
    let mut inventions = [Inventions::default(); LISTS.len()];
    let seeds = if options.unchanged { 1 } else { u64::from(options.seeds) };
    for seed in 1..=seeds {
        let changed = tempfile::tempdir()?;
        let draw = |name: &str| (!options.unchanged).then(|| Jitter::draw(seed, name));
        let files = make_photos(&labels, &folder, changed.path(), draw)?;
        let (album, _) = variant.read(changed.path(), &files)?;
        let client = variant.client();
        results[0].add_readings(client, &album, &labels)?;
        for (at, kind) in LISTS.iter().enumerate() {
            let list = draw_list(*kind, &labels, seed);
            judge_by(client, &album.id, &list)?;
            results[at + 1].add_readings(client, &album, &labels)?;
            for (photo, label) in album.photos.iter().zip(&labels) {
                let detail = client.get_photo(&album.id, &photo.id)?;
                inventions[at].add_photo(label, &super::tally::indexed_texts(&detail), &list);
            }
        }
        println!("reading {seed} of {seeds}: done");
    }
    let caption =
        format!("{seeds} readings of each photo; the same readings are judged by each list; 90 % intervals.");
    let mut report = Report::new("bibs with start lists", "Bib search with start lists on RBNR, end to end");
    let mut table = Table::new(&caption, &COLUMNS);
    for set in ["set1", "set2", ""] {
        add_rows(&mut table, set, &labels, &results);
    }
    report.tables.push(table);
    report.tables.push(invention_table(&inventions));
    Ok(report)
}

/// Draws a list: the labelled bibs, and other numbers of the same lengths.
fn draw_list(kind: ListKind, labels: &[&LabelledPhoto], seed: u64) -> DrawnList {
    let mut random = SplitMix(seed);
    let mut known: BTreeSet<String> = labels.iter().flat_map(|photo| &photo.bibs).cloned().collect();
    known.extend(labels.iter().flat_map(|photo| &photo.optional).cloned());
    let missing: BTreeSet<String> =
        known.iter().filter(|_| random.uniform(0.0, 1.0) < kind.missing).cloned().collect();
    let mut bibs: BTreeSet<String> = known.difference(&missing).cloned().collect();
    let lengths: BTreeSet<usize> = known.iter().map(|bib| trim_zeros(bib).len()).collect();
    for length in lengths {
        let of_length = 9 * 10_usize.pow(length as u32 - 1);
        let wanted = (kind.density * of_length as f64) as usize;
        let mut count = bibs.iter().filter(|bib| trim_zeros(bib).len() == length).count();
        while count < wanted {
            let number = of_length / 9 + (random.next() % of_length as u64) as usize;
            let is_new = !missing.contains(&number.to_string()) && bibs.insert(number.to_string());
            count += usize::from(is_new);
        }
    }
    DrawnList { bibs, missing }
}

/// Imports a list in place of the one before and waits until all photos are judged by it.
fn judge_by(client: &Client, album: &str, list: &DrawnList) -> anyhow::Result<()> {
    let entries: Vec<Value> = list.bibs.iter().map(|bib| json!({ "bib": bib })).collect();
    let _: Value =
        client.call("albums/startlist/import", &json!({ "albumId": album, "entries": entries }))?;
    let begun = Instant::now();
    loop {
        let state: Value = client.call("albums/startlist/get", &json!({ "albumId": album }))?;
        if state["left"] == 0 {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < JUDGING_LIMIT, "judging took too long: {state}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// What becomes of photos of runners who are not on the list.
#[derive(Clone, Copy, Default)]
struct Inventions {
    /// Labelled bibs that are not on the list.
    runners: usize,
    /// Texts in their photos that are indexed and no label.
    wrong: usize,
}

impl Inventions {
    fn add_photo(&mut self, label: &LabelledPhoto, indexed: &BTreeSet<String>, list: &DrawnList) {
        let off_list = label.bibs.iter().filter(|bib| list.missing.contains(*bib)).count();
        if off_list == 0 {
            return;
        }
        let is_label = |text: &String| {
            let mut bibs = label.bibs.iter().chain(&label.optional);
            bibs.any(|bib| trim_zeros(bib) == trim_zeros(text))
        };
        self.runners += off_list;
        self.wrong += indexed.iter().filter(|text| !is_label(text)).count();
    }
}

fn invention_table(inventions: &[Inventions]) -> Table {
    let mut table = Table::new(
        "Photos of runners who are not on the list: indexed texts that are no label.",
        &["list", "bibs off the list", "wrong texts in their photos"],
    );
    for (kind, found) in LISTS.iter().zip(inventions).filter(|(kind, _)| kind.missing > 0.0) {
        table.add_row(vec![kind.name.to_owned(), found.runners.to_string(), found.wrong.to_string()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_runners_that_it_should_and_as_many_numbers_as_it_should() {
        let bibs = |list: &[&str]| list.iter().map(|bib| (*bib).to_owned()).collect::<BTreeSet<_>>();
        let photo = LabelledPhoto { file: "a.jpg".into(), bibs: bibs(&["1207", "33"]), optional: bibs(&[]) };
        let list = draw_list(LISTS[0], &[&photo], 1);
        assert!(list.bibs.contains("1207") && list.missing.is_empty());
        assert_eq!(list.bibs.len(), 900 + 9);
        let none = ListKind { missing: 1.0, ..LISTS[1] };
        let list = draw_list(none, &[&photo], 1);
        assert_eq!((list.missing.len(), list.bibs.contains("1207")), (2, false));
    }
}
