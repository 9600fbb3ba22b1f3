//! The bib reader. Bibs are on torsos under faces, so text is detected there only, at the scale at which the text
//! network reads digits best. `docs/READING.md` lists the steps; comments here cite them by number.
//!
//! A gate looks at each torso (`bib_gate`). Where it sees that a number may be, the runner gets a first pass (`torso`,
//! `torso_detector`, `text_detector`), and the detected texts of a photo are read (`text_recogniser`). A runner without a
//! confident bib but with a trace of one gets a second pass at a larger scale. The full frame is read when no bib was accepted.
//! `readings` decides which of two readings of one text is kept.
//!
//! Knows nothing of albums except the pattern of their bibs.

mod bib_gate;
mod readings;
mod text_detector;
mod text_recogniser;
mod torso;
mod torso_detector;

use std::sync::{Arc, Mutex, PoisonError};

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Quad;
use photofinish_kernels::image::frame::{Frame, Size};

use self::bib_gate::GateOpinion;
use self::readings::{FoundText, TextReading, drop_contained, merge_readings};
use self::text_detector::TextDetector;
use self::text_recogniser::{RecognisedLine, TextRecogniser};
use self::torso::{FIRST_PASS, Runner, SECOND_PASS, TorsoPass, select_runners};
pub use self::torso::{RunnerBudget, limit_runners};
use self::torso_detector::TorsoDetector;
use crate::onnx::session::{Network, Workload};
use crate::traits::{BibReader, BibText, Interrupt, ModelError, ModelIdentity, ReadRequest, TorsoCounts};

pub use self::bib_gate::{BibGate, GateScope, GateThresholds};

/// Least text probability around a runner in the first pass at which a second pass can help (step 13). Values there are
/// either below .005 or above .3.
const MIN_TEXT_PROBABILITY: f32 = 0.1;

/// Score of the gate from which a torso where the text detector saw nothing gets a second pass, also if its digits are not
/// small (step 13).
const LIKELY_SCORE: f32 = 0.5;

/// Long side, in pixels, of a full frame that is read because no bib was accepted (step 14).
const FULL_FRAME_LONG_SIDE: u32 = 960;

/// Readings below this confidence are dropped: they are not used even for fuzzy search (step 15).
const MIN_CONFIDENCE: f32 = 0.5;

/// The networks that the reader runs. Each has its own session, because a session is fastest on one input shape.
pub struct ReaderNetworks {
    /// Decides which torsos are read, and where; without it, all are but those of small runners.
    pub bib_gate: Option<BibGate>,
    /// Text detectors of the first pass, loaded with all of [`TorsoPassKind::workloads`] in this order, or with
    /// [`TorsoPassKind::whole_workload`] alone, which reads all of every torso.
    pub first_pass: Vec<Network>,
    /// The same for the second pass.
    pub second_pass: Vec<Network>,
    /// Text detector for full frames of any shape.
    pub full_frame: SharedTextDetector,
    /// Text recogniser; its input is always 160 x 48.
    pub recogniser: Network,
    /// The recogniser's classes after the blank, in order.
    pub characters: String,
}

/// The input of the bib gate, in pixels.
pub const BIB_GATE_INPUT: Size = bib_gate::INPUT;
/// The largest input of [`ReaderNetworks::first_pass`], in pixels.
pub const FIRST_PASS_CANVAS: Size = FIRST_PASS.canvas;
/// The input of [`ReaderNetworks::recogniser`], in pixels.
pub const RECOGNISER_INPUT: Size =
    Size { width: text_recogniser::INPUT_WIDTH as u32, height: text_recogniser::INPUT_HEIGHT as u32 };
/// Workload to load [`ReaderNetworks::recogniser`] with.
pub const RECOGNISER_WORKLOAD: Workload =
    Workload::TextRecognition { width: text_recogniser::INPUT_WIDTH as u32 };

/// A pass over a torso.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorsoPassKind {
    /// That of every torso.
    First,
    /// The one at a larger scale.
    Second,
}

impl TorsoPassKind {
    const fn pass(self) -> &'static TorsoPass {
        match self {
            Self::First => &FIRST_PASS,
            Self::Second => &SECOND_PASS,
        }
    }

    /// Workloads to load its networks with: windows of the canvas, lowest first, and the whole canvas.
    pub fn workloads(self) -> [Workload; 3] {
        let width = self.pass().canvas.width;
        self.pass().heights().map(|height| Workload::TextDetection { width, height })
    }

    /// Workload for the whole canvas.
    pub fn whole_workload(self) -> Workload {
        let Size { width, height } = self.pass().canvas;
        Workload::TextDetection { width, height }
    }
}

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
    bib_gate: Option<BibGate>,
    first_pass: TorsoDetector,
    second_pass: TorsoDetector,
    full_frame: SharedTextDetector,
    recogniser: TextRecogniser,
    identity: ModelIdentity,
    interrupt: Interrupt,
    counts: TorsoCounts,
}

