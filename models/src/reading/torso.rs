//! Where a runner wears the bib: below the chin, in units of the face. Knows nothing of text.
//!
//! The unit `u` is the width of the face, or .8 of its height where that is more: bibs of all 177 labelled runners lie
//! from .86 u to 5.01 u under the chin, their digits are about .54 u high.

use photofinish_kernels::frame::Size;
use photofinish_kernels::geometry::Rect;

use crate::traits::FaceBox;

/// Height of a face over its width, inverted.
const FACE_WIDTH_PER_HEIGHT: f32 = 0.8;

/// Runners whose unit is smaller, in pixels, carry no readable bib.
const MIN_UNIT: f32 = 20.0;

/// Where most of a torso is, in units: half the width, and the ends below the chin.
const CORE: (f32, f32, f32) = (1.2, 0.9, 4.6);

/// A runner gets no look when this part of the core lies in the region of another ...
const COVERED_PART: f32 = 0.98;

/// ... whose unit is less than this many times larger, so that the text there has about the scale it needs.
const MAX_UNIT_RATIO: f32 = 2.0;

/// Smaller regions, in pixels, are no torsos.
const MIN_REGION: Size = Size { width: 16, height: 10 };

/// Text is never enlarged more than this: beyond, there is nothing new to see.
const MAX_ENLARGEMENT: f32 = 4.0;

/// How a torso is looked at. Lengths are units, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TorsoPass {
    /// From the middle to either side.
    pub(super) reach: f32,
    /// From the chin to the upper edge.
    pub(super) top: f32,
    /// From the chin to the lower edge.
    pub(super) bottom: f32,
    /// Pixels of the network's input per unit.
    pub(super) scale: f32,
    /// The network's input, in pixels: one shape for all torsos.
    pub(super) canvas: Size,
}

/// The look that every runner gets: digits come to 48 pixels.
pub(super) const FIRST_PASS: TorsoPass =
    TorsoPass { reach: 1.45, top: 0.7, bottom: 5.06, scale: 88.0, canvas: Size { width: 256, height: 384 } };

/// The look at those in whose torso the first saw text but no bib: wider and larger.
pub(super) const SECOND_PASS: TorsoPass =
    TorsoPass { reach: 1.7, top: 0.8, bottom: 5.0, scale: 112.0, canvas: Size { width: 384, height: 480 } };

/// Somebody who may wear a bib. Pixels of the photo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Runner {
    /// One unit.
    pub(super) unit: f32,
    /// Middle of the face, from the left.
    pub(super) middle: f32,
    /// Lower edge of the face, from the top.
    pub(super) chin: f32,
}

/// A part of a photo, in whole pixels, never empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Region {
    /// From the left.
    pub(super) left: u32,
    /// From the top.
    pub(super) top: u32,
    /// Its sides.
    pub(super) size: Size,
}

/// Who gets a look, the largest first. One whose torso is seen with another's gets none of its own.
pub(super) fn select_runners(faces: &[FaceBox], photo: Size) -> Vec<Runner> {
    let mut all: Vec<Runner> = faces
        .iter()
        .map(|face| Runner::from_face(&face.rect))
        .filter(|runner| runner.unit >= MIN_UNIT)
        .collect();
    all.sort_by(|a, b| b.unit.total_cmp(&a.unit));
    let mut kept: Vec<(Runner, Rect)> = Vec::with_capacity(all.len());
    for runner in all {
        let Some(region) = runner.region(&FIRST_PASS, photo) else { continue };
        let core = runner.core(photo);
        let is_seen_with = |(other, region): &(Runner, Rect)| {
            other.unit / runner.unit < MAX_UNIT_RATIO
                && core.intersection_area(region) >= COVERED_PART * core.area()
        };
        if !kept.iter().any(is_seen_with) {
            kept.push((runner, region.rect()));
        }
    }
    kept.into_iter().map(|(runner, _)| runner).collect()
}

impl Runner {
    fn from_face(face: &Rect) -> Self {
        Self {
            unit: face.width().max(FACE_WIDTH_PER_HEIGHT * face.height()),
            middle: (face.left + face.right) / 2.0,
            chin: face.bottom,
        }
    }

