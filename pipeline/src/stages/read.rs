//! The stage `read`: reads bibs and classifies each text for search. The last stage that needs pixels.

use std::collections::HashMap;
use std::sync::Arc;

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::{BibPattern, BibReader, BibText, FaceBox, ModelError, ReadRequest};
use photofinish_store::model::album::{DEFAULT_BIB_PATTERN, Grid, RecognitionMode};
use photofinish_store::model::photo::{DetectedText, TextIndexState, UnindexedReason};

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::stages::grid::{self, Cell};
use crate::stages::inference::{BatchInference, SelfTest, grey_frame, grey_picture};
use crate::stages::photo::{EmbeddedPhoto, ReadPhoto};
use crate::stages::quality::to_bounding_box;

/// Minimum confidence of a text that searches return (docs/READING.md, step 15).
const INDEXED_CONFIDENCE: f32 = 0.90;

/// Minimum confidence of a text that is kept for fuzzy search (docs/READING.md, step 15).
const CANDIDATE_CONFIDENCE: f32 = 0.50;

/// Where below a face its bib can be, in face units from the face's centre and chin (docs/READING.md, step 4).
const TORSO_HALF_WIDTH: f32 = 1.45;
const TORSO_BOTTOM: f32 = 5.06;

/// Compiled patterns that are cached. Photos of more albums than this are rarely read at the same time.
const MAX_CACHED_PATTERNS: usize = 64;

/// The stage `read`; one per thread.
pub(crate) struct Read {
    pub(crate) reader: Box<dyn BibReader>,
    pub(crate) resizer: Resizer,
    pub(crate) patterns: PatternCache,
}

fn read_inference<'a>() -> BatchInference<dyn BibReader, ReadRequest<'a>, Vec<BibText>> {
    BatchInference { run: |reader, photos| reader.read(photos), self_test }
}

