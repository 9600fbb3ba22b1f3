//! The stage `read`: reads bibs, and says of each text what becomes of it in searches. The last stage that needs
//! pixels.

use std::collections::HashMap;
use std::sync::Arc;

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::{BibPattern, BibReader, BibText, FaceBox, ModelError, ReadRequest};
use photofinish_store::album::{DEFAULT_BIB_PATTERN, Grid, RecognitionMode};
use photofinish_store::photo::{SeenText, TextStanding, UnindexedReason};

use crate::fault::{Outage, Poison};
use crate::grid::{self, Cell};
use crate::network::{Proof, Question, plain_frame, plain_picture};
use crate::photo::{EmbeddedPhoto, ReadPhoto};
use crate::quality::fractions;
use crate::stage::{Answers, Stage};

/// A reading at least this sure is an answer (docs/READING.md, step 15).
const SURE: f32 = 0.90;

/// A reading at least this sure is kept for fuzzy search (docs/READING.md, step 15).
const KEPT: f32 = 0.50;

/// Where under a face its bib can be, in face sizes from the face's centre and chin: the region of docs/READING.md step 4.
const TORSO_HALF_WIDTH: f32 = 1.45;
const TORSO_BOTTOM: f32 = 5.06;

/// Patterns kept compiled; more albums than this are seldom read at once.
const MOST_PATTERNS: usize = 64;

/// The stage `read`.
pub(crate) struct Read {
    pub(crate) reader: Box<dyn BibReader>,
    pub(crate) resizer: Resizer,
    pub(crate) patterns: Patterns,
}

fn question<'a>() -> Question<dyn BibReader, ReadRequest<'a>, Vec<BibText>> {
    Question { ask: |reader, photos| reader.read(photos), prove }
}

