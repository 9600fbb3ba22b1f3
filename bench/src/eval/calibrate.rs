//! Fits the conversion from cosine to confidence, and evaluates thresholds. No searches run: every pair of labelled faces in
//! two photos counts as a hit of some search.
//!
//! `docs/EVALUATION.md` gives the reasons for the choice of pairs and weights.

use photofinish_models::traits::ModelFactory;

use super::gallery::{Gallery, LabelledVector, cosine};
use super::logistic::{LogisticCurve, WeightedHit, fit_curve};
use crate::networks;
use crate::paths::InputPaths;
use crate::photos::labels;
use crate::photos::score::ratio;
use crate::report::goals::format_number;
use crate::report::{OutputOptions, Report, Table};

/// Part of the pairs of different persons that counts as hits. Pairs with a lower cosine are left out of the fit: no search
/// shows them, and a few faces that no network recognises (covered by a hand, backlit) would distort the curve.
const NEVER_SHOWN_PART: f64 = 0.03;

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

/// Cosines of pairs of faces in two photos.
#[derive(Default)]
struct Pairs {
    same: Vec<f64>,
    different: Vec<f64>,
}

/// Runs the calibration.
///
/// # Errors
/// When the networks or the labelled photos are not available, or the pairs do not determine a curve.
pub fn run(options: &CalibrateOptions) -> anyhow::Result<Report> {
    let factory = networks::open_on_cpu(&options.paths)?;
    let faces = embed_labelled_faces(options, &*factory)?;
    let (runner_pairs, portrait_pairs) = (pair_faces(&faces.runners), pair_faces(&faces.portraits));
    let samples = build_samples(&runner_pairs, &portrait_pairs, options.wrong_per_right);
    let curve = fit_curve(&samples).ok_or_else(|| anyhow::anyhow!("the pairs do not determine a curve"))?;

    let embedder = &faces.embedder;
    let mut report = Report::new(format!("calibration of {embedder}"), &format!("Calibration of {embedder}"));
    report.tables = vec![
        curve_table(options, &runner_pairs, &portrait_pairs, curve),
        reliability_table(&samples, curve),
        error_table(&runner_pairs, &portrait_pairs, curve),
    ];
    report.notes = build_notes(options, &faces, &runner_pairs, &portrait_pairs, curve);
    Ok(report)
}

/// The labelled faces that were detected, with the name of the embedder.
struct LabelledFaces {
    embedder: String,
    runners: Vec<LabelledVector>,
    portraits: Vec<LabelledVector>,
}

fn embed_labelled_faces(
    options: &CalibrateOptions,
    factory: &dyn ModelFactory,
) -> anyhow::Result<LabelledFaces> {
    let paths = &options.paths;
    let mut gallery = Gallery::new(factory)?;
    let folder = paths.find_shared("photos/files")?;
    let labels = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let runners = labels::load_faces(&paths.find_shared("photos/rbnr_boxes.csv")?, &labels)?;
    let portraits = labels::load_portraits(&paths.find_shared("photos/faces.csv")?)?;
    Ok(LabelledFaces {
        embedder: gallery.embedder_identity(),
        runners: gallery.embed_runners(&folder, &runners)?,
        portraits: gallery.embed_portraits(&folder, &portraits)?,
    })
}

/// Pairs all faces in different photos, each pair once.
fn pair_faces(faces: &[LabelledVector]) -> Pairs {
    let mut pairs = Pairs::default();
    for (i, one) in faces.iter().enumerate() {
        for other in faces[i + 1..].iter().filter(|other| other.file != one.file) {
            let kind = if one.person == other.person { &mut pairs.same } else { &mut pairs.different };
            kind.push(cosine(&one.vector, &other.vector));
        }
    }
    pairs
}

/// Weighs the pairs as hits. Right hits: half the weight from runners, half from portraits, so that neither small faces in
/// sunglasses nor clear portraits dominate. Wrong hits: from runners only, because albums show runners.
fn build_samples(runners: &Pairs, portraits: &Pairs, wrong_per_right: f64) -> Vec<WeightedHit> {
    let least = lowest_shown_cosine(&runners.different);
    let part = |cosines: &[f64], right: bool, weight: f64| {
        let weight = weight / cosines.len().max(1) as f64;
        let shown = cosines.iter().filter(|&&cosine| cosine >= least);
        shown.map(|&cosine| WeightedHit { cosine, right, weight }).collect::<Vec<_>>()
    };
    let mut samples = part(&runners.same, true, 0.5);
    samples.extend(part(&portraits.same, true, 0.5));
    samples.extend(part(&runners.different, false, wrong_per_right));
    samples
}

