//! Computes where a runner wears the bib, from the face. Knows nothing of text.
//!
//! Lengths are in units `u` of the runner: the width of the face, or .8 of its height where that is more. The bibs of all
//! 177 labelled runners are .86 u to 5.01 u below the chin; their digits are about .54 u high.

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::regions::DbParameters;

use super::postprocess::{LIGHT_POSTPROCESS, POSTPROCESS};
use crate::traits::FaceBox;

/// Usual width of a face over its height (step 2).
const FACE_WIDTH_PER_HEIGHT: f32 = 0.8;

/// Least unit in pixels: smaller runners have no readable bib (step 2).
const MIN_UNIT: f32 = 12.0;

/// Runners with a smaller unit are small: few of their bibs can be read, and those not as surely (step 2).
const SMALL_UNIT: f32 = 20.0;

/// Below this unit, digits are less than 22 pixels high and the text detector overlooks more of them (step 13).
const MEDIUM_UNIT: f32 = 40.0;

/// The core of a torso (step 3), in units: half its width, and its upper and lower edge below the chin.
const CORE_HALF_WIDTH: f32 = 1.2;
const CORE_TOP: f32 = 0.9;
const CORE_BOTTOM: f32 = 4.6;

/// A runner gets no pass when this part of the core is inside the region of a larger runner (step 3), ...
const COVERED_PART: f32 = 0.98;

/// ... whose unit is less than this many times larger, so that the text there has about the right scale.
const MAX_UNIT_RATIO: f32 = 2.0;

/// Least size of a region in pixels (step 4).
const MIN_REGION: Size = Size { width: 16, height: 10 };

/// Geometry and scale of one detection pass over a torso. Lengths are in units unless said otherwise.
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
    /// Heights of windows of the canvas, in pixels, lowest first: inputs for torsos of which the gate says where a number is.
    pub(super) window_heights: [u32; 2],
    /// Windows begin at multiples of this many rows.
    pub(super) window_step: u32,
    /// Height around the gate's cells, in cells, that a window shows too.
    pub(super) window_margin: u32,
    /// How the network's map becomes boxes.
    pub(super) postprocess: &'static DbParameters,
}

/// The region of the first pass at half its scale, for the light text detector (step 6).
pub(super) const LIGHT_PASS: TorsoPass = TorsoPass {
    scale: 44.0,
    canvas: Size { width: 128, height: 192 },
    window_heights: [96, 128],
    window_step: 16,
    postprocess: &LIGHT_POSTPROCESS,
    ..FIRST_PASS
};

/// The first pass of the text detector (steps 4 and 5): digits become 48 pixels high.
pub(super) const FIRST_PASS: TorsoPass = TorsoPass {
    reach: 1.45,
    top: 0.7,
    bottom: 5.06,
    scale: 88.0,
    canvas: Size { width: 256, height: 384 },
    window_heights: [192, 256],
    window_step: 32,
    window_margin: 2,
    postprocess: &POSTPROCESS,
};

/// The pass for runners where the first pass saw text but no confident bib (step 13): wider and at a larger scale.
pub(super) const SECOND_PASS: TorsoPass = TorsoPass {
    reach: 1.7,
    top: 0.8,
    bottom: 5.0,
    scale: 112.0,
    canvas: Size { width: 384, height: 480 },
    window_heights: [256, 320],
    window_step: 4,
    window_margin: 2,
    postprocess: &POSTPROCESS,
};

/// The pass for runners who are still without a confident bib although the gate sees a number, and for those whose reading
/// is to be confirmed (step 14): at a smaller scale, at which the text detector sees other numbers than at the two larger ones.
pub(super) const THIRD_PASS: TorsoPass = TorsoPass {
    scale: 56.0,
    canvas: Size { width: 192, height: 256 },
    window_heights: [128, 192],
    ..FIRST_PASS
};

/// Rows of a pass's canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CanvasRows {
    /// The first one.
    pub(super) first: u32,
    /// How many.
    pub(super) count: u32,
}

/// A person who may wear a bib, in pixels of the photo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Runner {
    /// Length of one unit.
    pub(super) unit: f32,
    /// x of the middle of the face.
    pub(super) middle: f32,
    /// y of the lower edge of the face.
    pub(super) chin: f32,
}

/// A non-empty part of a photo, in whole pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Region {
    /// Left edge.
    pub(super) left: u32,
    /// Upper edge.
    pub(super) top: u32,
    /// Width and height.
    pub(super) size: Size,
}

/// Returns the runners that get a pass, largest first; those whose torso another runner's region covers are left out.
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
        let is_covered = |(other, region): &(Runner, Rect)| {
            other.unit / runner.unit < MAX_UNIT_RATIO
                && core.intersection_area(region) >= COVERED_PART * core.area()
        };
        if !kept.iter().any(is_covered) {
            kept.push((runner, region.rect()));
        }
    }
    kept.into_iter().map(|(runner, _)| runner).collect()
}

