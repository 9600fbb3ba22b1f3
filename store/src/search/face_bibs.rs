//! Which bib a face wears: the reading below it. Computed from the stored boxes whenever faces are read into memory, so
//! that it holds for photos of every version of the service. Contains no SQL.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use crate::model::photo::{BoundingBox, PhotoSize};
use crate::search::scoring::WornBib;

/// The least confidence and length of a reading that counts as somebody's bib.
const MIN_CONFIDENCE: f64 = 0.9;
const MIN_CHARACTERS: usize = 2;

/// Where the centre of a bib may be, in units of [`unit`]: to the sides of the middle of the face, and below the chin.
const MAX_ASIDE: f64 = 1.3;
const MIN_BELOW_CHIN: f64 = 0.6;
const MAX_BELOW_CHIN: f64 = 5.0;

/// A unit is the width of the face, or this fraction of its height if that is more: a turned face is narrow.
const HEIGHT_FRACTION: f64 = 0.8;

/// How many times further away than the nearest the next face must be of a text that both would wear, for it to be the bib of the
/// nearest. Not measured.
const CLEARLY_FURTHER: f64 = 1.5;

const MICROS_PER_HOUR: i64 = 3_600_000_000;

/// The bibs that were read in one photo, in any order.
#[derive(Clone, Debug)]
pub(crate) struct PhotoReadings {
    size: PhotoSize,
    taken_hour: Option<i32>,
    readings: Vec<BibReading>,
}

/// A bib that was read in a photo.
#[derive(Clone, Debug)]
pub(crate) struct BibReading {
    /// As it was read.
    pub(crate) text: String,
    /// The reader's score, 0 to 1.
    pub(crate) confidence: f64,
    pub(crate) bounding_box: BoundingBox,
}

impl PhotoReadings {
    /// Creates the readings of a photo without any. `taken_at` is in microseconds since 1970.
    pub(crate) fn new(size: PhotoSize, taken_at: Option<i64>) -> Self {
        let taken_hour = taken_at.and_then(|micros| i32::try_from(micros.div_euclid(MICROS_PER_HOUR)).ok());
        Self { size, taken_hour, readings: Vec::new() }
    }

    /// Adds a bib that was read.
    pub(crate) fn add(&mut self, reading: BibReading) {
        if reading.confidence >= MIN_CONFIDENCE && reading.text.chars().count() >= MIN_CHARACTERS {
            self.readings.push(reading);
        }
    }

    /// Returns the faces that wear a bib, by their index, with their bibs. `faces` are all faces of the photo,
    /// searchable or not: a bib below a blurred face is not that of its neighbour. A text that two faces would wear is printed
    /// twice on the clearly nearest runner, on chest and belt, or else is nobody's, such as the year of the event.
    pub(crate) fn match_faces(&self, faces: &[BoundingBox]) -> Vec<(usize, WornBib<'_>)> {
        // The result depends on what is in the photo, not on the order of the rows.
        let mut face_order: Vec<usize> = (0..faces.len()).collect();
        face_order.sort_by(|a, b| compare_boxes(&faces[*a], &faces[*b]));
        let mut readings: Vec<&BibReading> = self.readings.iter().collect();
        readings.sort_by(|a, b| {
            compare_boxes(&a.bounding_box, &b.bounding_box).then_with(|| a.text.cmp(&b.text))
        });
        let boxes: Vec<BoundingBox> = face_order.iter().map(|face| faces[*face]).collect();
        let texts: Vec<&str> = readings.iter().map(|reading| reading.text.trim_start_matches('0')).collect();
        let mut pairs = find_pairs(self.size, &boxes, &readings);
        let worn = loop {
            let nearest = match_nearest(&pairs);
            let owners = find_owners(&nearest, &texts);
            if owners.is_empty() {
                break nearest;
            }
            // Whoever does not wear such a text may wear another one.
            let may_wear =
                |pair: &Pair| owners.get(texts[pair.reading]).is_none_or(|owner| *owner == Some(pair.face));
            pairs.retain(may_wear);
        };
        let worn = worn.into_iter().map(|pair| {
            let bib = WornBib { text: texts[pair.reading], taken_hour: self.taken_hour };
            (face_order[pair.face], bib)
        });
        worn.filter(|(_, bib)| !bib.text.is_empty()).collect()
    }
}

