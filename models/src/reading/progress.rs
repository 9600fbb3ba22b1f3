//! How far the reading of a photo is: which passes it had, what they found, and which work is next. Knows the order of the
//! work and what it costs; runs no network.
//!
//! A photo is read in passes (steps 6 and 13 to 15). Each chooses what it looks at, detects texts there and recognises them.

use std::collections::VecDeque;

use photofinish_kernels::geometry::Quad;

use super::bib_gate::GateOpinion;
use super::readings::{
    FoundText, TextReading, confirm_readings, drop_contained, drop_contradicted, merge_readings,
};
use super::text_detector::TorsoTexts;
use super::torso::Runner;

/// What work costs, in times of the recogniser: those of [`Pass::cost`], and so many looks of the gate.
const RECOGNISE_COST: u32 = 1;
const GATE_LOOKS_PER_COST: usize = 12;

/// What a step of a photo may cost for each item of a call: a torso of the first pass and its text. Where that follows a light
/// pass it is a step of its own.
pub(super) const STEP_COST: u32 = Pass::First.cost() + RECOGNISE_COST;

/// Least text probability around a runner in the light pass at which the text detector looks too (step 6).
const MIN_LIGHT_TEXT_PROBABILITY: f32 = 0.25;

/// A pass over a photo, in the order in which photos have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    /// With the light text detector, over all torsos but those of small runners.
    Light,
    /// Over the torsos on which that one saw a text but did not read a bib for certain; without it, over all.
    First,
    /// At a larger scale, over torsos on which there may be a bib that was not read.
    Second,
    /// At a smaller scale, over those on which there still may be one, or on which a reading is to be confirmed.
    Third,
    /// At the larger scale again, over the largest torso of a photo without an accepted bib, if it had no such pass yet.
    Largest,
    /// Over the whole photo, if it has no accepted bib yet.
    FullFrame,
}

impl Pass {
    /// What detecting texts in one item costs: the canvases have so many pixels.
    const fn cost(self) -> u32 {
        match self {
            Self::Light => 1,
            Self::First => 4,
            Self::Second | Self::Largest => 8,
            Self::Third => 2,
            Self::FullFrame => 24,
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Light => Some(Self::First),
            Self::First => Some(Self::Second),
            Self::Second => Some(Self::Third),
            Self::Third => Some(Self::Largest),
            Self::Largest => Some(Self::FullFrame),
            Self::FullFrame => None,
        }
    }
}

/// What a pass does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Choose what to look at.
    Choose,
    /// Detect texts with the network of this height, pixels; 0 for full frames.
    Detect {
        /// Lower ones come first.
        height: u32,
    },
    /// Recognise the detected texts.
    Recognise,
}

/// What a photo needs next. Photos that have the same next task can share calls of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Task {
    pub(super) pass: Pass,
    pub(super) work: Work,
}

/// The next task of a photo, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) task: Task,
    /// Torsos, frames or texts.
    pub(super) items: usize,
    pub(super) cost: u32,
}

/// A runner with what is known of the torso.
#[derive(Clone, Debug)]
pub(super) struct Torso {
    pub(super) runner: Runner,
    /// What the gate says where it decides about the runner.
    pub(super) opinion: Option<GateOpinion>,
    /// Its score where it was asked.
    pub(super) score: Option<f32>,
    /// The highest text probability of the light pass; `None` where none ran.
    pub(super) light_text_probability: Option<f32>,
    /// That of the first pass; 0 where none ran.
    pub(super) text_probability: f32,
    /// Whether a second pass may show a bib that the first one did not (step 13).
    pub(super) is_unresolved: bool,
}

impl Torso {
    pub(super) fn new(runner: Runner, opinion: Option<GateOpinion>) -> Self {
        let score = opinion.as_ref().map(|opinion| opinion.score);
        Self {
            runner,
            opinion,
            score,
            light_text_probability: None,
            text_probability: 0.0,
            is_unresolved: false,
        }
    }
}

/// A torso of the photo, or the whole of it, in which no texts were detected yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unseen {
    /// Of the network that will see it, pixels; 0 for full frames.
    pub(super) height: u32,
    /// The torso's index; 0 for full frames.
    pub(super) torso: usize,
}

