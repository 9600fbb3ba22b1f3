//! Bibs that are hard to read, made from labelled photos: smaller, or with something before them. A start list has most to
//! say about those.

use std::collections::BTreeSet;
use std::path::Path;

use super::encode_jpeg;
use super::enlarge::{load_picture, resample};
use super::labels::{LabelledBib, LabelledPhoto};
use super::random::SplitMix;

/// The height to which bibs are shrunk, pixels.
const SMALL_HEIGHT: u32 = 11;
/// The width of a stripe, a part of the width of its bib.
const STRIPE_WIDTH: f64 = 0.16;
/// The colour of a stripe: that of an arm.
const STRIPE_COLOUR: image::Rgb<u8> = image::Rgb([168, 124, 98]);
/// High, because the photos are changed and written once more.
const QUALITY: i32 = 98;

/// What is done to the bibs of a photo. The rest of it stays as it is, so that faces are found as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Damage {
    /// Resampled to 11 pixels of height and back.
    Shrunk,
    /// A vertical stripe over 16 % of the width, where chance wills.
    Striped,
}

impl Damage {
    /// Damages one bib; `random` places the stripe.
    ///
    /// # Errors
    /// When the box is not within the picture.
    fn apply(
        self,
        picture: &mut image::RgbImage,
        bib: [u32; 4],
        random: &mut SplitMix,
    ) -> anyhow::Result<()> {
        let [left, top, right, bottom] = bib;
        let is_inside =
            left < right && top < bottom && right <= picture.width() && bottom <= picture.height();
        anyhow::ensure!(is_inside, "{bib:?} is not within {:?}", picture.dimensions());
        let (width, height) = (right - left, bottom - top);
        match self {
            Self::Shrunk if height <= SMALL_HEIGHT => {}
            Self::Shrunk => {
                let number = image::imageops::crop_imm(picture, left, top, width, height).to_image();
                let small = resample(&number, (width * SMALL_HEIGHT / height).max(1), SMALL_HEIGHT)?;
                let blurred = resample(&small, width, height)?;
                image::imageops::replace(picture, &blurred, left.into(), top.into());
            }
            Self::Striped => {
                let stripe = ((f64::from(width) * STRIPE_WIDTH).round() as u32).max(1);
                let from = left + random.uniform(0.0, f64::from(width - stripe + 1)) as u32;
                for (x, y) in (from..from + stripe).flat_map(|x| (top..bottom).map(move |y| (x, y))) {
                    picture.put_pixel(x, y, STRIPE_COLOUR);
                }
            }
        }
        Ok(())
    }
}

/// Writes the photos with all their labelled bibs damaged into `to`, under the same names.
///
/// # Errors
/// When a photo is missing or a box is not within it.
pub fn write_damaged(
    damage: Damage,
    photos: &[&LabelledPhoto],
    bibs: &[LabelledBib],
    from: &Path,
    to: &Path,
) -> anyhow::Result<()> {
    let files: BTreeSet<&str> = photos.iter().map(|photo| photo.file.as_str()).collect();
    let mut random = SplitMix(1);
    for file in files {
        let mut picture = load_picture(&from.join(file))?;
        for bib in bibs.iter().filter(|bib| bib.file == file) {
            let pixels = bib.within(picture.dimensions());
            damage.apply(&mut picture, pixels, &mut random)?;
        }
        let path = to.join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(to))?;
        std::fs::write(path, encode_jpeg(&picture, QUALITY)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Black and white columns, one pixel each.
    fn striped() -> image::RgbImage {
        image::RgbImage::from_fn(120, 80, |x, _| image::Rgb([if x % 2 == 0 { 255 } else { 0 }; 3]))
    }

    const BIB: [u32; 4] = [10, 20, 110, 60];

    fn damaged(damage: Damage, seed: u64) -> image::RgbImage {
        let mut picture = striped();
        damage.apply(&mut picture, BIB, &mut SplitMix(seed)).unwrap();
        picture
    }

    #[test]
    fn only_bibs_are_damaged() {
        let whole = striped();
        for damage in [Damage::Shrunk, Damage::Striped] {
            let picture = damaged(damage, 1);
            let differs = |x: u32, y: u32| picture.get_pixel(x, y) != whole.get_pixel(x, y);
            let outside = |x: u32, y: u32| x < BIB[0] || x >= BIB[2] || y < BIB[1] || y >= BIB[3];
            let all = (0..120).flat_map(|x| (0..80).map(move |y| (x, y)));
            assert!(!all.clone().any(|(x, y)| outside(x, y) && differs(x, y)), "{damage:?}");
            assert!(all.clone().any(|(x, y)| differs(x, y)), "{damage:?}");
        }
    }

    #[test]
    fn a_shrunk_bib_has_lost_its_details() {
        let picture = damaged(Damage::Shrunk, 1);
        let value = picture.get_pixel(60, 40).0[0];
        assert!((90..165).contains(&value), "the columns are grey: {value}");
    }

    #[test]
    fn a_stripe_is_where_chance_wills_and_as_wide_as_it_should_be() {
        let places: BTreeSet<u32> = (0..8)
            .map(|seed| {
                let picture = damaged(Damage::Striped, seed);
                let covered: Vec<u32> =
                    (0..120).filter(|&x| *picture.get_pixel(x, 40) == STRIPE_COLOUR).collect();
                assert_eq!(covered.len(), 16);
                covered[0]
            })
            .collect();
        assert!(places.len() > 4, "{places:?}");
    }

    #[test]
    fn a_box_that_is_not_within_its_photo_is_an_error() {
        let error = Damage::Striped.apply(&mut striped(), [0, 0, 500, 10], &mut SplitMix(1)).unwrap_err();
        assert!(error.to_string().contains("500"), "{error}");
    }
}