/// A reading below a face.
#[derive(Clone, Copy)]
struct Pair {
    /// In sizes of the face.
    distance: f64,
    face: usize,
    reading: usize,
}

fn compare_boxes(a: &BoundingBox, b: &BoundingBox) -> Ordering {
    let sides = |place: &BoundingBox| [place.top, place.left, place.width, place.height];
    let (a, b) = (sides(a), sides(b));
    a.iter().zip(&b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns all pairs of a face and a reading below it, the nearest first.
fn find_pairs(size: PhotoSize, faces: &[BoundingBox], readings: &[&BibReading]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for (face, face_box) in faces.iter().enumerate() {
        for (reading, BibReading { bounding_box, .. }) in readings.iter().enumerate() {
            let distance = distance(size, face_box, bounding_box);
            pairs.extend(distance.map(|distance| Pair { distance, face, reading }));
        }
    }
    let place = |pair: &Pair| (pair.face, pair.reading);
    pairs.sort_by(|a, b| a.distance.total_cmp(&b.distance).then_with(|| place(a).cmp(&place(b))));
    pairs
}

/// Returns the first pairs in which each face and each reading is once at most.
fn match_nearest(pairs: &[Pair]) -> Vec<Pair> {
    let (mut faces, mut readings) = (HashSet::new(), HashSet::new());
    let mut matched: Vec<Pair> = Vec::new();
    for pair in pairs {
        if !faces.contains(&pair.face) && !readings.contains(&pair.reading) {
            faces.insert(pair.face);
            readings.insert(pair.reading);
            matched.push(*pair);
        }
    }
    matched
}

/// Returns the texts that several faces would wear, each with the face that it belongs to, if one is clearly the nearest.
fn find_owners<'a>(pairs: &[Pair], texts: &[&'a str]) -> HashMap<&'a str, Option<usize>> {
    let mut owners = HashMap::new();
    for (at, pair) in pairs.iter().enumerate() {
        let text = texts[pair.reading];
        let first = pairs[..at].iter().find(|known| texts[known.reading] == text);
        if let Some(first) = first {
            // The second face is the nearest of the others.
            let is_clear = pair.distance >= CLEARLY_FURTHER * first.distance;
            owners.entry(text).or_insert_with(|| is_clear.then_some(first.face));
        }
    }
    owners
}

