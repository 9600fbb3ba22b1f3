//! The pages as a person meets them, in a real browser (`bench/browser`): how soon a runner on a slow connection sees the first
//! picture, how large the pages are, how a grid of very many photos scrolls, and how fast a folder is sent.

mod large_album;
mod upload;
mod world;

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use self::large_album::AlbumPlace;
use self::world::{Program, World, draw_photos};
use crate::paths::{InputPaths, state_dir};
use crate::report::goals::Goal;
use crate::report::statistics::median;
use crate::report::{OutputOptions, Report, Table};
use crate::service::album::UploadedAlbum;

/// The slow connection, and how much slower the phone is than this machine.
const BYTES_PER_SECOND: u64 = 400_000;
const SLOWDOWN: u64 = 4;
/// How long each request waits for its answer, milliseconds: none, as between processes of one machine, and that of a mobile
/// network.
const LATENCIES: [u64; 2] = [0, 100];
/// Photos of the gallery.
const GALLERY_PHOTOS: usize = 60;
/// Pixels scrolled in a frame: a grid of 50,000 photos is passed in a minute.
const SCROLL_STEP: u64 = 600;

/// From the link to the first picture, seconds; to all of them.
const TARGET_FIRST: f64 = 1.5;
const TARGET_ALL: f64 = 10.0;
/// What a first visit takes, gzip, kB.
const TARGET_CONSOLE: f64 = 60.0;
const TARGET_GALLERY: f64 = 30.0;
/// Elements of the page with the large album.
const TARGET_NODES: f64 = 1500.0;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct BrowserOptions {
    /// Runs of each measurement
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Photos of the album that is scrolled
    #[arg(long, default_value_t = 50_000)]
    pub photos: usize,
    /// The browser
    #[arg(long, value_name = "FILE", default_value = "/usr/bin/chromium")]
    pub chromium: PathBuf,
    /// The folder of its driver; `.photofinish/node/node_modules` by default
    #[arg(long, value_name = "FOLDER", env = "PHOTOFINISH_TEST_NODE_MODULES")]
    pub node_modules: Option<PathBuf>,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the measurement.
///
/// # Errors
/// When the browser or the service is not available, or a page does not show what it should.
pub fn run(options: &BrowserOptions) -> anyhow::Result<Report> {
    let modules =
        options.node_modules.clone().unwrap_or_else(|| state_dir().join("node").join("node_modules"));
    let program = Program::prepare(&options.chromium, &modules)?;
    let mut report = Report::new("browser", "Pages in a browser");
    let mut world = World::start(&options.paths, "all")?;
    let photos = tempfile::tempdir()?;
    println!("drawing {GALLERY_PHOTOS} photos");
    let (files, bib) = draw_photos(photos.path(), GALLERY_PHOTOS)?;
    let album = UploadedAlbum::ingest(world.client(), None, photos.path(), &files)?;
    let gallery = Gallery { url: world.open_gallery(&album.id)?, bib };
    println!("searching in a gallery");
    measure_gallery(options, &program, &gallery, &mut report)?;
    measure_bundles(&world, &program, &gallery, &mut report)?;
    println!("scrolling {} photos", options.photos);
    let place = fill_large_album(&mut world, &album, options.photos)?;
    measure_grid(options, &program, &world, &place, &mut report)?;
    drop(world);
    println!("sending folders");
    report.tables.push(upload::measure(options, &program)?);
    report.notes = notes();
    Ok(report)
}

fn notes() -> Vec<String> {
    let notes = [
        "Browser, service and measurement share the cores of this machine; there is no GPU, so the browser draws on them too. \
         The slow connection and the slow phone are the browser's own emulation (DevTools protocol), in a window of 390 x 844.",
        "A picture counts when it is decoded and the frame that has it is drawn. Each visit has an empty cache.",
        "Photos of the large album share one thumbnail under addresses of their own; pages of 500 are loaded while it is \
         scrolled. A long task keeps the page busy for more than 50 ms; a frame can also be late because the cores are busy \
         drawing.",
        "Both uploads send four photos at once. The console is timed from the choice of the folder, the command from its start.",
    ];
    notes.map(str::to_owned).to_vec()
}

/// A gallery, and the bib of a runner in it.
struct Gallery {
    url: String,
    bib: String,
}

/// The median of some numbers with their range.
fn with_range(numbers: &[f64], digits: usize) -> String {
    let (low, high) = numbers
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), number| (low.min(*number), high.max(*number)));
    format!("{:.digits$} ({low:.digits$} to {high:.digits$})", median(numbers))
}

/// The numbers of one member of measured runs, times a factor.
fn numbers(runs: &[&Value], member: &str, factor: f64) -> Vec<f64> {
    runs.iter().filter_map(|run| run[member].as_f64()).map(|number| number * factor).collect()
}

