//! Composes labelled photos into frames of many runners: what a start looks like, with every bib known. Each photo is also
//! kept alone, with the same pixels and quality, so that a frame differs from its photos only in their number.

use std::collections::BTreeSet;
use std::path::Path;

use image::RgbImage;

use crate::photos::enlarge::{load_picture, resample};
use crate::photos::labels::LabelledPhoto;
use crate::photos::random::SplitMix;
use crate::photos::{change_brightness, encode_jpeg};

/// Size of a frame in pixels: the pipeline's working size.
const FRAME_WIDTH: u32 = 2048;
const FRAME_HEIGHT: u32 = 1536;

/// What is between the photos.
const BACKGROUND: image::Rgb<u8> = image::Rgb([112, 118, 110]);

/// Part of its place that a photo fills.
const FILLED: [f64; 2] = [0.75, 1.0];

/// Factor of its brightness.
const BRIGHTNESS: [f64; 2] = [0.8, 1.2];

/// JPEG quality.
const QUALITY: [f64; 2] = [80.0, 96.0];

/// A JPEG with its bibs.
#[derive(Clone, Debug)]
pub struct MadePhoto {
    /// The file.
    pub jpeg: Vec<u8>,
    /// Bibs that must be found.
    pub bibs: BTreeSet<String>,
    /// Bibs that may be found or missed.
    pub optional: BTreeSet<String>,
}

/// A frame, and its photos alone.
#[derive(Clone, Debug)]
pub struct CrowdFrame {
    /// All photos in one.
    pub crowd: MadePhoto,
    /// Each photo alone.
    pub alone: Vec<MadePhoto>,
    /// Which photos they are, by their places in the list of which frames are composed.
    pub photos: Vec<usize>,
    /// Photos in a row and in a column.
    pub side: u32,
}

impl CrowdFrame {
    /// Returns which of its photos is there, by fractions of the frame's width and height.
    pub fn photo_at(&self, x: f64, y: f64) -> usize {
        let place = |fraction: f64| ((fraction * f64::from(self.side)) as u32).min(self.side - 1);
        (place(y) * self.side + place(x)) as usize
    }
}

/// Composes all photos into frames of `side * side` of them, in an order and with sizes, places, brightness and quality
/// that depend on the seed. Photos that are left over fill no frame and are left out. No two photos of a frame have a bib
/// in common, as far as their order allows: a bib that is found twice counts once.
///
/// # Errors
/// When a photo cannot be read.
pub fn compose(
    photos: &[LabelledPhoto],
    folder: &Path,
    side: u32,
    seed: u64,
) -> anyhow::Result<Vec<CrowdFrame>> {
    let mut random = SplitMix(seed.wrapping_mul(1000).wrapping_add(u64::from(side)));
    let mut order: Vec<usize> = (0..photos.len()).collect();
    random.shuffle(&mut order);
    let groups = group_without_common_bibs(photos, &order, (side * side) as usize);
    groups.into_iter().map(|group| compose_frame(photos, group, folder, side, &mut random)).collect()
}

/// Fills groups in order; a photo goes into the first group that has room and none of its bibs. Returns the full ones.
fn group_without_common_bibs(photos: &[LabelledPhoto], order: &[usize], size: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &photo in order {
        let has_room = |group: &&mut Vec<usize>| {
            group.len() < size
                && group.iter().all(|other| photos[*other].bibs.is_disjoint(&photos[photo].bibs))
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(photo),
            None => groups.push(vec![photo]),
        }
    }
    groups.retain(|group| group.len() == size);
    groups
}