/// A runner with what is known of the torso.
struct Torso<'r> {
    runner: &'r Runner,
    /// What the gate says, if there is one.
    opinion: Option<GateOpinion>,
    /// The highest text probability of the first pass; 0 where none ran.
    text_probability: f32,
    /// Whether a second pass may show a bib that the first one did not (step 13).
    is_unresolved: bool,
}

impl<'r> Torso<'r> {
    fn new(runner: &'r Runner, opinion: Option<GateOpinion>) -> Self {
        Self { runner, opinion, text_probability: 0.0, is_unresolved: false }
    }
}

impl TorsoBibReader {
    /// Builds a reader whose kernels run on `device`.
    pub fn new(device: &Device, networks: ReaderNetworks, identity: ModelIdentity) -> Self {
        Self {
            bib_gate: networks.bib_gate,
            first_pass: TorsoDetector::new(device, &FIRST_PASS, networks.first_pass),
            second_pass: TorsoDetector::new(device, &SECOND_PASS, networks.second_pass),
            full_frame: networks.full_frame,
            recogniser: TextRecogniser::new(device, networks.recogniser, &networks.characters),
            identity,
            interrupt: Interrupt::default(),
            counts: TorsoCounts::default(),
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

    /// Asks the gate about every runner, runs the first pass on those who may wear a number, and the second on those of
    /// them without a confident bib. The largest runner gets a second pass in any case when the photo has no bib.
    fn read_torsos(
        &mut self,
        request: &ReadRequest<'_>,
        runners: &[Runner],
    ) -> Result<Vec<TextReading>, ModelError> {
        let mut torsos = self.ask_gate(request, runners)?;
        let mut readings = self.run_first_pass(request, &mut torsos)?;
        for torso in &mut torsos {
            torso.is_unresolved = self.deserves_second_pass(request, torso, &readings)?;
        }
        let unresolved = torsos.iter().filter(|torso| torso.is_unresolved);
        self.run_second_pass(request, unresolved, &mut readings)?;
        let largest = torsos.first().filter(|torso| !torso.is_unresolved && self.may_get_second_pass(torso));
        if largest.is_some() && !readings.iter().any(TextReading::is_accepted) {
            self.run_second_pass(request, largest, &mut readings)?;
        }
        Ok(readings)
    }

    fn run_first_pass(
        &mut self,
        request: &ReadRequest<'_>,
        torsos: &mut [Torso<'_>],
    ) -> Result<Vec<TextReading>, ModelError> {
        let mut texts = Vec::new();
        for torso in torsos {
            self.interrupt.check()?;
            let _span = tracing::debug_span!("first_pass").entered();
            let cells = torso.opinion.as_ref().map(|opinion| &opinion.rows);
            let found = self.first_pass.detect(request.frame, torso.runner, cells)?;
            let is_small = torso.runner.is_small();
            texts.extend(found.texts.into_iter().map(|quad| FoundText { quad, is_small }));
            torso.text_probability = found.text_probability;
        }
        self.recognise_texts(request, texts)
    }

    /// Reads torsos at the larger scale and merges what is read into `readings`.
    fn run_second_pass<'t>(
        &mut self,
        request: &ReadRequest<'_>,
        torsos: impl IntoIterator<Item = &'t Torso<'t>>,
        readings: &mut Vec<TextReading>,
    ) -> Result<(), ModelError> {
        let mut texts = Vec::new();
        for torso in torsos {
            self.interrupt.check()?;
            let _span = tracing::debug_span!("second_pass").entered();
            let cells = torso.opinion.as_ref().map(|opinion| &opinion.rows);
            let found = self.second_pass.detect(request.frame, torso.runner, cells)?;
            texts.extend(found.texts.into_iter().map(FoundText::from));
        }
        merge_readings(readings, self.recognise_texts(request, texts)?);
        Ok(())
    }

    /// Returns the torsos that may show a number; without a gate all but those of small runners.
    fn ask_gate<'r>(
        &mut self,
        request: &ReadRequest<'_>,
        runners: &'r [Runner],
    ) -> Result<Vec<Torso<'r>>, ModelError> {
        let has_gate = self.bib_gate.is_some();
        let mut torsos = Vec::with_capacity(runners.len());
        let mut skipped = 0;
        for runner in runners.iter().filter(|runner| has_gate || !runner.is_small()) {
            let gate = self.bib_gate.as_mut();
            let Some((gate, least)) =
                gate.and_then(|gate| gate.least_score(runner).map(|least| (gate, least)))
            else {
                torsos.push(Torso::new(runner, None));
                continue;
            };
            self.interrupt.check()?;
            let _span = tracing::debug_span!("bib_gate").entered();
            let opinion = gate.look(request.frame, runner)?;
            if opinion.score >= least {
                torsos.push(Torso::new(runner, Some(opinion)));
            } else {
                skipped += 1;
            }
        }
        if skipped > 0 {
            tracing::debug!(
                skipped,
                torsos = runners.len(),
                "skipped torsos on which the gate saw no number"
            );
        }
        self.counts.read += torsos.len() as u64;
        self.counts.no_number += skipped;
        Ok(torsos)
    }

