//! Fits the conversion from the score of a selfie search to its confidence, and evaluates thresholds. The faces are searched
//! as the service does, without bibs, and every pair of a probe and a labelled face in another photo counts as a hit.
//!
//! `docs/EVALUATION.md` gives the reasons for the choice of pairs and weights.

mod album;

use std::path::Path;

use photofinish_store::search::calibration::Calibration;
use photofinish_store::traits::SelfieScale;
use photofinish_zoo::{Contract, Zoo};

use self::album::{CalibrationAlbum, Pairs};
use super::gallery::{EmbeddedFace, Gallery};
use super::logistic::{LogisticCurve, WeightedHit, fit_curve};
use crate::networks;
use crate::paths::InputPaths;
use crate::photos::labels::{self, LabelledPortrait};
use crate::photos::random::SplitMix;
use crate::photos::score::ratio;
use crate::report::goals::format_number;
use crate::report::{OutputOptions, Report, Table};

/// Part of the pairs of different persons that counts as hits. Pairs with a lower score are left out of the fit: no search
/// shows them, and a few faces that no network recognises (covered by a hand, backlit) would distort the curve.
const NEVER_SHOWN_PART: f64 = 0.03;

/// Widths of the faces in every second portrait of the album, in pixels: an album shows the person of a selfie small.
const SMALL_FACE_WIDTH: [f64; 2] = [22.0, 55.0];

/// Options of the calibration.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrateOptions {
    /// Wrong faces for each right one in an album: 100 is a runner in 10 photos of an event with 500 photos and 2
    /// faces in each.
    #[arg(long, default_value_t = 100.0)]
    pub wrong_per_right: f64,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the calibration.
///
/// # Errors
/// When the networks or the labelled photos are not available, or the pairs do not determine a curve.
pub fn run(options: &CalibrateOptions) -> anyhow::Result<Report> {
    let faces = embed_faces(options)?;
    let in_force = find_calibration(&faces.embedder)?;
    let (runner_pairs, portrait_pairs) = pair_faces(&faces, in_force.scale);
    let samples = build_samples(&runner_pairs, &portrait_pairs, options.wrong_per_right);
    let curve = fit_curve(&samples).ok_or_else(|| anyhow::anyhow!("the pairs do not determine a curve"))?;
    let published = LogisticCurve { midpoint: in_force.midpoint, slope: in_force.slope };

    let embedder = &faces.embedder;
    let mut report = Report::new(format!("calibration of {embedder}"), &format!("Calibration of {embedder}"));
    report.tables = vec![
        curve_table(options, &runner_pairs, &portrait_pairs, curve),
        reliability_table("Does the confidence hold? The curve of this fit", &samples, curve),
        reliability_table("The curve of `models/models.toml`", &samples, published),
        error_table(&runner_pairs, &portrait_pairs, published),
    ];
    report.notes = build_notes(options, &faces, &runner_pairs, &portrait_pairs, curve);
    Ok(report)
}

/// Returns the calibration that the service uses for an embedder.
fn find_calibration(embedder: &str) -> anyhow::Result<Calibration> {
    let known = Zoo::embedded().models.into_iter().find(|model| model.identity() == embedder);
    match known.map(|model| model.contract) {
        Some(Contract::Embedder(contract)) => {
            let photofinish_zoo::Calibration { midpoint, slope, sure_cosine, bib_weight, few_faces_level } =
                contract.calibration;
            Ok(Calibration {
                midpoint,
                slope,
                scale: SelfieScale { sure_cosine, bib_weight, few_faces_level },
            })
        }
        _ => anyhow::bail!("{embedder} is not in models/models.toml"),
    }
}

/// The faces of all labelled photos, with the name of the embedder.
struct CalibrationFaces {
    embedder: String,
    /// All faces of race photos and groups; labelled ones have a bib.
    race: Vec<EmbeddedFace>,
    /// Portraits to search with.
    portraits: Vec<EmbeddedFace>,
    /// Portraits in the album, every second one small.
    album_portraits: Vec<EmbeddedFace>,
}

impl CalibrationFaces {
    fn runners(&self) -> Vec<&EmbeddedFace> {
        self.race.iter().filter(|face| face.person.is_some()).collect()
    }
}

