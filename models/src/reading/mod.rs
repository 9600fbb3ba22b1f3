//! The bib reader. Bibs are on torsos under faces, so text is detected there only, at the scale at which the text
//! network reads digits best. `docs/READING.md` lists the steps; comments here cite them by number.
//!
//! Each runner gets a first pass (`torso`, `text_detector`), and the detected texts of a photo are read
//! (`text_recogniser`). A runner without a confident bib but with some text gets a second pass at a larger scale. The
//! full frame is read when no bib was accepted. `readings` decides which of two readings of one text is kept.
//!
//! Knows nothing of albums except the pattern of their bibs.

mod readings;
mod text_detector;
mod text_recogniser;
mod torso;

use std::sync::{Arc, Mutex, PoisonError};

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Quad;
use photofinish_kernels::image::frame::{Frame, Size};

use self::readings::{TextReading, drop_contained, merge_readings};
use self::text_detector::TextDetector;
use self::text_recogniser::TextRecogniser;
use self::torso::{FIRST_PASS, Runner, SECOND_PASS, select_runners};
pub use self::torso::{RunnerBudget, limit_runners};
use crate::onnx::session::{Network, Workload};
use crate::traits::{BibReader, BibText, Interrupt, ModelError, ModelIdentity, ReadRequest};

/// Least text probability around a runner in the first pass at which a second pass can help (step 13). Values there are
/// either below .005 or above .3.
const MIN_TEXT_PROBABILITY: f32 = 0.1;

/// Long side, in pixels, of a full frame that is read because no bib was accepted (step 14).
const FULL_FRAME_LONG_SIDE: u32 = 960;

/// Readings below this confidence are dropped: they are not used even for fuzzy search (step 15).
const MIN_CONFIDENCE: f32 = 0.5;

/// The networks that the reader runs. Each has its own session, because a session is fastest on one input shape.
pub struct ReaderNetworks {
    /// Text detector of the first pass; its input is always 256 x 384.
    pub first_pass: Network,
    /// Text detector of the second pass; its input is always 384 x 480.
    pub second_pass: Network,
    /// Text detector for full frames of any shape.
    pub full_frame: SharedTextDetector,
    /// Text recogniser; its input is always 160 x 48.
    pub recogniser: Network,
    /// The recogniser's classes after the blank, in order.
    pub characters: String,
}

/// The input of [`ReaderNetworks::first_pass`], in pixels.
pub const FIRST_PASS_CANVAS: Size = FIRST_PASS.canvas;
/// The input of [`ReaderNetworks::recogniser`], in pixels.
pub const RECOGNISER_INPUT: Size =
    Size { width: text_recogniser::INPUT_WIDTH as u32, height: text_recogniser::INPUT_HEIGHT as u32 };
/// Workload to load [`ReaderNetworks::first_pass`] with.
pub const FIRST_PASS_WORKLOAD: Workload =
    Workload::TextDetection { width: FIRST_PASS.canvas.width, height: FIRST_PASS.canvas.height };
/// Workload to load [`ReaderNetworks::second_pass`] with.
pub const SECOND_PASS_WORKLOAD: Workload =
    Workload::TextDetection { width: SECOND_PASS.canvas.width, height: SECOND_PASS.canvas.height };
/// Workload to load [`ReaderNetworks::recogniser`] with.
pub const RECOGNISER_WORKLOAD: Workload =
    Workload::TextRecognition { width: text_recogniser::INPUT_WIDTH as u32 };

/// A text detector for full frames that all readers share, because it is rarely used and takes much memory. Cheap to
/// clone; calls are serialised by a mutex.
#[derive(Clone)]
pub struct SharedTextDetector(Arc<Mutex<TextDetector>>);

impl SharedTextDetector {
    /// Wraps a loaded network.
    pub fn new(device: &Device, network: Network) -> Self {
        Self(Arc::new(Mutex::new(TextDetector::new(device, network))))
    }

    fn detect_full_frame(&self, frame: Frame<'_>, long_side: u32) -> Result<Vec<Quad>, ModelError> {
        // Each call rewrites all buffers, so a panic in an earlier call left nothing that matters.
        let mut detector = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        detector.detect_full_frame(frame, long_side)
    }
}

/// Reads bibs on torsos, by the steps of `docs/READING.md`. Keeps its buffers between calls.
pub struct TorsoBibReader {
    first_pass: TextDetector,
    second_pass: TextDetector,
    full_frame: SharedTextDetector,
    recogniser: TextRecogniser,
    identity: ModelIdentity,
    interrupt: Interrupt,
}

