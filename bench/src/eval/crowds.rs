//! Bib reading in crowds: labelled photos composed into frames of 4, 9 and 16, compared with the same photos alone, over
//! several seeds. Recall in a frame should be that of its photos, whatever their number.

use std::collections::BTreeMap;

use super::options::BibOptions;
use super::tally::{self, Tally, estimate, estimate_gain};
use super::variants::{Cost, Variant, add_cost_row, new_cost_table};
use crate::photos::crowd::{CrowdFrame, MadePhoto, compose};
use crate::photos::enlarge::pick_evenly;
use crate::photos::labels::{self, LabelledPhoto};
use crate::report::goals::Goal;
use crate::report::{Report, Table};

/// Photos in a row and in a column of a frame.
const SIDES: [u32; 3] = [2, 3, 4];

/// The greatest loss of recall in a crowd.
const MAX_LOSS: f64 = 0.01;

/// What one variant found in frames of one kind; the tallies are by frame.
#[derive(Default)]
struct CrowdResult {
    crowd: Vec<Tally>,
    /// Of the photos of each frame, alone.
    alone: Vec<Tally>,
    cost: Cost,
    peak_megabytes: f64,
}

/// By side of the frames and variant.
type Results = BTreeMap<u32, Vec<CrowdResult>>;

/// Runs the evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(options: &BibOptions) -> anyhow::Result<Report> {
    let paths = &options.common.paths;
    let all = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let photos: Vec<LabelledPhoto> =
        pick_evenly(&all, options.limit.unwrap_or(all.len())).into_iter().cloned().collect();
    let folder = paths.find_shared("photos/files")?;
    let variants = Variant::start_all(options)?;
    let mut results = Results::new();
    for side in SIDES {
        let of_side = results.entry(side).or_default();
        of_side.resize_with(variants.len(), CrowdResult::default);
        for seed in 1..=u64::from(options.seeds) {
            let frames = compose(&photos, &folder, side, seed)?;
            for (variant, result) in variants.iter().zip(of_side.iter_mut()) {
                result.add_frames(variant, &frames)?;
            }
            println!("seed {seed}, {} photos a frame: done", side * side);
        }
        for (variant, result) in variants.iter().zip(of_side) {
            result.peak_megabytes = variant.peak_megabytes()?;
        }
    }
    let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    Ok(build_report(options.seeds, &names, &results))
}

impl CrowdResult {
    fn add_frames(&mut self, variant: &Variant, frames: &[CrowdFrame]) -> anyhow::Result<()> {
        let crowds: Vec<&MadePhoto> = frames.iter().map(|frame| &frame.crowd).collect();
        let (tallies, cost) = read_photos(variant, &crowds)?;
        self.crowd.extend(tallies);
        self.cost += &cost;
        let alone: Vec<&MadePhoto> = frames.iter().flat_map(|frame| &frame.alone).collect();
        let (tallies, _) = read_photos(variant, &alone)?;
        let mut tallies = tallies.into_iter();
        for frame in frames {
            let of_frame = tallies.by_ref().take(frame.alone.len());
            let sum = of_frame.fold(Tally::default(), |sum, photo| sum + photo);
            // One reading of a frame, so that faces are counted by frame on both sides.
            self.alone.push(Tally { readings: 1, ..sum });
        }
        Ok(())
    }
}

/// Uploads the photos and counts what the service found in each.
fn read_photos(variant: &Variant, photos: &[&MadePhoto]) -> anyhow::Result<(Vec<Tally>, Cost)> {
    let folder = tempfile::tempdir()?;
    let files: Vec<String> = (0..photos.len()).map(|index| format!("{index:04}.jpg")).collect();
    for (file, photo) in files.iter().zip(photos) {
        std::fs::write(folder.path().join(file), &photo.jpeg)?;
    }
    let (album, cost) = variant.read(folder.path(), &files)?;
    let mut tallies = Vec::with_capacity(photos.len());
    for (uploaded, photo) in album.photos.iter().zip(photos) {
        let detail = variant.client().get_photo(&album.id, &uploaded.id)?;
        tallies.push(Tally::of_photo(&detail, &photo.bibs, &photo.optional));
    }
    Ok((tallies, cost))
}

fn build_report(seeds: u32, variants: &[&str], results: &Results) -> Report {
    let mut report =
        Report::new("crowds", "Bibs in crowds: labelled photos composed into frames of 2048 x 1536");
    let columns = [
        "photos a frame",
        "variant",
        "frames",
        "recall in the frame",
        "recall alone",
        "loss",
        "precision in the frame",
        "precision alone",
        "searchable faces in the frame",
        "searchable faces alone",
    ];
    let caption = format!("Over {seeds} seeds, with 90 % intervals.");
    let mut table = Table::new(&caption, &columns);
    let mut costs = new_cost_table();
    for (side, of_side) in results {
        let photos = (side * side).to_string();
        for (variant, result) in variants.iter().zip(of_side) {
            add_row(&mut table, &photos, variant, result);
            add_cost_row(&mut costs, &photos, variant, &result.cost, result.peak_megabytes);
        }
        if let [first, second] = &of_side[..] {
            let gain = |figure| estimate_gain(&first.crowd, &second.crowd, figure).to_string();
            let mut row = vec![String::new(); columns.len()];
            row[0].clone_from(&photos);
            "gained by the first".clone_into(&mut row[1]);
            row[3] = gain(tally::READ_RECALL);
            row[6] = gain(tally::PRECISION);
            row[8] = gain(tally::SEARCHABLE_FACES);
            table.add_row(row);
        }
        let loss = estimate_gain(&of_side[0].alone, &of_side[0].crowd, tally::READ_RECALL);
        let what = format!("recall lost in frames of {photos}");
        report.goals.push(Goal::at_most(&what, loss.figure, MAX_LOSS));
    }
    report.tables.extend([table, costs]);
    report.notes = vec![
        "Each photo fills three quarters to all of its place, with a brightness of .8 to 1.2 and a JPEG quality of 80 to \
         95; alone it has the same pixels and quality. Leading zeros are ignored."
            .to_owned(),
    ];
    report
}

fn add_row(table: &mut Table, photos: &str, variant: &str, result: &CrowdResult) {
    let (crowd, alone) = (&result.crowd, &result.alone);
    table.add_row([
        photos.to_owned(),
        variant.to_owned(),
        crowd.len().to_string(),
        estimate(crowd, tally::READ_RECALL).to_string(),
        estimate(alone, tally::READ_RECALL).to_string(),
        estimate_gain(alone, crowd, tally::READ_RECALL).to_string(),
        estimate(crowd, tally::PRECISION).to_string(),
        estimate(alone, tally::PRECISION).to_string(),
        estimate(crowd, tally::SEARCHABLE_FACES).to_string(),
        estimate(alone, tally::SEARCHABLE_FACES).to_string(),
    ]);
}
