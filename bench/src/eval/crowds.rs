//! Bib reading in crowds: labelled photos composed into frames of 4, 9 and 16, compared with the same photos alone, over
//! several seeds. Recall in a frame should be that of its photos, whatever their number.
//!
//! The same photos recur with each seed, in other frames: what is found is counted by photo, and a photo is drawn for an
//! interval with all its readings, as in `bibs`.

use std::collections::{BTreeMap, BTreeSet};

use photofinish_client::{BoundingBox, DetectedFace, PhotoDetail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::options::BibOptions;
use super::tally::{self, Found, Tally, estimate, estimate_gain};
use super::variants::{Cost, Variant, add_cost_row, new_cost_table};
use crate::photos::crowd::{CrowdFrame, MadePhoto, compose};
use crate::photos::enlarge::pick_evenly;
use crate::photos::labels::{self, LabelledPhoto};
use crate::photos::score::trim_zeros;
use crate::report::goals::Goal;
use crate::report::{Report, Table};

/// Photos in a row and in a column of a frame.
const SIDES: [u32; 3] = [2, 3, 4];

/// The greatest loss of recall in a crowd.
const MAX_LOSS: f64 = 0.01;

/// What one variant found in frames of one kind; the tallies are by labelled photo, over all seeds.
struct CrowdResult {
    frames: usize,
    /// Of each photo within the frames.
    crowd: Vec<Tally>,
    /// Of each photo alone, as often.
    alone: Vec<Tally>,
    cost: Cost,
    peak_megabytes: f64,
}

/// What the service found in a frame, and where: the client's own type does not say it of texts.
#[derive(Deserialize)]
struct FrameDetail {
    faces: Vec<DetectedFace>,
    texts: Vec<PlacedText>,
}

/// A text with its place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacedText {
    text: String,
    indexed: bool,
    bounding_box: BoundingBox,
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
        of_side.resize_with(variants.len(), || CrowdResult::new(photos.len()));
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
    fn new(photos: usize) -> Self {
        let none = vec![Tally::default(); photos];
        Self { frames: 0, crowd: none.clone(), alone: none, cost: Cost::default(), peak_megabytes: 0.0 }
    }

    /// Reads frames, and their photos alone.
    fn add_frames(&mut self, variant: &Variant, frames: &[CrowdFrame]) -> anyhow::Result<()> {
        let crowds: Vec<&MadePhoto> = frames.iter().map(|frame| &frame.crowd).collect();
        let (in_frames, cost) = read_photos::<FrameDetail>(variant, &crowds)?;
        self.cost += &cost;
        for (frame, detail) in frames.iter().zip(&in_frames) {
            self.add_crowd(frame, detail);
        }
        let photos: Vec<&MadePhoto> = frames.iter().flat_map(|frame| &frame.alone).collect();
        let (alone, _) = read_photos::<PhotoDetail>(variant, &photos)?;
        let indices = frames.iter().flat_map(|frame| &frame.photos);
        for ((index, made), detail) in indices.zip(photos).zip(&alone) {
            self.alone[*index] += Tally::of_photo(detail, &made.bibs, &made.optional);
        }
        Ok(())
    }

    fn add_crowd(&mut self, frame: &CrowdFrame, detail: &FrameDetail) {
        self.frames += 1;
        for ((index, made), found) in frame.photos.iter().zip(&frame.alone).zip(split_by_photo(frame, detail))
        {
            self.crowd[*index] += Tally::of_found(&found, &made.bibs, &made.optional);
        }
    }
}

/// Divides what was found in a frame among its photos: faces, and texts that are no label, by their places; labels by whose
/// they are, wherever in the frame they were read. A text that occurs twice counts once, as in any photo.
fn split_by_photo(frame: &CrowdFrame, detail: &FrameDetail) -> Vec<Found> {
    let mut found: Vec<Found> = frame.alone.iter().map(|_| Found::default()).collect();
    let photo_at =
        |place: &BoundingBox| frame.photo_at(place.left + place.width / 2.0, place.top + place.height / 2.0);
    for face in &detail.faces {
        let of_photo = &mut found[photo_at(&face.bounding_box)];
        of_photo.faces += 1;
        of_photo.searchable += usize::from(face.indexed);
    }
    let mut known = BTreeSet::new();
    for text in detail.texts.iter().filter(|text| text.indexed) {
        let bib = trim_zeros(&text.text);
        if !known.insert(bib) {
            continue;
        }
        let has_label = |photo: &MadePhoto| {
            photo.bibs.iter().chain(&photo.optional).any(|label| trim_zeros(label) == bib)
        };
        let mut owners: Vec<usize> =
            (0..found.len()).filter(|photo| has_label(&frame.alone[*photo])).collect();
        if owners.is_empty() {
            owners.push(photo_at(&text.bounding_box));
        }
        for owner in owners {
            found[owner].indexed.insert(text.text.clone());
        }
    }
    found
}