fn measure_gallery(
    options: &BrowserOptions,
    program: &Program,
    gallery: &Gallery,
    report: &mut Report,
) -> anyhow::Result<()> {
    let condition =
        |latency| json!({ "bytesPerSecond": BYTES_PER_SECOND, "latency": latency, "slowdown": SLOWDOWN });
    let wanted = json!({ "runs": options.runs, "conditions": LATENCIES.map(condition) }).to_string();
    let answer = program
        .measure("gallery", &[("GALLERY", &gallery.url), ("BIB", &gallery.bib), ("OPTIONS", &wanted)])?;
    report.versions.push(format!("Chromium {}", answer["browser"].as_str().unwrap_or("unknown")));
    let measured = answer["measured"].as_array().context("runs were measured")?;
    let caption = format!(
        "A search by bib in a gallery at 400 kB/s, processor slowed down {SLOWDOWN} times; seconds, medians of {} runs and ranges.",
        options.runs
    );
    let columns =
        ["latency ms", "from", "bib box", "first picture", "all pictures", "pictures", "kB received"];
    let mut table = Table::new(&caption, &columns);
    for latency in LATENCIES {
        for (kind, from) in [("link", "opening a link with the bib"), ("typed", "pressing Find")] {
            let is_wanted = |run: &&Value| run["kind"] == kind && run["condition"]["latency"] == latency;
            let runs: Vec<&Value> = measured.iter().filter(is_wanted).collect();
            let (first, all) = (numbers(&runs, "first", 1e-3), numbers(&runs, "all", 1e-3));
            let goal = |what: &str| format!("{what} from {from}, latency {latency} ms, s");
            report.goals.push(Goal::at_most(&goal("first picture"), median(&first), TARGET_FIRST));
            report.goals.push(Goal::at_most(&goal("all pictures"), median(&all), TARGET_ALL));
            table.add_row([
                latency.to_string(),
                from.to_owned(),
                with_range(&numbers(&runs, "titled", 1e-3), 2),
                with_range(&first, 2),
                with_range(&all, 2),
                format!("{:.0}", median(&numbers(&runs, "pictures", 1.0))),
                format!("{:.0}", median(&numbers(&runs, "bytes", 1e-3))),
            ]);
        }
    }
    report.tables.push(table);
    Ok(())
}

fn measure_bundles(
    world: &World,
    program: &Program,
    gallery: &Gallery,
    report: &mut Report,
) -> anyhow::Result<()> {
    let enter = world.link_of_owner()?;
    let answer = program.measure("bundles", &[("GALLERY", &gallery.url), ("ENTER", &enter)])?;
    let mut table = Table::new(
        "What a first visit loads of the pages themselves: document, scripts, styles and the words of one language; kB.",
        &["pages", "files", "plain", "gzip", "brotli"],
    );
    for page in answer["measured"].as_array().context("pages were measured")? {
        let kilobytes = |member: &str| page[member].as_f64().unwrap_or(f64::NAN) / 1e3;
        let name = page["name"].as_str().unwrap_or_default();
        let target = if name == "console" { TARGET_CONSOLE } else { TARGET_GALLERY };
        report.goals.push(Goal::at_most(&format!("{name}, gzip, kB"), kilobytes("gzip"), target));
        table.add_row([
            name.to_owned(),
            page["files"].to_string(),
            format!("{:.1}", kilobytes("bytes")),
            format!("{:.1}", kilobytes("gzip")),
            format!("{:.1}", kilobytes("brotli")),
        ]);
    }
    report.tables.push(table);
    Ok(())
}

/// Makes an album of very many photos with the thumbnail of one of `album`.
fn fill_large_album(world: &mut World, album: &UploadedAlbum, photos: usize) -> anyhow::Result<AlbumPlace> {
    let id = world.client().create_album("50,000 photos", None)?.id;
    let listed = world.call("albums/list", &json!({}))?;
    let organization = listed["albums"][0]["organizationId"].as_str().context("an album has an owner")?;
    let albums = world.data_dir().join("objects").join("o").join(organization).join("a");
    let photo = &album.photos.first().context("the gallery has photos")?.id;
    let thumbnail = albums.join(&album.id).join("p").join(photo).join("thumbnail.jpg");
    let place = AlbumPlace { folder: albums.join(&id), thumbnail, id };
    world.stop()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _runtime_context = runtime.enter();
    runtime.block_on(large_album::fill(world.data_dir(), &place, photos))?;
    world.start_again()?;
    Ok(place)
}

fn measure_grid(
    options: &BrowserOptions,
    program: &Program,
    world: &World,
    album: &AlbumPlace,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (origin, enter) = (world.origin(), world.link_of_owner()?);
    let wanted = json!({ "runs": options.runs, "step": SCROLL_STEP }).to_string();
    let variables =
        [("BASE_URL", origin.as_str()), ("ENTER", &enter), ("ALBUM", &album.id), ("OPTIONS", &wanted)];
    let answer = program.measure("grid", &variables)?;
    let runs: Vec<&Value> = answer["measured"].as_array().context("runs were measured")?.iter().collect();
    let caption = format!(
        "The console's grid of {} photos, scrolled to its end by {SCROLL_STEP} px a frame, window 1440 x 900; medians of {} runs and \
         ranges.",
        options.photos, options.runs
    );
    let mut table = Table::new(&caption, &["what", "measured"]);
    for (what, member, factor, digits) in [
        ("first picture after s", "first", 1e-3, 2),
        ("scrolled for s", "seconds", 1.0, 1),
        ("height of the page, thousand px", "height", 1e-3, 0),
        ("frames", "frames", 1.0, 0),
        ("frames over 50 ms", "slow", 1.0, 0),
        ("longest frame ms", "longest", 1.0, 0),
        ("long tasks", "tasks", 1.0, 0),
        ("longest task ms", "longestTask", 1.0, 0),
        ("elements of the page, at most", "nodes", 1.0, 0),
        ("photos among them, at most", "cells", 1.0, 0),
        ("memory of the scripts MB", "heap", 1e-6, 0),
    ] {
        table.add_row([what.to_owned(), with_range(&numbers(&runs, member, factor), digits)]);
    }
    let goal = format!("elements of the page with {} photos", options.photos);
    report.goals.push(Goal::at_most(&goal, median(&numbers(&runs, "nodes", 1.0)), TARGET_NODES));
    report.tables.push(table);
    Ok(())
}
