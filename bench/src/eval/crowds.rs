//! Bib reading in crowds: labelled photos composed into frames of 4, 9 and 16, compared with the same photos alone, over
//! several seeds. Recall in a frame should be that of its photos, whatever their number.

use std::collections::{BTreeMap, BTreeSet};

use photofinish_client::Client;

use super::options::BibOptions;
use crate::photos::crowd::{MadePhoto, compose};
use crate::photos::labels;
use crate::photos::score::BibScore;
use crate::report::goals::Goal;
use crate::report::statistics::{Estimate, estimate_mean};
use crate::report::{Report, Table};
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// Photos in a row and in a column of a frame.
const SIDES: [u32; 3] = [2, 3, 4];

/// The greatest loss of recall in a crowd.
const MAX_LOSS: f64 = 0.01;

/// Scores of one kind of frame, one for each seed.
#[derive(Default)]
struct CrowdScores {
    frames: usize,
    crowd: Vec<BibScore>,
    alone: Vec<BibScore>,
}

/// Runs the evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(options: &BibOptions) -> anyhow::Result<Report> {
    let paths = &options.common.paths;
    let photos = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let folder = paths.find_shared("photos/files")?;
    let service = Service::start(paths, &Setup::default())?;
    let mut scores: BTreeMap<u32, CrowdScores> = BTreeMap::new();
    for seed in 1..=u64::from(options.seeds) {
        for side in SIDES {
            let frames = compose(&photos, &folder, side, seed)?;
            let (crowd, alone): (Vec<_>, Vec<_>) =
                frames.into_iter().map(|frame| (frame.crowd, frame.alone)).unzip();
            let alone: Vec<MadePhoto> = alone.into_iter().flatten().collect();
            let of_side = scores.entry(side).or_default();
            of_side.frames += crowd.len();
            of_side.crowd.push(read_photos(service.client(), &crowd)?);
            of_side.alone.push(read_photos(service.client(), &alone)?);
            println!("seed {seed}, {} photos a frame: done", side * side);
        }
    }
    Ok(build_report(options.seeds, &scores))
}

/// Uploads the photos and scores the bibs that the service indexed.
fn read_photos(client: &Client, photos: &[MadePhoto]) -> anyhow::Result<BibScore> {
    let folder = tempfile::tempdir()?;
    let files: Vec<String> = (0..photos.len()).map(|index| format!("{index:04}.jpg")).collect();
    for (file, photo) in files.iter().zip(photos) {
        std::fs::write(folder.path().join(file), &photo.jpeg)?;
    }
    let album = UploadedAlbum::ingest(client, None, folder.path(), &files)?;
    let mut score = BibScore::default();
    for (uploaded, photo) in album.photos.iter().zip(photos) {
        let detail = client.get_photo(&album.id, &uploaded.id)?;
        let indexed: BTreeSet<String> =
            detail.texts.iter().filter(|text| text.indexed).map(|text| text.text.clone()).collect();
        score.add_photo(&indexed, &photo.bibs, &photo.optional);
    }
    Ok(score)
}

fn build_report(seeds: u32, scores: &BTreeMap<u32, CrowdScores>) -> Report {
    let mut report =
        Report::new("crowds", "Bibs in crowds: labelled photos composed into frames of 2048 x 1536");
    let columns = [
        "photos a frame",
        "frames",
        "recall in the frame",
        "recall alone",
        "loss",
        "precision in the frame",
        "precision alone",
    ];
    let caption = format!("Means over {seeds} seeds with 95 % intervals.");
    let mut table = Table::new(&caption, &columns);
    for (side, of_side) in scores {
        let recalls = |scores: &[BibScore]| scores.iter().map(BibScore::recall).collect::<Vec<f64>>();
        let precision =
            |scores: &[BibScore]| estimate_mean(&scores.iter().map(BibScore::precision).collect::<Vec<_>>());
        let (crowd, alone) = (recalls(&of_side.crowd), recalls(&of_side.alone));
        let losses: Vec<f64> = alone.iter().zip(&crowd).map(|(alone, crowd)| alone - crowd).collect();
        let loss: Estimate = estimate_mean(&losses);
        table.add_row([
            (side * side).to_string(),
            of_side.frames.to_string(),
            estimate_mean(&crowd).to_string(),
            estimate_mean(&alone).to_string(),
            loss.to_string(),
            precision(&of_side.crowd).to_string(),
            precision(&of_side.alone).to_string(),
        ]);
        let what = format!("recall lost in frames of {}", side * side);
        report.goals.push(Goal::at_most(&what, loss.mean, MAX_LOSS));
    }
    report.tables.push(table);
    report.notes = vec![
        "Each photo fills three quarters to all of its place, with a brightness of .8 to 1.2 and a JPEG quality of 80 to \
         95; alone it has the same pixels and quality. Leading zeros are ignored."
            .to_owned(),
    ];
    report
}
