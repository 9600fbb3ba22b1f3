//! Takes the photos of a batch through the work of the reader together: what several photos need next is asked of a network in
//! as few calls as its bucket allows. With a bucket of one, as on a processor, the calls are those of photo after photo.
//!
//! A photo is read at once, or in steps that are about as long as one call: `progress` says what is next and how much of it a
//! step takes.

use photofinish_kernels::device::Device;

use super::bib_gate::BibGate;
use super::progress::{Pass, PhotoProgress, Piece, StepBudget, Torso, Unseen, Work};
use super::readings::{FoundText, TextReading, into_bib_texts};
use super::text_recogniser::{TextOfFrame, TextRecogniser};
use super::torso::{FIRST_PASS, LIGHT_PASS, SECOND_PASS, THIRD_PASS, select_runners};
use super::torso_detector::{TorsoDetector, TorsoLook};
use super::{ReaderNetworks, SharedTextDetector};
use crate::bucket::Bucket;
use crate::traits::{
    BibReader, BibText, Interrupt, ModelError, ModelIdentity, OpenReading, ReadProgress, ReadRequest,
    ReadStep, TorsoCounts,
};

/// Least text probability around a runner in the first pass at which a second pass can help (step 13). Values there are
/// either below .005 or above .3.
const MIN_TEXT_PROBABILITY: f32 = 0.1;

/// Score of the gate from which a torso where the text detector saw nothing gets a second pass, also if its digits are not
/// small (step 13), and from which one without a confident bib gets a third pass (step 14).
const LIKELY_SCORE: f32 = 0.5;

/// Reads bibs on torsos, by the steps of `docs/READING.md`. Keeps its buffers between calls.
pub struct TorsoBibReader {
    bib_gate: Option<BibGate>,
    light_pass: Option<TorsoDetector>,
    first_pass: TorsoDetector,
    second_pass: TorsoDetector,
    third_pass: TorsoDetector,
    full_frame: SharedTextDetector,
    recogniser: TextRecogniser,
    /// Torsos, frames or texts per call.
    items_per_call: usize,
    identity: ModelIdentity,
    interrupt: Interrupt,
    counts: TorsoCounts,
}

/// A photo with what is known of it so far, and what may be done with it now.
struct OpenPhoto<'r> {
    request: ReadRequest<'r>,
    progress: PhotoProgress,
    budget: StepBudget,
}

/// What is next of the photo with this index.
struct PieceOfPhoto {
    photo: usize,
    piece: Piece,
}

/// A detected text of the photo with this index.
struct TextOfPhoto {
    photo: usize,
    found: FoundText,
}

impl OpenPhoto<'_> {
    fn next_piece(&self) -> Option<Piece> {
        self.budget.next_piece(&self.progress, self.request.faces.len())
    }

    fn look<'a>(&'a self, torso: &'a Torso) -> TorsoLook<'a> {
        let cells = torso.opinion.as_ref().map(|opinion| &opinion.rows);
        TorsoLook { frame: self.request.frame, runner: &torso.runner, cells }
    }
}

impl TorsoBibReader {
    /// Builds a reader whose kernels run on `device`.
    pub fn new(device: &Device, networks: ReaderNetworks, identity: ModelIdentity) -> Self {
        let bucket = Bucket::new(networks.batch);
        let light = |network| TorsoDetector::new(device, &LIGHT_PASS, vec![network], bucket);
        Self {
            bib_gate: networks.bib_gate,
            light_pass: networks.light_pass.map(light),
            first_pass: TorsoDetector::new(device, &FIRST_PASS, networks.first_pass, bucket),
            second_pass: TorsoDetector::new(device, &SECOND_PASS, networks.second_pass, bucket),
            third_pass: TorsoDetector::new(device, &THIRD_PASS, networks.third_pass, bucket),
            full_frame: networks.full_frame,
            recogniser: TextRecogniser::new(device, networks.recogniser, &networks.characters, bucket),
            items_per_call: bucket.size(),
            identity,
            interrupt: Interrupt::default(),
            counts: TorsoCounts::default(),
        }
    }

