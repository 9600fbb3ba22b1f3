//! The bib reader: faces say where bibs are, so text is looked for on torsos only, at a scale where digits have the
//! size that the text network reads best. Every constant was measured; `docs/READING.md`
//! says how.
//!
//! Of each runner one look ([`torso`], [`finder`]); all texts of a photo are thinned and read ([`recogniser`]); who
//! is still without a sure bib, and shows a trace of text, gets a second look at a larger scale. The whole photo is
//! read when no bib was found, and in place of the looks where a crowd would make them dearer. Which of two readings
//! stands is settled in [`readings`].
//!
//! Knows nothing of albums but the pattern of their bibs.

mod readings;
pub(crate) mod text_detector;
pub(crate) mod text_recogniser;
mod torso;

use std::sync::{Arc, Mutex, PoisonError};

use photofinish_kernels::device::Device;
use photofinish_kernels::frame::Frame;
use photofinish_kernels::geometry::Quad;

use self::readings::{TextReading, drop_contained, merge_readings};
use self::text_detector::TextDetector;
use self::text_recogniser::TextRecogniser;
use self::torso::{FIRST_PASS, Runner, SECOND_PASS, select_runners};
use crate::onnx::session::{Network, Workload};
use crate::traits::{BibPattern, BibReader, BibText, ModelError, ModelIdentity, ReadRequest};

/// Highest text probability around a runner in the first look from which a second look can help. Maps are either
/// blank (under .005) or certain (over .3) there.
const MIN_TEXT_PROBABILITY: f32 = 0.1;

/// Long side, in pixels, of a photo that is read whole because no bib was found.
const FULL_FRAME_LONG_SIDE: u32 = 960;

/// With more runners than this the photo is read whole. Measured on photos of 5 to 23 runners: looks with their
/// reads cost as much as the whole photo at 8.7 runners, and neither finds more of the labelled bibs.
const MAX_RUNNERS: usize = 8;

/// Long side, in pixels, of a photo that is read whole because it shows a crowd.
const CROWD_LONG_SIDE: u32 = 1280;

/// Readings less sure than this are no candidates, not even for fuzzy search.
const MIN_CONFIDENCE: f32 = 0.5;

/// The networks that the recipe runs, each with its own session: a session is fastest on one shape.
pub struct ReaderNetworks {
    /// Text detector for first looks; only ever sees 256 x 384.
    pub first_pass: Network,
    /// Text detector for second looks; only ever sees 384 x 480.
    pub second_pass: Network,
    /// Text detector for whole photos, of any shape.
    pub full_frame: SharedTextDetector,
    /// Text recogniser; only ever sees 160 x 48.
    pub recogniser: Network,
    /// Its classes after the blank, in order.
    pub characters: String,
}

/// How [`ReaderNetworks::first_look`] is used.
pub const FIRST_PASS_WORKLOAD: Workload =
    Workload::TextDetection { width: FIRST_PASS.canvas.width, height: FIRST_PASS.canvas.height };
/// How [`ReaderNetworks::second_look`] is used.
pub const SECOND_PASS_WORKLOAD: Workload =
    Workload::TextDetection { width: SECOND_PASS.canvas.width, height: SECOND_PASS.canvas.height };
/// How [`ReaderNetworks::recogniser`] is used.
pub const RECOGNISER_WORKLOAD: Workload =
    Workload::TextRecognition { width: text_recogniser::INPUT_WIDTH as u32 };

/// A text detector for whole photos that several readers share: it is seldom used and takes much memory. Cheap to
/// clone; calls wait for each other.
#[derive(Clone)]
pub struct SharedTextDetector(Arc<Mutex<TextDetector>>);

impl SharedTextDetector {
    /// A finder around a loaded network.
    pub fn new(device: &Device, network: Network) -> Self {
        Self(Arc::new(Mutex::new(TextDetector::new(device, network))))
    }

    fn detect_full_frame(&self, frame: Frame<'_>, long_side: u32) -> Result<Vec<Quad>, ModelError> {
        // A finder writes all its buffers anew at each call: one that a panic left is as good as another.
        let mut finder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        finder.detect_full_frame(frame, long_side)
    }
}

/// Reads bibs by the recipe; keeps its buffers.
pub struct TorsoBibReader {
    first_pass: TextDetector,
    second_pass: TextDetector,
    full_frame: SharedTextDetector,
    recogniser: TextRecogniser,
    identity: ModelIdentity,
}

/// A photo with what its bibs look like.
#[derive(Clone, Copy)]
struct Page<'a> {
    frame: Frame<'a>,
    pattern: &'a BibPattern,
}