fn embed_faces(options: &CalibrateOptions) -> anyhow::Result<CalibrationFaces> {
    let paths = &options.paths;
    let factory = networks::open_on_cpu(paths)?;
    let mut gallery = Gallery::new(&*factory)?;
    let folder = paths.find_shared("photos/files")?;
    let photos = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let runners = labels::load_faces(&paths.find_shared("photos/rbnr_boxes.csv")?, &photos)?;
    let labels = labels::load_portraits(&paths.find_shared("photos/faces.csv")?)?;
    let mut groups = labels::load_groups(&paths.find_shared("photos/face_counts.csv")?)?;
    groups.retain(|file| labels.iter().all(|portrait| portrait.file != *file));
    let mut race = Vec::new();
    for file in photos.iter().map(|photo| &photo.file).chain(&groups) {
        race.extend(gallery.embed_photo(&folder, file, &runners)?);
    }
    let (mut portraits, mut album_portraits) = (Vec::new(), Vec::new());
    for (number, portrait) in labels.iter().enumerate() {
        portraits.extend(gallery.embed_portrait(&folder, portrait, None)?);
        album_portraits.extend(embed_for_album(&mut gallery, &folder, portrait, number)?);
    }
    Ok(CalibrationFaces { embedder: gallery.embedder_identity(), race, portraits, album_portraits })
}

/// Embeds a portrait as an album shows it: every second one small.
fn embed_for_album(
    gallery: &mut Gallery,
    folder: &Path,
    portrait: &LabelledPortrait,
    number: usize,
) -> anyhow::Result<Option<EmbeddedFace>> {
    let [least, most] = SMALL_FACE_WIDTH;
    let width = (number % 2 == 1).then(|| SplitMix(number as u64).uniform(least, most));
    gallery.embed_portrait(folder, portrait, width)
}

/// Searches with all labelled runners, then with all portraits, in one album of all faces.
fn pair_faces(faces: &CalibrationFaces, scale: SelfieScale) -> (Pairs, Pairs) {
    let album = CalibrationAlbum::new(faces.race.iter().chain(&faces.album_portraits), scale);
    let is_portrait =
        |face: &EmbeddedFace| faces.album_portraits.iter().any(|portrait| portrait.file == face.file);
    let runners = album.score_pairs(&faces.runners(), |face| !is_portrait(face));
    let portraits = album.score_pairs(&faces.portraits.iter().collect::<Vec<_>>(), is_portrait);
    (runners, portraits)
}

/// Weighs the pairs as hits. Right hits: half the weight from runners, half from portraits, so that neither small faces in
/// sunglasses nor clear portraits dominate. Wrong hits: from runners only, because albums show runners.
fn build_samples(runners: &Pairs, portraits: &Pairs, wrong_per_right: f64) -> Vec<WeightedHit> {
    let least = lowest_shown_score(&runners.different);
    let part = |scores: &[f64], right: bool, weight: f64| {
        let weight = weight / scores.len().max(1) as f64;
        let shown = scores.iter().filter(|&&score| score >= least);
        shown.map(|&score| WeightedHit { score, right, weight }).collect::<Vec<_>>()
    };
    let mut samples = part(&runners.same, true, 0.5);
    samples.extend(part(&portraits.same, true, 0.5));
    samples.extend(part(&runners.different, false, wrong_per_right));
    samples
}

/// Returns the score that [`NEVER_SHOWN_PART`] of the pairs reach.
fn lowest_shown_score(different: &[f64]) -> f64 {
    let mut sorted = different.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted.get((NEVER_SHOWN_PART * sorted.len() as f64) as usize).copied().unwrap_or(-1.0)
}

fn curve_table(
    options: &CalibrateOptions,
    runners: &Pairs,
    portraits: &Pairs,
    curve: LogisticCurve,
) -> Table {
    let columns = ["wrong faces for a right one", "midpoint", "slope", "score at 10", "at 50", "at 90", ""];
    let mut table = Table::new("The curve, and what other albums would give", &columns);
    let mut row = |wrong: f64, curve: LogisticCurve, note: &str| {
        let at = |confidence| format!("{:.3}", curve.score(confidence));
        let (midpoint, slope) = (format!("{:.3}", curve.midpoint), format!("{:.1}", curve.slope));
        table.add_row([format_number(wrong), midpoint, slope, at(10.0), at(50.0), at(90.0), note.to_owned()]);
    };
    row(options.wrong_per_right, curve, "this one");
    for wrong in [20.0, 200.0, 1000.0, 5000.0] {
        if let Some(other) = fit_curve(&build_samples(runners, portraits, wrong)) {
            row(wrong, other, "");
        }
    }
    table
}