/// Uses the faces of the request, which determine the sizes at which the photo is read.
fn self_test(
    reader: &mut (dyn BibReader + 'static),
    photo: &ReadRequest<'_>,
    kind: SelfTest,
) -> Result<(), ModelError> {
    if kind == SelfTest::Minimal {
        return reader.read(&[ReadRequest { frame: grey_frame(), faces: &[], ..*photo }]).map(drop);
    }
    let picture = grey_picture(photo.frame.size());
    reader.read(&[ReadRequest { frame: picture.frame(), ..*photo }]).map(drop)
}

impl Stage for Read {
    type In = EmbeddedPhoto;
    type Out = ReadPhoto;

    fn run(&mut self, batch: &[EmbeddedPhoto]) -> Result<BatchResults<ReadPhoto>, Outage> {
        let patterns: Vec<Option<Arc<BibPattern>>> =
            batch.iter().map(|photo| self.album_pattern(photo)).collect();
        let requests: Vec<ReadRequest<'_>> = batch
            .iter()
            .zip(&patterns)
            .filter_map(|(photo, pattern)| Some(read_request(photo, pattern.as_deref()?)))
            .collect();
        let mut texts = read_inference().infer_batch(self.reader.as_mut(), &requests)?.into_iter();
        let mut results = Vec::with_capacity(batch.len());
        for (photo, pattern) in batch.iter().zip(&patterns) {
            let Some(pattern) = pattern else {
                results.push(Ok(to_read_photo(photo, Vec::new())));
                continue;
            };
            let full_frame = texts.next().expect("one result per request, checked by `BatchInference`");
            let found = match full_frame {
                Ok(full_frame) => self.add_grid_texts(photo, pattern, full_frame)?,
                Err(poison) => Err(poison),
            };
            results.push(found.map(|found| to_read_photo(photo, found)));
        }
        Ok(results)
    }
}

impl Read {
    /// The album's pattern; `None` where it wants no texts.
    fn album_pattern(&mut self, photo: &EmbeddedPhoto) -> Option<Arc<BibPattern>> {
        let config = &photo.detected.sized.metadata.lease.config;
        config.text.enabled.then(|| self.patterns.get(&config.bib_pattern))
    }

    /// In grid mode, merges the texts of the whole photo with those of the cells; else returns those of the whole photo.
    fn add_grid_texts(
        &mut self,
        photo: &EmbeddedPhoto,
        pattern: &BibPattern,
        full_frame: Vec<BibText>,
    ) -> Result<Result<Vec<BibText>, Poison>, Outage> {
        let text = &photo.detected.sized.metadata.lease.config.text;
        let (RecognitionMode::Grid, Some(grid)) = (text.mode, &text.grid) else { return Ok(Ok(full_frame)) };
        let cells = self.read_cells(photo, pattern, grid)?;
        Ok(cells.map(|mut all| {
            all.extend(full_frame);
            // Of duplicates the first is kept: bibs before other texts, longer ones before parts of them, then by
            // confidence.
            all.sort_by(|a, b| {
                let rank =
                    |text: &BibText| (text.is_bib && text.confidence >= INDEXED_CONFIDENCE, text.text.len());
                rank(b).cmp(&rank(a)).then(b.confidence.total_cmp(&a.confidence))
            });
            grid::remove_duplicates(all, |text| text.quad.bounds())
        }))
    }

    fn read_cells(
        &mut self,
        photo: &EmbeddedPhoto,
        pattern: &BibPattern,
        grid: &Grid,
    ) -> Result<Result<Vec<BibText>, Poison>, Outage> {
        let mut all = Vec::new();
        for cell in grid::cut_cells(photo.detected.sized.frame.frame(), grid, &mut self.resizer) {
            let faces = faces_for_cell(&cell, &photo.detected.faces);
            let request = ReadRequest { frame: cell.picture.frame(), faces: &faces, pattern };
            for texts in read_inference().infer_batch(self.reader.as_mut(), &[request])? {
                match texts {
                    Ok(texts) => all.extend(
                        texts
                            .into_iter()
                            .filter(|text| cell.contains_whole(&text.quad.bounds()))
                            .map(|text| BibText { quad: cell.quad_to_frame(&text.quad), ..text }),
                    ),
                    Err(poison) => return Ok(Err(poison)),
                }
            }
        }
        Ok(Ok(all))
    }
}

/// Returns the faces whose bib may be in the cell, in pixels of the cell; the faces themselves may be above it.
fn faces_for_cell(cell: &Cell, faces: &[FaceBox]) -> Vec<FaceBox> {
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
    faces.iter().filter(|face| cell.overlaps(&torso(face))).map(|face| cell.face_to_cell(face)).collect()
}

fn read_request<'a>(photo: &'a EmbeddedPhoto, pattern: &'a BibPattern) -> ReadRequest<'a> {
    ReadRequest { frame: photo.detected.sized.frame.frame(), faces: &photo.detected.faces, pattern }
}

/// Returns the photo with its texts, and shrinks its permit to the previews, as the frame is no longer needed.
fn to_read_photo(photo: &EmbeddedPhoto, found: Vec<BibText>) -> ReadPhoto {
    let sized = &photo.detected.sized;
    let frame = sized.frame.frame();
    sized.permit.shrink_to(sized.previews.size_bytes());
    ReadPhoto {
        metadata: Arc::clone(&sized.metadata),
        previews: sized.previews.clone(),
        faces: photo.faces.clone(),
        texts: found
            .into_iter()
            .filter_map(|text| to_detected_text(text, frame.width(), frame.height()))
            .collect(),
        _permit: Arc::clone(&sized.permit),
    }
}

fn to_detected_text(text: BibText, width: u32, height: u32) -> Option<DetectedText> {
    let index_state = classify_text(text.is_bib, text.confidence)?;
    let bounding_box = to_bounding_box(&text.quad.bounds(), width, height)?;
    Some(DetectedText { text: text.text, bounding_box, confidence: f64::from(text.confidence), index_state })
}

/// Classifies a text for search; `None` when it is dropped.
fn classify_text(is_bib: bool, confidence: f32) -> Option<TextIndexState> {
    if confidence.is_nan() || confidence < CANDIDATE_CONFIDENCE {
        return None;
    }
    Some(match (is_bib, confidence >= INDEXED_CONFIDENCE) {
        (true, true) => TextIndexState::Indexed,
        (true, false) => TextIndexState::Candidate,
        (false, _) => TextIndexState::Unindexed(UnindexedReason::NotABib),
    })
}

/// Compiled bib patterns of albums.
#[derive(Default)]
pub(crate) struct PatternCache(HashMap<String, Arc<BibPattern>>);

impl PatternCache {
    /// Returns the compiled pattern. The API rejects patterns that do not compile; for one that is in the database
    /// nevertheless, returns the default, so that a bad setting does not fail photos.
    fn get(&mut self, pattern: &str) -> Arc<BibPattern> {
        if let Some(compiled) = self.0.get(pattern) {
            return Arc::clone(compiled);
        }
        if self.0.len() >= MAX_CACHED_PATTERNS {
            self.0.clear();
        }
        let compiled = BibPattern::new(pattern).or_else(|error| {
            tracing::warn!(pattern, error = %error, "failed to compile an album's bib pattern, using the default");
            BibPattern::new(DEFAULT_BIB_PATTERN)
        });
        let compiled = Arc::new(compiled.expect("the default pattern compiles, see the tests"));
        self.0.insert(pattern.to_owned(), Arc::clone(&compiled));
        compiled
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::image::frame::Picture;
    use photofinish_models::traits::ModelIdentity;
    use photofinish_store::model::photo::FailureReason;

    use super::*;

    /// A reader that fails on frames wider than 100 pixels and on white ones.
    struct SmallReader;

    impl BibReader for SmallReader {
        fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
            let fails = |photo: &ReadRequest<'_>| photo.frame.width() > 100 || photo.frame.pixels()[0] == 255;
            if photos.iter().any(fails) {
                return Err(ModelError::Inference { name: "small".into(), detail: "no".into() });
            }
            Ok(vec![Vec::new(); photos.len()])
        }

        fn identity(&self) -> &ModelIdentity {
            unreachable!("tests do not use the identity")
        }
    }

    fn read_picture(shade: u8, width: u32, height: u32) -> Result<BatchResults<Vec<BibText>>, Outage> {
        let picture = Picture::new(vec![shade; (width * height * 3) as usize], width, height).unwrap();
        let pattern = BibPattern::new(DEFAULT_BIB_PATTERN).unwrap();
        read_inference().infer_batch(
            &mut SmallReader,
            &[ReadRequest { frame: picture.frame(), faces: &[], pattern: &pattern }],
        )
    }

    #[test]
    fn a_reader_that_lacks_memory_for_a_frame_is_an_outage() {
        assert!(read_picture(10, 100, 80).unwrap()[0].is_ok());
        assert!(read_picture(10, 101, 80).is_err());
    }

    #[test]
    fn a_frame_that_fails_reading_while_a_grey_one_of_its_size_passes_is_poison() {
        let results = read_picture(255, 100, 80).unwrap();
        assert_eq!(results[0].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
    }

    #[test]
    fn text_standing_depends_on_pattern_and_confidence() {
        assert_eq!(classify_text(true, 0.95), Some(TextIndexState::Indexed));
        assert_eq!(classify_text(true, 0.90), Some(TextIndexState::Indexed));
        assert_eq!(classify_text(true, 0.89), Some(TextIndexState::Candidate));
        assert_eq!(classify_text(true, 0.50), Some(TextIndexState::Candidate));
        assert_eq!(classify_text(false, 0.99), Some(TextIndexState::Unindexed(UnindexedReason::NotABib)));
        assert_eq!(classify_text(true, 0.49), None);
        assert_eq!(classify_text(true, f32::NAN), None);
    }

    #[test]
    fn an_invalid_pattern_is_replaced_by_the_default() {
        let mut patterns = PatternCache::default();
        assert!(patterns.get("([").matches("1234"));
        assert!(!patterns.get("^[0-9]{3}$").matches("1234"));
        assert!(patterns.get(DEFAULT_BIB_PATTERN).matches("AB1234C"));
    }
}