impl TorsoBibReader {
    /// Builds a reader whose kernels run on `device`.
    pub fn new(device: &Device, networks: ReaderNetworks, identity: ModelIdentity) -> Self {
        Self {
            first_pass: TextDetector::new(device, networks.first_pass),
            second_pass: TextDetector::new(device, networks.second_pass),
            full_frame: networks.full_frame,
            recogniser: TextRecogniser::new(device, networks.recogniser, &networks.characters),
            identity,
            interrupt: Interrupt::default(),
        }
    }

    fn read_photo(&mut self, request: &ReadRequest<'_>) -> Result<Vec<BibText>, ModelError> {
        let runners = select_runners(request.faces, request.frame.size());
        let mut readings = self.read_torsos(request, &runners)?;
        if !readings.iter().any(TextReading::is_accepted) {
            let full_frame = self.read_full_frame(request, FULL_FRAME_LONG_SIDE)?;
            merge_readings(&mut readings, full_frame);
        }
        Ok(into_bib_texts(readings))
    }

    /// Runs the first pass on every runner, and the second on those without a confident bib.
    fn read_torsos(
        &mut self,
        request: &ReadRequest<'_>,
        runners: &[Runner],
    ) -> Result<Vec<TextReading>, ModelError> {
        let mut texts = Vec::new();
        let mut text_probabilities = Vec::with_capacity(runners.len());
        for runner in runners {
            self.interrupt.check()?;
            let _span = tracing::debug_span!("first_pass").entered();
            let torso = self.first_pass.detect_on_torso(request.frame, runner, &FIRST_PASS)?;
            texts.extend(torso.texts);
            text_probabilities.push(torso.text_probability);
        }
        let mut readings = self.recognise_texts(request, texts)?;

        let mut texts = Vec::new();
        for (runner, text_probability) in runners.iter().zip(text_probabilities) {
            let is_resolved = readings.iter().any(|reading| reading.resolves(runner));
            if is_resolved || text_probability <= MIN_TEXT_PROBABILITY {
                continue;
            }
            self.interrupt.check()?;
            let _span = tracing::debug_span!("second_pass").entered();
            texts.extend(self.second_pass.detect_on_torso(request.frame, runner, &SECOND_PASS)?.texts);
        }
        let second_readings = self.recognise_texts(request, texts)?;
        merge_readings(&mut readings, second_readings);
        Ok(readings)
    }

    fn read_full_frame(
        &mut self,
        request: &ReadRequest<'_>,
        long_side: u32,
    ) -> Result<Vec<TextReading>, ModelError> {
        self.interrupt.check()?;
        let span = tracing::debug_span!("full_frame").entered();
        let texts = self.full_frame.detect_full_frame(request.frame, long_side)?;
        drop(span);
        self.recognise_texts(request, texts)
    }

    /// Reads the texts that are not contained in larger ones. The pattern is matched before upper-casing: letters on bibs
    /// are capitals, so a small letter belongs to a word (`10k`).
    fn recognise_texts(
        &mut self,
        request: &ReadRequest<'_>,
        texts: Vec<Quad>,
    ) -> Result<Vec<TextReading>, ModelError> {
        let mut readings = Vec::with_capacity(texts.len());
        for quad in drop_contained(texts) {
            self.interrupt.check()?;
            let _span = tracing::debug_span!("recognise").entered();
            let line = self.recogniser.read(request.frame, &quad)?;
            let is_bib = !line.text.is_empty() && request.pattern.matches(&line.text);
            readings.push(TextReading { quad, text: line.text, confidence: line.confidence, is_bib });
        }
        Ok(readings)
    }
}

impl BibReader for TorsoBibReader {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        photos.iter().map(|photo| self.read_photo(photo)).collect()
    }

    fn end_when_set(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

/// Returns the readings as the pipeline takes them: upper case, most confident first.
fn into_bib_texts(readings: Vec<TextReading>) -> Vec<BibText> {
    let mut texts: Vec<BibText> = readings
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
        let readings = vec![reading("a12", 0.6), reading("", 0.99), reading("77", 0.49), reading("B3", 0.9)];
        let texts: Vec<String> = into_bib_texts(readings).into_iter().map(|text| text.text).collect();
        assert_eq!(texts, ["B3", "A12"]);
    }
}
