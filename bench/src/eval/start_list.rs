//! Bib search over the labelled race photos with start lists: the same readings, judged by each list in turn as an organizer
//! would have them judged, through the API; and by each list with other shares of runners who are not on it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use photofinish_client::Client;
use serde_json::{Value, json};

use super::bibs::{COLUMNS, VariantResult, add_rows, make_photos};
use super::options::BibOptions;
use super::tally::{PRECISION, RECALL_AS_LABELLED, estimate, indexed_texts};
use super::variants::Variant;
use crate::photos::damage::{Damage, write_damaged};
use crate::photos::enlarge::pick_evenly;
use crate::photos::jitter::Jitter;
use crate::photos::labels::{self, LabelledPhoto};
use crate::photos::random::SplitMix;
use crate::photos::score::trim_zeros;
use crate::report::goals::Goal;
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;

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

/// The density of a sparse list.
const SPARSE: f64 = 0.1;

const LISTS: [ListKind; 4] = [
    ListKind { name: "a tenth of all numbers", density: SPARSE, missing: 0.0 },
    ListKind { name: "half of all numbers", density: 0.5, missing: 0.0 },
    ListKind { name: "a tenth, without a tenth of the runners", density: SPARSE, missing: 0.1 },
    ListKind { name: "half, without a tenth of the runners", density: 0.5, missing: 0.1 },
];

/// What an album may say of the part of its runners who are not on its list (`config.startList.offListShare`), and what it
/// says by default.
const SHARES: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.7];
const DEFAULT_SHARE: f64 = 0.05;

/// What a list with a share made of the readings.
struct Judged {
    list: ListKind,
    share: f64,
    found: VariantResult,
    inventions: Inventions,
}

impl Judged {
    fn of_all(photos: usize) -> Vec<Self> {
        let judged = |list: ListKind, share| Self {
            list,
            share,
            found: VariantResult::new(list.name, photos),
            inventions: Inventions::default(),
        };
        LISTS.into_iter().flat_map(|list| SHARES.map(|share| judged(list, share))).collect()
    }
}

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
    let as_they_are = paths.find_shared("photos/files")?;
    let damaged = damage_photos(options, &labels, &as_they_are)?;
    let folder = damaged.as_ref().map_or(as_they_are.as_path(), tempfile::TempDir::path);
    let variants = Variant::start_all(options)?;
    let variant = &variants[0];
    let mut without = VariantResult::new("no list", labels.len());
    let mut all_judged = Judged::of_all(labels.len());
    let seeds = if options.unchanged { 1 } else { u64::from(options.seeds) };
    for seed in 1..=seeds {
        let changed = tempfile::tempdir()?;
        let draw = |name: &str| (!options.unchanged).then(|| Jitter::draw(seed, name));
        let files = make_photos(&labels, folder, changed.path(), draw)?;
        let (album, _) = variant.read(changed.path(), &files)?;
        let client = variant.client();
        without.add_readings(client, &album, &labels)?;
        let before = indexed_by_photo(client, &album)?;
        let mut imported = None;
        for judged in &mut all_judged {
            let list = draw_list(judged.list, &labels, seed);
            if imported.replace(judged.list.name) != Some(judged.list.name) {
                import(client, &album.id, &list)?;
            }
            judge_with(client, &album.id, judged.share)?;
            judged.found.add_readings(client, &album, &labels)?;
            let now = indexed_by_photo(client, &album)?;
            for (label, (before, now)) in labels.iter().zip(before.iter().zip(&now)) {
                judged.inventions.add_photo(label, before, now, &list);
            }
        }
        println!("reading {seed} of {seeds}: done");
    }
    Ok(build_report(options, &labels, without, all_judged))
}

/// Writes the photos with damaged bibs into a folder that lasts as long as the run, where that is asked for.
fn damage_photos(
    options: &BibOptions,
    labels: &[&LabelledPhoto],
    from: &Path,
) -> anyhow::Result<Option<tempfile::TempDir>> {
    let Some(damage) = options.damage else { return Ok(None) };
    let folder = tempfile::tempdir()?;
    let bibs = labels::load_bib_boxes(&options.common.paths.find_shared("photos/rbnr_boxes.csv")?)?;
    write_damaged(damage, labels, &bibs, from, folder.path())?;
    Ok(Some(folder))
}