/// Returns the cosine that [`NEVER_SHOWN_PART`] of the pairs reach.
fn lowest_shown_cosine(different: &[f64]) -> f64 {
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
    let columns = ["wrong faces for a right one", "midpoint", "slope", "cosine at 10", "at 50", "at 90", ""];
    let mut table = Table::new("The curve, and what other albums would give", &columns);
    let mut row = |wrong: f64, curve: LogisticCurve, note: &str| {
        let at = |confidence| format!("{:.3}", curve.cosine(confidence));
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
fn reliability_table(samples: &[WeightedHit], curve: LogisticCurve) -> Table {
    let columns = ["confidence", "mean", "right of hits", "pairs: same", "pairs: different"];
    let mut table = Table::new("Does the confidence hold?", &columns);
    for (from, to) in [(5.0, 20.0), (20.0, 40.0), (40.0, 60.0), (60.0, 80.0), (80.0, 95.0), (95.0, 100.1)] {
        let within = |sample: &&WeightedHit| (from..to).contains(&curve.confidence(sample.cosine));
        let inside: Vec<&WeightedHit> = samples.iter().filter(within).collect();
        let sum = |of: &dyn Fn(&WeightedHit) -> f64| inside.iter().map(|sample| of(sample)).sum::<f64>();
        let weight = sum(&|sample| sample.weight);
        let right = sum(&|sample| if sample.right { sample.weight } else { 0.0 });
        let mean = sum(&|sample| sample.weight * curve.confidence(sample.cosine));
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
    let columns = [
        "confidence",
        "cosine",
        "runners found",
        "runners confused",
        "portraits found",
        "portraits confused",
    ];
    let mut table = Table::new("Pairs at or above a confidence", &columns);
    for confidence in [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 90.0, 99.0] {
        let least = curve.cosine(confidence);
        let part = |cosines: &[f64]| ratio(cosines.iter().filter(|&&c| c >= least).count(), cosines.len());
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
    faces: &LabelledFaces,
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
            "{} faces of runners ({} pairs of the same, {} of different ones), {} portraits ({} and {}).",
            faces.runners.len(),
            runner_pairs.same.len(),
            runner_pairs.different.len(),
            faces.portraits.len(),
            portrait_pairs.same.len(),
            portrait_pairs.different.len()
        ),
        format!(
            "Portraits: the least alike pair of one person has cosine {least:.3} (confidence {:.1}), the most alike \
             pair of two persons {most:.3} ({:.1}); a default threshold between them finds all and confuses none.",
            curve.confidence(least),
            curve.confidence(most)
        ),
        format!(
            "Pairs below cosine {:.3}, which {:.0} % of different runners reach, are left out of the fit.",
            lowest_shown_cosine(&runner_pairs.different),
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

    fn known(file: &str, person: &str, vector: [f32; 2]) -> LabelledVector {
        LabelledVector { file: file.to_owned(), person: person.to_owned(), vector: vector.to_vec() }
    }

    #[test]
    fn faces_of_one_photo_are_not_paired() {
        let faces = [known("a", "1", [1.0, 0.0]), known("a", "2", [1.0, 0.0]), known("b", "1", [0.0, 1.0])];
        let pairs = pair_faces(&faces);
        assert_eq!((pairs.same, pairs.different), (vec![0.0], vec![0.0]));
    }

    #[test]
    fn weights_match_the_requested_album_and_pairs_never_shown_are_left_out() {
        let of =
            |same: &[f64], different: &[f64]| Pairs { same: same.to_vec(), different: different.to_vec() };
        let strangers: Vec<f64> = (0..100).map(|i| f64::from(i) / 200.0).collect();
        let samples = build_samples(&of(&[0.1, 0.8], &strangers), &of(&[0.9], &[0.9]), 200.0);
        let of_kind = |right| samples.iter().filter(move |sample| sample.right == right);
        let right: Vec<(f64, f64)> = of_kind(true).map(|sample| (sample.cosine, sample.weight)).collect();
        assert_eq!(right, [(0.8, 0.25), (0.9, 0.5)]);
        assert_eq!((of_kind(false).count(), of_kind(false).map(|sample| sample.weight).sum()), (4, 8.0));
    }
}
