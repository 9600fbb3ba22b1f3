//! Our JPEG decoder beside libjpeg-turbo, with vector instructions and without: CPU by sampling, size and scale, and by camera,
//! each file decoded by each in turn, into buffers that are reused, reading the header included. The least time of each
//! counts. Their pixels are compared too. Beside them zune-jpeg, at full size.

mod decoders;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use photofinish_jpeg::{Header, Sampling, Scale};

use crate::jpeg::decoders::{Decoders, Outcome};
use crate::paths::InputPaths;
use crate::report::goals::Goal;
use crate::report::statistics::{median, to_milliseconds};
use crate::report::{OutputOptions, Report, Table};

/// Photos from here on count for the goal, megapixels.
const LARGE: f64 = 5.0;

/// Files below are dominated by their header, bytes.
const MIN_BYTES: usize = 20_000;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct JpegOptions {
    /// A folder of JPEG files, searched with its subfolders; by default the shared photos, and those of `make-24mp` if
    /// they are there.
    #[arg(long, value_name = "DIR")]
    pub photos: Vec<PathBuf>,
    /// Most files of each folder, spread evenly over it.
    #[arg(long, default_value_t = 60)]
    pub limit: usize,
    /// How often each file is decoded by each decoder at each scale.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Files that are shown in one row: sampling and size.
type Group = (&'static str, &'static str);

/// A file decoded at one scale by each.
struct Lap {
    group: Group,
    scale: &'static str,
    is_large: bool,
    megabytes: f64,
    /// What EXIF names as the camera.
    camera: Option<String>,
    ours: Duration,
    /// Ours without vector instructions.
    portable: Duration,
    turbo: Duration,
    /// At full size only.
    zune: Option<Duration>,
}

/// All files.
#[derive(Default)]
struct Results {
    laps: Vec<Lap>,
    files: usize,
    refused: usize,
    damaged: usize,
    /// Decoded at some scale to other pixels.
    differing: Vec<PathBuf>,
}

/// Runs the measurement.
///
/// # Errors
/// When there are no photos.
pub fn run(options: &JpegOptions) -> anyhow::Result<Report> {
    let mut decoders = Decoders::new()?;
    let mut results = Results::default();
    for folder in find_folders(options)? {
        let mut files = Vec::new();
        list_files(&folder, &mut files)?;
        files.sort();
        let count = files.len().min(options.limit);
        for i in 0..count {
            let path = &files[i * files.len() / count];
            measure_file(path, options.rounds, &mut decoders, &mut results)?;
        }
    }
    anyhow::ensure!(!results.laps.is_empty(), "no file that our decoder decodes");
    Ok(build_report(&results, options))
}

fn find_folders(options: &JpegOptions) -> anyhow::Result<Vec<PathBuf>> {
    if !options.photos.is_empty() {
        return Ok(options.photos.clone());
    }
    let enlarged = crate::photos::enlarge::EnlargeOptions::with_defaults(options.paths.clone()).output_dir();
    let shared = options.paths.find_shared("photos/files")?;
    Ok([shared].into_iter().chain(enlarged.is_dir().then_some(enlarged)).collect())
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            list_files(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|e| ["jpg", "jpeg"].iter().any(|name| e.eq_ignore_ascii_case(name)))
        {
            files.push(path);
        }
    }
    Ok(())
}

fn measure_file(
    path: &Path,
    rounds: usize,
    decoders: &mut Decoders,
    results: &mut Results,
) -> anyhow::Result<()> {
    let file = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if file.len() < MIN_BYTES {
        return Ok(());
    }
    results.files += 1;
    let Ok(header) = Header::read(&file) else {
        results.refused += 1;
        return Ok(());
    };
    let megapixels = header.size().width as f64 * header.size().height as f64 / 1e6;
    let group = (sampling_name(header.sampling()), size_name(megapixels));
    let camera = read_camera(&file);
    for (scale, name) in SCALES {
        match decoders.compare(&file, scale, rounds)? {
            Outcome::Damaged => {
                results.damaged += 1;
                break;
            }
            Outcome::Decoded { ours, portable, turbo, has_same_pixels } => {
                if !has_same_pixels {
                    results.differing.push(path.to_owned());
                }
                let (megabytes, is_large) = (file.len() as f64 / 1e6, megapixels >= LARGE);
                let is_full = matches!(scale, Scale::Full);
                let zune = is_full.then(|| Decoders::time_zune(&file, rounds)).flatten();
                let camera = camera.clone();
                let scale = name;
                results.laps.push(Lap {
                    group,
                    scale,
                    is_large,
                    megabytes,
                    camera,
                    ours,
                    portable,
                    turbo,
                    zune,
                });
            }
        }
    }
    Ok(())
}