fn build_report(
    options: &BibOptions,
    labels: &[&LabelledPhoto],
    without: VariantResult,
    all_judged: Vec<Judged>,
) -> Report {
    let (kind, bibs) = match options.damage {
        None => ("", "as they are"),
        Some(Damage::Shrunk) => ("shrunk ", "shrunk to a height of 11 pixels"),
        Some(Damage::Striped) => ("striped ", "with a stripe over 16 % of their width"),
    };
    let readings = if options.unchanged { 1 } else { options.seeds };
    let caption = format!(
        "{readings} readings of each photo; the same readings are judged by each list; 90 % intervals."
    );
    let title = format!("Bib search with start lists on RBNR, end to end, bibs {bibs}");
    let mut report = Report::new(format!("{kind}bibs with start lists"), &title);
    // The goals are those of bibs that can be read: of what is hidden, another entry of a dense list may be left.
    if options.damage.is_none() {
        report.goals = goals(&without, &all_judged);
    }
    let share_table = share_table(&without, &all_judged);
    let invention_table = invention_table(&all_judged);
    let by_default = all_judged.into_iter().filter(|judged| judged.share == DEFAULT_SHARE);
    let results: Vec<VariantResult> =
        std::iter::once(without).chain(by_default.map(|judged| judged.found)).collect();
    let mut table = Table::new(&caption, &COLUMNS);
    for set in ["set1", "set2", ""] {
        add_rows(&mut table, set, labels, &results);
    }
    report.tables.extend([table, invention_table, share_table]);
    report
}

