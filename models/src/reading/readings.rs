//! Decides which readings of a photo are kept: of texts that overlap the larger is read, of two readings of one text the
//! better is kept, and a confident bib on a torso resolves its runner.

use std::ops::RangeInclusive;

use photofinish_kernels::geometry::{Quad, Rect};
use photofinish_kernels::lattice::Lattice;

use super::text_recogniser::RecognisedLine;
use super::torso::Runner;
use crate::traits::{BibPattern, BibText};

/// Least confidence of a bib that an exact search returns (step 16).
const ACCEPT_CONFIDENCE: f32 = 0.9;

/// Readings below this confidence are dropped: they are not used even for fuzzy search (step 16).
const MIN_CONFIDENCE: f32 = 0.5;

/// A text is dropped when this part of its area is inside a larger one (step 8).
const CONTAINED_PART: f32 = 0.5;

/// Two readings are of one text when they share more than this part of the smaller one's area (step 13).
const SAME_TEXT_OVERLAP: f32 = 0.5;

/// A box is that of a certain reading, and is not read again, when what they share is so much of what they cover together.
const SAME_BOX_OVERLAP: f32 = 0.8;

/// Least confidence and length of a bib that resolves its runner (step 12).
const RESOLVE_CONFIDENCE: f32 = 0.95;
const RESOLVE_MIN_LENGTH: usize = 3;

/// Where that bib must be, in units of the runner: distance of its centre from the middle and below the chin, and height.
const RESOLVE_REACH: f32 = 1.3;
const RESOLVE_BELOW_CHIN: RangeInclusive<f32> = 0.8..=4.9;
const RESOLVE_HEIGHTS: RangeInclusive<f32> = 0.3..=1.0;

/// What a text may lack at an end: any digit, or any capital. One that is no bib without is looked at from two characters on.
const MORE: [&str; 2] = ["0", "A"];
const LEAST_PART: usize = 2;

/// Greatest width of a bib's text for each of its characters, in heights of the text (step 11): no character is wider than
/// high. A wider text has others that were not read.
const MAX_CHARACTER_WIDTH: f32 = 1.0;

/// A detected text, to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FoundText {
    /// Corners in pixels of the photo.
    pub(super) quad: Quad,
    /// Whether it is on the torso of a small runner.
    pub(super) is_small: bool,
}

impl From<Quad> for FoundText {
    fn from(quad: Quad) -> Self {
        Self { quad, is_small: false }
    }
}

impl FoundText {
    /// Whether it has no room for more characters than these.
    pub(super) fn is_filled_by(&self, text: &str) -> bool {
        let (width, height) = self.quad.size();
        width <= MAX_CHARACTER_WIDTH * text.len() as f32 * height
    }

    /// The highest confidence that any judge of what was read in it may have, 1 for no limit (step 10).
    fn max_confidence(&self, line: &RecognisedLine) -> f32 {
        if self.is_small { line.max_confidence_when_small() } else { 1.0 }
    }
}

/// A text of the photo, read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextReading {
    /// Corners in pixels of the photo.
    pub(super) quad: Quad,
    /// Letters, in the case that was read, and digits; may be empty.
    pub(super) text: String,
    /// 0 to 1; the mean probability, or the highest confidence where that is less.
    pub(super) confidence: f32,
    /// Mean probability of its characters, 0 to 1.
    pub(super) mean_probability: f32,
    /// The highest confidence that any judge of the text may have, 1 for no limit (step 10).
    pub(super) max_confidence: f32,
    /// Whether the text matches the pattern of the event.
    pub(super) is_bib: bool,
    /// Whether a longer strip, where one was read, shows the same (step 11).
    pub(super) is_whole: bool,
    /// What else the recogniser thought it may say.
    pub(super) lattice: Lattice,
}

impl TextReading {
    /// What was read in a text. The pattern is matched before upper-casing: letters on bibs are capitals, so a small letter
    /// belongs to a word (`10k`).
    pub(super) fn new(found: &FoundText, line: RecognisedLine, pattern: &BibPattern) -> Self {
        let max_confidence = found.max_confidence(&line);
        Self {
            quad: found.quad,
            is_whole: true,
            is_bib: !line.text.is_empty() && pattern.matches(&line.text) && found.is_filled_by(&line.text),
            confidence: line.confidence.min(max_confidence),
            mean_probability: line.confidence,
            max_confidence,
            text: line.text,
            lattice: line.lattice,
        }
    }

