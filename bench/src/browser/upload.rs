//! A folder of photos, sent by the console in a browser and by `photofinish upload`, in turn.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::BrowserOptions;
use super::world::{Program, World, draw_photos};
use crate::paths::InputPaths;
use crate::report::Table;
use crate::report::statistics::median;
use crate::turns::take_turns;

/// Photos drawn; others are copies of them.
const DRAWN: usize = 12;

/// A folder to send.
struct Batch {
    name: &'static str,
    photos: usize,
    /// Each photo is at least this large: bytes behind the end of the picture, which nothing here reads.
    min_bytes: usize,
}

const BATCHES: [Batch; 2] = [
    Batch { name: "small photos", photos: 240, min_bytes: 0 },
    Batch { name: "photos of a camera", photos: 96, min_bytes: 6_000_000 },
];

/// Measures pairs of uploads; each of them to a service that has nothing yet.
///
/// # Errors
/// When a service does not start or an upload fails.
pub fn measure(options: &BrowserOptions, program: &Program) -> anyhow::Result<Table> {
    let columns = [
        "folder",
        "photos",
        "MB a photo",
        "program",
        "photos a second",
        "MB a second",
        "of the other's rate",
    ];
    let mut table = Table::new(
        &format!(
            "A folder, sent by both in turn to a service in the role `serve`, of which either begins every second time: medians \
             of {} pairs, and ranges.",
            options.runs
        ),
        &columns,
    );
    for batch in &BATCHES {
        let folder = tempfile::tempdir()?;
        let bytes = fill_folder(folder.path(), batch)?;
        let pairs = take_turns(
            options.runs,
            |_| by_console(&options.paths, program, folder.path(), batch.photos),
            |_| by_command(&options.paths, folder.path(), batch.photos),
        )?;
        let console: Vec<Duration> = pairs.iter().map(|pair| pair.first).collect();
        let command: Vec<Duration> = pairs.iter().map(|pair| pair.second).collect();
        for (name, mine, other) in
            [("console", &console, &command), ("`photofinish upload`", &command, &console)]
        {
            let rates: Vec<f64> = mine.iter().map(|time| batch.photos as f64 / time.as_secs_f64()).collect();
            let megabytes = bytes as f64 / 1e6;
            let shares: Vec<f64> = mine
                .iter()
                .zip(other)
                .map(|(mine, other)| other.as_secs_f64() / mine.as_secs_f64())
                .collect();
            let per_second: Vec<f64> = mine.iter().map(|time| megabytes / time.as_secs_f64()).collect();
            table.add_row([
                batch.name.to_owned(),
                batch.photos.to_string(),
                format!("{:.2}", megabytes / batch.photos as f64),
                name.to_owned(),
                super::with_range(&rates, 0),
                super::with_range(&per_second, 0),
                format!("{:.2}", median(&shares)),
            ]);
        }
    }
    Ok(table)
}

/// Draws some photos, and repeats them under other names until there are enough. They are on the disk before the first is
/// sent: writing them then would slow down whatever is measured first. Returns the bytes of all.
fn fill_folder(folder: &Path, batch: &Batch) -> anyhow::Result<u64> {
    let drawn = tempfile::tempdir()?;
    let (files, _) = draw_photos(drawn.path(), DRAWN)?;
    let mut bytes = 0;
    for number in 0..batch.photos {
        let mut photo = std::fs::read(drawn.path().join(&files[number % files.len()]))?;
        let begun = photo.len();
        photo.resize(begun.max(batch.min_bytes), 0);
        // Not zeros, which something on the way might shorten.
        for (at, byte) in photo.iter_mut().enumerate().skip(begun) {
            *byte = (at.wrapping_mul(2_654_435_761) >> 11) as u8;
        }
        bytes += photo.len() as u64;
        let mut file = File::create(folder.join(format!("IMG_{number:04}.jpg")))?;
        file.write_all(&photo)?;
        file.sync_all()?;
    }
    Ok(bytes)
}

fn by_console(
    paths: &InputPaths,
    program: &Program,
    folder: &Path,
    photos: usize,
) -> anyhow::Result<Duration> {
    let world = World::start(paths, "serve")?;
    let album = world.client().create_album("bench", None)?.id;
    let (origin, enter) = (world.origin(), world.link_of_owner()?);
    let folder = folder.to_str().context("a folder in UTF-8")?;
    let measured = program.measure(
        "upload",
        &[("BASE_URL", &origin), ("ENTER", &enter), ("ALBUM", &album), ("FOLDER", folder)],
    )?;
    let seconds = measured["measured"]["seconds"].as_f64().context("an upload takes time")?;
    check(&world, &album, photos)?;
    Ok(Duration::from_secs_f64(seconds))
}

fn by_command(paths: &InputPaths, folder: &Path, photos: usize) -> anyhow::Result<Duration> {
    let world = World::start(paths, "serve")?;
    let album = world.client().create_album("bench", None)?.id;
    let origin = world.origin();
    let arguments = ["upload", "--url", &origin, "--key", world.client().key(), "--album", &album];
    let start = Instant::now();
    let status = world.command(&arguments).arg(folder).stdout(std::process::Stdio::null()).status()?;
    let took = start.elapsed();
    anyhow::ensure!(status.success(), "photofinish upload: {status}");
    check(&world, &album, photos)?;
    Ok(took)
}

/// Fails unless the album has all photos, confirmed.
fn check(world: &World, album: &str, photos: usize) -> anyhow::Result<()> {
    let progress = world.client().album_progress(album)?;
    anyhow::ensure!(progress.queued as usize == photos, "{} of {photos} photos came", progress.queued);
    Ok(())
}