fn indexed_by_photo(client: &Client, album: &UploadedAlbum) -> anyhow::Result<Vec<BTreeSet<String>>> {
    let indexed = |id: &str| anyhow::Ok(indexed_texts(&client.get_photo(&album.id, id)?));
    album.photos.iter().map(|photo| indexed(&photo.id)).collect()
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

/// Imports a list in place of the one before.
fn import(client: &Client, album: &str, list: &DrawnList) -> anyhow::Result<()> {
    let entries: Vec<Value> = list.bibs.iter().map(|bib| json!({ "bib": bib })).collect();
    let body = json!({ "albumId": album, "entries": entries });
    client.call::<Value>("albums/startlist/import", &body)?;
    Ok(())
}

/// Sets the share of runners who are not on the list and waits until all photos are judged by it.
fn judge_with(client: &Client, album: &str, share: f64) -> anyhow::Result<()> {
    let config = json!({ "startList": { "offListShare": share } });
    client.call::<Value>("albums/update", &json!({ "albumId": album, "config": config }))?;
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
    /// Those of them that were not indexed without a list: the list has invented them.
    invented: usize,
}

impl Inventions {
    /// Adds a photo by what was indexed without the list and with it.
    fn add_photo(
        &mut self,
        label: &LabelledPhoto,
        before: &BTreeSet<String>,
        now: &BTreeSet<String>,
        list: &DrawnList,
    ) {
        let off_list = label.bibs.iter().filter(|bib| list.missing.contains(*bib)).count();
        if off_list == 0 {
            return;
        }
        let is_label = |text: &String| {
            let mut bibs = label.bibs.iter().chain(&label.optional);
            bibs.any(|bib| trim_zeros(bib) == trim_zeros(text))
        };
        self.runners += off_list;
        let wrong = || now.iter().filter(|text| !is_label(text));
        self.wrong += wrong().count();
        self.invented += wrong().filter(|text| !before.contains(*text)).count();
    }
}

fn invention_table(all: &[Judged]) -> Table {
    let mut table = Table::new(
        "Photos of runners who are not on the list: indexed texts that are no label, and those that no search found without \
         the list.",
        &["list", "bibs off the list", "wrong texts in their photos", "invented by the list"],
    );
    for judged in all.iter().filter(|it| it.share == DEFAULT_SHARE && it.list.missing > 0.0) {
        let Inventions { runners, wrong, invented } = judged.inventions;
        let counts = [runners, wrong, invented].map(|count| count.to_string());
        table.add_row(std::iter::once(judged.list.name.to_owned()).chain(counts));
    }
    table
}

/// What start lists are asked for.
fn goals(without: &VariantResult, all: &[Judged]) -> Vec<Goal> {
    let gain = |judged: &Judged, figure| {
        let gain = estimate(&judged.found.photos, figure).figure - estimate(&without.photos, figure).figure;
        (gain * 1000.0).round() / 1000.0
    };
    let by_default = || all.iter().filter(|judged| judged.share == DEFAULT_SHARE);
    let of_all_runners = || by_default().filter(|judged| judged.list.missing == 0.0);
    let recall = of_all_runners().map(|it| gain(it, RECALL_AS_LABELLED)).fold(f64::INFINITY, f64::min);
    let sparse = of_all_runners().find(|it| it.list.density == SPARSE);
    let sparse = sparse.map_or(f64::NAN, |it| gain(it, PRECISION));
    let mut goals = vec![
        Goal::at_least("recall gained by a list of all runners, the least", recall, 0.0),
        Goal::at_least("precision gained by a tenth of all numbers", sparse, 0.05),
    ];
    for judged in by_default().filter(|judged| judged.list.missing > 0.0) {
        let Inventions { runners, invented, .. } = judged.inventions;
        let part = (1000.0 * invented as f64 / runners.max(1) as f64).round() / 1000.0;
        let what = format!("invented bibs of the runners who are not on the list, {}", judged.list.name);
        goals.push(Goal::at_most(&what, part, 0.01));
    }
    goals
}

/// What the share of runners off the list, which an album may set, gains and costs.
fn share_table(without: &VariantResult, all: &[Judged]) -> Table {
    let columns =
        ["list", "share off it", "recall as labelled", "precision", "wrong texts", "invented by the list"];
    let mut table = Table::new("By the share of runners who are not on the list, all photos.", &columns);
    let figures = |found: &VariantResult| {
        [RECALL_AS_LABELLED, PRECISION].map(|figure| estimate(&found.photos, figure).to_string())
    };
    let wrong = |found: &VariantResult| found.photos.iter().map(|photo| photo.bibs.unlabelled).sum::<usize>();
    let mut add = |list: &str, share: String, found: &VariantResult, invented: String| {
        let [recall, precision] = figures(found);
        table.add_row([list.to_owned(), share, recall, precision, wrong(found).to_string(), invented]);
    };
    add("none", String::new(), without, String::new());
    for judged in all {
        let has_missing = judged.list.missing > 0.0;
        let invented = if has_missing { judged.inventions.invented.to_string() } else { String::new() };
        add(judged.list.name, format!("{:.2}", judged.share), &judged.found, invented);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::tally::Tally;
    use crate::photos::score::BibScore;

    #[test]
    fn what_a_dense_list_gains_does_not_count_for_a_sparse_one() {
        let tally = |unlabelled| Tally {
            readings: 1,
            as_labelled: 1,
            bibs: BibScore { right: 1, unlabelled, missed: 0 },
            ..Tally::default()
        };
        let mut without = VariantResult::new("no list", 1);
        without.photos = vec![tally(1)];
        let mut all = Judged::of_all(1);
        for judged in &mut all {
            judged.found.photos = vec![tally(usize::from(judged.list.density == SPARSE))];
        }
        let goals = goals(&without, &all);
        let goal = goals.iter().find(|goal| goal.what.starts_with("precision gained")).unwrap();
        assert!(goal.figure == 0.0 && !goal.is_met(), "{goal:?}");
    }

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
        let mut inventions = Inventions::default();
        inventions.add_photo(&photo, &bibs(&["207"]), &bibs(&["1207", "207", "1201"]), &list);
        let Inventions { runners, wrong, invented } = inventions;
        assert_eq!((runners, wrong, invented), (2, 2, 1), "207 was found before");
    }
}