    /// Whether an exact search returns it.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_bib && self.confidence >= ACCEPT_CONFIDENCE
    }

    /// Whether it is certain, and would match the pattern with one digit or capital more at an end (step 11). It need not match
    /// without: of a number of four digits a box shows three.
    pub(super) fn may_be_longer(&self, pattern: &BibPattern) -> bool {
        let text = &self.text;
        let has_digit = text.contains(|character: char| character.is_ascii_digit());
        let matches_with = |more: &str| {
            pattern.matches(&format!("{text}{more}")) || pattern.matches(&format!("{more}{text}"))
        };
        let is_most_of_a_bib = self.is_bib || has_digit && text.len() >= LEAST_PART;
        is_most_of_a_bib && self.confidence >= ACCEPT_CONFIDENCE && MORE.into_iter().any(matches_with)
    }

    /// Takes what a longer strip shows if that is certainly a bib with more characters before or after these. Detected
    /// boxes leave out digits at the ends, and the recogniser is sure of what remains of a number.
    ///
    /// Each character must be certain: the edge of a bib looks like a 1, and a mean of five hides that one of them is
    /// such a guess.
    pub(super) fn complete(&mut self, beyond: RecognisedLine, found: &FoundText, pattern: &BibPattern) {
        self.is_whole = beyond.text == self.text;
        let is_more = beyond.text.len() > self.text.len()
            && (beyond.text.starts_with(&self.text) || beyond.text.ends_with(&self.text));
        let is_bib = pattern.matches(&beyond.text) && found.is_filled_by(&beyond.text);
        if is_more && is_bib && beyond.least >= RESOLVE_CONFIDENCE {
            self.is_bib = true;
            self.max_confidence = found.max_confidence(&beyond);
            self.confidence = beyond.confidence.min(self.max_confidence);
            self.mean_probability = beyond.confidence;
            self.text = beyond.text;
            self.lattice = beyond.lattice;
        }
    }

    /// Whether it is certainly this runner's bib, so that the runner needs no other pass.
    pub(super) fn resolves(&self, runner: &Runner) -> bool {
        self.confidence >= RESOLVE_CONFIDENCE
            && self.text.len() >= RESOLVE_MIN_LENGTH
            && self.may_be_bib_of(runner)
    }

    /// Whether reading this text would only say once more what is certain: a bib of which a longer strip shows no more, or a word.
    pub(super) fn is_certainly_of(&self, text: &FoundText) -> bool {
        let is_word = !self.text.contains(|character: char| character.is_ascii_digit());
        let is_certain = self.is_whole && self.confidence >= RESOLVE_CONFIDENCE && (self.is_bib || is_word);
        let (read, found) = (self.quad.bounds(), text.quad.bounds());
        let shared = read.intersection_area(&found);
        is_certain && shared >= SAME_BOX_OVERLAP * (read.area() + found.area() - shared)
    }

    /// Whether another reading of the same may show that it is this runner's bib: only the limit of its confidence speaks
    /// against it (step 14).
    pub(super) fn may_be_confirmed(&self, runner: &Runner) -> bool {
        self.needs_confirmation() && self.may_be_bib_of(runner)
    }

    fn needs_confirmation(&self) -> bool {
        self.is_bib && self.max_confidence < ACCEPT_CONFIDENCE && self.mean_probability >= ACCEPT_CONFIDENCE
    }

    /// Whether it is a bib where this runner's is.
    fn may_be_bib_of(&self, runner: &Runner) -> bool {
        let centre = self.quad.centre();
        self.is_bib
            && (centre.x - runner.middle).abs() <= RESOLVE_REACH * runner.unit
            && RESOLVE_BELOW_CHIN.contains(&((centre.y - runner.chin) / runner.unit))
            && RESOLVE_HEIGHTS.contains(&(self.quad.size().1 / runner.unit))
    }

    /// Whether it replaces another reading of the same text: a bib beats other text; of two confident readings the longer
    /// wins, because digits get lost but are hardly ever invented; otherwise the more confident.
    fn beats(&self, other: &Self) -> bool {
        if self.is_bib != other.is_bib {
            return self.is_bib;
        }
        let are_confident = self.confidence.min(other.confidence) >= ACCEPT_CONFIDENCE;
        if are_confident && self.text.len() != other.text.len() {
            return self.text.len() > other.text.len();
        }
        self.confidence > other.confidence
    }
}

