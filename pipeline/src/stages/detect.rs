//! The stage `detect`: detects faces, also where the album wants only texts, as bibs are below faces.

use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::{FaceBox, FaceDetector, ModelError};
use photofinish_store::model::album::{AlbumConfig, Grid, RecognitionMode};

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::stages::grid::{self, Cell};
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

impl Stage for Detect {
    type In = SizedPhoto;
    type Out = DetectedPhoto;

    fn run(&mut self, batch: &[SizedPhoto]) -> Result<BatchResults<DetectedPhoto>, Outage> {
        let selected: Vec<&SizedPhoto> =
            batch.iter().filter(|photo| needs_faces(&photo.metadata.lease.config)).collect();
        let frames: Vec<Frame<'_>> = selected.iter().map(|photo| photo.frame.frame()).collect();
        let mut first = frame_inference::<FIRST_PASS_LONG_SIDE>()
            .infer_batch(self.detector.as_mut(), &frames)?
            .into_iter();
        let mut results = Vec::with_capacity(batch.len());
        for photo in batch {
            let faces = if needs_faces(&photo.metadata.lease.config) {
                let found =
                    first.next().expect("one result per photo that needs faces, checked by `BatchInference`");
                match found {
                    Ok(found) => self.run_second_pass(photo, found)?,
                    Err(poison) => Err(poison),
                }
            } else {
                Ok(Vec::new())
            };
            results.push(faces.map(|faces| DetectedPhoto { sized: photo.clone(), faces }));
        }
        Ok(results)
    }
}

impl Detect {
    /// Adds the faces of the second pass: in grid cells in grid mode, at a larger scale in crowds, else none.
    fn run_second_pass(
        &mut self,
        photo: &SizedPhoto,
        first_pass: FaceBoxes,
    ) -> Result<Result<FaceBoxes, Poison>, Outage> {
        let frame = photo.frame.frame();
        let face = &photo.metadata.lease.config.face;
        let second_pass = match (face.mode, &face.grid) {
            (RecognitionMode::Grid, Some(grid)) if face.enabled => self.detect_in_grid(frame, grid)?,
            _ if is_crowd(&first_pass, frame.long_side()) => frame_inference::<SECOND_PASS_LONG_SIDE>()
                .infer_batch(self.detector.as_mut(), &[frame])?
                .pop()
                .unwrap_or_else(|| Ok(Vec::new())),
            _ => return Ok(Ok(first_pass)),
        };
        Ok(second_pass.map(|second_pass| merge_faces(first_pass, second_pass)))
    }

    fn detect_in_grid(&mut self, frame: Frame<'_>, grid: &Grid) -> Result<Result<FaceBoxes, Poison>, Outage> {
        let mut all = Vec::new();
        // One at a time: cells of a photo may differ in size by a pixel, and together they are as large as the photo.
        for cell in grid::cut_cells(frame, grid, &mut self.resizer) {
            for found in CELL_INFERENCE.infer_batch(self.detector.as_mut(), std::slice::from_ref(&cell))? {
                match found {
                    Ok(found) => all.extend(
                        found
                            .iter()
                            .filter(|face| cell.contains_whole(&face.rect))
                            .map(|face| cell.face_to_frame(face)),
                    ),
                    Err(poison) => return Ok(Err(poison)),
                }
            }
        }
        Ok(Ok(all))
    }
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

/// Merges the faces of both passes: of duplicates the one with the highest score; sorted by score, highest first.
fn merge_faces(mut first_pass: FaceBoxes, second_pass: FaceBoxes) -> FaceBoxes {
    first_pass.extend(second_pass);
    first_pass.sort_by(|a, b| b.score.total_cmp(&a.score));
    grid::remove_duplicates(first_pass, |face| face.rect)
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::{Point, Rect};
    use photofinish_kernels::image::frame::Picture;
    use photofinish_models::traits::ModelIdentity;
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
        let cells = grid::cut_cells(picture(10, 150, 100).frame(), &grid, &mut Resizer::default());
        assert_eq!(cells.len(), 1);
        assert!(CELL_INFERENCE.infer_batch(&mut small, &cells).is_err());
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
            merge_faces(vec![face(0.0, 20.0, 0.7)], vec![face(1.0, 20.0, 0.9), face(50.0, 10.0, 0.8)]);
        assert_eq!(faces.iter().map(|face| face.score).collect::<Vec<_>>(), [0.9, 0.8]);
    }
}
