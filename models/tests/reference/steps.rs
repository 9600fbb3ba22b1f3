//! A photo with many runners is read in steps, between which others are read: its texts are those of reading it at once.

use photofinish_kernels::geometry::{Point, Rect};
use photofinish_kernels::image::frame::Picture;
use photofinish_models::reading::GateScope;
use photofinish_models::traits::{
    BibPattern, BibReader, BibText, FaceBox, FaceDetector, OpenReading, ReadProgress, ReadRequest, ReadStep,
};

use crate::environment::shared_environment;
use crate::pictures::ReferencePicture;
use crate::{Calls, LONG_SIDE, load_bib_reader_for, load_yunet};

/// Copies of a picture beside each other.
const COPIES: usize = 3;

/// A photo, with its faces.
struct Scene {
    picture: Picture,
    faces: Vec<FaceBox>,
}

impl Scene {
    fn request<'a>(&'a self, pattern: &'a BibPattern) -> ReadRequest<'a> {
        ReadRequest { frame: self.picture.frame(), faces: &self.faces, pattern }
    }

    /// The picture several times, side by side: a crowd of which the bibs can be read.
    fn repeated(picture: &Picture, faces: &[FaceBox]) -> Self {
        let frame = picture.frame();
        let (width, height) = (frame.width(), frame.height());
        let rows = frame.pixels().chunks_exact(3 * width as usize);
        let pixels = rows.flat_map(|row| row.repeat(COPIES)).collect();
        let picture = Picture::new(pixels, width * COPIES as u32, height).unwrap();
        let shifts = (0..COPIES).map(|copy| copy as f32 * width as f32);
        let faces = shifts.flat_map(|by| faces.iter().map(move |face| shift(face, by))).collect();
        Self { picture, faces }
    }
}

fn shift(face: &FaceBox, by: f32) -> FaceBox {
    let Rect { left, top, right, bottom } = face.rect;
    let landmarks = face.landmarks.map(|point| Point { x: point.x + by, ..point });
    FaceBox { rect: Rect { left: left + by, top, right: right + by, bottom }, landmarks, ..*face }
}

/// Reads the photos in turn, a step of each: as the pipeline does.
pub fn read_in_turn(
    reader: &mut dyn BibReader,
    requests: &[ReadRequest<'_>],
) -> (Vec<Vec<BibText>>, Vec<usize>) {
    let mut progress: Vec<Option<ReadProgress>> = vec![None; requests.len()];
    let mut found: Vec<Option<Vec<BibText>>> = vec![None; requests.len()];
    let mut steps = vec![0; requests.len()];
    while found.iter().any(Option::is_none) {
        for index in (0..requests.len()).filter(|&index| found[index].is_none()).collect::<Vec<_>>() {
            let open = OpenReading { request: requests[index], progress: progress[index].as_ref() };
            steps[index] += 1;
            match reader.read_step(&[open]).unwrap().remove(0) {
                ReadStep::More(more) => progress[index] = Some(more),
                ReadStep::Done(texts) => found[index] = Some(texts),
            }
        }
    }
    (found.into_iter().flatten().collect(), steps)
}

#[test]
fn a_photo_that_is_read_in_steps_has_the_texts_of_one_that_is_read_at_once() {
    let Some(environment) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(environment) else { return };
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    let scenes: Vec<Scene> = ReferencePicture::load_all(&environment.reference)
        .into_iter()
        .flat_map(|picture| {
            let faces = detector.detect(&[picture.pixels.frame()], LONG_SIDE).unwrap().remove(0);
            let crowd = Scene::repeated(&picture.pixels, &faces);
            [crowd, Scene { picture: picture.pixels, faces }]
        })
        .collect();
    let requests: Vec<ReadRequest<'_>> = scenes.iter().map(|scene| scene.request(&pattern)).collect();
    for scope in [None, Some(GateScope::Small), Some(GateScope::All)] {
        let Some(mut reader) = load_bib_reader_for(environment, scope, Calls::Single) else { return };
        let at_once: Vec<Vec<BibText>> =
            requests.iter().map(|request| reader.read(&[*request]).unwrap().remove(0)).collect();
        let counted = reader.take_counts();
        let (in_steps, steps) = read_in_turn(&mut reader, &requests);
        assert_eq!(in_steps, at_once, "gate: {scope:?}");
        assert_eq!(reader.take_counts(), counted);
        assert!(at_once.iter().flatten().any(|text| text.is_bib), "nothing to compare: {at_once:?}");
        assert!(steps.iter().any(|steps| *steps >= COPIES), "no photo took several steps: {steps:?}");
    }
}