/// Takes the limit from the confidence of readings that a later pass, which detected the text again at another scale, reads
/// in the same way (step 14).
pub(super) fn confirm_readings(found: &mut [TextReading], later: &[TextReading]) {
    for old in found.iter_mut().filter(|old| old.needs_confirmation()) {
        let bounds = old.quad.bounds();
        let agrees = |new: &&TextReading| {
            new.text == old.text
                && new.mean_probability >= ACCEPT_CONFIDENCE
                && is_same_text(&bounds, &new.quad.bounds())
        };
        if let Some(new) = later.iter().find(agrees) {
            old.max_confidence = 1.0;
            old.confidence = old.mean_probability.max(new.mean_probability);
        }
    }
}

/// Drops the readings that a longer strip contradicts where a later pass, with the surer text detector, read the same text.
pub(super) fn drop_contradicted(found: &mut Vec<TextReading>, later: &[TextReading]) {
    found.retain(|old| {
        let bounds = old.quad.bounds();
        old.is_whole || !later.iter().any(|new| is_same_text(&bounds, &new.quad.bounds()))
    });
}

/// Adds readings of a later pass. Each replaces those of the same text if it beats them all, and is dropped otherwise.
pub(super) fn merge_readings(found: &mut Vec<TextReading>, later: Vec<TextReading>) {
    for new in later {
        let bounds = new.quad.bounds();
        let is_same = |old: &TextReading| is_same_text(&bounds, &old.quad.bounds());
        if found.iter().filter(|old| is_same(old)).all(|old| new.beats(old)) {
            found.retain(|old| !is_same(old));
            found.push(new);
        }
    }
}

fn is_same_text(a: &Rect, b: &Rect) -> bool {
    a.intersection_area(b) > SAME_TEXT_OVERLAP * a.area().min(b.area())
}

/// Returns the texts that are not contained in larger ones, largest first.
pub(super) fn drop_contained(mut texts: Vec<FoundText>) -> Vec<FoundText> {
    texts.sort_by(|a, b| b.quad.bounds().area().total_cmp(&a.quad.bounds().area()));
    let mut kept: Vec<FoundText> = Vec::with_capacity(texts.len());
    for text in texts {
        let bounds = text.quad.bounds();
        let limit = CONTAINED_PART * bounds.area();
        if kept.iter().all(|larger| bounds.intersection_area(&larger.quad.bounds()) < limit) {
            kept.push(text);
        }
    }
    kept
}