/// The camera's model, as EXIF names it.
fn read_camera(file: &[u8]) -> Option<String> {
    let exif = exif::Reader::new().read_from_container(&mut std::io::Cursor::new(file)).ok()?;
    let model = exif.get_field(exif::Tag::Model, exif::In::PRIMARY)?;
    let name = model.display_value().to_string().trim_matches(['"', ' ']).to_owned();
    (!name.is_empty()).then_some(name)
}

const SCALES: [(Scale, &str); 5] = [
    (Scale::Full, "full"),
    (Scale::Half, "1/2"),
    (Scale::ThreeEighths, "3/8"),
    (Scale::Quarter, "1/4"),
    (Scale::Eighth, "1/8"),
];

fn sampling_name(sampling: Sampling) -> &'static str {
    match sampling {
        Sampling::Grey => "grey",
        Sampling::Full => "4:4:4",
        Sampling::HalfWidth => "4:2:2",
        Sampling::HalfBoth => "4:2:0",
        _ => "other",
    }
}

fn size_name(megapixels: f64) -> &'static str {
    match megapixels {
        ..1.0 => "below 1 MP",
        1.0..LARGE => "1 to 5 MP",
        LARGE..16.0 => "5 to 16 MP",
        _ => "16 MP and more",
    }
}

fn build_report(results: &Results, options: &JpegOptions) -> Report {
    let mut report = Report::new("jpeg", "Our JPEG decoder beside libjpeg-turbo");
    report.tables.push(to_table(&results.laps));
    report.tables.push(to_portable_table(&results.laps));
    report.tables.push(to_camera_table(&results.laps));
    let large = results.laps.iter().filter(|lap| lap.is_large && lap.scale == "1/2");
    let ratios: Vec<f64> = large.map(ratio).collect();
    report.goals = vec![
        Goal::at_least("times as fast at half size, photos of 5 MP and more, median", median(&ratios), 1.8),
        Goal::at_most("files with other pixels", results.differing.len() as f64, 0.0),
    ];
    report.notes = vec![
        "Median CPU ms of a file with libjpeg-turbo (in the column of zune-jpeg: with zune-jpeg, at full size), with ours, \
         and the median of their ratios. Without vector instructions is ours alone: libjpeg-turbo keeps those it has."
            .to_owned(),
        format!(
            "{} files of at least {MIN_BYTES} bytes, of which {} are left to libjpeg-turbo by their kind and {} as damaged; \
             {} rounds, the least time of each.",
            results.files, results.refused, results.damaged, options.rounds
        ),
    ];
    report.details =
        results.differing.iter().map(|path| format!("other pixels: {}", path.display())).collect();
    report
}

fn ratio(lap: &Lap) -> f64 {
    lap.turbo.as_secs_f64() / lap.ours.as_secs_f64()
}

fn to_table(laps: &[Lap]) -> Table {
    let mut columns = vec!["sampling", "size", "files", "MB"];
    columns.extend(SCALES.map(|(_, name)| name));
    columns.push("full, zune-jpeg");
    let mut table = Table::new("", &columns);
    for ((sampling, size), laps) in group_laps(laps) {
        let full: Vec<f64> = laps.iter().filter(|lap| lap.scale == "full").map(|lap| lap.megabytes).collect();
        let mut row = vec![sampling.to_owned(), size.to_owned(), full.len().to_string()];
        row.push(format!("{:.2}", median(&full)));
        row.extend(SCALES.map(|(_, name)| {
            describe(laps.iter().filter(|lap| lap.scale == name).map(|lap| (lap.turbo, lap.ours)))
        }));
        row.push(describe(laps.iter().filter_map(|lap| Some((lap.zune?, lap.ours)))));
        table.add_row(row);
    }
    table
}