    /// Whether a runner without a confident bib may have one that a larger scale shows (step 13): the text detector or the
    /// gate saw a trace of it.
    fn deserves_second_pass(
        &mut self,
        request: &ReadRequest<'_>,
        torso: &Torso<'_>,
        readings: &[TextReading],
    ) -> Result<bool, ModelError> {
        if !self.may_get_second_pass(torso) || readings.iter().any(|reading| reading.resolves(torso.runner)) {
            return Ok(false);
        }
        if torso.text_probability > MIN_TEXT_PROBABILITY {
            return Ok(true);
        }
        let Some(gate) = &mut self.bib_gate else { return Ok(false) };
        let score = match &torso.opinion {
            Some(opinion) => opinion.score,
            None => gate.look(request.frame, torso.runner)?.score,
        };
        let least = match torso.runner.is_medium_or_small() {
            true => gate.thresholds().small_from,
            false => LIKELY_SCORE,
        };
        Ok(score >= least)
    }

    /// Whether a second pass is worth its time: not on small runners, whose text it only enlarges, and not where the gate
    /// saw hardly anything.
    fn may_get_second_pass(&self, torso: &Torso<'_>) -> bool {
        let is_likely = match (&self.bib_gate, &torso.opinion) {
            (Some(gate), Some(opinion)) => opinion.score >= gate.thresholds().second_pass_from,
            _ => true,
        };
        is_likely && !torso.runner.is_small()
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
        self.recognise_texts(request, texts.into_iter().map(FoundText::from).collect())
    }

    /// Reads the texts that are not contained in larger ones. The pattern is matched before upper-casing: letters on bibs
    /// are capitals, so a small letter belongs to a word (`10k`).
    fn recognise_texts(
        &mut self,
        request: &ReadRequest<'_>,
        texts: Vec<FoundText>,
    ) -> Result<Vec<TextReading>, ModelError> {
        let mut readings = Vec::with_capacity(texts.len());
        for found in drop_contained(texts) {
            let FoundText { quad, is_small } = found;
            self.interrupt.check()?;
            let _span = tracing::debug_span!("recognise").entered();
            let line = self.recogniser.read(request.frame, &quad)?;
            let is_bib = !line.text.is_empty()
                && request.pattern.matches(&line.text)
                && found.is_filled_by(&line.text);
            let max_confidence = |line: &RecognisedLine| match is_small {
                true => line.max_confidence_when_small(),
                false => 1.0,
            };
            let limit = max_confidence(&line);
            let mut reading = TextReading {
                quad,
                confidence: line.confidence.min(limit),
                max_confidence: limit,
                text: line.text,
                is_bib,
                lattice: line.lattice,
            };
            if reading.may_be_longer(request.pattern) {
                let beyond = self.recogniser.read_beyond_ends(request.frame, &quad)?;
                let limit = max_confidence(&beyond);
                reading.complete(beyond, limit, request.pattern);
            }
            readings.push(reading);
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

    fn take_counts(&mut self) -> TorsoCounts {
        std::mem::take(&mut self.counts)
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
            max_confidence: reading.max_confidence,
            is_bib: reading.is_bib,
            lattice: reading.lattice,
        })
        .collect();
    texts.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    texts
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::Point;
    use photofinish_kernels::lattice::Lattice;

    use super::*;

    fn reading(text: &str, confidence: f32) -> TextReading {
        let quad = Quad([Point::default(); 4]);
        let lattice = Lattice::from_probabilities(&[], &[]);
        let text = text.to_owned();
        TextReading { quad, text, confidence, max_confidence: 1.0, is_bib: false, lattice }
    }

    #[test]
    fn bib_texts_are_upper_case_confident_and_sorted_by_confidence() {
        let readings = vec![reading("a12", 0.6), reading("", 0.99), reading("77", 0.49), reading("B3", 0.9)];
        let texts: Vec<String> = into_bib_texts(readings).into_iter().map(|text| text.text).collect();
        assert_eq!(texts, ["B3", "A12"]);
    }
}
