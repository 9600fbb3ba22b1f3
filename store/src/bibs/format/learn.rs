//! Learns the format of an event's bibs from those that were surely read.
//!
//! Shapes are taken in the order of how often they were read. One that is no cut and no slip of a shape before it is a
//! numbering of its own. Any other one is what misreadings of those shapes would leave, unless one of these shows that
//! people wear it:
//! - It is too frequent for misreadings: a binomial test, by readings and by different bibs.
//! - Its bibs are read in several photos more often than misreadings are: the same cut rarely happens twice.
//! - Some of its bibs cannot be misreadings at all.
//! - The numbers are counted from one, so that short ones are expected (`numbering`).
//!
//! So the rule errs on the side of keeping answers; the rates are above those measured on the labelled photos and on drawn
//! events.

use super::misreading::{is_cut, is_part_of, is_slip, one_difference};
use super::numbering::is_counted_from_one;
use super::shapes::{OfShape, Shapes, Sighting, group};
use super::tails;
use crate::model::bib_format::LearnedFormat;

/// Different bibs from which a format is learned.
pub(crate) const LEAST_BIBS: usize = 60;

/// Most of the readings of a whole shape that lose one character, and that lose more or are slips.
const ONE_CUT_RATE: f64 = 0.06;
const OTHER_RATE: f64 = 0.025;

/// The part of different misreadings that occur in more than one photo, apart from those that agree by chance.
const REPEATED_RATE: f64 = 0.06;

/// Significance of the tests for a numbering of its own.
const SIGNIFICANCE: f64 = 0.01;

/// Bibs that make a shape: that repeat, or that no misreading explains.
const FEW: usize = 3;

/// A shape of its own has this part of all bibs.
const LEAST_SHARE: f64 = 0.02;

/// Shapes that are not there because numbers are counted from one. An album of more shapes has no format.
const MAX_SHAPES: usize = 5;

/// The part of all readings that have a shape of the format.
const LEAST_COVERED: f64 = 0.9;

/// The part of all readings that a shape has whose numbers may be counted from one.
const LEAST_COUNTED: f64 = 1.0 / 3.0;

/// Why a shape belongs to the format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Worn,
    CountedFromOne,
}