/// Returns the distance from the chin to the centre of a reading, in sizes of the face; `None` where nobody wears a bib.
fn distance(size: PhotoSize, face: &BoundingBox, reading: &BoundingBox) -> Option<f64> {
    let (across, down) = (f64::from(size.width), f64::from(size.height));
    let unit = (face.width * across).max(HEIGHT_FRACTION * face.height * down);
    let middle = |place: &BoundingBox| (place.left + place.width / 2.0) * across;
    let aside = (middle(reading) - middle(face)).abs() / unit;
    let chin = (face.top + face.height) * down;
    let below = ((reading.top + reading.height / 2.0) * down - chin) / unit;
    let is_on_the_chest = aside <= MAX_ASIDE && (MIN_BELOW_CHIN..=MAX_BELOW_CHIN).contains(&below);
    is_on_the_chest.then(|| aside.hypot(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice as wide as high, so that a mistaken side shows.
    const SIZE: PhotoSize = PhotoSize { width: 2000, height: 1000 };

    /// A box by its pixels.
    fn pixels(left: f64, top: f64, width: f64, height: f64) -> BoundingBox {
        BoundingBox { top: top / 1000.0, left: left / 2000.0, width: width / 2000.0, height: height / 1000.0 }
    }

    /// A box of ten pixels around a point.
    fn around(x: f64, y: f64) -> BoundingBox {
        pixels(x - 5.0, y - 5.0, 10.0, 10.0)
    }

    fn reading(text: &str, confidence: f64, place: BoundingBox) -> BibReading {
        BibReading { text: text.into(), confidence, bounding_box: place }
    }

    fn bibs_of(faces: &[BoundingBox], readings: &[BibReading]) -> Vec<Option<String>> {
        let mut photo = PhotoReadings::new(SIZE, None);
        readings.iter().for_each(|reading| photo.add(reading.clone()));
        let mut bibs = vec![None; faces.len()];
        for (face, worn) in photo.match_faces(faces) {
            bibs[face] = Some(worn.text.to_owned());
        }
        bibs
    }

    #[test]
    fn a_bib_is_on_the_chest_below_its_face() {
        // The middle at 1000, the chin at 200, and 100 pixels to the unit.
        let face = pixels(950.0, 100.0, 100.0, 100.0);
        let is_worn = |x, y| bibs_of(&[face], &[reading("12", 0.95, around(x, y))]) == [Some("12".into())];
        assert!(is_worn(1000.0, 261.0) && !is_worn(1000.0, 259.0));
        assert!(is_worn(1000.0, 699.0) && !is_worn(1000.0, 701.0));
        assert!(is_worn(1129.0, 400.0) && !is_worn(1131.0, 400.0));
        assert!(is_worn(871.0, 400.0) && !is_worn(869.0, 400.0));
    }

    #[test]
    fn a_narrow_face_is_measured_by_its_height() {
        // 200 pixels high: 160 to the unit.
        let face = pixels(990.0, 0.0, 20.0, 200.0);
        let is_worn = |y| bibs_of(&[face], &[reading("12", 0.95, around(1000.0, y))]) == [Some("12".into())];
        assert!(is_worn(297.0) && !is_worn(295.0));
    }

    #[test]
    fn uncertain_and_short_readings_are_no_bibs_and_zeros_in_front_do_not_count() {
        let face = pixels(950.0, 100.0, 100.0, 100.0);
        let bib = |text, confidence| {
            bibs_of(&[face], &[reading(text, confidence, around(1000.0, 400.0))]).remove(0)
        };
        assert_eq!(bib("0891", 0.9), Some("891".to_owned()));
        assert_eq!(bib("0891", 0.899), None);
        assert_eq!(bib("8", 0.99), None);
        assert_eq!(bib("00", 0.99), None);
    }

    #[test]
    fn each_reading_belongs_to_the_nearest_face_and_each_face_has_one() {
        let (left, right) = (pixels(900.0, 100.0, 100.0, 100.0), pixels(1000.0, 100.0, 100.0, 100.0));
        let near_right = reading("11", 0.95, around(1010.0, 350.0));
        assert_eq!(bibs_of(&[left, right], std::slice::from_ref(&near_right)), [None, Some("11".into())]);
        let lower = reading("22", 0.95, around(1000.0, 500.0));
        let both = [lower, near_right];
        assert_eq!(bibs_of(&[left, right], &both), [Some("22".into()), Some("11".into())]);
        assert_eq!(bibs_of(&[right], &both), [Some("11".into())]);
    }

    #[test]
    fn a_text_that_two_faces_would_wear_is_that_of_the_clearly_nearest_or_nobodys() {
        let (left, right) = (pixels(900.0, 100.0, 100.0, 100.0), pixels(1000.0, 100.0, 100.0, 100.0));
        let (chest, belt) =
            (reading("11", 0.95, around(950.0, 350.0)), reading("011", 0.95, around(960.0, 600.0)));
        let twice = [chest, belt];
        assert_eq!(bibs_of(&[left, right], &twice), [Some("11".into()), None]);
        let [chest, belt] = twice;
        let own = reading("22", 0.95, around(1060.0, 660.0));
        assert_eq!(bibs_of(&[left, right], &[chest, belt, own]), [Some("11".into()), Some("22".into())]);
        let year = |x| reading("2024", 0.95, around(x, 350.0));
        assert_eq!(bibs_of(&[left, right], &[year(950.0), year(1050.0)]), [None, None]);
        assert_eq!(bibs_of(&[left], &[year(950.0), year(960.0)]), [Some("2024".into())]);
    }

    #[test]
    fn a_bib_has_the_hour_of_its_photo() {
        let face = pixels(950.0, 100.0, 100.0, 100.0);
        let worn_at = |taken_at| {
            let mut photo = PhotoReadings::new(SIZE, taken_at);
            photo.add(reading("34", 0.95, around(1000.0, 400.0)));
            photo.match_faces(&[face])[0].1.taken_hour
        };
        assert_eq!(worn_at(Some(7 * MICROS_PER_HOUR + 1)), Some(7));
        assert_eq!(worn_at(Some(-1)), Some(-1));
        assert_eq!(worn_at(None), None);
    }
}
