//! The stage `detect`: detects faces, also where the album wants only texts, as bibs are below faces. The whole frame is
//! one step, each grid cell another.

use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::{FaceBox, FaceDetector, ModelError};
use photofinish_store::model::album::AlbumConfig;

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::stages::grid::{self, Cell, CellGrid};
use crate::stages::inference::{BatchInference, SelfTest, grey_frame, grey_picture};
use crate::stages::photo::{DetectedPhoto, SizedPhoto};

/// Long side of the first pass, pixels, for every photo. On race photos it finds all labelled faces, in a quarter of the
/// time of 1280.
const FIRST_PASS_LONG_SIDE: u32 = 640;

/// Long side of the second pass, pixels, for crowds only: it takes about 60 ms and finds 16 % more faces in crowds, too
/// expensive for every photo.
const SECOND_PASS_LONG_SIDE: u32 = 1280;

/// A photo is a crowd when it has at least this many faces ..
const CROWD_MIN_FACES: usize = 4;

/// .. and the median face is smaller than this, in pixels of the first pass: the detector finds no faces below about 10
/// pixels, so some were probably missed. Measured on twelve camera photos: 84 faces with 32, 71 with 24.
const CROWD_MAX_MEDIAN_FACE: f32 = 32.0;

/// The stage `detect`; one per thread.
pub(crate) struct Detect {
    pub(crate) detector: Box<dyn FaceDetector>,
    pub(crate) resizer: Resizer,
    /// The most cells per photo in grid mode.
    pub(crate) max_cells: u32,
}

type FaceBoxes = Vec<FaceBox>;

/// Detection in whole frames.
fn frame_inference<'a, const LONG_SIDE: u32>() -> BatchInference<dyn FaceDetector, Frame<'a>, FaceBoxes> {
    BatchInference {
        run: |detector, frames| detector.detect(frames, LONG_SIDE),
        self_test: |detector, frame, kind| self_test(detector, kind, frame.size(), LONG_SIDE),
    }
}

/// Detection in grid cells.
const CELL_INFERENCE: BatchInference<dyn FaceDetector, Cell, FaceBoxes> = BatchInference {
    run: detect_in_cells,
    self_test: |detector, cell, kind| self_test(detector, kind, cell.picture.size(), cell.long_side()),
};

fn self_test(
    detector: &mut (dyn FaceDetector + 'static),
    kind: SelfTest,
    size: Size,
    long_side: u32,
) -> Result<(), ModelError> {
    if kind == SelfTest::Minimal {
        return detector.detect(&[grey_frame()], FIRST_PASS_LONG_SIDE).map(drop);
    }
    let picture = grey_picture(size);
    detector.detect(&[picture.frame()], long_side).map(drop)
}

fn detect_in_cells(
    detector: &mut (dyn FaceDetector + 'static),
    cells: &[Cell],
) -> Result<Vec<FaceBoxes>, ModelError> {
    let frames: Vec<Frame<'_>> = cells.iter().map(|cell| cell.picture.frame()).collect();
    let long_side = cells.iter().map(|cell| cell.long_side()).max().unwrap_or(FIRST_PASS_LONG_SIDE);
    detector.detect(&frames, long_side)
}

/// What a step looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// Nothing: the album wants neither faces nor texts.
    Nothing,
    /// The whole frame, for every photo.
    Frame,
    /// The whole frame at a larger scale.
    Crowd,
    /// The cell of this number.
    Cell(CellGrid, usize),
}

/// The second pass of a photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecondPass {
    None,
    Crowd,
    Cells(CellGrid),
}

impl SecondPass {
    fn step_count(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crowd => 1,
            Self::Cells(grid) => grid.cell_count(),
        }
    }
}

impl SteppedStage for Detect {
    type In = SizedPhoto;
    type Part = FaceBoxes;
    type Out = DetectedPhoto;