/// With the same faces: they say at which sizes the photo is looked at.
fn prove(
    reader: &mut (dyn BibReader + 'static),
    photo: &ReadRequest<'_>,
    proof: Proof,
) -> Result<(), ModelError> {
    if proof == Proof::Least {
        return reader.read(&[ReadRequest { frame: plain_frame(), faces: &[], ..*photo }]).map(drop);
    }
    let picture = plain_picture(photo.frame.size());
    reader.read(&[ReadRequest { frame: picture.frame(), ..*photo }]).map(drop)
}

impl Stage for Read {
    type In = EmbeddedPhoto;
    type Out = ReadPhoto;

    fn run(&mut self, batch: &[EmbeddedPhoto]) -> Result<Answers<ReadPhoto>, Outage> {
        let patterns: Vec<Option<Arc<BibPattern>>> =
            batch.iter().map(|photo| self.pattern_of(photo)).collect();
        let requests: Vec<ReadRequest<'_>> = batch
            .iter()
            .zip(&patterns)
            .filter_map(|(photo, pattern)| request(photo, pattern.as_deref()?))
            .collect();
        let mut texts = question().put(self.reader.as_mut(), &requests)?.into_iter();
        let mut answers = Vec::with_capacity(batch.len());
        for (photo, pattern) in batch.iter().zip(&patterns) {
            let Some(pattern) = pattern else {
                answers.push(Ok(read(photo, Vec::new())));
                continue;
            };
            let whole = texts.next().expect("one answer per request, checked by `Question`");
            let found = match whole {
                Ok(whole) => self.with_cells(photo, pattern, whole)?,
                Err(poison) => Err(poison),
            };
            answers.push(found.map(|found| read(photo, found)));
        }
        Ok(answers)
    }
}

impl Read {
    /// The album's pattern; `None` where it wants no texts.
    fn pattern_of(&mut self, photo: &EmbeddedPhoto) -> Option<Arc<BibPattern>> {
        let config = &photo.detected.sized.facts.lease.config;
        config.text.enabled.then(|| self.patterns.get(&config.bib_pattern))
    }

    /// In grid mode, what the cells show beside the whole photo; else just the whole.
    fn with_cells(
        &mut self,
        photo: &EmbeddedPhoto,
        pattern: &BibPattern,
        whole: Vec<BibText>,
    ) -> Result<Result<Vec<BibText>, Poison>, Outage> {
        let text = &photo.detected.sized.facts.lease.config.text;
        let (RecognitionMode::Grid, Some(grid)) = (text.mode, &text.grid) else { return Ok(Ok(whole)) };
        let cells = self.read_cells(photo, pattern, grid)?;
        Ok(cells.map(|mut all| {
            all.extend(whole);
            // A bib before none, the longer before a part of it, the surer of two alike.
            all.sort_by(|a, b| {
                let of = |text: &BibText| (text.is_bib && text.confidence >= SURE, text.text.len());
                of(b).cmp(&of(a)).then(b.confidence.total_cmp(&a.confidence))
            });
            grid::keep_first(all, |text| text.quad.bounds())
        }))
    }

    fn read_cells(
        &mut self,
        photo: &EmbeddedPhoto,
        pattern: &BibPattern,
        grid: &Grid,
    ) -> Result<Result<Vec<BibText>, Poison>, Outage> {
        let mut all = Vec::new();
        for cell in grid::cells(photo.detected.sized.frame.frame(), grid, &mut self.resizer) {
            let faces = faces_over(&cell, &photo.detected.faces);
            let request = ReadRequest { frame: cell.picture.frame(), faces: &faces, pattern };
            for texts in question().put(self.reader.as_mut(), &[request])? {
                match texts {
                    Ok(texts) => all.extend(
                        texts
                            .into_iter()
                            .filter(|text| cell.is_whole(&text.quad.bounds()))
                            .map(|text| BibText { quad: cell.quad_in_frame(&text.quad), ..text }),
                    ),
                    Err(poison) => return Ok(Err(poison)),
                }
            }
        }
        Ok(Ok(all))
    }
}

/// Faces whose bib may be in the cell, though they themselves may lie above it.
fn faces_over(cell: &Cell, faces: &[FaceBox]) -> Vec<FaceBox> {
    let torso = |face: &FaceBox| {
        let size = face.rect.width().max(0.8 * face.rect.height());
        let centre = (face.rect.left + face.rect.right) / 2.0;
        Rect {
            left: centre - TORSO_HALF_WIDTH * size,
            top: face.rect.bottom,
            right: centre + TORSO_HALF_WIDTH * size,
            bottom: face.rect.bottom + TORSO_BOTTOM * size,
        }
    };
    faces.iter().filter(|face| cell.sees(&torso(face))).map(|face| cell.face_in_cell(face)).collect()
}

fn request<'a>(photo: &'a EmbeddedPhoto, pattern: &'a BibPattern) -> Option<ReadRequest<'a>> {
    Some(ReadRequest { frame: photo.detected.sized.frame.frame(), faces: &photo.detected.faces, pattern })
}

/// The photo with its texts; what it holds of budget B is only its previews from now on.
fn read(photo: &EmbeddedPhoto, found: Vec<BibText>) -> ReadPhoto {
    let sized = &photo.detected.sized;
    let frame = sized.frame.frame();
    sized.held.shrink_to(sized.previews.size_bytes());
    ReadPhoto {
        facts: Arc::clone(&sized.facts),
        previews: sized.previews.clone(),
        faces: photo.seen.clone(),
        texts: found.into_iter().filter_map(|text| seen(text, frame.width(), frame.height())).collect(),
        _held: Arc::clone(&sized.held),
    }
}

fn seen(text: BibText, width: u32, height: u32) -> Option<SeenText> {
    let standing = standing(text.is_bib, text.confidence)?;
    let bounding_box = fractions(&text.quad.bounds(), width, height)?;
    Some(SeenText { text: text.text, bounding_box, confidence: f64::from(text.confidence), standing })
}

/// What becomes of a text in searches; `None` when it is not even kept.
fn standing(is_bib: bool, confidence: f32) -> Option<TextStanding> {
    // Neither is what is no number.
    if confidence.is_nan() || confidence < KEPT {
        return None;
    }
    Some(match (is_bib, confidence >= SURE) {
        (true, true) => TextStanding::Indexed,
        (true, false) => TextStanding::Candidate,
        (false, _) => TextStanding::Unindexed(UnindexedReason::NotABib),
    })
}

/// Compiled patterns of albums.
#[derive(Default)]
pub(crate) struct Patterns(HashMap<String, Arc<BibPattern>>);

impl Patterns {
    /// The compiled pattern. The API accepts no pattern that does not compile; should one be there all the same, the
    /// default takes its place, for a bad setting is no reason to lose photos.
    fn get(&mut self, pattern: &str) -> Arc<BibPattern> {
        if let Some(compiled) = self.0.get(pattern) {
            return Arc::clone(compiled);
        }
        if self.0.len() >= MOST_PATTERNS {
            self.0.clear();
        }
        let compiled = BibPattern::new(pattern).or_else(|error| {
            tracing::warn!(pattern, error = %error, "an album's bib pattern is not usable, the default takes its place");
            BibPattern::new(DEFAULT_BIB_PATTERN)
        });
        let compiled = Arc::new(compiled.expect("the default pattern compiles, as a test shows"));
        self.0.insert(pattern.to_owned(), Arc::clone(&compiled));
        compiled
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::frame::Picture;
    use photofinish_models::traits::ModelIdentity;
    use photofinish_store::photo::FailureReason;

    use super::*;

    /// A reader with memory for frames up to 100 pixels across, that minds white ones.
    struct Small;

    impl BibReader for Small {
        fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
            let fails = |photo: &ReadRequest<'_>| photo.frame.width() > 100 || photo.frame.pixels()[0] == 255;
            if photos.iter().any(fails) {
                return Err(ModelError::Inference { name: "small".into(), detail: "no".into() });
            }
            Ok(vec![Vec::new(); photos.len()])
        }

        fn identity(&self) -> &ModelIdentity {
            unreachable!("nobody asks for its name")
        }
    }

    fn asked_about(shade: u8, width: u32, height: u32) -> Result<Answers<Vec<BibText>>, Outage> {
        let picture = Picture::new(vec![shade; (width * height * 3) as usize], width, height).unwrap();
        let pattern = BibPattern::new(DEFAULT_BIB_PATTERN).unwrap();
        question().put(&mut Small, &[ReadRequest { frame: picture.frame(), faces: &[], pattern: &pattern }])
    }

    #[test]
    fn a_reader_that_lacks_memory_for_a_frame_is_an_outage() {
        assert!(asked_about(10, 100, 80).unwrap()[0].is_ok());
        assert!(asked_about(10, 101, 80).is_err());
    }

    #[test]
    fn a_frame_that_a_reader_minds_where_it_likes_another_as_large_is_poison() {
        let answers = asked_about(255, 100, 80).unwrap();
        assert_eq!(answers[0].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
    }

    #[test]
    fn standings_follow_pattern_and_sureness() {
        assert_eq!(standing(true, 0.95), Some(TextStanding::Indexed));
        assert_eq!(standing(true, 0.90), Some(TextStanding::Indexed));
        assert_eq!(standing(true, 0.89), Some(TextStanding::Candidate));
        assert_eq!(standing(true, 0.50), Some(TextStanding::Candidate));
        assert_eq!(standing(false, 0.99), Some(TextStanding::Unindexed(UnindexedReason::NotABib)));
        assert_eq!(standing(true, 0.49), None);
        assert_eq!(standing(true, f32::NAN), None);
    }

    #[test]
    fn a_broken_pattern_gives_way_to_the_default() {
        let mut patterns = Patterns::default();
        assert!(patterns.get("([").matches("1234"));
        assert!(!patterns.get("^[0-9]{3}$").matches("1234"));
        assert!(patterns.get(DEFAULT_BIB_PATTERN).matches("AB1234C"));
    }
}