/// What is known of a photo so far.
#[derive(Clone, Debug)]
pub(super) struct PhotoProgress {
    /// Largest runner first.
    pub(super) torsos: Vec<Torso>,
    pub(super) readings: Vec<TextReading>,
    pass: Pass,
    state: PassState,
}

#[derive(Clone, Debug)]
enum PassState {
    /// The pass begins.
    Undecided,
    Detecting {
        /// Lowest first.
        unseen: VecDeque<Unseen>,
        /// By torso.
        found: Vec<(usize, FoundText)>,
    },
    Recognising {
        unread: VecDeque<FoundText>,
    },
    /// No pass is left.
    Ended,
}

impl PhotoProgress {
    pub(super) fn new() -> Self {
        Self { torsos: Vec::new(), readings: Vec::new(), pass: Pass::Light, state: PassState::Undecided }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.state, PassState::Ended)
    }

    pub(super) fn has_accepted(&self) -> bool {
        self.readings.iter().any(TextReading::is_accepted)
    }

    /// Whether a bib was read that is certainly this runner's.
    pub(super) fn is_resolved(&self, runner: &Runner) -> bool {
        self.readings.iter().any(|reading| reading.resolves(runner))
    }

    /// Finds the torsos for the first pass: where the light text detector saw a text but no bib was read for certain, and where
    /// it did not look (step 6). A bib of which a longer strip shows more is not enough: the boxes of that one leave out digits at
    /// the ends more often.
    pub(super) fn find_unread(&self) -> Vec<usize> {
        let is_unread = |torso: &Torso| match torso.light_text_probability {
            Some(probability) => {
                probability >= MIN_LIGHT_TEXT_PROBABILITY
                    && !self
                        .readings
                        .iter()
                        .any(|reading| reading.is_whole && reading.resolves(&torso.runner))
            }
            None => true,
        };
        let torsos = self.torsos.iter().enumerate();
        torsos.filter(|(_, torso)| is_unread(torso)).map(|(index, _)| index).collect()
    }

    /// The next work, with at most `most_items`; `None` when the photo is read. `faces` of the photo is what choosing
    /// torsos depends on.
    pub(super) fn next_piece(&self, most_items: usize, faces: usize) -> Option<Piece> {
        let pass = self.pass;
        let (work, items, cost) = match &self.state {
            PassState::Undecided => {
                let asks_gate = matches!(pass, Pass::Light | Pass::Second | Pass::Third);
                let looks = if asks_gate { faces / GATE_LOOKS_PER_COST } else { 0 };
                (Work::Choose, 0, u32::try_from(looks).unwrap_or(u32::MAX))
            }
            PassState::Detecting { unseen, .. } => {
                let height = unseen.front()?.height;
                let of_height = unseen.iter().take_while(|unseen| unseen.height == height).count();
                let items = of_height.min(most_items);
                (Work::Detect { height }, items, cost_of(items, pass.cost()))
            }
            PassState::Recognising { unread } => {
                let items = unread.len().min(most_items);
                (Work::Recognise, items, cost_of(items, RECOGNISE_COST))
            }
            PassState::Ended => return None,
        };
        Some(Piece { task: Task { pass, work }, items, cost })
    }

    /// What the pass looks at next; at least `count` items, as [`Self::next_piece`] says.
    pub(super) fn unseen(&self, count: usize) -> impl Iterator<Item = Unseen> + '_ {
        let unseen = match &self.state {
            PassState::Detecting { unseen, .. } => Some(unseen),
            _ => None,
        };
        unseen.into_iter().flatten().take(count).copied()
    }

    /// The texts to recognise next.
    pub(super) fn unread(&self, count: usize) -> impl Iterator<Item = FoundText> + '_ {
        let unread = match &self.state {
            PassState::Recognising { unread } => Some(unread),
            _ => None,
        };
        unread.into_iter().flatten().take(count).copied()
    }

    /// Begins to detect texts where the pass has decided to look; goes on to the next pass where there is nothing.
    pub(super) fn look_at(&mut self, mut unseen: Vec<Unseen>) {
        unseen.sort();
        self.state = PassState::Detecting { unseen: unseen.into(), found: Vec::new() };
        self.advance();
    }

    /// Adds what was detected on the next unseen torsos, in their order.
    pub(super) fn add_detected(&mut self, detected: impl IntoIterator<Item = TorsoTexts>) {
        let pass = self.pass;
        let PassState::Detecting { unseen, found } = &mut self.state else { return };
        for TorsoTexts { texts, text_probability } in detected {
            let Some(Unseen { torso: index, .. }) = unseen.pop_front() else { break };
            let torso = self.torsos.get_mut(index).filter(|_| pass != Pass::FullFrame);
            let is_small = torso.as_ref().is_some_and(|torso| torso.runner.is_small());
            match (torso, pass) {
                (Some(torso), Pass::Light) => torso.light_text_probability = Some(text_probability),
                (Some(torso), Pass::First) => torso.text_probability = text_probability,
                _ => {}
            }
            found.extend(texts.into_iter().map(|quad| (index, FoundText { quad, is_small })));
        }
        self.advance();
    }

    /// Adds what was detected in the whole photo.
    pub(super) fn add_full_frame(&mut self, texts: Vec<Quad>) {
        self.add_detected([TorsoTexts { texts, text_probability: 0.0 }]);
    }

    /// Adds the readings of the next unread texts, in their order.
    pub(super) fn add_readings(&mut self, readings: Vec<TextReading>) {
        let PassState::Recognising { unread } = &mut self.state else { return };
        unread.drain(..readings.len().min(unread.len()));
        let had_light_pass = self.torsos.iter().any(|torso| torso.light_text_probability.is_some());
        if self.pass == Pass::Light || self.pass == Pass::First && !had_light_pass {
            self.readings.extend(readings);
        } else {
            if self.pass == Pass::First {
                drop_contradicted(&mut self.readings, &readings);
            }
            confirm_readings(&mut self.readings, &readings);
            merge_readings(&mut self.readings, readings);
        }
        self.advance();
    }

    /// Goes on to the next work where nothing is left of this one.
    fn advance(&mut self) {
        if let PassState::Detecting { unseen, found } = &mut self.state
            && unseen.is_empty()
        {
            // As if the torsos had been looked at one after the other, whatever the heights of their networks.
            found.sort_by_key(|(torso, _)| *torso);
            let texts = found.drain(..).map(|(_, text)| text).collect();
            let mut unread = drop_contained(texts);
            unread.retain(|text| !self.readings.iter().any(|reading| reading.is_certainly_of(text)));
            self.state = PassState::Recognising { unread: unread.into() };
        }
        if let PassState::Recognising { unread } = &self.state
            && unread.is_empty()
        {
            self.state = PassState::Ended;
            if let Some(next) = self.pass.next() {
                self.pass = next;
                self.state = PassState::Undecided;
            }
        }
    }
}

