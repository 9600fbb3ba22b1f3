//! The stage `detect`: finds faces. Photos in which bibs are read need them too, for bibs are under faces.

use photofinish_kernels::frame::{Frame, Size};
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::{FaceBox, FaceDetector, ModelError};
use photofinish_store::album::{AlbumConfig, Grid, RecognitionMode};

use crate::fault::{Outage, Poison};
use crate::grid::{self, Cell};
use crate::network::{Proof, Question, plain_frame, plain_picture};
use crate::photo::{DetectedPhoto, SizedPhoto};
use crate::stage::{Answers, Stage};

/// The long side at which every photo is looked at: on race photos all labelled faces are found at it, in a quarter
/// of the time of 1280.
const FIRST_LOOK: u32 = 640;

/// The long side of the second look, which costs some 60 ms and finds 16 % more faces in crowds: too dear for every
/// photo.
const SECOND_LOOK: u32 = 1280;

/// A photo of at least so many faces ..
const CROWD: usize = 4;

/// .. whose middle one is smaller than this, in pixels of the first look, shows people who are too small for it: the
/// detector sees no faces under about 10 pixels. With 24 in place of 32 twelve camera photos gave 71 faces, not 84.
const SMALL_FACE: f32 = 32.0;

/// The stage `detect`.
pub(crate) struct Detect {
    pub(crate) detector: Box<dyn FaceDetector>,
    pub(crate) resizer: Resizer,
}

type Found = Vec<FaceBox>;

fn question<'a, const LONG_SIDE: u32>() -> Question<dyn FaceDetector, Frame<'a>, Found> {
    Question {
        ask: |detector, frames| detector.detect(frames, LONG_SIDE),
        prove: |detector, frame, proof| prove(detector, (frame.size(), LONG_SIDE), proof),
    }
}

const CELLS: Question<dyn FaceDetector, Cell, Found> = Question {
    ask: detect_in_cells,
    prove: |detector, cell, proof| prove(detector, (cell.picture.size(), cell.long_side()), proof),
};

