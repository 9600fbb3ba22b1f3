//! Takes the photos of a batch through the steps of the reader together: each step collects what it wants to know of all
//! photos, and asks a network in as few calls as its bucket allows. With a bucket of one, as on a processor, the calls are
//! those of photo after photo.

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Quad;

use super::bib_gate::{BibGate, GateOpinion};
use super::readings::{FoundText, TextReading, drop_contained, merge_readings};
use super::text_recogniser::{RecognisedLine, TextOfFrame, TextRecogniser};
use super::torso::{FIRST_PASS, Runner, SECOND_PASS, select_runners};
use super::torso_detector::{TorsoDetector, TorsoLook};
use super::{ReaderNetworks, SharedTextDetector};
use crate::bucket::Bucket;
use crate::traits::{
    BibPattern, BibReader, BibText, Interrupt, ModelError, ModelIdentity, ReadRequest, TorsoCounts,
};

/// Least text probability around a runner in the first pass at which a second pass can help (step 13). Values there are
/// either below .005 or above .3.
const MIN_TEXT_PROBABILITY: f32 = 0.1;

/// Score of the gate from which a torso where the text detector saw nothing gets a second pass, also if its digits are not
/// small (step 13).
const LIKELY_SCORE: f32 = 0.5;

/// Readings below this confidence are dropped: they are not used even for fuzzy search (step 15).
const MIN_CONFIDENCE: f32 = 0.5;

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

/// A photo with what is known of it so far.
struct OpenPhoto<'r> {
    request: &'r ReadRequest<'r>,
    /// Largest runner first.
    torsos: Vec<Torso>,
    readings: Vec<TextReading>,
}

/// A runner with what is known of the torso.
struct Torso {
    runner: Runner,
    /// What the gate says, if there is one.
    opinion: Option<GateOpinion>,
    /// The highest text probability of the first pass; 0 where none ran.
    text_probability: f32,
    /// Whether a second pass may show a bib that the first one did not (step 13).
    is_unresolved: bool,
}

/// A detected text of the photo with this index.
struct TextOfPhoto {
    photo: usize,
    found: FoundText,
}

impl Torso {
    fn new(runner: Runner, opinion: Option<GateOpinion>) -> Self {
        Self { runner, opinion, text_probability: 0.0, is_unresolved: false }
    }

    fn look<'a>(&'a self, request: &ReadRequest<'a>) -> TorsoLook<'a> {
        let cells = self.opinion.as_ref().map(|opinion| &opinion.rows);
        TorsoLook { frame: request.frame, runner: &self.runner, cells }
    }
}

impl OpenPhoto<'_> {
    fn has_accepted(&self) -> bool {
        self.readings.iter().any(TextReading::is_accepted)
    }
}

impl TorsoBibReader {
    /// Builds a reader whose kernels run on `device`.
    pub fn new(device: &Device, networks: ReaderNetworks, identity: ModelIdentity) -> Self {
        let bucket = Bucket::new(networks.batch);
        Self {
            bib_gate: networks.bib_gate,
            first_pass: TorsoDetector::new(device, &FIRST_PASS, networks.first_pass, bucket),
            second_pass: TorsoDetector::new(device, &SECOND_PASS, networks.second_pass, bucket),
            full_frame: networks.full_frame,
            recogniser: TextRecogniser::new(device, networks.recogniser, &networks.characters, bucket),
            identity,
            interrupt: Interrupt::default(),
            counts: TorsoCounts::default(),
        }
    }

    /// Asks the gate about every runner and runs the first pass on those who may wear a number, the second on those of them
    /// without a confident bib. The largest runner gets a second pass in any case when the photo has no bib, and the full
    /// frame is read when that shows none either.
    fn read_photos(&mut self, requests: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        let photos = requests.iter().map(|request| self.ask_gate(request));
        let mut photos = photos.collect::<Result<Vec<_>, _>>()?;
        self.run_first_pass(&mut photos)?;
        for photo in &mut photos {
            self.find_unresolved(photo)?;
        }
        self.run_second_pass(&mut photos, |_, photo| {
            photo.torsos.iter().filter(|torso| torso.is_unresolved).collect()
        })?;
        self.run_second_pass(&mut photos, |reader, photo| {
            let largest = photo.torsos.first().filter(|_| !photo.has_accepted());
            let untried = largest.filter(|torso| !torso.is_unresolved && reader.may_get_second_pass(torso));
            untried.into_iter().collect()
        })?;
        self.read_full_frames(&mut photos)?;
        Ok(photos.into_iter().map(|photo| into_bib_texts(photo.readings)).collect())
    }