/// Tabulates, by range of confidence, the weighted part of right hits.
fn reliability_table(caption: &str, samples: &[WeightedHit], curve: LogisticCurve) -> Table {
    let columns = ["confidence", "mean", "right of hits", "pairs: same", "pairs: different"];
    let mut table = Table::new(caption, &columns);
    for (from, to) in [(5.0, 20.0), (20.0, 40.0), (40.0, 60.0), (60.0, 80.0), (80.0, 95.0), (95.0, 100.1)] {
        let within = |sample: &&WeightedHit| (from..to).contains(&curve.confidence(sample.score));
        let inside: Vec<&WeightedHit> = samples.iter().filter(within).collect();
        let sum = |of: &dyn Fn(&WeightedHit) -> f64| inside.iter().map(|sample| of(sample)).sum::<f64>();
        let weight = sum(&|sample| sample.weight);
        let right = sum(&|sample| if sample.right { sample.weight } else { 0.0 });
        let mean = sum(&|sample| sample.weight * curve.confidence(sample.score));
        let same = inside.iter().filter(|sample| sample.right).count();
        table.add_row([
            format!("{from:.0} to {:.0}", to.min(100.0)),
            format!("{:.0}", mean / weight),
            format!("{:.0} %", 100.0 * right / weight),
            same.to_string(),
            (inside.len() - same).to_string(),
        ]);
    }
    table
}

fn error_table(runners: &Pairs, portraits: &Pairs, curve: LogisticCurve) -> Table {
    let columns =
        ["confidence", "score", "runners found", "runners confused", "portraits found", "portraits confused"];
    let mut table = Table::new("Pairs at or above a confidence", &columns);
    for confidence in [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 90.0, 99.0] {
        let least = curve.score(confidence);
        let part =
            |scores: &[f64]| ratio(scores.iter().filter(|&&score| score >= least).count(), scores.len());
        table.add_row([
            format!("{confidence:.0}"),
            format!("{least:.3}"),
            format!("{:.3}", part(&runners.same)),
            format!("{:.5}", part(&runners.different)),
            format!("{:.3}", part(&portraits.same)),
            format!("{:.5}", part(&portraits.different)),
        ]);
    }
    table
}

fn build_notes(
    options: &CalibrateOptions,
    faces: &CalibrationFaces,
    runner_pairs: &Pairs,
    portrait_pairs: &Pairs,
    curve: LogisticCurve,
) -> Vec<String> {
    let least = portrait_pairs.same.iter().copied().fold(f64::INFINITY, f64::min);
    let most = portrait_pairs.different.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    vec![
        format!(
            "For `models/models.toml`: `calibration = {{ midpoint = {:.3}, slope = {:.1} }}`.",
            curve.midpoint, curve.slope
        ),
        format!(
            "{} faces of runners ({} pairs of the same, {} of different ones), {} portraits ({} and {}), each searched in \
             all {} faces but those of its own photo; no bibs.",
            faces.runners().len(),
            runner_pairs.same.len(),
            runner_pairs.different.len(),
            faces.portraits.len(),
            portrait_pairs.same.len(),
            portrait_pairs.different.len(),
            faces.race.len() + faces.album_portraits.len()
        ),
        format!(
            "Portraits: the least alike pair of one person has score {least:.3} (confidence {:.1}), the most alike \
             pair of two persons {most:.3} ({:.1}).",
            curve.confidence(least),
            curve.confidence(most)
        ),
        format!(
            "Pairs below score {:.3}, which {:.0} % of different runners reach, are left out of the fit.",
            lowest_shown_score(&runner_pairs.different),
            NEVER_SHOWN_PART * 100.0
        ),
        format!(
            "Weights: {} wrong faces for each right one; right ones half runners, half portraits; wrong ones runners.",
            format_number(options.wrong_per_right)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_match_the_requested_album_and_pairs_never_shown_are_left_out() {
        let of =
            |same: &[f64], different: &[f64]| Pairs { same: same.to_vec(), different: different.to_vec() };
        let strangers: Vec<f64> = (0..100).map(|i| f64::from(i) / 200.0).collect();
        let samples = build_samples(&of(&[0.1, 0.8], &strangers), &of(&[0.9], &[0.9]), 200.0);
        let of_kind = |right| samples.iter().filter(move |sample| sample.right == right);
        let right: Vec<(f64, f64)> = of_kind(true).map(|sample| (sample.score, sample.weight)).collect();
        assert_eq!(right, [(0.8, 0.25), (0.9, 0.5)]);
        assert_eq!((of_kind(false).count(), of_kind(false).map(|sample| sample.weight).sum()), (4, 8.0));
    }
}
