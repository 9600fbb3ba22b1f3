//! The stage `detect`: detects faces, also where the album wants only texts, as bibs are below faces. The whole frame is
//! one step, each cell of a grid or of a closer look another.

use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::{FaceBox, FaceDetector, Look, ModelError};
use photofinish_store::model::album::AlbumConfig;

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::stages::closer_look::CloserLook;
use crate::stages::grid::{self, Cell, CellGrid};
use crate::stages::inference::{BatchInference, SelfTest, grey_frame, grey_picture};
use crate::stages::photo::{DetectedPhoto, SizedPhoto};

/// Long side of the first look, pixels, for every photo. On race photos it finds all labelled faces, in a quarter of the
/// time of 1280.
const FIRST_LOOK_LONG_SIDE: u32 = 640;

/// The stage `detect`; one per thread.
pub(crate) struct Detect {
    pub(crate) detector: Box<dyn FaceDetector>,
    pub(crate) resizer: Resizer,
    /// The most cells per photo in grid mode.
    pub(crate) max_cells: u32,
}

impl Detect {
    /// Runs the network on a grey frame.
    pub(crate) fn try_network(&mut self) -> Result<(), ModelError> {
        self.detector.detect(&[grey_frame()], FIRST_LOOK_LONG_SIDE).map(drop)
    }
}

type FaceBoxes = Vec<FaceBox>;

/// Detection in whole frames.
fn frame_inference<'a>() -> BatchInference<dyn FaceDetector, Frame<'a>, Look> {
    BatchInference {
        run: |detector, frames| detector.look(frames, FIRST_LOOK_LONG_SIDE),
        self_test: |detector, frame, kind| self_test(detector, kind, frame.size(), FIRST_LOOK_LONG_SIDE),
    }
}

/// Detection in cells.
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
        return detector.detect(&[grey_frame()], FIRST_LOOK_LONG_SIDE).map(drop);
    }
    let picture = grey_picture(size);
    detector.detect(&[picture.frame()], long_side).map(drop)
}

fn detect_in_cells(
    detector: &mut (dyn FaceDetector + 'static),
    cells: &[Cell],
) -> Result<Vec<FaceBoxes>, ModelError> {
    let frames: Vec<Frame<'_>> = cells.iter().map(|cell| cell.picture.frame()).collect();
    let long_side = cells.iter().map(|cell| cell.long_side()).max().unwrap_or(FIRST_LOOK_LONG_SIDE);
    detector.detect(&frames, long_side)
}

/// What a step looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// Nothing: the album wants neither faces nor texts.
    Nothing,
    /// The whole frame, for every photo.
    Frame,
    /// A cell of a grid, or a part of a closer look.
    Cell,
}

/// What to look at after the whole frame.
enum Cells {
    Grid(CellGrid),
    Parts(CloserLook),
}

impl Cells {
    fn count(&self) -> usize {
        match self {
            Self::Grid(grid) => grid.cell_count(),
            Self::Parts(look) => look.parts.len(),
        }
    }
}

impl SteppedStage for Detect {
    type In = SizedPhoto;
    type Part = Look;
    type Out = DetectedPhoto;

    fn step(
        &mut self,
        batch: &[SizedPhoto],
        parts: &[Vec<Look>],
    ) -> Result<StepResults<Look, DetectedPhoto>, Outage> {
        let photos = || batch.iter().zip(parts);
        let mut cells = Vec::new();
        let regions: Vec<Region> =
            photos().map(|(photo, parts)| self.next_region(photo, parts, &mut cells)).collect();
        let frames: Vec<Frame<'_>> = batch
            .iter()
            .zip(&regions)
            .filter(|(_, region)| **region == Region::Frame)
            .map(|(photo, _)| photo.frame.frame())
            .collect();
        let detector = self.detector.as_mut();
        let mut in_frames = frame_inference().infer_batch(detector, &frames)?.into_iter();
        let in_cells = CELL_INFERENCE.infer_batch(detector, &cells)?;
        let mut in_cells =
            cells.iter().zip(in_cells).map(|(cell, found)| found.map(|found| to_frame(cell, found)));
        let mut found_in = |region: &Region| match region {
            Region::Nothing => Some(Ok(Look::default())),
            Region::Frame => in_frames.next(),
            Region::Cell => in_cells.next(),
        };
        let found: Vec<Result<Look, Poison>> = regions
            .iter()
            .map(|region| found_in(region).expect("one result per input, checked by `BatchInference`"))
            .collect();
        let steps = photos().zip(found);
        Ok(steps
            .map(|((photo, parts), found)| found.map(|found| self.end_step(photo, parts, found)))
            .collect())
    }