    /// The part of the photo that a look sees; none when too little of it is in the photo.
    pub(super) fn region(&self, look: &TorsoPass, photo: Size) -> Option<Region> {
        let within = |place: f32, side: u32| place.clamp(0.0, side as f32).round_ties_even() as u32;
        let left = within(self.middle - look.reach * self.unit, photo.width);
        let right = within(self.middle + look.reach * self.unit, photo.width);
        let top = within(self.chin + look.top * self.unit, photo.height);
        let bottom = within(self.chin + look.bottom * self.unit, photo.height);
        let size = Size { width: right.checked_sub(left)?, height: bottom.checked_sub(top)? };
        let is_large = size.width >= MIN_REGION.width && size.height >= MIN_REGION.height;
        is_large.then_some(Region { left, top, size })
    }

    /// Pixels of the network's input per pixel of the photo.
    pub(super) fn zoom(&self, look: &TorsoPass) -> f32 {
        (look.scale / self.unit).min(MAX_ENLARGEMENT)
    }

    fn core(&self, photo: Size) -> Rect {
        let (half_width, top, bottom) = CORE;
        Rect {
            left: (self.middle - half_width * self.unit).max(0.0),
            top: self.chin + top * self.unit,
            right: (self.middle + half_width * self.unit).min(photo.width as f32),
            bottom: (self.chin + bottom * self.unit).min(photo.height as f32),
        }
    }
}

impl Region {
    /// The same in fractions of pixels.
    pub(super) fn rect(&self) -> Rect {
        let (left, top) = (self.left as f32, self.top as f32);
        Rect { left, top, right: left + self.size.width as f32, bottom: top + self.size.height as f32 }
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::Point;

    use super::*;

    const PHOTO: Size = Size { width: 1000, height: 800 };

    fn face(left: f32, top: f32, width: f32, height: f32) -> FaceBox {
        let rect = Rect { left, top, right: left + width, bottom: top + height };
        FaceBox { rect, landmarks: [Point::default(); 5], score: 0.9 }
    }

    #[test]
    fn a_canvas_fits_its_pass_rounded_up_to_a_multiple_of_32() {
        for look in [FIRST_PASS, SECOND_PASS] {
            let width = (2.0 * look.reach * look.scale).round() as u32;
            let height = ((look.bottom - look.top) * look.scale).round() as u32;
            let canvas = Size { width: width.div_ceil(32) * 32, height: height.div_ceil(32) * 32 };
            assert_eq!(canvas, look.canvas);
        }
    }

    #[test]
    fn the_region_starts_below_the_chin() {
        let [runner] = select_runners(&[face(480.0, 100.0, 40.0, 50.0)], PHOTO)[..] else {
            panic!("one runner")
        };
        assert_eq!(runner, Runner { unit: 40.0, middle: 500.0, chin: 150.0 });
        let region = runner.region(&FIRST_PASS, PHOTO).unwrap();
        assert_eq!(region, Region { left: 442, top: 178, size: Size { width: 116, height: 174 } });
        assert_eq!(runner.zoom(&FIRST_PASS), 2.2);
    }

    #[test]
    fn a_region_is_clipped_to_the_photo_and_none_below_it() {
        let runner = Runner { unit: 100.0, middle: 30.0, chin: 600.0 };
        let region = runner.region(&FIRST_PASS, PHOTO).unwrap();
        assert_eq!(region, Region { left: 0, top: 670, size: Size { width: 175, height: 130 } });
        let low = Runner { chin: 725.0, ..runner };
        assert_eq!(low.region(&FIRST_PASS, PHOTO), None);
        let beyond = Runner { chin: 900.0, ..runner };
        assert_eq!(beyond.region(&FIRST_PASS, PHOTO), None);
    }

    #[test]
    fn a_long_face_counts_by_its_height_and_small_ones_not_at_all() {
        let found = select_runners(&[face(100.0, 100.0, 30.0, 50.0), face(700.0, 100.0, 19.0, 24.0)], PHOTO);
        assert_eq!(found.iter().map(|runner| runner.unit).collect::<Vec<_>>(), [40.0]);
    }

    #[test]
    fn a_torso_covered_by_another_of_similar_scale_gets_no_pass() {
        let front = face(480.0, 100.0, 60.0, 60.0);
        let behind = face(490.0, 130.0, 40.0, 40.0);
        let far_behind = face(497.0, 150.0, 25.0, 25.0);
        let beside = face(600.0, 100.0, 55.0, 55.0);
        let units = |faces: &[FaceBox]| -> Vec<f32> {
            select_runners(faces, PHOTO).iter().map(|runner| runner.unit).collect()
        };
        assert_eq!(units(&[behind, front]), [60.0]);
        assert_eq!(units(&[far_behind, front]), [60.0, 25.0]);
        assert_eq!(units(&[beside, front]), [60.0, 55.0]);
    }
}