    /// Returns the photo with the torsos that may show a number; without a gate all but those of small runners.
    fn ask_gate<'r>(&mut self, request: &'r ReadRequest<'r>) -> Result<OpenPhoto<'r>, ModelError> {
        let runners = select_runners(request.faces, request.frame.size());
        let has_gate = self.bib_gate.is_some();
        let mut torsos = Vec::with_capacity(runners.len());
        let mut skipped = 0;
        for runner in runners.iter().filter(|runner| has_gate || !runner.is_small()) {
            let gate = self.bib_gate.as_mut();
            let Some((gate, least)) =
                gate.and_then(|gate| gate.least_score(runner).map(|least| (gate, least)))
            else {
                torsos.push(Torso::new(*runner, None));
                continue;
            };
            self.interrupt.check()?;
            let _span = tracing::debug_span!("bib_gate").entered();
            let opinion = gate.look(request.frame, runner)?;
            if opinion.score >= least {
                torsos.push(Torso::new(*runner, Some(opinion)));
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
        Ok(OpenPhoto { request, torsos, readings: Vec::new() })
    }

    fn run_first_pass(&mut self, photos: &mut [OpenPhoto<'_>]) -> Result<(), ModelError> {
        let span = tracing::debug_span!("first_pass").entered();
        let looks: Vec<TorsoLook<'_>> = photos
            .iter()
            .flat_map(|photo| photo.torsos.iter().map(|torso| torso.look(photo.request)))
            .collect();
        let mut found = self.first_pass.detect_all(&looks, &self.interrupt)?.into_iter();
        drop(span);
        let mut texts = Vec::new();
        for (index, photo) in photos.iter_mut().enumerate() {
            for (torso, found) in photo.torsos.iter_mut().zip(&mut found) {
                torso.text_probability = found.text_probability;
                let is_small = torso.runner.is_small();
                let text = |quad| TextOfPhoto { photo: index, found: FoundText { quad, is_small } };
                texts.extend(found.texts.into_iter().map(text));
            }
        }
        let readings = self.recognise_texts(photos, texts)?;
        for (photo, readings) in photos.iter_mut().zip(readings) {
            photo.readings = readings;
        }
        Ok(())
    }

    /// Reads the torsos that `choose` returns of each photo at the larger scale, and merges what is read.
    fn run_second_pass(
        &mut self,
        photos: &mut [OpenPhoto<'_>],
        choose: impl for<'p> Fn(&Self, &'p OpenPhoto<'_>) -> Vec<&'p Torso>,
    ) -> Result<(), ModelError> {
        let (mut looks, mut owners) = (Vec::new(), Vec::new());
        let reader = &*self;
        for (index, photo) in photos.iter().enumerate() {
            let torsos = choose(reader, photo);
            owners.extend(torsos.iter().map(|_| index));
            looks.extend(torsos.into_iter().map(|torso| torso.look(photo.request)));
        }
        if looks.is_empty() {
            return Ok(());
        }
        let span = tracing::debug_span!("second_pass").entered();
        let found = self.second_pass.detect_all(&looks, &self.interrupt)?;
        drop(span);
        let texts = owners.into_iter().zip(found).map(|(photo, found)| (photo, found.texts));
        self.merge_texts(photos, texts)
    }

    /// Finds the torsos without a confident bib that may have one which a larger scale shows (step 13): the text detector or
    /// the gate saw a trace of it.
    fn find_unresolved(&mut self, photo: &mut OpenPhoto<'_>) -> Result<(), ModelError> {
        for index in 0..photo.torsos.len() {
            let is_unresolved = self.deserves_second_pass(photo, &photo.torsos[index])?;
            photo.torsos[index].is_unresolved = is_unresolved;
        }
        Ok(())
    }

    fn deserves_second_pass(&mut self, photo: &OpenPhoto<'_>, torso: &Torso) -> Result<bool, ModelError> {
        let is_resolved = photo.readings.iter().any(|reading| reading.resolves(&torso.runner));
        if is_resolved || !self.may_get_second_pass(torso) {
            return Ok(false);
        }
        if torso.text_probability > MIN_TEXT_PROBABILITY {
            return Ok(true);
        }
        let Some(gate) = &mut self.bib_gate else { return Ok(false) };
        let score = match &torso.opinion {
            Some(opinion) => opinion.score,
            None => gate.look(photo.request.frame, &torso.runner)?.score,
        };
        let least = match torso.runner.is_medium_or_small() {
            true => gate.thresholds().small_from,
            false => LIKELY_SCORE,
        };
        Ok(score >= least)
    }

    /// Whether a second pass is worth its time: not on small runners, whose text it only enlarges, and not where the gate
    /// saw hardly anything.
    fn may_get_second_pass(&self, torso: &Torso) -> bool {
        let is_likely = match (&self.bib_gate, &torso.opinion) {
            (Some(gate), Some(opinion)) => opinion.score >= gate.thresholds().second_pass_from,
            _ => true,
        };
        is_likely && !torso.runner.is_small()
    }

    /// Reads the full frames of the photos on whose torsos no bib was accepted.
    fn read_full_frames(&mut self, photos: &mut [OpenPhoto<'_>]) -> Result<(), ModelError> {
        let owners: Vec<usize> = (0..photos.len()).filter(|&index| !photos[index].has_accepted()).collect();
        if owners.is_empty() {
            return Ok(());
        }
        let frames: Vec<_> = owners.iter().map(|&index| photos[index].request.frame).collect();
        let span = tracing::debug_span!("full_frame").entered();
        let found = self.full_frame.detect_full_frames(&frames, &self.interrupt)?;
        drop(span);
        self.merge_texts(photos, owners.into_iter().zip(found))
    }

    /// Recognises texts of the photos with these indices, and merges what is read.
    fn merge_texts(
        &mut self,
        photos: &mut [OpenPhoto<'_>],
        texts: impl Iterator<Item = (usize, Vec<Quad>)>,
    ) -> Result<(), ModelError> {
        let to_texts = |(photo, quads): (usize, Vec<Quad>)| {
            quads.into_iter().map(move |quad| TextOfPhoto { photo, found: FoundText::from(quad) })
        };
        let readings = self.recognise_texts(photos, texts.flat_map(to_texts).collect())?;
        for (photo, readings) in photos.iter_mut().zip(readings) {
            merge_readings(&mut photo.readings, readings);
        }
        Ok(())
    }

    /// Reads the texts that are not contained in larger ones of their photo; returns a list for each photo. The pattern is
    /// matched before upper-casing: letters on bibs are capitals, so a small letter belongs to a word (`10k`).
    fn recognise_texts(
        &mut self,
        photos: &[OpenPhoto<'_>],
        texts: Vec<TextOfPhoto>,
    ) -> Result<Vec<Vec<TextReading>>, ModelError> {
        let mut by_photo: Vec<Vec<FoundText>> = photos.iter().map(|_| Vec::new()).collect();
        texts.into_iter().for_each(|text| by_photo[text.photo].push(text.found));
        let _span = tracing::debug_span!("recognise").entered();
        let kept: Vec<TextOfPhoto> = by_photo
            .into_iter()
            .enumerate()
            .flat_map(|(photo, texts)| {
                drop_contained(texts).into_iter().map(move |found| TextOfPhoto { photo, found })
            })
            .collect();
        let to_text = |text: &TextOfPhoto| TextOfFrame {
            frame: photos[text.photo].request.frame,
            quad: text.found.quad,
        };
        let lines =
            self.recogniser.read_all(&kept.iter().map(to_text).collect::<Vec<_>>(), &self.interrupt)?;
        let pattern = |text: &TextOfPhoto| photos[text.photo].request.pattern;
        let read = kept.iter().zip(lines);
        let mut readings: Vec<TextReading> =
            read.map(|(text, line)| to_reading(&text.found, line, pattern(text))).collect();
        let short: Vec<usize> =
            (0..kept.len()).filter(|&index| readings[index].may_be_longer(pattern(&kept[index]))).collect();
        let ends: Vec<_> = short.iter().map(|&index| to_text(&kept[index])).collect();
        let beyond = self.recogniser.read_beyond_ends(&ends, &self.interrupt)?;
        for (index, beyond) in short.into_iter().zip(beyond) {
            let limit = max_confidence(&beyond, kept[index].found.is_small);
            readings[index].complete(beyond, limit, pattern(&kept[index]));
        }
        let mut of_photos: Vec<Vec<TextReading>> = photos.iter().map(|_| Vec::new()).collect();
        for (text, reading) in kept.iter().zip(readings) {
            of_photos[text.photo].push(reading);
        }
        Ok(of_photos)
    }
}

fn to_reading(found: &FoundText, line: RecognisedLine, pattern: &BibPattern) -> TextReading {
    let is_bib = !line.text.is_empty() && pattern.matches(&line.text) && found.is_filled_by(&line.text);
    let limit = max_confidence(&line, found.is_small);
    TextReading {
        quad: found.quad,
        confidence: line.confidence.min(limit),
        max_confidence: limit,
        text: line.text,
        is_bib,
        lattice: line.lattice,
    }
}

fn max_confidence(line: &RecognisedLine, is_small: bool) -> f32 {
    if is_small { line.max_confidence_when_small() } else { 1.0 }
}

impl BibReader for TorsoBibReader {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        self.read_photos(photos)
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