    /// Does what the budgets of the photos allow. All photos that need the same next do it together, those first that are
    /// behind the others.
    ///
    /// The gate is asked about the runners that it decides about. The light pass, where there is one, runs on those who may wear a
    /// number, the first where that left a text unread, the second and the third on those without a confident bib. The largest
    /// runner gets a second pass in any case when the photo has no bib, and the full frame is read when that shows none either.
    fn advance(&mut self, photos: &mut [OpenPhoto<'_>]) -> Result<(), ModelError> {
        loop {
            let pieces: Vec<Option<Piece>> = photos.iter().map(OpenPhoto::next_piece).collect();
            let Some(task) = pieces.iter().flatten().map(|piece| piece.task).min() else { return Ok(()) };
            let pieces = pieces.into_iter().enumerate();
            let of_task = pieces.filter_map(|(photo, piece)| Some(PieceOfPhoto { photo, piece: piece? }));
            let of_task: Vec<PieceOfPhoto> = of_task.filter(|photo| photo.piece.task == task).collect();
            for PieceOfPhoto { photo, piece } in &of_task {
                photos[*photo].budget.spend(piece);
            }
            match (task.pass, task.work) {
                (pass, Work::Choose) => {
                    for PieceOfPhoto { photo, .. } in &of_task {
                        let unseen = self.choose(pass, &mut photos[*photo])?;
                        photos[*photo].progress.look_at(unseen);
                    }
                }
                (Pass::FullFrame, Work::Detect { .. }) => self.detect_in_full_frames(photos, &of_task)?,
                (pass, Work::Detect { .. }) => self.detect_on_torsos(pass, photos, &of_task)?,
                (_, Work::Recognise) => self.recognise(photos, &of_task)?,
            }
        }
    }

    /// Decides where a pass looks.
    fn choose(&mut self, pass: Pass, photo: &mut OpenPhoto<'_>) -> Result<Vec<Unseen>, ModelError> {
        let torsos: Vec<usize> = match pass {
            Pass::Light => {
                photo.progress.torsos = self.ask_gate(&photo.request)?;
                let torsos = photo.progress.torsos.iter().enumerate();
                torsos.filter(|(_, torso)| !torso.runner.is_small()).map(|(index, _)| index).collect()
            }
            Pass::First => photo.progress.find_unread(),
            Pass::Second => self.find_unresolved(photo)?,
            Pass::Third => self.find_still_unresolved(photo)?,
            Pass::Largest => {
                let has_accepted = photo.progress.has_accepted();
                let largest = photo.progress.torsos.first().filter(|_| !has_accepted);
                let untried = largest.filter(|torso| !torso.is_unresolved && self.may_get_second_pass(torso));
                untried.map(|_| 0).into_iter().collect()
            }
            Pass::FullFrame => {
                let whole = (!photo.progress.has_accepted()).then_some(Unseen { height: 0, torso: 0 });
                return Ok(whole.into_iter().collect());
            }
        };
        let detector = match pass {
            Pass::Light => self.light_pass.as_ref(),
            Pass::First => Some(&self.first_pass),
            Pass::Third => Some(&self.third_pass),
            Pass::Second | Pass::Largest | Pass::FullFrame => Some(&self.second_pass),
        };
        let Some(detector) = detector else { return Ok(Vec::new()) };
        let unseen = |torso: usize| {
            let height = detector.height_for(&photo.look(&photo.progress.torsos[torso]))?;
            Some(Unseen { height, torso })
        };
        Ok(torsos.into_iter().filter_map(unseen).collect())
    }

    /// Returns the torsos that may show a number; without a gate all but those of small runners.
    fn ask_gate(&mut self, request: &ReadRequest<'_>) -> Result<Vec<Torso>, ModelError> {
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
        Ok(torsos)
    }

    fn detect_on_torsos(
        &mut self,
        pass: Pass,
        photos: &mut [OpenPhoto<'_>],
        pieces: &[PieceOfPhoto],
    ) -> Result<(), ModelError> {
        let open: &[OpenPhoto<'_>] = photos;
        let looks: Vec<TorsoLook<'_>> = pieces
            .iter()
            .flat_map(|PieceOfPhoto { photo, piece }| {
                let photo = &open[*photo];
                let torsos = photo.progress.unseen(piece.items);
                torsos.map(move |unseen| photo.look(&photo.progress.torsos[unseen.torso]))
            })
            .collect();
        let (detector, span) = match pass {
            Pass::Light => (self.light_pass.as_mut(), tracing::debug_span!("light_pass")),
            Pass::First => (Some(&mut self.first_pass), tracing::debug_span!("first_pass")),
            Pass::Third => (Some(&mut self.third_pass), tracing::debug_span!("third_pass")),
            Pass::Second | Pass::Largest | Pass::FullFrame => {
                (Some(&mut self.second_pass), tracing::debug_span!("second_pass"))
            }
        };
        let Some(detector) = detector else {
            return Err(ModelError::Inference {
                name: "light text detector".into(),
                detail: "there is none".into(),
            });
        };
        let found = span.in_scope(|| detector.detect_all(&looks, &self.interrupt))?;
        drop(looks);
        let mut found = found.into_iter();
        for PieceOfPhoto { photo, piece } in pieces {
            photos[*photo].progress.add_detected(found.by_ref().take(piece.items));
        }
        Ok(())
    }

    /// Finds the torsos without a confident bib that may have one which a larger scale shows (step 13): the text detector or
    /// the gate saw a trace of it.
    fn find_unresolved(&mut self, photo: &mut OpenPhoto<'_>) -> Result<Vec<usize>, ModelError> {
        for index in 0..photo.progress.torsos.len() {
            let is_unresolved = self.deserves_second_pass(photo, index)?;
            photo.progress.torsos[index].is_unresolved = is_unresolved;
        }
        let torsos = photo.progress.torsos.iter().enumerate();
        Ok(torsos.filter(|(_, torso)| torso.is_unresolved).map(|(index, _)| index).collect())
    }

    fn deserves_second_pass(&mut self, photo: &mut OpenPhoto<'_>, index: usize) -> Result<bool, ModelError> {
        let torso = &photo.progress.torsos[index];
        if photo.progress.is_resolved(&torso.runner) || !self.may_get_second_pass(torso) {
            return Ok(false);
        }
        if torso.text_probability > MIN_TEXT_PROBABILITY {
            return Ok(true);
        }
        let Some(gate) = &self.bib_gate else { return Ok(false) };
        let least = match torso.runner.is_medium_or_small() {
            true => gate.thresholds().small_from,
            false => LIKELY_SCORE,
        };
        Ok(self.score(photo, index)?.is_some_and(|score| score >= least))
    }

    /// Finds the torsos whose digits are not large and that are still without a confident bib although the gate sees a number,
    /// and those of small runners whose reading is to be confirmed (step 14).
    fn find_still_unresolved(&mut self, photo: &mut OpenPhoto<'_>) -> Result<Vec<usize>, ModelError> {
        let mut found = Vec::new();
        for index in 0..photo.progress.torsos.len() {
            let runner = photo.progress.torsos[index].runner;
            let readings = &photo.progress.readings;
            if !runner.is_medium_or_small() || photo.progress.is_resolved(&runner) {
                continue;
            }
            let has_number = readings.iter().any(|reading| reading.may_be_confirmed(&runner))
                || self.score(photo, index)?.is_some_and(|score| score >= LIKELY_SCORE);
            found.extend(has_number.then_some(index));
        }
        Ok(found)
    }

    /// The gate's score of a torso, which is asked once; `None` without a gate.
    fn score(&mut self, photo: &mut OpenPhoto<'_>, index: usize) -> Result<Option<f32>, ModelError> {
        let torso = &mut photo.progress.torsos[index];
        if let (None, Some(gate)) = (torso.score, &mut self.bib_gate) {
            torso.score = Some(gate.look(photo.request.frame, &torso.runner)?.score);
        }
        Ok(torso.score)
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

    fn detect_in_full_frames(
        &mut self,
        photos: &mut [OpenPhoto<'_>],
        pieces: &[PieceOfPhoto],
    ) -> Result<(), ModelError> {
        let frames: Vec<_> = pieces.iter().map(|piece| photos[piece.photo].request.frame).collect();
        let span = tracing::debug_span!("full_frame").entered();
        let found = self.full_frame.detect_full_frames(&frames, &self.interrupt)?;
        drop(span);
        for (piece, texts) in pieces.iter().zip(found) {
            photos[piece.photo].progress.add_full_frame(texts);
        }
        Ok(())
    }

    fn recognise(&mut self, photos: &mut [OpenPhoto<'_>], pieces: &[PieceOfPhoto]) -> Result<(), ModelError> {
        let texts: Vec<TextOfPhoto> = pieces
            .iter()
            .flat_map(|&PieceOfPhoto { photo, piece }| {
                let unread = photos[photo].progress.unread(piece.items);
                unread.map(move |found| TextOfPhoto { photo, found })
            })
            .collect();
        let mut readings = self.recognise_texts(photos, &texts)?.into_iter();
        for PieceOfPhoto { photo, piece } in pieces {
            photos[*photo].progress.add_readings(readings.by_ref().take(piece.items).collect());
        }
        Ok(())
    }

    /// Reads texts, and beyond the ends of those that may be longer.
    fn recognise_texts(
        &mut self,
        photos: &[OpenPhoto<'_>],
        texts: &[TextOfPhoto],
    ) -> Result<Vec<TextReading>, ModelError> {
        let _span = tracing::debug_span!("recognise").entered();
        let to_text = |text: &TextOfPhoto| TextOfFrame {
            frame: photos[text.photo].request.frame,
            quad: text.found.quad,
        };
        let lines =
            self.recogniser.read_all(&texts.iter().map(to_text).collect::<Vec<_>>(), &self.interrupt)?;
        let pattern = |text: &TextOfPhoto| photos[text.photo].request.pattern;
        let read = texts.iter().zip(lines);
        let mut readings: Vec<TextReading> =
            read.map(|(text, line)| TextReading::new(&text.found, line, pattern(text))).collect();
        let short: Vec<usize> =
            (0..texts.len()).filter(|&index| readings[index].may_be_longer(pattern(&texts[index]))).collect();
        let ends: Vec<_> = short.iter().map(|&index| to_text(&texts[index])).collect();
        let beyond = self.recogniser.read_beyond_ends(&ends, &self.interrupt)?;
        for (index, beyond) in short.into_iter().zip(beyond) {
            readings[index].complete(beyond, &texts[index].found, pattern(&texts[index]));
        }
        Ok(readings)
    }
}

impl BibReader for TorsoBibReader {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        let budget = StepBudget::unlimited();
        let mut photos: Vec<OpenPhoto<'_>> = photos
            .iter()
            .map(|request| OpenPhoto { request: *request, progress: PhotoProgress::new(), budget })
            .collect();
        self.advance(&mut photos)?;
        Ok(photos.into_iter().map(|photo| into_bib_texts(photo.progress.readings)).collect())
    }

    fn read_step(&mut self, photos: &[OpenReading<'_>]) -> Result<Vec<ReadStep>, ModelError> {
        let budget = StepBudget::of_step(self.items_per_call);
        let mut photos: Vec<OpenPhoto<'_>> = photos
            .iter()
            .map(|OpenReading { request, progress }| {
                // What another kind of reader has found is of no use: the photo is read from the start.
                let known = progress.and_then(|progress| progress.get::<PhotoProgress>());
                let progress = known.cloned().unwrap_or_else(PhotoProgress::new);
                OpenPhoto { request: *request, progress, budget }
            })
            .collect();
        self.advance(&mut photos)?;
        let end_step = |photo: OpenPhoto<'_>| match photo.progress.is_read() {
            true => ReadStep::Done(into_bib_texts(photo.progress.readings)),
            false => ReadStep::More(ReadProgress::new(photo.progress)),
        };
        Ok(photos.into_iter().map(end_step).collect())
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
