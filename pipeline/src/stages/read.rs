//! The stage `read`: reads bibs and classifies each text for search. The last stage that needs pixels. The whole frame and
//! each grid cell are read one after the other, each in as many steps as the reader takes for its runners.

use std::collections::HashMap;
use std::sync::Arc;

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::resize::Resizer;
use photofinish_models::reading::{RunnerBudget, limit_runners};
use photofinish_models::traits::{
    BibPattern, BibReader, BibText, FaceBox, ModelError, OpenReading, ReadProgress, ReadRequest, ReadStep,
    TorsoCounts,
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

/// Minimum confidence of a text that searches return (docs/READING.md, step 16).
const INDEXED_CONFIDENCE: f32 = 0.90;

/// Minimum confidence of a text that is kept for fuzzy search (docs/READING.md, step 16).
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

fn read_inference<'a>() -> BatchInference<dyn BibReader, OpenReading<'a>, ReadStep> {
    BatchInference { run: |reader, photos| reader.read_step(photos), self_test }
}

/// Uses the faces of the request, which determine the sizes at which the photo is read.
fn self_test(
    reader: &mut (dyn BibReader + 'static),
    OpenReading { request: photo, .. }: &OpenReading<'_>,
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

/// A part of a photo that is read by itself.
#[derive(Debug)]
pub(crate) struct Region {
    pattern: Arc<BibPattern>,
    /// A cell, which has its own pixels; the whole frame if absent.
    cell: Option<Cell>,
    /// The faces whose bibs are read, in pixels of the cell or frame.
    faces: Vec<FaceBox>,
    /// Runners of the photo that are not read.
    skipped: usize,
}

type BibTexts = Vec<BibText>;

/// What steps have found.
#[derive(Debug)]
pub(crate) enum ReadPart {
    /// The texts of a region, in pixels of the frame.
    Texts(BibTexts),
    /// How far the reader is with the region that it reads; always the last part. A region is kept while it is read, so that
    /// a cell is cut once.
    Open(Arc<Region>, ReadProgress),
}

impl ReadPart {
    fn texts(&self) -> Option<&BibTexts> {
        match self {
            Self::Texts(texts) => Some(texts),
            Self::Open(..) => None,
        }
    }
}

/// The region that a step reads, and how far the reader is with it.
struct OpenRegion<'p> {
    region: Arc<Region>,
    progress: Option<&'p ReadProgress>,
}

impl SteppedStage for Read {
    type In = EmbeddedPhoto;
    type Part = ReadPart;
    type Out = ReadPhoto;

    fn step(
        &mut self,
        batch: &[EmbeddedPhoto],
        parts: &[Vec<ReadPart>],
    ) -> Result<StepResults<ReadPart, ReadPhoto>, Outage> {
        let photos = || batch.iter().zip(parts);
        let regions: Vec<Option<OpenRegion<'_>>> =
            photos().map(|(photo, parts)| self.next_region(photo, parts)).collect();
        let requests: Vec<OpenReading<'_>> = batch
            .iter()
            .zip(&regions)
            .filter_map(|(photo, region)| Some(open_reading(photo, region.as_ref()?)))
            .collect();
        let mut steps = read_inference().infer_batch(self.reader.as_mut(), &requests)?.into_iter();
        count_torsos(self.reader.take_counts());
        let mut results = Vec::with_capacity(batch.len());
        for ((photo, parts), open) in photos().zip(&regions) {
            let Some(open) = open else {
                results.push(Ok(Step::Done(self.to_read_photo(photo, Vec::new(), 0))));
                continue;
            };
            let step = steps.next().expect("one result per request, checked by `BatchInference`");
            results.push(step.map(|step| match step {
                ReadStep::More(progress) => Step::Part(ReadPart::Open(Arc::clone(&open.region), progress)),
                ReadStep::Done(found) => self.end_region(photo, parts, &open.region, found),
            }));
        }
        Ok(results)
    }

    /// The region that was open has got further, or is read.
    fn add_part(parts: &mut Vec<ReadPart>, found: ReadPart) {
        if matches!(parts.last(), Some(ReadPart::Open(..))) {
            parts.pop();
        }
        parts.push(found);
    }

    /// Its runners; one at least, for the work around them.
    fn weigh(photo: &EmbeddedPhoto, _parts: &[ReadPart]) -> u64 {
        1 + photo.detected.faces.len() as u64
    }
}

impl Read {
    /// What the next step reads; `None` where the album wants no texts.
    fn next_region<'p>(&mut self, photo: &EmbeddedPhoto, parts: &'p [ReadPart]) -> Option<OpenRegion<'p>> {
        if let Some(ReadPart::Open(region, progress)) = parts.last() {
            return Some(OpenRegion { region: Arc::clone(region), progress: Some(progress) });
        }
        let region = Arc::new(self.open_region(photo, parts.len())?);
        Some(OpenRegion { region, progress: None })
    }

    /// The whole frame, or the cell that follows after so many regions.
    fn open_region(&mut self, photo: &EmbeddedPhoto, regions: usize) -> Option<Region> {
        let config = &photo.detected.sized.metadata.lease.config;
        if !config.text.enabled {
            return None;
        }
        let pattern = self.patterns.get(&config.bib_pattern);
        let cell_index = regions.checked_sub(1);
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

    /// Adds the texts of a region to those of the regions before it.
    fn end_region(
        &self,
        photo: &EmbeddedPhoto,
        parts: &[ReadPart],
        region: &Region,
        found: BibTexts,
    ) -> Step<ReadPart, ReadPhoto> {
        let (found, skipped) = (region.to_frame(found), region.skipped);
        let cell_count = self.cell_grid(photo).map_or(0, |grid| grid.cell_count());
        let earlier: Vec<&BibTexts> = parts.iter().filter_map(ReadPart::texts).collect();
        if earlier.len() < cell_count {
            return Step::Part(ReadPart::Texts(found));
        }
        if cell_count == 0 {
            return Step::Done(self.to_read_photo(photo, found, skipped));
        }
        let texts = merge_texts(earlier.into_iter().flatten().cloned().chain(found).collect());
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

fn open_reading<'a>(photo: &'a EmbeddedPhoto, open: &'a OpenRegion<'_>) -> OpenReading<'a> {
    let region = &*open.region;
    let frame = match &region.cell {
        Some(cell) => cell.picture.frame(),
        None => photo.detected.sized.frame.frame(),
    };
    let request = ReadRequest { frame, faces: &region.faces, pattern: &region.pattern };
    OpenReading { request, progress: open.progress }
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

    fn read_picture(shade: u8, width: u32, height: u32) -> Result<BatchResults<ReadStep>, Outage> {
        let picture = Picture::new(vec![shade; (width * height * 3) as usize], width, height).unwrap();
        let pattern = BibPattern::new(DEFAULT_BIB_PATTERN).unwrap();
        let request = ReadRequest { frame: picture.frame(), faces: &[], pattern: &pattern };
        read_inference().infer_batch(&mut SmallReader, &[OpenReading { request, progress: None }])
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
    fn of_a_region_that_is_being_read_only_the_last_step_is_kept() {
        let pattern = Arc::new(BibPattern::new(DEFAULT_BIB_PATTERN).unwrap());
        let region = Arc::new(Region { pattern, cell: None, faces: Vec::new(), skipped: 0 });
        let mut parts = vec![ReadPart::Texts(Vec::new())];
        for step in 0..3 {
            Read::add_part(&mut parts, ReadPart::Open(Arc::clone(&region), ReadProgress::new(step)));
        }
        let [ReadPart::Texts(_), ReadPart::Open(_, progress)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(progress.get::<i32>(), Some(&2));
        Read::add_part(&mut parts, ReadPart::Texts(Vec::new()));
        assert_eq!(parts.iter().filter_map(ReadPart::texts).count(), 2);
        assert_eq!(parts.len(), 2);
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
