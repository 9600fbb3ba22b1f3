//! The stage `read`: reads bibs and classifies each text for search. The last stage that needs pixels. The whole frame is
//! one step, each grid cell another.

use std::collections::HashMap;
use std::sync::Arc;

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::resize::Resizer;
use photofinish_models::reading::{RunnerBudget, limit_runners};
use photofinish_models::traits::{
    BibPattern, BibReader, BibText, FaceBox, ModelError, ReadRequest, TorsoCounts,
};
use photofinish_store::model::album::DEFAULT_BIB_PATTERN;
use photofinish_store::model::photo::{DetectedText, TextIndexState, TextLattice, UnindexedReason};

use crate::engine::fault::Outage;
use crate::engine::metrics::TORSOS;
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::stages::grid::{self, Cell, CellGrid};
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
    /// The most cells per photo in grid mode.
    pub(crate) max_cells: u32,
    /// The most runners per photo.
    pub(crate) max_runners: usize,
}

impl Read {
    /// Runs the networks on a grey frame.
    pub(crate) fn try_network(&mut self) -> Result<(), ModelError> {
        let pattern = BibPattern::new(DEFAULT_BIB_PATTERN)?;
        self.reader.read(&[ReadRequest { frame: grey_frame(), faces: &[], pattern: &pattern }]).map(drop)
    }
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

fn count_torsos(counts: TorsoCounts) {
    let TorsoCounts { read, no_number } = counts;
    for (outcome, count) in [("read", read), ("no_number", no_number)] {
        metrics::counter!(TORSOS, "outcome" => outcome).increment(count);
    }
}

/// What one step reads of a photo.
struct Region {
    pattern: Arc<BibPattern>,
    /// A cell, which has its own pixels; the whole frame if absent.
    cell: Option<Cell>,
    /// The faces whose bibs are read, in pixels of the cell or frame.
    faces: Vec<FaceBox>,
    /// Runners of the photo that are not read.
    skipped: usize,
}

type BibTexts = Vec<BibText>;

impl SteppedStage for Read {
    type In = EmbeddedPhoto;
    type Part = BibTexts;
    type Out = ReadPhoto;

    fn step(
        &mut self,
        batch: &[EmbeddedPhoto],
        parts: &[Vec<BibTexts>],
    ) -> Result<StepResults<BibTexts, ReadPhoto>, Outage> {
        let photos = || batch.iter().zip(parts);
        let regions: Vec<Option<Region>> =
            photos().map(|(photo, parts)| self.next_region(photo, parts.len())).collect();
        let requests: Vec<ReadRequest<'_>> = batch
            .iter()
            .zip(&regions)
            .filter_map(|(photo, region)| Some(read_request(photo, region.as_ref()?)))
            .collect();
        let mut texts = read_inference().infer_batch(self.reader.as_mut(), &requests)?.into_iter();
        count_torsos(self.reader.take_counts());
        let mut results = Vec::with_capacity(batch.len());
        for ((photo, parts), region) in photos().zip(&regions) {
            let Some(region) = region else {
                results.push(Ok(Step::Done(self.to_read_photo(photo, Vec::new(), 0))));
                continue;
            };
            let found = texts.next().expect("one result per request, checked by `BatchInference`");
            results.push(found.map(|found| self.end_step(photo, parts, region, found)));
        }
        Ok(results)
    }

    /// Its runners; one at least, for the work around them.
    fn weigh(photo: &EmbeddedPhoto, _parts: &[BibTexts]) -> u64 {
        1 + photo.detected.faces.len() as u64
    }
}

impl Read {
    /// What the next step reads after `steps` others; `None` where the album wants no texts.
    fn next_region(&mut self, photo: &EmbeddedPhoto, steps: usize) -> Option<Region> {
        let config = &photo.detected.sized.metadata.lease.config;
        if !config.text.enabled {
            return None;
        }
        let pattern = self.patterns.get(&config.bib_pattern);
        let cell_index = steps.checked_sub(1);
        let frame = photo.detected.sized.frame.frame();
        let RunnerBudget { mut faces, skipped } =
            limit_runners(&photo.detected.faces, frame.size(), self.max_runners);
        let cell = cell_index
            .zip(self.cell_grid(photo))
            .and_then(|(index, grid)| grid.cut(frame, index, &mut self.resizer));
        if let Some(cell) = &cell {
            faces = faces_for_cell(cell, &faces);
        }
        Some(Region { pattern, cell, faces, skipped })
    }

