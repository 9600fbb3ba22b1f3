//! The drawn sample event through both sets of real models, the default one and the one from package registries: every bib
//! is read, every runner is found by a selfie, and no runner is taken for another.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::OnceLock;

use photofinish_tests::harness::{Service, ServiceOptions, skip_or_fail, variable_or_installed_path};
use photofinish_tests::scenes::event::{self, Truth};
use serde_json::Value;

/// One photo of each group of runners, and of each image format.
const PHOTOS: usize = 6;

#[test]
fn the_default_models_distinguish_the_runners_of_the_sample_event() {
    const TEST: &str = "the_default_models_distinguish_the_runners_of_the_sample_event";
    match ServiceOptions::with_real_models() {
        Ok(options) => check_event(TEST, options),
        Err(why) => skip_or_fail(TEST, &why),
    }
}

#[test]
fn the_registry_models_distinguish_the_runners_of_the_sample_event() {
    const TEST: &str = "the_registry_models_distinguish_the_runners_of_the_sample_event";
    let models = variable_or_installed_path("PHOTOFINISH_TEST_REGISTRY_MODELS", "models-registry");
    if !models.is_dir() {
        return skip_or_fail(
            TEST,
            &format!("{} is missing: run `cargo xtask setup --all`", models.display()),
        );
    }
    match ServiceOptions::with_real_models() {
        Ok(options) => {
            check_event(TEST, options.with_setting("PHOTOFINISH_MODELS_DIR", models.to_string_lossy()))
        }
        Err(why) => skip_or_fail(TEST, &why),
    }
}

/// The gate's effect as an operator sees it: of drawn runners those without a number are skipped, the number of the one
/// who wears one is found all the same, and with the gate off nobody is skipped.
#[test]
fn torsos_without_a_number_are_skipped_and_the_numbers_of_others_are_found() {
    const TEST: &str = "torsos_without_a_number_are_skipped_and_the_numbers_of_others_are_found";
    let portraits = variable_or_installed_path("PHOTOFINISH_TEST_PORTRAITS", "portraits");
    if !portraits.is_dir() {
        return skip_or_fail(
            TEST,
            &format!("{} is missing: run `cargo xtask setup --all`", portraits.display()),
        );
    }
    const SEEDS: u64 = 3;
    let photos: Vec<Vec<u8>> = (1..=SEEDS)
        .map(|seed| event::draw_group_photo(&portraits, [None, Some("4817"), None], seed).expect("a photo"))
        .collect();
    for (gate, least_skipped, most_skipped) in [("all", SEEDS, 2 * SEEDS), ("off", 0, 0)] {
        let options = match ServiceOptions::with_real_models() {
            Ok(options) => options.with_setting("PHOTOFINISH_BIB_GATE", gate),
            Err(why) => return skip_or_fail(TEST, &why),
        };
        let service = Service::start(options);
        let partner = service.partner();
        let album = partner.create_album("Few numbers");
        for (index, photo) in photos.iter().enumerate() {
            partner.upload_photo(&album, &format!("{index}.jpg"), photo);
        }
        partner.wait_until_idle(&album);
        let found = partner.search_by_bib_exact(&album, "4817").len();
        assert_eq!(found, photos.len(), "photos of the bib with the gate {gate}");
        let page = partner.get(&format!("{}/metrics", service.origin())).text();
        let count = |outcome: &str| -> u64 {
            let name = format!("photofinish_torsos_total{{outcome=\"{outcome}\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
        };
        let (read, skipped) = (count("read"), count("no_number"));
        assert_eq!(read + skipped, 3 * SEEDS, "torsos with the gate {gate}: {page}");
        assert!((least_skipped..=most_skipped).contains(&skipped), "{skipped} skipped with the gate {gate}");
    }
}

/// Uploads the event and searches it by every bib and every selfie.
fn check_event(test: &str, options: ServiceOptions) {
    let portraits = variable_or_installed_path("PHOTOFINISH_TEST_PORTRAITS", "portraits");
    if !portraits.is_dir() {
        return skip_or_fail(
            test,
            &format!("{} is missing: run `cargo xtask setup --all`", portraits.display()),
        );
    }
    // Drawn once for both tests. Every run draws the same files, so those of an earlier run do no harm.
    static TRUTH: OnceLock<Truth> = OnceLock::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample-event");
    let truth = TRUTH.get_or_init(|| event::write_event(&folder, &portraits, PHOTOS).expect("an event"));
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Sample event");
    let mut files = HashMap::new();
    for photo in &truth.photos {
        let bytes = read(&folder.join(event::PHOTOS_FOLDER).join(&photo.file));
        files.insert(partner.upload_photo(&album, &photo.file, &bytes), photo.file.clone());
    }
    let progress = partner.wait_until_idle(&album);
    assert_eq!(progress["ready"], PHOTOS, "{progress}");

    for runner in &truth.runners {
        let expected = photos_of(truth, &runner.name);
        let by_bib = files_of_hits(&partner.search_by_bib_exact(&album, &runner.bib), &files);
        assert_eq!(by_bib, expected, "photos of the bib {}", runner.bib);
        let selfie = read(&folder.join(event::SELFIES_FOLDER).join(&runner.selfie));
        let by_face = files_of_hits(&partner.search_by_selfie(&album, &selfie), &files);
        assert_eq!(by_face, expected, "photos of {}", runner.name);
    }
    for (id, file) in &files {
        let taken = partner.get_photo(&album, id)["takenAt"].as_str().map(str::to_owned);
        let expected =
            truth.photos.iter().find(|photo| photo.file == *file).map(|photo| photo.taken_at.as_str());
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).take(14).collect::<String>();
        assert_eq!(taken.as_deref().map(digits), expected.map(digits), "the time of {file}");
    }
}

fn photos_of(truth: &Truth, runner: &str) -> BTreeSet<String> {
    let shown = truth.photos.iter().filter(|photo| photo.runners.iter().any(|name| name == runner));
    shown.map(|photo| photo.file.clone()).collect()
}

fn files_of_hits(hits: &[Value], files: &HashMap<String, String>) -> BTreeSet<String> {
    hits.iter().filter_map(|hit| files.get(hit["id"].as_str()?).cloned()).collect()
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
