//! Which bib a face wears: the reading below it. Computed from the stored boxes whenever faces are read into memory, so
//! that it holds for photos of every version of the service. Contains no SQL.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::model::ids::PhotoId;
use crate::model::photo::{BoundingBox, PhotoSize};
use crate::search::selfie::WornBib;

/// The least confidence and length of a reading that counts as somebody's bib.
const MIN_CONFIDENCE: f64 = 0.9;
const MIN_CHARACTERS: usize = 2;

/// Where the centre of a bib may be, in units of [`unit`]: to the sides of the middle of the face, and below the chin.
const MAX_ASIDE: f64 = 1.3;
const MIN_BELOW_CHIN: f64 = 0.6;
const MAX_BELOW_CHIN: f64 = 5.0;

/// A unit is the width of the face, or this fraction of its height if that is more: a turned face is narrow.
const HEIGHT_FRACTION: f64 = 0.8;

const MICROS_PER_HOUR: i64 = 3_600_000_000;

/// A bib that was read in a photo.
#[derive(Clone, Debug)]
pub(crate) struct BibReading {
    /// As it was read.
    pub(crate) text: String,
    /// The reader's score, 0 to 1.
    pub(crate) confidence: f64,
    pub(crate) bounding_box: BoundingBox,
    pub(crate) photo: ReadPhoto,
}

/// What a reading knows of its photo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPhoto {
    pub(crate) size: PhotoSize,
    /// Microseconds since 1970.
    pub(crate) taken_at: Option<i64>,
}

/// The bibs of an album's faces, by the faces' numbers in the database.
#[derive(Default)]
pub(crate) struct FaceBibs {
    texts: Vec<Arc<str>>,
    by_face: HashMap<i64, StoredBib>,
}

#[derive(Clone, Copy)]
struct StoredBib {
    text: u32,
    taken_hour: Option<i32>,
}

impl FaceBibs {
    /// Returns the bib of a face.
    pub(crate) fn get(&self, face: i64) -> Option<WornBib<'_>> {
        let StoredBib { text, taken_hour } = *self.by_face.get(&face)?;
        Some(WornBib { text: &self.texts[text as usize], taken_hour })
    }

    /// Returns the allocated memory in bytes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(|text| text.len() + size_of::<Arc<str>>()).sum();
        self.by_face.capacity() * (size_of::<(i64, StoredBib)>() + 1) + texts
    }
}

/// Collects the bibs of an album whose faces and readings arrive photo by photo.
#[derive(Default)]
pub(crate) struct FaceBibsBuilder {
    bibs: FaceBibs,
    numbers: HashMap<Arc<str>, u32>,
    photo: Option<PhotoId>,
    faces: Vec<(i64, BoundingBox)>,
    readings: Vec<BibReading>,
}

impl FaceBibsBuilder {
    /// Adds a detected face, searchable or not: a bib below a blurred face is not that of its neighbour.
    pub(crate) fn add_face(&mut self, photo: PhotoId, face: i64, place: BoundingBox) {
        self.enter(photo);
        self.faces.push((face, place));
    }

    /// Adds a bib that was read.
    pub(crate) fn add_reading(&mut self, photo: PhotoId, reading: BibReading) {
        self.enter(photo);
        if reading.confidence >= MIN_CONFIDENCE && reading.text.chars().count() >= MIN_CHARACTERS {
            self.readings.push(reading);
        }
    }

    /// Returns the bibs of all faces that wear one.
    pub(crate) fn finish(mut self) -> FaceBibs {
        self.assign();
        self.bibs
    }

    fn enter(&mut self, photo: PhotoId) {
        if self.photo != Some(photo) {
            self.assign();
            self.photo = Some(photo);
        }
    }

    /// Assigns the readings of the photo that ends here.
    fn assign(&mut self) {
        let (mut faces, mut readings) = (std::mem::take(&mut self.faces), std::mem::take(&mut self.readings));
        let Some(ReadPhoto { size, taken_at }) = readings.first().map(|reading| reading.photo) else {
            return;
        };
        // The result depends on what is in the photo, not on the order of the rows.
        faces.sort_by(|(_, a), (_, b)| compare_boxes(a, b));
        readings.sort_by(|a, b| {
            compare_boxes(&a.bounding_box, &b.bounding_box).then_with(|| a.text.cmp(&b.text))
        });
        let boxes: Vec<BoundingBox> = faces.iter().map(|(_, place)| *place).collect();
        let places: Vec<BoundingBox> = readings.iter().map(|reading| reading.bounding_box).collect();
        let taken_hour = taken_at.and_then(|micros| i32::try_from(micros.div_euclid(MICROS_PER_HOUR)).ok());
        for (face, reading) in match_readings(size, &boxes, &places) {
            let text = readings[reading].text.trim_start_matches('0');
            if !text.is_empty() {
                let text = self.number(text);
                self.bibs.by_face.insert(faces[face].0, StoredBib { text, taken_hour });
            }
        }
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let (text, number): (Arc<str>, u32) = (text.into(), self.bibs.texts.len() as u32);
        self.bibs.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }
}

fn compare_boxes(a: &BoundingBox, b: &BoundingBox) -> Ordering {
    let sides = |place: &BoundingBox| [place.top, place.left, place.width, place.height];
    let (a, b) = (sides(a), sides(b));
    a.iter().zip(&b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns pairs of a face and a reading below it, each in one pair at most, the nearest first.
fn match_readings(size: PhotoSize, faces: &[BoundingBox], readings: &[BoundingBox]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for (face, face_box) in faces.iter().enumerate() {
        for (reading, reading_box) in readings.iter().enumerate() {
            pairs.extend(distance(size, face_box, reading_box).map(|distance| (distance, face, reading)));
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let (mut used_faces, mut used_readings) = (vec![false; faces.len()], vec![false; readings.len()]);
    pairs.retain(|(_, face, reading)| {
        let is_free = !used_faces[*face] && !used_readings[*reading];
        if is_free {
            (used_faces[*face], used_readings[*reading]) = (true, true);
        }
        is_free
    });
    pairs.into_iter().map(|(_, face, reading)| (face, reading)).collect()
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
        let photo = ReadPhoto { size: SIZE, taken_at: Some(7 * MICROS_PER_HOUR + 1) };
        BibReading { text: text.into(), confidence, bounding_box: place, photo }
    }

    fn bibs_of(faces: &[BoundingBox], readings: &[BibReading]) -> Vec<Option<String>> {
        let mut builder = FaceBibsBuilder::default();
        let photo = PhotoId::generate();
        for reading in readings {
            builder.add_reading(photo, reading.clone());
        }
        for (number, place) in (0..).zip(faces) {
            builder.add_face(photo, number, *place);
        }
        let bibs = builder.finish();
        (0..faces.len() as i64).map(|face| bibs.get(face).map(|bib| bib.text.to_owned())).collect()
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
    fn photos_do_not_mix_and_their_hour_is_kept() {
        let mut builder = FaceBibsBuilder::default();
        let (a, b) = (PhotoId::generate(), PhotoId::generate());
        let face = pixels(950.0, 100.0, 100.0, 100.0);
        builder.add_face(a, 1, face);
        builder.add_face(b, 2, face);
        builder.add_reading(b, reading("34", 0.95, around(1000.0, 400.0)));
        let bibs = builder.finish();
        assert_eq!(bibs.get(1), None);
        assert_eq!(bibs.get(2), Some(WornBib { text: "34", taken_hour: Some(7) }));
    }
}
