//! Selfie search, end to end. Runners: the face of a runner, cropped from one race photo, must find the runner's other
//! photos. Portraits: each portrait must find all others of its person and no other person. Each in an album of its own
//! event, and in one album with all other photos.

mod counts;
mod people;
mod probe_picture;
mod searches;

use anyhow::Context as _;
use photofinish_client::Client;

use self::counts::{Setting, list_errors, reliability_table, summary_table, threshold_table};
use self::people::{Event, People, load_people};
use self::searches::AlbumUnderTest;
use super::options::FaceOptions;
use crate::report::Report;
use crate::report::goals::Goal;
use crate::service::{Service, Setup};

/// Goals at the default threshold, for runners.
const RUNNERS_RANK_ONE: f64 = 0.85;
const RUNNERS_RECALL: f64 = 0.8;
const RUNNERS_STRANGERS: f64 = 0.12;
const RUNNERS_RIGHT: f64 = 0.9;

/// The searches of all people, each in the album of their event and in the album of all photos.
struct Results {
    /// Races, then portraits.
    alone: Vec<Setting>,
    mixed: Vec<Setting>,
    runners_alone: Setting,
    runners_mixed: Setting,
}

/// Runs the evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(options: &FaceOptions) -> anyhow::Result<Report> {
    let paths = &options.common.paths;
    let people = load_people(paths)?;
    let settings = options.settings.iter().map(|one| (one.name.clone(), one.value.clone()));
    let service = Service::start(paths, &Setup { settings: settings.collect(), ..Setup::default() })?;
    let client = service.client();
    let threshold = default_threshold(client)?;
    let results = search_everybody(client, options, &people)?;
    let mut report = build_report(&results, threshold, options.seeds);
    let runtime = paths.find_runtime()?;
    report.versions.extend(runtime.file_name().map(|name| name.to_string_lossy().into_owned()));
    Ok(report)
}

/// Returns the default face threshold of an album.
fn default_threshold(client: &Client) -> anyhow::Result<f64> {
    let album = client.create_album("defaults", None)?;
    album.config["face"]["confidenceThreshold"].as_f64().context("an album without a face threshold")
}

fn search_everybody(client: &Client, options: &FaceOptions, people: &People) -> anyhow::Result<Results> {
    let folder = options.common.paths.find_shared("photos/files")?;
    let events: Vec<&Event> = people.races.iter().chain([&people.portraits]).collect();
    let mut all_photos = AlbumUnderTest::ingest(client, &folder, &people.all_files())?;
    let (mut alone, mut mixed) = (Vec::new(), Vec::new());
    for event in events {
        let mut album = AlbumUnderTest::ingest(client, &folder, &event.files)?;
        let by_seed = album.search(&event.probes, options.seeds)?;
        alone.push(Setting { name: format!("{} alone", event.name), by_seed });
        let by_seed = all_photos.search(&event.probes, options.seeds)?;
        mixed.push(Setting { name: format!("{} among all", event.name), by_seed });
        println!("{}: done", event.name);
    }
    let join = |name, settings: &[Setting]| {
        let races: Vec<&Setting> = settings.iter().take(people.races.len()).collect();
        Setting::join(name, &races)
    };
    let runners_alone = join("all runners, each event alone", &alone);
    let runners_mixed = join("all runners, among all", &mixed);
    Ok(Results { alone, mixed, runners_alone, runners_mixed })
}

fn build_report(results: &Results, threshold: f64, seeds: u32) -> Report {
    let Results { alone, mixed, runners_alone, runners_mixed } = results;
    let mut settings: Vec<&Setting> = alone.iter().chain(mixed).collect();
    settings.extend([runners_alone, runners_mixed]);
    let mut report = Report::new("faces", "Selfie search, end to end");
    report.tables.push(summary_table(&settings, threshold));
    report.tables.extend(settings.iter().map(|setting| threshold_table(setting)));
    report.tables.extend([runners_alone, runners_mixed].map(reliability_table));
    report.goals.push(Goal::at_least(
        "runners: rank 1, of all probes",
        runners_alone.rank_one().mean,
        RUNNERS_RANK_ONE,
    ));
    for (album, setting) in [("alone", runners_alone), ("among all", runners_mixed)] {
        report.goals.extend(runner_goals(album, setting, threshold));
    }
    if let Some(portraits) = alone.last() {
        let (recall, wrong) = (portraits.recall(threshold).mean, portraits.strangers(threshold).mean);
        report.goals.push(Goal::at_least("portraits: recall at the default threshold", recall, 1.0));
        report.goals.push(Goal::at_most("portraits: strangers a search there", wrong, 0.0));
    }
    report.notes = vec![
        format!("Means over {seeds} seeded jitters of all probes, with 95 % intervals of the mean. The interval says how much \
            a figure depends on the picture of a person, not on which persons were photographed: that is more."),
        "The photo of a probe is not in the album while it is searched. Among all: one album with the photos of all events, \
         the portraits and pictures of groups."
            .to_owned(),
        "A wrong hit among runners is a photo without the runner's bib in its labels. Three photos that show a \
         runner without a label (found by these searches, then checked by eye) count as right when found; the \
         column by labels alone counts them as wrong."
            .to_owned(),
    ];
    report.details =
        settings[..settings.len() - 2].iter().flat_map(|setting| list_errors(setting, threshold)).collect();
    report
}

fn runner_goals(album: &str, setting: &Setting, threshold: f64) -> [Goal; 3] {
    let what = |figure: &str| format!("runners {album}: {figure} at the default threshold");
    [
        Goal::at_least(&what("recall"), setting.recall(threshold).mean, RUNNERS_RECALL),
        Goal::at_most(&what("strangers a search"), setting.strangers(threshold).mean, RUNNERS_STRANGERS),
        Goal::at_least(&what("right of hits"), setting.right_part(threshold).mean, RUNNERS_RIGHT),
    ]
}