/// Ours as on a processor without AVX2.
fn to_portable_table(laps: &[Lap]) -> Table {
    let mut columns = vec!["sampling", "size"];
    columns.extend(SCALES.map(|(_, name)| name));
    let mut table = Table::new("Ours without vector instructions", &columns);
    for ((sampling, size), laps) in group_laps(laps) {
        let mut row = vec![sampling.to_owned(), size.to_owned()];
        row.extend(SCALES.map(|(_, name)| {
            describe(laps.iter().filter(|lap| lap.scale == name).map(|lap| (lap.turbo, lap.portable)))
        }));
        table.add_row(row);
    }
    table
}

fn group_laps(laps: &[Lap]) -> BTreeMap<Group, Vec<&Lap>> {
    let mut groups: BTreeMap<Group, Vec<&Lap>> = BTreeMap::new();
    for lap in laps {
        groups.entry(lap.group).or_default().push(lap);
    }
    groups
}

/// Half size by camera, of the files that name theirs.
fn to_camera_table(laps: &[Lap]) -> Table {
    let mut table = Table::new("By camera, at half size", &["camera", "files", "MB", "1/2"]);
    let mut groups: BTreeMap<&str, Vec<&Lap>> = BTreeMap::new();
    for lap in laps.iter().filter(|lap| lap.scale == "1/2") {
        if let Some(camera) = &lap.camera {
            groups.entry(camera).or_default().push(lap);
        }
    }
    for (camera, laps) in groups {
        let sizes: Vec<f64> = laps.iter().map(|lap| lap.megabytes).collect();
        let times = describe(laps.iter().map(|lap| (lap.turbo, lap.ours)));
        table.add_row(vec![
            camera.to_owned(),
            laps.len().to_string(),
            format!("{:.2}", median(&sizes)),
            times,
        ]);
    }
    table
}

/// The medians of another decoder and of ours, and the median of the ratios.
fn describe(times: impl Iterator<Item = (Duration, Duration)>) -> String {
    let times: Vec<(Duration, Duration)> = times.collect();
    if times.is_empty() {
        return String::new();
    }
    let middle =
        |value: fn(&(Duration, Duration)) -> f64| median(&times.iter().map(value).collect::<Vec<_>>());
    let other = middle(|(other, _)| to_milliseconds(*other));
    let ours = middle(|(_, ours)| to_milliseconds(*ours));
    let ratio = middle(|(other, ours)| other.as_secs_f64() / ours.as_secs_f64());
    format!("{other:.1} / {ours:.1}: {ratio:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_of_each_scale() {
        let lap = |scale, ours, turbo| Lap {
            group: ("4:2:0", "16 MP and more"),
            scale,
            is_large: true,
            megabytes: 6.0,
            camera: Some("A camera".to_owned()),
            zune: (scale == "full").then_some(Duration::from_millis(120)),
            ours: Duration::from_millis(ours),
            portable: Duration::from_millis(2 * ours),
            turbo: Duration::from_millis(turbo),
        };
        let laps = [lap("1/2", 40, 80), lap("1/2", 30, 90), lap("1/2", 50, 50), lap("full", 60, 90)];
        let table = to_table(&laps);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0][..4], ["4:2:0", "16 MP and more", "1", "6.00"]);
        assert_eq!(table.rows[0][4..6], ["90.0 / 60.0: 1.50", "80.0 / 40.0: 2.00"]);
        assert_eq!(table.rows[0][9], "120.0 / 60.0: 2.00");
        let portable = to_portable_table(&laps);
        assert_eq!(portable.rows.len(), 1);
        assert_eq!(portable.rows[0][..3], ["4:2:0", "16 MP and more", "90.0 / 120.0: 0.75"]);
        assert_eq!(portable.rows[0][3..5], ["80.0 / 80.0: 1.00", ""]);
        assert_eq!(to_camera_table(&laps).rows, [["A camera", "3", "6.00", "80.0 / 40.0: 2.00"]]);
    }
}