/// Returns the readings as the pipeline takes them: upper case, most confident first.
pub(super) fn into_bib_texts(readings: Vec<TextReading>) -> Vec<BibText> {
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

    use super::*;

    fn upright(left: f32, top: f32, width: f32, height: f32) -> Quad {
        let corner = |x: f32, y: f32| Point { x: left + x, y: top + y };
        Quad([corner(0.0, 0.0), corner(width, 0.0), corner(width, height), corner(0.0, height)])
    }

    /// A lattice that says this text.
    fn lattice_of(text: &str) -> Lattice {
        let alphabet: Vec<char> = text.chars().collect();
        let certain = |at: usize| (0..=alphabet.len()).map(move |class| f32::from(u8::from(class == at)));
        let columns: Vec<f32> = (1..=alphabet.len()).flat_map(|at| certain(at).chain(certain(0))).collect();
        Lattice::from_probabilities(&columns, &alphabet)
    }

    /// A reading at `left`, 100 x 30; bibs are those of digits only.
    fn reading(text: &str, confidence: f32, left: f32) -> TextReading {
        let is_bib = text.bytes().all(|byte| byte.is_ascii_digit());
        let lattice = lattice_of(text);
        TextReading {
            quad: upright(left, 300.0, 100.0, 30.0),
            text: text.into(),
            confidence,
            mean_probability: confidence,
            max_confidence: 1.0,
            is_bib,
            is_whole: true,
            lattice,
        }
    }

    /// The same on a small runner: with a limit of its confidence.
    fn limited(text: &str, mean_probability: f32, left: f32) -> TextReading {
        let reading = reading(text, mean_probability, left);
        TextReading { confidence: reading.confidence.min(0.89), max_confidence: 0.89, ..reading }
    }

    fn texts(found: &[TextReading]) -> Vec<&str> {
        found.iter().map(|reading| reading.text.as_str()).collect()
    }

    #[test]
    fn a_text_within_a_larger_one_is_dropped() {
        let large = upright(0.0, 0.0, 100.0, 30.0);
        let within = upright(60.0, 0.0, 60.0, 30.0);
        let beside = upright(75.0, 0.0, 60.0, 30.0);
        let [large, within, beside] = [large, within, beside].map(FoundText::from);
        assert_eq!(drop_contained(vec![within, large]), [large]);
        assert_eq!(drop_contained(vec![beside, large]), [large, beside]);
        assert!(drop_contained(Vec::new()).is_empty());
    }

    #[test]
    fn a_bib_beats_other_text_then_the_longer_of_confident_ones_then_the_more_confident() {
        let beats = |a: (&str, f32), b: (&str, f32)| reading(a.0, a.1, 0.0).beats(&reading(b.0, b.1, 0.0));
        assert!(beats(("123", 0.6), ("nike", 0.99)));
        assert!(!beats(("nike", 0.99), ("123", 0.6)));
        assert!(beats(("1234", 0.91), ("123", 0.99)));
        assert!(!beats(("123", 0.99), ("1234", 0.91)));
        assert!(beats(("123", 0.99), ("1234", 0.89)));
        assert!(!beats(("123", 0.9), ("456", 0.9)));
    }

    #[test]
    fn a_later_reading_replaces_those_it_beats_or_is_dropped() {
        let mut found = vec![reading("463", 0.93, 0.0), reading("77", 0.9, 500.0)];
        merge_readings(&mut found, vec![reading("1463", 0.97, 10.0)]);
        assert_eq!(texts(&found), ["77", "1463"]);
        merge_readings(&mut found, vec![reading("146", 0.99, 20.0)]);
        assert_eq!(texts(&found), ["77", "1463"]);
        merge_readings(&mut found, vec![reading("5", 0.2, 300.0)]);
        assert_eq!(texts(&found), ["77", "1463", "5"]);
    }

    #[test]
    fn a_reading_that_a_longer_strip_contradicts_gives_way_to_a_later_one_of_the_same_text() {
        let contradicted = TextReading { is_whole: false, ..reading("4847", 0.98, 0.0) };
        let elsewhere = TextReading { is_whole: false, ..reading("12", 0.98, 500.0) };
        let mut found = vec![contradicted, reading("77", 0.9, 0.0), elsewhere];
        drop_contradicted(&mut found, &[reading("847", 0.91, 5.0)]);
        assert_eq!(texts(&found), ["77", "12"]);
    }

    #[test]
    fn what_is_certain_is_not_read_again_in_the_same_box() {
        let at = |left: f32, width: f32| FoundText::from(upright(left, 300.0, width, 30.0));
        let certain = reading("123", 0.97, 100.0);
        assert!(certain.is_certainly_of(&at(100.0, 100.0)) && certain.is_certainly_of(&at(110.0, 100.0)));
        assert!(!certain.is_certainly_of(&at(130.0, 100.0)), "another box");
        assert!(!certain.is_certainly_of(&at(100.0, 130.0)), "a longer one");
        assert!(!reading("123", 0.94, 100.0).is_certainly_of(&at(100.0, 100.0)));
        let doubtful = TextReading { is_whole: false, ..certain.clone() };
        assert!(!doubtful.is_certainly_of(&at(100.0, 100.0)), "a longer strip shows more");
        assert!(reading("RUN", 0.97, 100.0).is_certainly_of(&at(100.0, 100.0)));
        let part = TextReading { is_bib: false, ..certain };
        assert!(!part.is_certainly_of(&at(100.0, 100.0)), "digits that are no bib");
    }

    #[test]
    fn a_later_reading_must_beat_all_that_it_overlaps() {
        let mut found = vec![reading("12", 0.95, 0.0), reading("345", 0.95, 100.0)];
        let wide =
            |text: &str| TextReading { quad: upright(0.0, 300.0, 200.0, 30.0), ..reading(text, 0.95, 0.0) };
        merge_readings(&mut found, vec![wide("346")]);
        assert_eq!(texts(&found), ["12", "345"]);
        merge_readings(&mut found, vec![wide("12345")]);
        assert_eq!(texts(&found), ["12345"]);
    }

    #[test]
    fn a_confident_bib_on_the_torso_resolves_its_runner() {
        let runner = Runner { unit: 50.0, middle: 50.0, chin: 200.0 };
        assert!(reading("123", 0.96, 0.0).resolves(&runner));
        assert!(!reading("123", 0.94, 0.0).resolves(&runner));
        assert!(!reading("12", 0.99, 0.0).resolves(&runner));
        assert!(!reading("run", 0.99, 0.0).resolves(&runner));
        assert!(!reading("123", 0.96, 70.0).resolves(&runner));
        assert!(!reading("123", 0.96, 0.0).resolves(&Runner { chin: 290.0, ..runner }));
        assert!(!reading("123", 0.96, 0.0).resolves(&Runner { unit: 20.0, ..runner }));
    }

    #[test]
    fn a_limited_reading_is_confirmed_by_one_that_says_the_same_there() {
        let confidence_after = |first: TextReading, later: TextReading| {
            let mut found = vec![first];
            confirm_readings(&mut found, &[later]);
            (found[0].confidence, found[0].max_confidence)
        };
        let later = limited("10227", 0.95, 10.0);
        assert_eq!(confidence_after(limited("10227", 0.93, 0.0), later.clone()), (0.95, 1.0));
        let limit = (0.89, 0.89);
        assert_eq!(confidence_after(limited("10221", 0.93, 0.0), later.clone()), limit, "another number");
        assert_eq!(confidence_after(limited("10227", 0.93, 300.0), later.clone()), limit, "elsewhere");
        assert_eq!(confidence_after(limited("run", 0.93, 0.0), limited("run", 0.95, 0.0)), limit, "no bib");
        let unsure = limited("10227", 0.88, 0.0);
        assert_eq!(confidence_after(unsure.clone(), later.clone()), (0.88, 0.89), "not sure at first");
        assert_eq!(confidence_after(limited("10227", 0.93, 0.0), unsure), limit, "not sure later");
        assert_eq!(confidence_after(reading("10227", 0.92, 0.0), later), (0.92, 1.0), "no limit");
    }

    #[test]
    fn only_a_limited_bib_on_the_torso_may_be_confirmed() {
        let runner = Runner { unit: 50.0, middle: 50.0, chin: 200.0 };
        assert!(limited("123", 0.96, 0.0).may_be_confirmed(&runner));
        assert!(!limited("123", 0.89, 0.0).may_be_confirmed(&runner));
        assert!(!limited("123", 0.96, 70.0).may_be_confirmed(&runner));
        assert!(!reading("123", 0.96, 0.0).may_be_confirmed(&runner));
    }

    #[test]
    fn a_text_of_few_characters_in_a_wide_box_is_not_filled_by_them() {
        let text = |width: f32| FoundText::from(upright(0.0, 0.0, width, 30.0));
        assert!(text(60.0).is_filled_by("25"));
        assert!(!text(61.0).is_filled_by("25"));
        assert!(text(61.0).is_filled_by("251"));
        assert!(FoundText::from(upright(0.0, 0.0, 30.0, 90.0)).is_filled_by("25"), "vertical");
    }

    #[test]
    fn a_bib_that_looks_longer_on_a_longer_strip_is_not_whole() {
        let pattern = BibPattern::new("[0-9]{2,5}").unwrap();
        let runner = Runner { unit: 50.0, middle: 50.0, chin: 200.0 };
        let is_whole = |beyond: &str, least| {
            let mut reading = reading("1142", 0.99, 0.0);
            let line =
                RecognisedLine { text: beyond.into(), confidence: 0.99, least, lattice: lattice_of(beyond) };
            reading.complete(line, &FoundText::from(reading.quad), &pattern);
            assert!(reading.resolves(&runner));
            reading.is_whole
        };
        assert!(reading("11142", 0.99, 0.0).is_whole, "no longer strip was read");
        assert!(is_whole("1142", 0.99));
        assert!(!is_whole("11142", 0.8), "a digit more that is not certain");
        assert!(!is_whole("11142", 0.99), "completed: the text detector is to confirm it");
    }

    #[test]
    fn a_bib_is_completed_by_what_a_longer_strip_shows() {
        let pattern = BibPattern::new("[0-9]{2,5}").unwrap();
        let completed = |short: &str, beyond: &str, least| {
            let mut reading = reading(short, 0.99, 0.0);
            let line =
                RecognisedLine { text: beyond.into(), confidence: 0.99, least, lattice: lattice_of(beyond) };
            reading.complete(line, &FoundText::from(reading.quad), &pattern);
            assert!(
                reading.lattice.likelihood(&reading.text) > 0.9,
                "the lattice of the reading that stands"
            );
            reading.text
        };
        assert_eq!(completed("0433", "70433", 0.97), "70433");
        assert_eq!(completed("1026", "10264", 0.97), "10264");
        assert_eq!(completed("0433", "70433", 0.94), "0433", "a guess");
        assert_eq!(completed("0433", "70438", 0.97), "0433", "another number");
        assert_eq!(completed("0433", "x0433", 0.97), "0433", "no bib");
        assert_eq!(completed("0433", "433", 0.97), "0433");
    }

    #[test]
    fn a_number_that_a_box_cuts_becomes_a_bib_with_what_a_longer_strip_shows() {
        let pattern = BibPattern::new("[0-9]{4}").unwrap();
        let mut cut = TextReading { is_bib: false, ..reading("234", 0.99, 0.0) };
        let line = |text: &str| RecognisedLine {
            text: text.into(),
            confidence: 0.98,
            least: 0.97,
            lattice: lattice_of(text),
        };
        let found = FoundText::from(cut.quad);
        cut.complete(line("12345"), &found, &pattern);
        assert!(!cut.is_accepted() && cut.text == "234", "no bib either");
        cut.complete(line("1234"), &found, &pattern);
        assert!(cut.is_accepted() && cut.text == "1234");
        let wide = FoundText::from(upright(0.0, 300.0, 200.0, 30.0));
        let mut part = TextReading { is_bib: false, ..reading("234", 0.99, 0.0) };
        part.complete(line("1234"), &wide, &pattern);
        assert!(!part.is_bib, "there is room for more that was not read");
    }

    #[test]
    fn only_what_is_certain_and_may_be_longer_is_looked_at_beyond_its_ends() {
        let may_be_longer = |text: &str, confidence, pattern: &str| {
            reading(text, confidence, 0.0).may_be_longer(&BibPattern::new(pattern).unwrap())
        };
        assert!(may_be_longer("433", 0.9, "[0-9]{2,5}"));
        assert!(!may_be_longer("433", 0.89, "[0-9]{2,5}"));
        assert!(!may_be_longer("run", 0.99, "[0-9]{2,5}"));
        assert!(!may_be_longer("70433", 0.99, "[0-9]{2,5}"), "five digits are the most");
        assert!(!may_be_longer("433", 0.99, "[0-9]{3}"));
        assert!(may_be_longer("433", 0.99, "[0-9]{3}[0-9A-Z]?"));
        assert!(may_be_longer("433", 0.99, "[0-9]{4}"), "it matches only with another digit");
        assert!(may_be_longer("4331", 0.99, "[A-F][0-9]{4}"), "its letter may be cut off");
        assert!(!may_be_longer("33", 0.99, "[0-9]{4}"), "two digits are missing");
        assert!(may_be_longer("4", 0.99, "[0-9]{1,4}") && !may_be_longer("?", 0.99, "[0-9]{1,4}"));
    }

    #[test]
    fn only_confident_bibs_are_accepted() {
        assert!(reading("123", 0.9, 0.0).is_accepted());
        assert!(!reading("123", 0.89, 0.0).is_accepted());
        assert!(!reading("abc", 0.99, 0.0).is_accepted());
    }

    #[test]
    fn bib_texts_are_upper_case_confident_and_sorted_by_confidence() {
        let of = |text: &str, confidence| TextReading { text: text.into(), ..reading("1", confidence, 0.0) };
        let readings = vec![of("a12", 0.6), of("", 0.99), of("77", 0.49), of("B3", 0.9)];
        let texts: Vec<String> = into_bib_texts(readings).into_iter().map(|text| text.text).collect();
        assert_eq!(texts, ["B3", "A12"]);
    }
}