fn compose_frame(
    photos: &[LabelledPhoto],
    group: Vec<usize>,
    folder: &Path,
    side: u32,
    random: &mut SplitMix,
) -> anyhow::Result<CrowdFrame> {
    let quality = random.uniform(QUALITY[0], QUALITY[1]) as i32;
    let (place_width, place_height) = (FRAME_WIDTH / side, FRAME_HEIGHT / side);
    let mut frame = RgbImage::from_pixel(FRAME_WIDTH, FRAME_HEIGHT, BACKGROUND);
    let mut alone = Vec::with_capacity(group.len());
    for (index, photo) in group.iter().map(|photo| &photos[*photo]).enumerate() {
        let picture = load_picture(&folder.join(&photo.file))?;
        let filled = random.uniform(FILLED[0], FILLED[1]);
        let zoom = filled
            * (f64::from(place_width) / f64::from(picture.width()))
                .min(f64::from(place_height) / f64::from(picture.height()));
        let scaled = |length: u32| ((f64::from(length) * zoom) as u32).max(1);
        let mut picture = resample(&picture, scaled(picture.width()), scaled(picture.height()))?;
        change_brightness(&mut picture, random.uniform(BRIGHTNESS[0], BRIGHTNESS[1]));
        let (column, row) = (index as u32 % side, index as u32 / side);
        let left =
            column * place_width + random.uniform(0.0, f64::from(place_width - picture.width())) as u32;
        let top = row * place_height + random.uniform(0.0, f64::from(place_height - picture.height())) as u32;
        image::imageops::replace(&mut frame, &picture, i64::from(left), i64::from(top));
        let (bibs, optional) = (photo.bibs.clone(), photo.optional.clone());
        alone.push(MadePhoto { jpeg: encode_jpeg(&picture, quality)?, bibs, optional });
    }
    let crowd = MadePhoto {
        jpeg: encode_jpeg(&frame, quality)?,
        bibs: alone.iter().flat_map(|photo| photo.bibs.clone()).collect(),
        optional: alone.iter().flat_map(|photo| photo.optional.clone()).collect(),
    };
    Ok(CrowdFrame { crowd, alone, photos: group, side })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn photo(bib: &str) -> LabelledPhoto {
        LabelledPhoto { file: bib.into(), bibs: [bib.to_owned()].into(), optional: BTreeSet::new() }
    }

    #[test]
    fn photos_with_a_common_bib_are_in_different_frames() {
        let photos = [photo("1"), photo("1"), photo("2"), photo("3"), photo("4")];
        let groups = group_without_common_bibs(&photos, &[0, 1, 2, 3, 4], 2);
        assert_eq!(groups, [[0, 2], [1, 3]], "the last one fills no frame");
    }

    #[test]
    fn a_frame_has_the_bibs_of_its_photos_and_depends_on_the_seed() {
        let folder = tempfile::tempdir().unwrap();
        let photos: Vec<LabelledPhoto> = ["a.png", "b.png", "c.png", "d.png"].map(photo).into();
        for (index, photo) in photos.iter().enumerate() {
            let shade = image::Rgb([40 * index as u8; 3]);
            RgbImage::from_pixel(300, 200, shade).save(folder.path().join(&photo.file)).unwrap();
        }
        let frames = |seed| compose(&photos, folder.path(), 2, seed).unwrap();
        let [frame] = &frames(1)[..] else { panic!("four photos fill one frame") };
        assert_eq!((frame.crowd.bibs.len(), frame.alone.len()), (4, 4));
        for (photo, alone) in frame.photos.iter().zip(&frame.alone) {
            assert_eq!(photos[*photo].bibs, alone.bibs);
        }
        assert_eq!(frame.crowd.jpeg, frames(1)[0].crowd.jpeg);
        assert_ne!(frame.crowd.jpeg, frames(2)[0].crowd.jpeg);
    }
    #[test]
    fn a_place_of_a_frame_has_the_photo_that_was_put_there() {
        let crowd = MadePhoto { jpeg: Vec::new(), bibs: BTreeSet::new(), optional: BTreeSet::new() };
        let frame = CrowdFrame { crowd, alone: Vec::new(), photos: Vec::new(), side: 3 };
        let places = [[0.1, 0.1], [0.5, 0.1], [0.9, 0.3], [0.1, 0.4], [0.5, 0.5], [1.0, 1.0], [-0.01, 1.1]];
        assert_eq!(places.map(|[x, y]| frame.photo_at(x, y)), [0, 1, 2, 3, 4, 8, 6]);
    }
}