    fn step(
        &mut self,
        batch: &[SizedPhoto],
        parts: &[Vec<FaceBoxes>],
    ) -> Result<StepResults<FaceBoxes, DetectedPhoto>, Outage> {
        let photos = || batch.iter().zip(parts);
        let regions: Vec<Region> = photos().map(|(photo, parts)| self.next_region(photo, parts)).collect();
        let frames_of = |region: Region| -> Vec<Frame<'_>> {
            let selected = batch.iter().zip(&regions).filter(|(_, of)| **of == region);
            selected.map(|(photo, _)| photo.frame.frame()).collect()
        };
        let mut cells = Vec::new();
        for (photo, region) in batch.iter().zip(&regions) {
            if let Region::Cell(grid, index) = region {
                cells.extend(grid.cut(photo.frame.frame(), *index, &mut self.resizer));
            }
        }
        let detector = self.detector.as_mut();
        let mut first = frame_inference::<FIRST_PASS_LONG_SIDE>()
            .infer_batch(detector, &frames_of(Region::Frame))?
            .into_iter();
        let mut second = frame_inference::<SECOND_PASS_LONG_SIDE>()
            .infer_batch(detector, &frames_of(Region::Crowd))?
            .into_iter();
        let in_cells = CELL_INFERENCE.infer_batch(detector, &cells)?;
        let mut in_cells =
            cells.iter().zip(in_cells).map(|(cell, found)| found.map(|found| to_frame(cell, found)));
        let mut found_in = |region: &Region| match region {
            Region::Nothing => Some(Ok(Vec::new())),
            Region::Frame => first.next(),
            Region::Crowd => second.next(),
            Region::Cell(..) => in_cells.next(),
        };
        let found: Vec<Result<FaceBoxes, Poison>> = regions
            .iter()
            .map(|region| found_in(region).expect("one result per input, checked by `BatchInference`"))
            .collect();
        let steps = photos().zip(found);
        Ok(steps
            .map(|((photo, parts), found)| found.map(|found| self.end_step(photo, parts, found)))
            .collect())
    }
}

impl Detect {
    fn next_region(&self, photo: &SizedPhoto, parts: &[FaceBoxes]) -> Region {
        if !needs_faces(&photo.metadata.lease.config) {
            return Region::Nothing;
        }
        match (parts.len(), self.second_pass(photo, parts)) {
            (0, _) | (_, SecondPass::None) => Region::Frame,
            (_, SecondPass::Crowd) => Region::Crowd,
            (step, SecondPass::Cells(grid)) => Region::Cell(grid, step - 1),
        }
    }

    /// The pass after the first, whose faces are the first part: in grid cells in grid mode, at a larger scale in crowds,
    /// else none.
    fn second_pass(&self, photo: &SizedPhoto, parts: &[FaceBoxes]) -> SecondPass {
        let Some(first_pass) = parts.first() else { return SecondPass::None };
        let frame = photo.frame.frame();
        match grid::grid_of(&photo.metadata.lease.config.face) {
            Some(grid) => SecondPass::Cells(CellGrid::bounded(grid, frame.size(), self.max_cells)),
            None if is_crowd(first_pass, frame.long_side()) => SecondPass::Crowd,
            None => SecondPass::None,
        }
    }

    /// Adds the faces of a step to those of the steps before it.
    fn end_step(
        &self,
        photo: &SizedPhoto,
        parts: &[FaceBoxes],
        found: FaceBoxes,
    ) -> Step<FaceBoxes, DetectedPhoto> {
        let mut parts = parts.to_vec();
        parts.push(found);
        let is_done = !needs_faces(&photo.metadata.lease.config)
            || parts.len() > self.second_pass(photo, &parts).step_count();
        match parts.pop() {
            Some(found) if !is_done => Step::Part(found),
            last => {
                parts.extend(last);
                Step::Done(DetectedPhoto { sized: photo.clone(), faces: merge_faces(parts) })
            }
        }
    }
}

/// Returns the faces that are whole in their cell, in pixels of the frame.
fn to_frame(cell: &Cell, found: FaceBoxes) -> FaceBoxes {
    found.iter().filter(|face| cell.contains_whole(&face.rect)).map(|face| cell.face_to_frame(face)).collect()
}

fn needs_faces(config: &AlbumConfig) -> bool {
    config.face.enabled || config.text.enabled
}

/// Whether a second pass is likely to find more faces; never when the frame has no more pixels than the first pass used.
fn is_crowd(found: &[FaceBox], frame_long_side: u32) -> bool {
    if found.len() < CROWD_MIN_FACES || frame_long_side <= FIRST_PASS_LONG_SIDE {
        return false;
    }
    let scale = FIRST_PASS_LONG_SIDE as f32 / frame_long_side as f32;
    let mut sides: Vec<f32> =
        found.iter().map(|face| face.rect.width().max(face.rect.height()) * scale).collect();
    sides.sort_by(f32::total_cmp);
    sides[sides.len() / 2] < CROWD_MAX_MEDIAN_FACE
}