fn prove(
    detector: &mut (dyn FaceDetector + 'static),
    (size, long_side): (Size, u32),
    proof: Proof,
) -> Result<(), ModelError> {
    if proof == Proof::Least {
        return detector.detect(&[plain_frame()], FIRST_LOOK).map(drop);
    }
    let picture = plain_picture(size);
    detector.detect(&[picture.frame()], long_side).map(drop)
}

fn detect_in_cells(
    detector: &mut (dyn FaceDetector + 'static),
    cells: &[Cell],
) -> Result<Vec<Found>, ModelError> {
    let frames: Vec<Frame<'_>> = cells.iter().map(|cell| cell.picture.frame()).collect();
    let long_side = cells.iter().map(|cell| cell.long_side()).max().unwrap_or(FIRST_LOOK);
    detector.detect(&frames, long_side)
}

impl Stage for Detect {
    type In = SizedPhoto;
    type Out = DetectedPhoto;

    fn run(&mut self, batch: &[SizedPhoto]) -> Result<Answers<DetectedPhoto>, Outage> {
        let wanted: Vec<&SizedPhoto> =
            batch.iter().filter(|photo| is_wanted(&photo.facts.lease.config)).collect();
        let frames: Vec<Frame<'_>> = wanted.iter().map(|photo| photo.frame.frame()).collect();
        let mut first = question::<FIRST_LOOK>().put(self.detector.as_mut(), &frames)?.into_iter();
        let mut answers = Vec::with_capacity(batch.len());
        for photo in batch {
            let faces = if is_wanted(&photo.facts.lease.config) {
                let found = first.next().expect("one answer per wanted photo, checked by `Question`");
                match found {
                    Ok(found) => self.look_closer(photo, found)?,
                    Err(poison) => Err(poison),
                }
            } else {
                Ok(Vec::new())
            };
            answers.push(faces.map(|faces| DetectedPhoto { sized: photo.clone(), faces }));
        }
        Ok(answers)
    }
}

impl Detect {
    /// The faces of the first look, and those that only a closer one shows.
    fn look_closer(&mut self, photo: &SizedPhoto, found: Found) -> Result<Result<Found, Poison>, Outage> {
        let frame = photo.frame.frame();
        let face = &photo.facts.lease.config.face;
        let closer = match (face.mode, &face.grid) {
            (RecognitionMode::Grid, Some(grid)) if face.enabled => self.look_at_cells(frame, grid)?,
            _ if is_crowd(&found, frame.long_side()) => question::<SECOND_LOOK>()
                .put(self.detector.as_mut(), &[frame])?
                .pop()
                .unwrap_or_else(|| Ok(Vec::new())),
            _ => return Ok(Ok(found)),
        };
        Ok(closer.map(|closer| merged(found, closer)))
    }

    fn look_at_cells(&mut self, frame: Frame<'_>, grid: &Grid) -> Result<Result<Found, Poison>, Outage> {
        let mut all = Vec::new();
        // One at a time: cells of a photo differ in size by a pixel, and together they are as large as the photo.
        for cell in grid::cells(frame, grid, &mut self.resizer) {
            for found in CELLS.put(self.detector.as_mut(), std::slice::from_ref(&cell))? {
                match found {
                    Ok(found) => all.extend(
                        found
                            .iter()
                            .filter(|face| cell.is_whole(&face.rect))
                            .map(|face| cell.face_in_frame(face)),
                    ),
                    Err(poison) => return Ok(Err(poison)),
                }
            }
        }
        Ok(Ok(all))
    }
}

fn is_wanted(config: &AlbumConfig) -> bool {
    config.face.enabled || config.text.enabled
}

/// Whether a second look will show more; never when the frame has no more pixels to show.
fn is_crowd(found: &[FaceBox], frame_long_side: u32) -> bool {
    if found.len() < CROWD || frame_long_side <= FIRST_LOOK {
        return false;
    }
    let scale = FIRST_LOOK as f32 / frame_long_side as f32;
    let mut sides: Vec<f32> =
        found.iter().map(|face| face.rect.width().max(face.rect.height()) * scale).collect();
    sides.sort_by(f32::total_cmp);
    sides[sides.len() / 2] < SMALL_FACE
}

/// The faces of both looks, each once, the surest box of it, surest first.
fn merged(mut found: Found, closer: Found) -> Found {
    found.extend(closer);
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    grid::keep_first(found, |face| face.rect)
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::frame::Picture;
    use photofinish_kernels::geometry::{Point, Rect};
    use photofinish_models::traits::ModelIdentity;
    use photofinish_store::photo::FailureReason;

    use super::*;

    /// A detector with memory for so many pixels across, and for looks at so long a side, that minds white pictures.
    struct Small {
        width: u32,
        long_side: u32,
    }

    impl FaceDetector for Small {
        fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Found>, ModelError> {
            let fails = |frame: &Frame<'_>| frame.width() > self.width || frame.pixels()[0] == 255;
            if long_side > self.long_side || frames.iter().any(fails) {
                return Err(ModelError::Inference { name: "small".into(), detail: "no".into() });
            }
            Ok(vec![Vec::new(); frames.len()])
        }

        fn identity(&self) -> &ModelIdentity {
            unreachable!("nobody asks for its name")
        }
    }

    fn picture(shade: u8, width: u32, height: u32) -> Picture {
        Picture::new(vec![shade; (width * height * 3) as usize], width, height).unwrap()
    }

    #[test]
    fn a_detector_that_lacks_memory_for_a_frame_is_an_outage() {
        let mut small = Small { width: 100, long_side: FIRST_LOOK };
        let (grey, wide) = (picture(10, 100, 80), picture(10, 101, 80));
        assert!(question::<FIRST_LOOK>().put(&mut small, &[grey.frame()]).unwrap()[0].is_ok());
        assert!(question::<FIRST_LOOK>().put(&mut small, &[wide.frame()]).is_err());
        assert!(question::<FIRST_LOOK>().put(&mut small, &[grey.frame(), wide.frame()]).is_err());
    }

    #[test]
    fn a_detector_that_lacks_memory_for_a_closer_look_is_an_outage() {
        let mut small = Small { width: 100, long_side: FIRST_LOOK };
        assert!(question::<SECOND_LOOK>().put(&mut small, &[picture(10, 100, 80).frame()]).is_err());
    }

    #[test]
    fn a_detector_that_lacks_memory_for_a_cell_is_an_outage() {
        let mut small = Small { width: 100, long_side: FIRST_LOOK };
        let grid = Grid { columns: 1, rows: 1, cell_width: 200, cell_height: 200 };
        let cells = grid::cells(picture(10, 150, 100).frame(), &grid, &mut Resizer::default());
        assert_eq!(cells.len(), 1);
        assert!(CELLS.put(&mut small, &cells).is_err());
    }

    #[test]
    fn a_frame_that_a_detector_minds_where_it_likes_another_as_large_is_poison() {
        let mut small = Small { width: 100, long_side: FIRST_LOOK };
        let white = picture(255, 100, 80);
        let answers = question::<FIRST_LOOK>().put(&mut small, &[white.frame()]).unwrap();
        assert_eq!(answers[0].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
    }

    fn face(left: f32, side: f32, score: f32) -> FaceBox {
        let rect = Rect { left, top: 0.0, right: left + side, bottom: side };
        FaceBox { rect, landmarks: [Point::default(); 5], score }
    }

    #[test]
    fn many_small_faces_are_a_crowd() {
        let small: Vec<FaceBox> = (0..5).map(|i| face(i as f32 * 100.0, 60.0, 0.9)).collect();
        assert!(is_crowd(&small, 2048), "60 px of 2048 are 19 of 640");
        assert!(!is_crowd(&small, 1024), "60 px of 1024 are 38 of 640");
        assert!(!is_crowd(&small[..3], 2048));
        assert!(!is_crowd(&small, 640), "there are no more pixels");
    }

    #[test]
    fn both_looks_give_each_face_once() {
        let faces = merged(vec![face(0.0, 20.0, 0.7)], vec![face(1.0, 20.0, 0.9), face(50.0, 10.0, 0.8)]);
        assert_eq!(faces.iter().map(|face| face.score).collect::<Vec<_>>(), [0.9, 0.8]);
    }
}