fn cost_of(items: usize, each: u32) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX).saturating_mul(each)
}

/// What a step may still do with a photo.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepBudget {
    /// Items of a piece.
    most_items: usize,
    cost_left: u32,
    /// The first piece that costs anything is taken whatever it costs.
    is_untouched: bool,
}

impl StepBudget {
    /// For one step of a photo, where a call of a network takes so many items.
    pub(super) fn of_step(items_per_call: usize) -> Self {
        Self { most_items: items_per_call, cost_left: cost_of(items_per_call, STEP_COST), is_untouched: true }
    }

    /// For all that is left of a photo.
    pub(super) fn unlimited() -> Self {
        Self { most_items: usize::MAX, cost_left: u32::MAX, is_untouched: true }
    }

    /// The photo's next work, if the step has room for it. A piece is never made smaller than a call of a network to fit into
    /// what is left: that would only make calls smaller.
    pub(super) fn next_piece(&self, photo: &PhotoProgress, faces: usize) -> Option<Piece> {
        let piece = photo.next_piece(self.most_items, faces)?;
        (self.is_untouched || piece.cost <= self.cost_left).then_some(piece)
    }

    /// Notes that a piece is taken.
    pub(super) fn spend(&mut self, piece: &Piece) {
        self.cost_left = self.cost_left.saturating_sub(piece.cost);
        self.is_untouched &= piece.cost == 0;
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::Point;
    use photofinish_kernels::lattice::Lattice;

    use super::*;

    fn torso(index: usize) -> Torso {
        Torso::new(Runner { unit: 50.0, middle: 100.0 * index as f32, chin: 100.0 }, None)
    }

    fn text_at(left: f32) -> Quad {
        let corner = |x: f32, y: f32| Point { x: left + x, y };
        Quad([corner(0.0, 0.0), corner(40.0, 0.0), corner(40.0, 10.0), corner(0.0, 10.0)])
    }

    /// Where the bib of a torso is: in the middle, two units below the chin.
    fn bib_of(index: usize) -> Quad {
        let Runner { unit, middle, chin } = torso(index).runner;
        let corner = |x: f32, y: f32| Point { x: middle + x * unit, y: chin + y * unit };
        Quad([corner(-0.6, 2.0), corner(0.6, 2.0), corner(0.6, 2.5), corner(-0.6, 2.5)])
    }

    fn reading_of(found: &FoundText) -> TextReading {
        TextReading {
            quad: found.quad,
            text: format!("{}", 1000.0 + found.quad.0[0].x),
            confidence: 0.99,
            mean_probability: 0.99,
            max_confidence: 1.0,
            is_bib: true,
            is_whole: true,
            lattice: Lattice::from_probabilities(&[], &[]),
        }
    }

    /// Takes the steps of a photo whose torsos are seen by networks of these heights and have a bib each. Returns the pieces of
    /// each step, and the readings.
    fn read(heights: &[u32], items_per_call: Option<usize>) -> (Vec<Vec<Piece>>, Vec<TextReading>) {
        let mut photo = PhotoProgress::new();
        let mut steps = Vec::new();
        while !photo.is_read() {
            let mut budget = items_per_call.map_or(StepBudget::unlimited(), StepBudget::of_step);
            let mut pieces = Vec::new();
            while let Some(piece) = budget.next_piece(&photo, heights.len()) {
                budget.spend(&piece);
                pieces.push(piece);
                do_piece(&mut photo, piece, heights);
            }
            assert!(!pieces.is_empty(), "a step without work would be repeated forever: {photo:?}");
            steps.push(pieces);
        }
        (steps, photo.readings)
    }

    fn do_piece(photo: &mut PhotoProgress, piece: Piece, heights: &[u32]) {
        match (piece.task.pass, piece.task.work) {
            (Pass::Light, Work::Choose) => {
                photo.torsos = (0..heights.len()).map(torso).collect();
                photo.look_at(Vec::new());
            }
            (Pass::First, Work::Choose) => {
                assert_eq!(
                    photo.find_unread().len(),
                    heights.len(),
                    "without a light pass all get the first"
                );
                photo.look_at(
                    heights.iter().enumerate().map(|(torso, &height)| Unseen { height, torso }).collect(),
                );
            }
            (_, Work::Choose) => photo.look_at(Vec::new()),
            (_, Work::Detect { .. }) => {
                let text = |unseen: Unseen| TorsoTexts {
                    texts: vec![text_at(100.0 * unseen.torso as f32)],
                    text_probability: 0.9,
                };
                let detected: Vec<TorsoTexts> = photo.unseen(piece.items).map(text).collect();
                photo.add_detected(detected);
            }
            (_, Work::Recognise) => {
                let readings = photo.unread(piece.items).map(|found| reading_of(&found)).collect();
                photo.add_readings(readings);
            }
        }
    }

    fn detected_in(steps: &[Vec<Piece>]) -> Vec<Vec<usize>> {
        let is_detection = |piece: &&Piece| matches!(piece.task.work, Work::Detect { .. });
        let items = |step: &Vec<Piece>| step.iter().filter(is_detection).map(|piece| piece.items).collect();
        steps.iter().map(items).filter(|step: &Vec<usize>| !step.is_empty()).collect()
    }

    #[test]
    fn a_step_on_a_processor_is_one_torso_or_a_few_texts() {
        let (steps, readings) = read(&[384; 40], Some(1));
        assert_eq!(readings.len(), 40);
        assert_eq!(detected_in(&steps), vec![vec![1]; 40]);
        for step in &steps {
            let texts = step.iter().filter(|piece| piece.task.work == Work::Recognise).count();
            assert!(texts <= STEP_COST as usize, "{step:?}");
        }
    }

    #[test]
    fn a_photo_of_one_runner_with_a_bib_is_one_step() {
        assert_eq!(read(&[384], Some(1)).0.len(), 1);
        assert_eq!(read(&[], Some(1)).0.len(), 1);
    }

    #[test]
    fn steps_lead_to_what_all_at_once_leads_to() {
        let heights = [384, 192, 256, 192, 384, 192, 256, 256, 384];
        let (at_once, whole) = read(&heights, None);
        assert_eq!(at_once.len(), 1);
        for items_per_call in [1, 2, 4, 64] {
            assert_eq!(read(&heights, Some(items_per_call)).1, whole, "{items_per_call} items a call");
        }
    }

    #[test]
    fn calls_for_a_single_photo_are_no_smaller_than_without_steps() {
        let heights: Vec<u32> = [192; 100].into_iter().chain([256; 60]).chain([384; 40]).collect();
        let (steps, _) = read(&heights, Some(64));
        assert_eq!(detected_in(&steps), [vec![64], vec![36], vec![60], vec![40]]);
        let (few, _) = read(&[384; 40], Some(64));
        assert_eq!(few.len(), 1, "what a call has room for is one step: {few:?}");
    }

    #[test]
    fn the_first_pass_is_for_torsos_with_a_text_but_no_certain_bib() {
        let mut photo = PhotoProgress::new();
        photo.torsos = (0..4).map(torso).collect();
        let places = [0, 1, 2].map(|torso| Unseen { height: 192, torso });
        photo.look_at(places.to_vec());
        // The bib of the first runner; a trace on the second; nothing on the third; the fourth was not looked at.
        let seen = |texts: Vec<Quad>, text_probability| TorsoTexts { texts, text_probability };
        photo.add_detected([seen(vec![bib_of(0)], 0.9), seen(Vec::new(), 0.4), seen(Vec::new(), 0.05)]);
        let found: Vec<FoundText> = photo.unread(9).collect();
        photo.add_readings(found.iter().map(reading_of).collect());
        assert_eq!(photo.next_piece(9, 4).unwrap().task, Task { pass: Pass::First, work: Work::Choose });
        assert_eq!(photo.find_unread(), [1, 3]);
        photo.readings[0].confidence = 0.94;
        assert_eq!(photo.find_unread(), [0, 1, 3], "not certain");
    }

    #[test]
    fn the_first_pass_replaces_what_it_reads_better_than_the_light_one() {
        let mut photo = PhotoProgress::new();
        photo.torsos = vec![torso(0)];
        photo.look_at(vec![Unseen { height: 192, torso: 0 }]);
        photo.add_detected([TorsoTexts { texts: vec![bib_of(0)], text_probability: 0.9 }]);
        let found: Vec<FoundText> = photo.unread(9).collect();
        let cut = TextReading { text: "23".into(), confidence: 0.93, ..reading_of(&found[0]) };
        photo.add_readings(vec![cut]);
        photo.look_at(vec![Unseen { height: 384, torso: 0 }]);
        photo.add_detected([TorsoTexts { texts: vec![bib_of(0)], text_probability: 0.9 }]);
        let whole = TextReading { text: "123".into(), confidence: 0.91, ..reading_of(&found[0]) };
        photo.add_readings(vec![whole]);
        let texts: Vec<&str> = photo.readings.iter().map(|reading| reading.text.as_str()).collect();
        assert_eq!(texts, ["123"]);
        assert_eq!(photo.torsos[0].light_text_probability, Some(0.9));
    }

    #[test]
    fn what_the_first_pass_reads_stands_where_a_longer_strip_contradicts_the_light_one() {
        let mut photo = PhotoProgress::new();
        photo.torsos = vec![torso(0)];
        let bib = || TorsoTexts { texts: vec![bib_of(0)], text_probability: 0.9 };
        photo.look_at(vec![Unseen { height: 192, torso: 0 }]);
        photo.add_detected([bib()]);
        let found: Vec<FoundText> = photo.unread(9).collect();
        let reading = |text: &str, confidence: f32, is_whole: bool| TextReading {
            text: text.into(),
            confidence,
            is_whole,
            ..reading_of(&found[0])
        };
        photo.add_readings(vec![reading("4847", 0.98, false)]);
        assert_eq!(photo.find_unread(), [0]);
        photo.look_at(vec![Unseen { height: 384, torso: 0 }]);
        photo.add_detected([bib()]);
        photo.add_readings(vec![reading("847", 0.92, true)]);
        let texts: Vec<&str> = photo.readings.iter().map(|reading| reading.text.as_str()).collect();
        assert_eq!(texts, ["847"]);
    }
}