    /// Its pixels.
    fn weigh(photo: &SizedPhoto, _parts: &[Look]) -> u64 {
        let frame = photo.frame.frame();
        u64::from(frame.width()) * u64::from(frame.height())
    }
}

impl Detect {
    /// What the next step of a photo looks at; a cell is cut into `cells`.
    fn next_region(&mut self, photo: &SizedPhoto, parts: &[Look], cells: &mut Vec<Cell>) -> Region {
        if !needs_faces(&photo.metadata.lease.config) {
            return Region::Nothing;
        }
        let Some(first) = parts.first() else { return Region::Frame };
        let frame = photo.frame.frame();
        let index = parts.len() - 1;
        let cell = match self.plan_cells(photo, first) {
            Cells::Grid(grid) => grid.cut(frame, index, &mut self.resizer),
            Cells::Parts(CloserLook { parts, scale }) => {
                let part = parts.get(index);
                part.and_then(|part| Cell::cut_out(frame, *part, scale, &mut self.resizer))
            }
        };
        cell.map_or(Region::Nothing, |cell| {
            cells.push(cell);
            Region::Cell
        })
    }

    /// What to look at after the whole frame: all cells of the grid in grid mode, else the parts with small faces.
    fn plan_cells(&self, photo: &SizedPhoto, first: &Look) -> Cells {
        let frame = photo.frame.frame().size();
        match grid::grid_of(&photo.metadata.lease.config.face) {
            Some(grid) => Cells::Grid(CellGrid::bounded(grid, frame, self.max_cells)),
            None => Cells::Parts(CloserLook::plan(first, frame, FIRST_LOOK_LONG_SIDE)),
        }
    }

    /// Adds what a step found to what the steps before it did.
    fn end_step(&self, photo: &SizedPhoto, parts: &[Look], found: Look) -> Step<Look, DetectedPhoto> {
        let first = parts.first().unwrap_or(&found);
        let is_done = !needs_faces(&photo.metadata.lease.config)
            || parts.len() >= self.plan_cells(photo, first).count();
        if !is_done {
            return Step::Part(found);
        }
        let faces = parts.iter().chain([&found]).map(|look| look.faces.clone()).collect();
        Step::Done(DetectedPhoto { sized: photo.clone(), faces: merge_faces(faces) })
    }
}

/// Returns the faces that are whole in their cell, in pixels of the frame.
fn to_frame(cell: &Cell, found: FaceBoxes) -> Look {
    let whole = found.iter().filter(|face| cell.contains_whole(&face.rect));
    Look { faces: whole.map(|face| cell.face_to_frame(face)).collect(), traces: Vec::new() }
}

fn needs_faces(config: &AlbumConfig) -> bool {
    config.face.enabled || config.text.enabled
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
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_LOOK_LONG_SIDE };
        let (grey, wide) = (picture(10, 100, 80), picture(10, 101, 80));
        assert!(frame_inference().infer_batch(&mut small, &[grey.frame()]).unwrap()[0].is_ok());
        assert!(frame_inference().infer_batch(&mut small, &[wide.frame()]).is_err());
        assert!(frame_inference().infer_batch(&mut small, &[grey.frame(), wide.frame()]).is_err());
    }

    #[test]
    fn a_detector_that_lacks_memory_for_a_cell_is_an_outage() {
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_LOOK_LONG_SIDE };
        let grid = Grid { columns: 1, rows: 1, cell_width: 200, cell_height: 200 };
        let picture = picture(10, 150, 100);
        let grid = CellGrid::bounded(&grid, picture.size(), 16);
        let cell = grid.cut(picture.frame(), 0, &mut Resizer::default()).unwrap();
        assert!(CELL_INFERENCE.infer_batch(&mut small, &[cell]).is_err());
    }

    #[test]
    fn a_frame_that_fails_detection_while_a_grey_one_of_its_size_passes_is_poison() {
        let mut small = SmallDetector { max_width: 100, max_long_side: FIRST_LOOK_LONG_SIDE };
        let white = picture(255, 100, 80);
        let results = frame_inference().infer_batch(&mut small, &[white.frame()]).unwrap();
        assert_eq!(results[0].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
    }

    fn face(left: f32, side: f32, score: f32) -> FaceBox {
        let rect = Rect { left, top: 0.0, right: left + side, bottom: side };
        FaceBox { rect, landmarks: [Point::default(); 5], score }
    }

    #[test]
    fn a_face_found_in_two_looks_is_returned_once() {
        let faces =
            merge_faces(vec![vec![face(0.0, 20.0, 0.7)], vec![face(1.0, 20.0, 0.9), face(50.0, 10.0, 0.8)]]);
        assert_eq!(faces.iter().map(|face| face.score).collect::<Vec<_>>(), [0.9, 0.8]);
    }
}