impl TorsoBibReader {
    /// A reader whose kernels run on `device`.
    pub fn new(device: &Device, networks: ReaderNetworks, identity: ModelIdentity) -> Self {
        Self {
            first_pass: TextDetector::new(device, networks.first_pass),
            second_pass: TextDetector::new(device, networks.second_pass),
            full_frame: networks.full_frame,
            recogniser: TextRecogniser::new(device, networks.recogniser, &networks.characters),
            identity,
        }
    }

    fn read_photo(&mut self, request: &ReadRequest<'_>) -> Result<Vec<BibText>, ModelError> {
        let page = Page { frame: request.frame, pattern: request.pattern };
        let runners = select_runners(request.faces, page.frame.size());
        if runners.len() > MAX_RUNNERS {
            return self.read_full_frame(page, CROWD_LONG_SIDE).map(into_bib_texts);
        }
        let mut found = self.read_torsos(page, &runners)?;
        if !found.iter().any(TextReading::is_accepted) {
            let everywhere = self.read_full_frame(page, FULL_FRAME_LONG_SIDE)?;
            merge_readings(&mut found, everywhere);
        }
        Ok(into_bib_texts(found))
    }

    fn read_torsos(&mut self, page: Page<'_>, runners: &[Runner]) -> Result<Vec<TextReading>, ModelError> {
        let mut texts = Vec::new();
        let mut evidence = Vec::with_capacity(runners.len());
        for runner in runners {
            let _step = tracing::debug_span!("first_look").entered();
            let torso = self.first_pass.detect_on_torso(page.frame, runner, &FIRST_PASS)?;
            texts.extend(torso.texts);
            evidence.push(torso.text_probability);
        }
        let mut found = self.recognise_texts(page, texts)?;

        let mut texts = Vec::new();
        for (runner, evidence) in runners.iter().zip(evidence) {
            if evidence <= MIN_TEXT_PROBABILITY || found.iter().any(|reading| reading.resolves(runner)) {
                continue;
            }
            let _step = tracing::debug_span!("second_look").entered();
            texts.extend(self.second_pass.detect_on_torso(page.frame, runner, &SECOND_PASS)?.texts);
        }
        let again = self.recognise_texts(page, texts)?;
        merge_readings(&mut found, again);
        Ok(found)
    }

    fn read_full_frame(&mut self, page: Page<'_>, long_side: u32) -> Result<Vec<TextReading>, ModelError> {
        let step = tracing::debug_span!("whole_photo").entered();
        let texts = self.full_frame.detect_full_frame(page.frame, long_side)?;
        drop(step);
        self.recognise_texts(page, texts)
    }

    /// Reads what is left of the texts once those that lie in larger ones are dropped. The pattern is held against
    /// the text as it was read: letters of bibs are capitals, a small one is a word's (`10k`).
    fn recognise_texts(&mut self, page: Page<'_>, texts: Vec<Quad>) -> Result<Vec<TextReading>, ModelError> {
        let mut readings = Vec::with_capacity(texts.len());
        for quad in drop_contained(texts) {
            let _step = tracing::debug_span!("recognise").entered();
            let line = self.recogniser.read(page.frame, &quad)?;
            let is_bib = !line.text.is_empty() && page.pattern.matches(&line.text);
            readings.push(TextReading { quad, text: line.text, confidence: line.confidence, is_bib });
        }
        Ok(readings)
    }
}

impl BibReader for TorsoBibReader {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        photos.iter().map(|photo| self.read_photo(photo)).collect()
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

/// Readings as the pipeline takes them: in capitals, surest first.
fn into_bib_texts(found: Vec<TextReading>) -> Vec<BibText> {
    let mut texts: Vec<BibText> = found
        .into_iter()
        .filter(|reading| !reading.text.is_empty() && reading.confidence >= MIN_CONFIDENCE)
        .map(|reading| BibText {
            text: reading.text.to_ascii_uppercase(),
            quad: reading.quad,
            confidence: reading.confidence,
            is_bib: reading.is_bib,
        })
        .collect();
    texts.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    texts
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::Point;

    use super::*;

    fn reading(text: &str, confidence: f32) -> TextReading {
        let quad = Quad([Point::default(); 4]);
        TextReading { quad, text: text.to_owned(), confidence, is_bib: false }
    }

    #[test]
    fn bib_texts_are_upper_case_confident_and_sorted_by_confidence() {
        let found = vec![reading("a12", 0.6), reading("", 0.99), reading("77", 0.49), reading("B3", 0.9)];
        let texts: Vec<String> = into_bib_texts(found).into_iter().map(|text| text.text).collect();
        assert_eq!(texts, ["B3", "A12"]);
    }
}