    fn cell_grid(&self, photo: &EmbeddedPhoto) -> Option<CellGrid> {
        let sized = &photo.detected.sized;
        let grid = grid::grid_of(&sized.metadata.lease.config.text)?;
        Some(CellGrid::bounded(grid, sized.frame.frame().size(), self.max_cells))
    }

    /// Adds the texts of a step to those of the steps before it.
    fn end_step(
        &self,
        photo: &EmbeddedPhoto,
        parts: &[BibTexts],
        region: &Region,
        found: BibTexts,
    ) -> Step<BibTexts, ReadPhoto> {
        let (found, skipped) = (region.to_frame(found), region.skipped);
        let cell_count = self.cell_grid(photo).map_or(0, |grid| grid.cell_count());
        if parts.len() < cell_count {
            return Step::Part(found);
        }
        if cell_count == 0 {
            return Step::Done(self.to_read_photo(photo, found, skipped));
        }
        let texts = merge_texts(parts.iter().flatten().cloned().chain(found).collect());
        Step::Done(self.to_read_photo(photo, texts, skipped))
    }

    /// Returns the photo with its texts, and shrinks its permit to the previews, as the frame is no longer needed.
    fn to_read_photo(&self, photo: &EmbeddedPhoto, found: Vec<BibText>, skipped_runners: usize) -> ReadPhoto {
        let sized = &photo.detected.sized;
        let size = sized.frame.frame().size();
        sized.permit.shrink_to(sized.previews.size_bytes());
        metrics::counter!(TORSOS, "outcome" => "too_many").increment(skipped_runners as u64);
        let recogniser = self.reader.identity().to_string();
        ReadPhoto {
            metadata: Arc::clone(&sized.metadata),
            previews: sized.previews.clone(),
            faces: photo.faces.clone(),
            texts: found.into_iter().filter_map(|text| to_detected_text(text, size, &recogniser)).collect(),
            skipped_runners: u32::try_from(skipped_runners).unwrap_or(u32::MAX),
            _permit: Arc::clone(&sized.permit),
        }
    }
}

impl Region {
    /// Returns the texts that are whole in the region, in pixels of the frame.
    fn to_frame(&self, found: BibTexts) -> BibTexts {
        let Some(cell) = &self.cell else { return found };
        found
            .into_iter()
            .filter(|text| cell.contains_whole(&text.quad.bounds()))
            .map(|text| BibText { quad: cell.quad_to_frame(&text.quad), ..text })
            .collect()
    }
}

/// Merges the texts of the whole photo and of its cells. Of duplicates the first is kept: bibs before other texts, longer
/// ones before parts of them, then by confidence.
fn merge_texts(mut all: BibTexts) -> BibTexts {
    all.sort_by(|a, b| {
        let rank = |text: &BibText| (text.is_bib && text.confidence >= INDEXED_CONFIDENCE, text.text.len());
        rank(b).cmp(&rank(a)).then(b.confidence.total_cmp(&a.confidence))
    });
    grid::remove_duplicates(all, |text| text.quad.bounds())
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

fn read_request<'a>(photo: &'a EmbeddedPhoto, region: &'a Region) -> ReadRequest<'a> {
    let frame = match &region.cell {
        Some(cell) => cell.picture.frame(),
        None => photo.detected.sized.frame.frame(),
    };
    ReadRequest { frame, faces: &region.faces, pattern: &region.pattern }
}

fn to_detected_text(text: BibText, size: Size, recogniser: &str) -> Option<DetectedText> {
    Some(DetectedText {
        index_state: classify_text(text.is_bib, text.confidence)?,
        bounding_box: to_bounding_box(&text.quad.bounds(), size.width, size.height)?,
        text: text.text,
        confidence: f64::from(text.confidence),
        max_confidence: f64::from(text.max_confidence),
        read: None,
        lattice: Some(TextLattice { recogniser: recogniser.to_owned(), lattice: text.lattice }),
    })
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
    use crate::engine::stage::BatchResults;

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