/// Learns the format of an album; without shapes if it shows none.
pub(crate) fn learn(sightings: &[Sighting]) -> LearnedFormat {
    let shapes = group(sightings);
    let readings: u64 = shapes.iter().map(OfShape::len).sum();
    let none = LearnedFormat { readings, ..LearnedFormat::default() };
    if readings < LEAST_BIBS as u64 {
        return none;
    }
    let mut learned: Vec<(&OfShape<'_>, Reason)> = Vec::new();
    for shape in &shapes {
        let reason = find_reason(shape, &learned, &shapes);
        learned.extend(reason.map(|reason| (shape, reason)));
    }
    let own = learned.iter().filter(|(_, reason)| *reason == Reason::Worn).count();
    let sum = |shapes: &mut dyn Iterator<Item = u64>| shapes.sum::<u64>() as f64;
    let covered = sum(&mut learned.iter().map(|(it, _)| it.readings()));
    if own > MAX_SHAPES || covered < LEAST_COVERED * sum(&mut shapes.iter().map(OfShape::readings)) {
        return none;
    }
    let fits = |shape: &OfShape<'_>| learned.iter().any(|(it, _)| it.shape == shape.shape);
    let others = shapes.iter().filter(|shape| !fits(shape));
    // What is no part of a bib stands without being named; named, one more would have all photos judged again for nothing.
    let is_part = |bib: &&Sighting| learned.iter().any(|(it, _)| is_part_of(&bib.bib, &it.shape));
    let worn = others.flat_map(worn_bibs).filter(is_part);
    let mut repeated: Vec<String> = worn.map(|bib| bib.bib.clone()).collect();
    repeated.sort();
    LearnedFormat {
        share: sum(&mut learned.iter().map(|(it, _)| it.len())) / readings as f64,
        shapes: learned.iter().map(|(it, _)| it.shape.clone()).collect(),
        repeated,
        readings,
    }
}

/// The bibs of a shape that somebody wears although the shape is not of the format: those in more photos than misreadings
/// agree by chance. There are few short texts, so that two runners' cuts are the same one sooner than two long ones are.
fn worn_bibs<'a>(shape: &'a OfShape<'_>) -> impl Iterator<Item = &'a Sighting> {
    let by_chance = |photos: u64| tails::at_least(photos, shape.readings(), 1.0 / shape.texts());
    shape.bibs.iter().copied().filter(move |bib| bib.photos > 1 && by_chance(bib.photos) < SIGNIFICANCE)
}

/// Why a shape belongs to the format, after the more frequent shapes that do; `None` if it does not.
fn find_reason(
    shape: &OfShape<'_>,
    learned: &[(&OfShape<'_>, Reason)],
    shapes: &Shapes<'_>,
) -> Option<Reason> {
    let cut_of: Vec<&OfShape<'_>> =
        learned.iter().map(|(it, _)| *it).filter(|it| is_cut(&shape.shape, &it.shape)).collect();
    let slip_of: Vec<&OfShape<'_>> = learned
        .iter()
        .map(|(it, _)| *it)
        .filter(|it| one_difference(&shape.shape, &it.shape).is_some())
        .collect();
    let all: u64 = shapes.iter().map(OfShape::len).sum();
    if cut_of.is_empty() && slip_of.is_empty() {
        let least = (LEAST_SHARE * all as f64).max(FEW as f64);
        return (shape.len() as f64 >= least).then_some(Reason::Worn);
    }
    let is_misreading =
        |bib: &&&Sighting| !cut_of.is_empty() || slip_of.iter().any(|whole| is_slip(&bib.bib, &whole.shape));
    let unexplained = shape.bibs.iter().filter(|bib| !is_misreading(bib)).count();
    if unexplained >= FEW || is_too_frequent(shape, &cut_of, &slip_of) || is_repeated(shape) {
        return Some(Reason::Worn);
    }
    let readings: u64 = shapes.iter().map(OfShape::readings).sum();
    let is_counted = learned.iter().map(|(it, _)| it).any(|it| {
        it.readings() as f64 >= LEAST_COUNTED * readings as f64
            && is_counted_from_one(&shape.shape, &it.shape, shapes)
    });
    is_counted.then_some(Reason::CountedFromOne)
}

/// Whether there are more bibs of a shape than misreadings of the shapes that it may come from would leave.
fn is_too_frequent(shape: &OfShape<'_>, cut_of: &[&OfShape<'_>], slip_of: &[&OfShape<'_>]) -> bool {
    let loses_one = cut_of.iter().any(|whole| whole.shape.len() == shape.shape.len() + 1);
    let rate = if loses_one { ONE_CUT_RATE } else { OTHER_RATE };
    let wholes = || cut_of.iter().chain(slip_of);
    let test = |count: u64, of_wholes: u64| tails::at_least(count, count + of_wholes, rate) < SIGNIFICANCE;
    test(shape.readings(), wholes().map(|it| it.readings()).sum())
        && test(shape.len(), wholes().map(|it| it.len()).sum())
}

/// Whether bibs of a shape occur in several photos more often than misreadings do.
fn is_repeated(shape: &OfShape<'_>) -> bool {
    let by_chance = shape.readings() as f64 / shape.texts();
    let rate = (REPEATED_RATE + by_chance).min(0.9);
    shape.repeated() >= FEW as u64 && tails::at_least(shape.repeated(), shape.len(), rate) < SIGNIFICANCE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::BibFormat;
    use super::*;
    use crate::model::bib_format::{BibFormatConfig, BibShape};

    /// A small generator of numbers, so that an event is the same everywhere.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }

        fn number(&mut self, from: u64, to: u64) -> String {
            (from + self.below(to - from + 1)).to_string()
        }

        fn letter(&mut self, of: &str) -> String {
            let at = self.below(of.len() as u64) as usize;
            of[at..=at].to_owned()
        }
    }

    /// How an event numbers its runners.
    type Numbering = fn(&mut Random) -> String;

    const FORMATS: [(&str, Numbering); 6] = [
        ("9999", |random| random.number(1000, 4999)),
        ("99999", |random| random.number(10_000, 32_000)),
        ("AA99999", |random| format!("K{}{}", random.letter("MH"), random.number(10_000, 29_999))),
        ("A9999", |random| format!("{}{}", random.letter("MW"), random.number(1000, 4999))),
        ("9999|999A", |random| match random.below(10) {
            0 => format!("{}{}", random.number(100, 250), random.letter("ACD")),
            _ => random.number(1000, 2999),
        }),
        ("999|99999", |random| match random.below(12) {
            0 => random.number(100, 399),
            _ => random.number(10_000, 19_999),
        }),
    ];

    const FROM_ONE: [Numbering; 3] = [
        |random| random.number(10, 1800),
        |random| random.number(10, 3500),
        |random| random.number(10, 9999),
    ];

    /// A reading with the bib that it shows.
    struct Shown {
        bib: String,
        read: String,
    }

    /// Photos of so many runners, of which 6 % of the bibs are cut.
    fn draw(numbering: Numbering, runners: usize, seed: u64, most_photos: u64) -> Vec<Shown> {
        let mut random = Random(seed);
        let mut shown = Vec::new();
        for _ in 0..runners {
            let bib = numbering(&mut random);
            for _ in 0..=random.below(most_photos) {
                let cut = [1, 1, 1, 2][random.below(4) as usize];
                let read = match random.below(100) {
                    0..3 if bib.len() >= cut + 2 => bib[cut..].to_owned(),
                    3..6 if bib.len() >= cut + 2 => bib[..bib.len() - cut].to_owned(),
                    _ => bib.clone(),
                };
                shown.push(Shown { bib: bib.clone(), read });
            }
        }
        shown
    }

    fn count(shown: &[Shown]) -> Vec<Sighting> {
        let mut photos: BTreeMap<&str, u64> = BTreeMap::new();
        for it in shown {
            *photos.entry(&it.read).or_default() += 1;
        }
        photos.into_iter().map(|(bib, photos)| Sighting { bib: bib.to_owned(), photos }).collect()
    }

    /// The part of the right answers that is lost, and the part of the wrong ones.
    fn lost(shown: &[Shown]) -> (f64, f64) {
        let format = BibFormat::new(&BibFormatConfig::Auto, Some(learn(&count(shown))));
        let is_lost = |it: &&Shown| format.as_ref().is_some_and(|format| format.is_part(&it.read));
        let part = |is_right: bool| {
            let of: Vec<&Shown> = shown.iter().filter(|it| (it.bib == it.read) == is_right).collect();
            of.iter().filter(|it| is_lost(it)).count() as f64 / of.len() as f64
        };
        (part(true), part(false))
    }

    #[test]
    fn events_show_their_formats_and_lose_what_was_cut() {
        for (expected, numbering) in FORMATS {
            for (runners, most_photos) in [(150, 5), (600, 1), (600, 5)] {
                let (mut right, mut wrong) = (0.0, 0.0);
                for seed in 0..8 {
                    let shown = draw(numbering, runners, seed, most_photos);
                    let learned = learn(&count(&shown));
                    let shapes: Vec<&str> = learned.shapes.iter().map(BibShape::as_str).collect();
                    for shape in expected.split('|') {
                        assert!(shapes.contains(&shape), "{expected} of {runners}: {shapes:?}");
                    }
                    let (of_right, of_wrong) = lost(&shown);
                    (right, wrong) = (right + of_right / 8.0, wrong + of_wrong / 8.0);
                }
                assert!(right <= 0.003 && wrong >= 0.5, "{expected} of {runners}: {right} {wrong}");
            }
        }
    }

    #[test]
    fn numbers_that_are_counted_from_one_lose_no_answer() {
        for numbering in FROM_ONE {
            for (runners, most_photos) in [(150, 5), (400, 1), (600, 5)] {
                for seed in 0..8 {
                    let (right, _) = lost(&draw(numbering, runners, seed, most_photos));
                    assert!(right <= 0.003, "{runners} runners, seed {seed}: {right}");
                }
            }
        }
    }

    #[test]
    fn few_readings_show_nothing() {
        let shown = draw(FORMATS[0].1, LEAST_BIBS - 10, 1, 1);
        let learned = learn(&count(&shown));
        assert_eq!((learned.shapes.len(), learned.repeated.len()), (0, 0));
        assert!(learned.readings > 40);
    }

    #[test]
    fn cuts_that_agree_by_chance_are_parts_all_the_same() {
        let mut bibs = count(&draw(|random| random.number(200, 950), 400, 1, 5));
        let cuts = (10..50).map(|cut| Sighting { bib: cut.to_string(), photos: 1 + u64::from(cut % 9 == 0) });
        bibs.retain(|bib| bib.bib.len() == 3);
        bibs.extend(cuts.chain([Sighting { bib: "91".to_owned(), photos: 9 }]));
        let format = BibFormat::new(&BibFormatConfig::Auto, Some(learn(&bibs))).unwrap();
        assert!(format.is_part("18") && format.is_part("19"), "of two runners, or of one");
        assert!(!format.is_part("91"), "nine photos are no chance");
    }

    #[test]
    fn a_runner_with_another_bib_stays_once_in_two_photos() {
        let mut bibs = count(&draw(FORMATS[1].1, 300, 1, 5));
        bibs.push(Sighting { bib: "77".to_owned(), photos: 2 });
        bibs.push(Sighting { bib: "78".to_owned(), photos: 1 });
        let format = BibFormat::new(&BibFormatConfig::Auto, Some(learn(&bibs))).unwrap();
        assert!(!format.is_part("77") && format.is_part("78"));
    }

    proptest! {
        #[test]
        fn an_album_without_numbering_loses_nothing(
            texts in prop::collection::hash_set("[A-Z]{0,2}[0-9]{2,5}[A-Z]?", 60..400),
        ) {
            let bibs: Vec<Sighting> =
                texts.into_iter().map(|bib| Sighting { bib, photos: 1 }).collect();
            prop_assert!(learn(&bibs).shapes.is_empty());
        }

        #[test]
        fn the_order_of_bibs_does_not_matter(seed in 0_u64..50, runners in 60_usize..200) {
            let mut bibs = count(&draw(FORMATS[4].1, runners, seed, 4));
            let learned = learn(&bibs);
            bibs.reverse();
            prop_assert_eq!(learn(&bibs), learned);
        }

        #[test]
        fn what_fits_a_learned_format_is_no_part(seed in 0_u64..50, format in 0_usize..6) {
            let shown = draw(FORMATS[format].1, 200, seed, 4);
            let learned = learn(&count(&shown));
            let format = BibFormat::new(&BibFormatConfig::Auto, Some(learned.clone()));
            for it in &shown {
                if learned.shapes.contains(&BibShape::of(&it.read)) {
                    prop_assert!(!format.as_ref().unwrap().is_part(&it.read));
                }
            }
        }
    }
}