/// The faces of a photo whose bibs are read.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerBudget {
    /// The faces, in their order.
    pub faces: Vec<FaceBox>,
    /// Runners that are left out.
    pub skipped: usize,
}

/// Chooses the faces of the `max` largest runners of a photo (step 3), because each costs a run of the text network. All
/// faces are kept when there are no more runners.
pub fn limit_runners(faces: &[FaceBox], photo: Size, max: usize) -> RunnerBudget {
    let runners = select_runners(faces, photo);
    let Some(kept) = runners.get(..max).filter(|kept| kept.len() < runners.len()) else {
        return RunnerBudget { faces: faces.to_vec(), skipped: 0 };
    };
    let faces = faces.iter().filter(|face| kept.contains(&Runner::from_face(&face.rect)));
    RunnerBudget { faces: faces.copied().collect(), skipped: runners.len() - kept.len() }
}

impl Runner {
    fn from_face(face: &Rect) -> Self {
        Self {
            unit: face.width().max(FACE_WIDTH_PER_HEIGHT * face.height()),
            middle: (face.left + face.right) / 2.0,
            chin: face.bottom,
        }
    }

    /// Whether the digits of a bib are so low, 11 pixels, that they are easily mistaken for others.
    pub(super) fn is_small(&self) -> bool {
        self.unit < SMALL_UNIT
    }

    /// Whether digits of a bib are so low that the text detector overlooks many.
    pub(super) fn is_medium_or_small(&self) -> bool {
        self.unit < MEDIUM_UNIT
    }

    /// Returns the part of the photo that a pass covers; `None` when too little of it is in the photo.
    pub(super) fn region(&self, pass: &TorsoPass, photo: Size) -> Option<Region> {
        let clamp = |position: f32, side: u32| position.clamp(0.0, side as f32).round_ties_even() as u32;
        let left = clamp(self.middle - pass.reach * self.unit, photo.width);
        let right = clamp(self.middle + pass.reach * self.unit, photo.width);
        let top = clamp(self.chin + pass.top * self.unit, photo.height);
        let bottom = clamp(self.chin + pass.bottom * self.unit, photo.height);
        let size = Size { width: right.checked_sub(left)?, height: bottom.checked_sub(top)? };
        let is_large = size.width >= MIN_REGION.width && size.height >= MIN_REGION.height;
        is_large.then_some(Region { left, top, size })
    }

    /// Pixels of the network's input per pixel of the photo. Torsos of the smallest runners are enlarged by 7.3: that adds no
    /// detail, but the networks see all torsos at one scale, and another pass sees them at another.
    pub(super) fn zoom(&self, pass: &TorsoPass) -> f32 {
        pass.scale / self.unit
    }

    fn core(&self, photo: Size) -> Rect {
        Rect {
            left: (self.middle - CORE_HALF_WIDTH * self.unit).max(0.0),
            top: self.chin + CORE_TOP * self.unit,
            right: (self.middle + CORE_HALF_WIDTH * self.unit).min(photo.width as f32),
            bottom: (self.chin + CORE_BOTTOM * self.unit).min(photo.height as f32),
        }
    }
}

impl Region {
    /// The region's size when it is scaled by `zoom`; at least a pixel.
    pub(super) fn scaled_size(&self, zoom: f32) -> Size {
        let side = |pixels: u32| (pixels as f32 * zoom).round_ties_even().max(1.0) as u32;
        Size { width: side(self.size.width), height: side(self.size.height) }
    }

    /// The region in floating-point pixels.
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
        for pass in [LIGHT_PASS, FIRST_PASS, SECOND_PASS, THIRD_PASS] {
            let width = (2.0 * pass.reach * pass.scale).round() as u32;
            let height = ((pass.bottom - pass.top) * pass.scale).round() as u32;
            let canvas = Size { width: width.div_ceil(32) * 32, height: height.div_ceil(32) * 32 };
            assert_eq!(canvas, pass.canvas);
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
        let found = select_runners(&[face(100.0, 100.0, 30.0, 50.0), face(700.0, 100.0, 11.0, 14.0)], PHOTO);
        assert_eq!(found.iter().map(|runner| runner.unit).collect::<Vec<_>>(), [40.0]);
    }

    #[test]
    fn of_too_many_runners_the_smallest_are_skipped() {
        let faces = [
            face(100.0, 100.0, 30.0, 30.0),
            face(700.0, 100.0, 50.0, 50.0),
            face(400.0, 100.0, 40.0, 40.0),
            face(900.0, 700.0, 8.0, 8.0),
        ];
        let budget = limit_runners(&faces, PHOTO, 2);
        assert_eq!(budget, RunnerBudget { faces: vec![faces[1], faces[2]], skipped: 1 });
        assert_eq!(select_runners(&budget.faces, PHOTO), select_runners(&faces, PHOTO)[..2]);
        assert_eq!(limit_runners(&faces, PHOTO, 3), RunnerBudget { faces: faces.to_vec(), skipped: 0 });
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