/// Merges the faces of all steps: of duplicates the one with the highest score; sorted by score, highest first. Those of a
/// single step stay as they are.
fn merge_faces(mut parts: Vec<FaceBoxes>) -> FaceBoxes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut all: FaceBoxes = parts.into_iter().flatten().collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    grid::remove_duplicates(all, |face| face.rect)
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::{Point, Rect};
    use photofinish_kernels::image::frame::Picture;
    use photofinish_models::traits::ModelIdentity;
    use photofinish_store::model::album::Grid;
    use photofinish_store::model::photo::FailureReason;

    use super::*;

    /// A detector that fails on frames wider than `max_width`, at more than `max_long_side`, and on white pictures.
    struct SmallDetector {
        max_width: u32,
        max_long_side: u32,
    }

    impl FaceDetector for SmallDetector {
        fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<FaceBoxes>, ModelError> {
            let fails = |frame: &Frame<'_>| frame.width() > self.max_width || frame.pixels()[0] == 255;
            if long_side > self.max_long_side || frames.iter().any(fails) {
                return Err(ModelError::Inference { name: "small".into(), detail: "no".into() });
            }
            Ok(vec![Vec::new(); frames.len()])
        }

        fn identity(&self) -> &ModelIdentity {
            unreachable!("tests do not use the identity")
        }
    }

    fn picture(shade: u8, width: u32, height: u32) -> Picture {
        Picture::new(vec![shade; (width * height * 3) as usize], width, height).unwrap()
    }

    #[test]
    fn a_detector_that_lacks_memory_for_a_frame_is_an_outage() {
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_PASS_LONG_SIDE };
        let (grey, wide) = (picture(10, 100, 80), picture(10, 101, 80));
        assert!(
            frame_inference::<FIRST_PASS_LONG_SIDE>().infer_batch(&mut small, &[grey.frame()]).unwrap()[0]
                .is_ok()
        );
        assert!(frame_inference::<FIRST_PASS_LONG_SIDE>().infer_batch(&mut small, &[wide.frame()]).is_err());
        assert!(
            frame_inference::<FIRST_PASS_LONG_SIDE>()
                .infer_batch(&mut small, &[grey.frame(), wide.frame()])
                .is_err()
        );
    }

    #[test]
    fn a_detector_that_lacks_memory_for_the_second_pass_is_an_outage() {
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_PASS_LONG_SIDE };
        assert!(
            frame_inference::<SECOND_PASS_LONG_SIDE>()
                .infer_batch(&mut small, &[picture(10, 100, 80).frame()])
                .is_err()
        );
    }

    #[test]
    fn a_detector_that_lacks_memory_for_a_cell_is_an_outage() {
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_PASS_LONG_SIDE };
        let grid = Grid { columns: 1, rows: 1, cell_width: 200, cell_height: 200 };
        let picture = picture(10, 150, 100);
        let grid = CellGrid::bounded(&grid, picture.size(), 16);
        let cell = grid.cut(picture.frame(), 0, &mut Resizer::default()).unwrap();
        assert!(CELL_INFERENCE.infer_batch(&mut small, &[cell]).is_err());
    }

    #[test]
    fn a_frame_that_fails_detection_while_a_grey_one_of_its_size_passes_is_poison() {
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_PASS_LONG_SIDE };
        let white = picture(255, 100, 80);
        let results =
            frame_inference::<FIRST_PASS_LONG_SIDE>().infer_batch(&mut small, &[white.frame()]).unwrap();
        assert_eq!(results[0].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
    }

    fn face(left: f32, side: f32, score: f32) -> FaceBox {
        let rect = Rect { left, top: 0.0, right: left + side, bottom: side };
        FaceBox { rect, landmarks: [Point::default(); 5], score }
    }

    #[test]
    fn many_small_faces_are_a_crowd() {
        let small: Vec<FaceBox> = (0..5).map(|i| face(i as f32 * 100.0, 60.0, 0.9)).collect();
        assert!(is_crowd(&small, 2048), "60 of 2048 pixels are 19 of 640");
        assert!(!is_crowd(&small, 1024), "60 of 1024 pixels are 38 of 640");
        assert!(!is_crowd(&small[..3], 2048));
        assert!(!is_crowd(&small, 640), "a frame of 640 pixels has no more detail");
    }

    #[test]
    fn a_face_found_in_both_passes_is_returned_once() {
        let faces =
            merge_faces(vec![vec![face(0.0, 20.0, 0.7)], vec![face(1.0, 20.0, 0.9), face(50.0, 10.0, 0.8)]]);
        assert_eq!(faces.iter().map(|face| face.score).collect::<Vec<_>>(), [0.9, 0.8]);
    }
}