/// Uploads the photos and returns what the service says of each.
fn read_photos<T: DeserializeOwned>(
    variant: &Variant,
    photos: &[&MadePhoto],
) -> anyhow::Result<(Vec<T>, Cost)> {
    let folder = tempfile::tempdir()?;
    let files: Vec<String> = (0..photos.len()).map(|index| format!("{index:04}.jpg")).collect();
    for (file, photo) in files.iter().zip(photos) {
        std::fs::write(folder.path().join(file), &photo.jpeg)?;
    }
    let (album, cost) = variant.read(folder.path(), &files)?;
    let mut details = Vec::with_capacity(photos.len());
    for photo in &album.photos {
        let request = json!({ "albumId": album.id, "photoId": photo.id });
        details.push(variant.client().call("photos/photo/get", &request)?);
    }
    Ok((details, cost))
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
    let caption = format!(
        "Over {seeds} seeds, with 90 % intervals, for which the labelled photos are drawn, each with all its readings."
    );
    let mut table = Table::new(&caption, &columns);
    let mut costs = new_cost_table();
    for (side, of_side) in results {
        let photos = (side * side).to_string();
        let photos_a_frame = f64::from(side * side);
        for (variant, result) in variants.iter().zip(of_side) {
            add_row(&mut table, photos_a_frame, variant, result);
            add_cost_row(&mut costs, &photos, variant, &result.cost, result.peak_megabytes);
        }
        if let [first, second] = &of_side[..] {
            let gain = |figure| estimate_gain(&first.crowd, &second.crowd, figure);
            let mut row = vec![String::new(); columns.len()];
            row[0].clone_from(&photos);
            "gained by the first".clone_into(&mut row[1]);
            row[3] = gain(tally::READ_RECALL).to_string();
            row[6] = gain(tally::PRECISION).to_string();
            row[8] = gain(tally::SEARCHABLE_FACES).times(photos_a_frame).to_string();
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

fn add_row(table: &mut Table, photos_a_frame: f64, variant: &str, result: &CrowdResult) {
    let (crowd, alone) = (&result.crowd, &result.alone);
    // The tallies are by photo, the columns by frame.
    let faces_a_frame =
        |photos: &[Tally]| estimate(photos, tally::SEARCHABLE_FACES).times(photos_a_frame).to_string();
    table.add_row([
        photos_a_frame.to_string(),
        variant.to_owned(),
        result.frames.to_string(),
        estimate(crowd, tally::READ_RECALL).to_string(),
        estimate(alone, tally::READ_RECALL).to_string(),
        estimate_gain(alone, crowd, tally::READ_RECALL).to_string(),
        estimate(crowd, tally::PRECISION).to_string(),
        estimate(alone, tally::PRECISION).to_string(),
        faces_a_frame(crowd),
        faces_a_frame(alone),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(bib: &str) -> MadePhoto {
        MadePhoto { jpeg: Vec::new(), bibs: [bib.to_owned()].into(), optional: BTreeSet::new() }
    }

    /// Four photos with these bibs, of which the first is the one with the number `from` in the list.
    fn frame(bibs: [&str; 4], from: usize) -> CrowdFrame {
        let alone: Vec<MadePhoto> = bibs.into_iter().map(made).collect();
        let crowd = MadePhoto {
            jpeg: Vec::new(),
            bibs: bibs.into_iter().map(str::to_owned).collect(),
            optional: BTreeSet::new(),
        };
        CrowdFrame { crowd, alone, photos: (from..from + 4).collect(), side: 2 }
    }

    /// A small box around a point.
    fn around(x: f64, y: f64) -> BoundingBox {
        BoundingBox { top: y - 0.01, left: x - 0.01, width: 0.02, height: 0.02 }
    }

    fn text(text: &str, x: f64, y: f64) -> PlacedText {
        PlacedText { text: text.to_owned(), indexed: true, bounding_box: around(x, y) }
    }

    #[test]
    fn what_is_found_in_a_frame_is_divided_among_its_photos() {
        let frame = frame(["0891", "12", "34", "56"], 0);
        let face = |x, y, indexed| DetectedFace { bounding_box: around(x, y), indexed };
        let unread = PlacedText { indexed: false, ..text("56", 0.9, 0.9) };
        let texts = vec![text("891", 0.9, 0.9), text("77", 0.1, 0.9), text("77", 0.9, 0.1), unread];
        let detail = FrameDetail { faces: vec![face(0.1, 0.1, true), face(0.9, 0.1, false)], texts };
        let found = split_by_photo(&frame, &detail);
        let of_photo = |indexed: &[&str], faces, searchable| Found {
            indexed: indexed.iter().map(|text| (*text).to_owned()).collect(),
            faces,
            searchable,
        };
        // A label belongs to its photo also where its box is nearer to another.
        let expected =
            [of_photo(&["891"], 1, 1), of_photo(&[], 1, 0), of_photo(&["77"], 0, 0), of_photo(&[], 0, 0)];
        assert_eq!(found, expected);
    }

    #[test]
    fn reading_the_same_photos_with_more_seeds_does_not_narrow_an_interval() {
        let bibs = ["0", "1", "2", "3", "4", "5", "6", "7"];
        let frames =
            [frame([bibs[0], bibs[1], bibs[2], bibs[3]], 0), frame([bibs[4], bibs[5], bibs[6], bibs[7]], 4)];
        // One photo of the first frame is read, all of the second.
        let read: [Vec<PlacedText>; 2] =
            [vec![text("0", 0.1, 0.1)], ["4", "5", "6", "7"].map(|bib| text(bib, 0.1, 0.1)).into()];
        let details = read.map(|texts| FrameDetail { faces: Vec::new(), texts });
        let of_seeds = |seeds: usize| {
            let mut result = CrowdResult::new(bibs.len());
            for _ in 0..seeds {
                for (frame, detail) in frames.iter().zip(&details) {
                    result.add_crowd(frame, detail);
                }
            }
            result
        };
        let (once, often) = (of_seeds(1), of_seeds(5));
        assert_eq!((often.frames, often.crowd.len()), (10, 8));
        assert_eq!(often.crowd[0].bibs.right, 5);
        let interval = estimate(&often.crowd, tally::READ_RECALL);
        assert_eq!(interval, estimate(&once.crowd, tally::READ_RECALL));
        assert_eq!(interval.figure, 0.625);
    }
}
