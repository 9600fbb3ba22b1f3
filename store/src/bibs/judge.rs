//! Judges what was read in a photo by a start list: which bib of the list each text is, if any. Without one, by the format
//! of the event's bibs.
//!
//! Bayes' rule over what the lattice of a text spells: with n bibs on the list and a share s of runners who are not on
//! it, a bib of the list has the prior probability (1 - s) / n, and any other text s / N, where N is the number of
//! texts of its shape (10 for each digit, 26 for each letter). The likelihoods are those of the lattice. So a sparse
//! list corrects what a dense one leaves alone.
//!
//! No rule makes a text surer than the reader allows (`max_confidence`): of a small runner the lattice is that of blurred
//! characters, and the neighbours of a number on the list are as likely as it is.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::format::BibFormat;
use super::start_list::{StartList, find_excluded};
use super::weights::has_small_letter;
use crate::model::album::AlbumConfig;
use crate::model::bib_format::LearnedFormat;
use crate::model::photo::{DetectedText, ReadText, TextIndexState, UnindexedReason};
use crate::model::start_list::{Alternative, StartListEntry};
use crate::search::variants::similar_texts;

/// Least probability of a bib that exact searches find, and of one that fuzzy searches find: as for readings.
const INDEXED: f64 = 0.9;
const CANDIDATE: f64 = 0.5;

/// What is left of the confidence in a reading without a lattice when the list says that a character looks like
/// another, or that one was cut off: as a fuzzy search weighs them.
const LOOK_ALIKE_FACTOR: f64 = 0.78;
const CUT_FACTOR: f64 = 0.55;

/// Alternatives of a text that are shown, and the least probability of one.
const MAX_ALTERNATIVES: usize = 5;
const LEAST_ALTERNATIVE: f64 = 0.001;

/// Confidences are kept in millionths, so that both databases store the same number.
const MILLION: f64 = 1e6;

/// By what the texts of an album are judged.
pub(crate) enum BibRule {
    /// Each is what was read.
    AsRead,
    StartList(StartList),
    Format(BibFormat),
    /// Numbers that nobody wears, in an album that lists no others; all texts but these are judged by the other rule.
    Except(HashSet<Box<str>>, Box<Self>),
}

impl BibRule {
    /// The rule of an album: its start list, where it has one, says more than a format.
    pub(crate) fn new(
        entries: &[StartListEntry],
        config: &AlbumConfig,
        learned: Option<LearnedFormat>,
    ) -> Self {
        if let Some(list) = StartList::new(entries, config) {
            return Self::StartList(list);
        }
        let format = BibFormat::new(&config.bib_format, learned).map_or(Self::AsRead, Self::Format);
        let excluded = find_excluded(entries, config);
        if excluded.is_empty() { format } else { Self::Except(excluded, Box::new(format)) }
    }
}

/// What the rule says of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// The same as the reader.
    AsRead,
    /// Something else.
    Otherwise {
        text: String,
        /// Millionths.
        confidence: i64,
        index_state: TextIndexState,
    },
}

impl Judgement {
    fn otherwise(text: &str, confidence: f64, index_state: TextIndexState) -> Self {
        Self::Otherwise {
            text: text.to_owned(),
            confidence: (confidence * MILLION).round() as i64,
            index_state,
        }
    }

    /// The text that it is.
    fn text<'a>(&'a self, read: &'a ReadText) -> &'a String {
        match self {
            Self::AsRead => &read.text,
            Self::Otherwise { text, .. } => text,
        }
    }

    /// Whether a search finds the text as a bib.
    fn is_bib(&self, read: &ReadText) -> bool {
        let index_state = match self {
            Self::AsRead => read.index_state,
            Self::Otherwise { index_state, .. } => *index_state,
        };
        is_bib(index_state)
    }

    /// How sure it is.
    fn confidence(&self, read: &ReadText) -> f64 {
        match self {
            Self::AsRead => read.confidence,
            Self::Otherwise { confidence, .. } => *confidence as f64 / MILLION,
        }
    }

    /// Changes a text to what the list says of it.
    pub(crate) fn apply_to(self, text: &mut DetectedText) {
        let read = text.as_read();
        match self {
            Self::AsRead => {
                let ReadText { text: as_read, confidence, index_state } = read;
                (text.text, text.confidence, text.index_state, text.read) =
                    (as_read, confidence, index_state, None);
            }
            Self::Otherwise { text: judged, confidence, index_state } => {
                text.text = judged;
                text.confidence = confidence as f64 / MILLION;
                text.index_state = index_state;
                text.read = Some(read);
            }
        }
    }

    /// Whether the text is this already.
    pub(crate) fn is_of(&self, text: &DetectedText) -> bool {
        let mut judged = text.clone();
        self.clone().apply_to(&mut judged);
        judged == *text
    }
}

fn is_bib(index_state: TextIndexState) -> bool {
    matches!(index_state, TextIndexState::Indexed | TextIndexState::Candidate)
}

/// Judges the texts of a photo, in order.
pub(crate) fn judge_photo(rule: &BibRule, texts: &[DetectedText]) -> Vec<Judgement> {
    match rule {
        BibRule::AsRead => vec![Judgement::AsRead; texts.len()],
        BibRule::StartList(list) => judge_by_list(list, texts),
        BibRule::Format(format) => texts.iter().map(|text| judge_by_format(format, text)).collect(),
        BibRule::Except(excluded, others) => {
            let judged = judge_photo(others, texts).into_iter().zip(texts);
            judged.map(|(other, text)| judge_excluded(excluded, text).unwrap_or(other)).collect()
        }
    }
}

fn judge_excluded(excluded: &HashSet<Box<str>>, text: &DetectedText) -> Option<Judgement> {
    let read = text.as_read();
    let is_excluded = is_bib(read.index_state) && excluded.contains(read.text.as_str());
    let state = TextIndexState::Unindexed(UnindexedReason::NotOnStartList);
    is_excluded.then(|| Judgement::otherwise(&read.text, read.confidence, state))
}

fn judge_by_format(format: &BibFormat, text: &DetectedText) -> Judgement {
    let read = text.as_read();
    match format.judge(&read) {
        Some(index_state) => Judgement::otherwise(&read.text, read.confidence, index_state),
        None => Judgement::AsRead,
    }
}

/// Judges the texts of a photo by a list.
///
/// No runner is twice in a photo: of two texts that the list makes the same bib, the surer one is it. A text whose own
/// characters are the bib stays it all the same: bibs are printed on chest and cap. Small print that says a number of the list and
/// is no bib takes none.
fn judge_by_list(list: &StartList, texts: &[DetectedText]) -> Vec<Judgement> {
    let reads: Vec<ReadText> = texts.iter().map(DetectedText::as_read).collect();
    let judge = |at: usize, taken: &HashSet<String>| {
        let judgement = list.judge(&texts[at], &reads[at], taken);
        let (read, text) = (&reads[at].text, judgement.text(&reads[at]));
        OpenText { at, is_own: text == read || list.spells(read, text), judgement }
    };
    let mut taken = HashSet::new();
    let mut open: Vec<OpenText> = (0..texts.len()).map(|at| judge(at, &taken)).collect();
    let mut judged = vec![Judgement::AsRead; texts.len()];
    while let Some(surest) = (0..open.len()).max_by(|a, b| open[*a].compare(&open[*b], &reads)) {
        let text = open.swap_remove(surest);
        let bib = text.judgement.text(&reads[text.at]);
        if !text.is_own && taken.contains(bib) {
            open.push(judge(text.at, &taken));
            continue;
        }
        if list.find(bib).is_some() && text.judgement.is_bib(&reads[text.at]) {
            taken.insert(bib.clone());
        }
        judged[text.at] = text.judgement;
    }
    judged
}

/// A text of a photo whose bib another one may still take.
struct OpenText {
    at: usize,
    /// Whether it is what its own characters say, with or without zeros before them.
    is_own: bool,
    judgement: Judgement,
}

impl OpenText {
    /// The greater of two texts has the first claim to a bib.
    fn compare(&self, other: &Self, reads: &[ReadText]) -> Ordering {
        let confidence = |text: &Self| text.judgement.confidence(&reads[text.at]);
        let by_confidence = confidence(self).total_cmp(&confidence(other));
        self.is_own.cmp(&other.is_own).then(by_confidence).then(other.at.cmp(&self.at))
    }
}

/// What else the texts of a photo may be by a list, in order: of each the most probable, the most probable first. Empty for
/// texts that are not judged by their lattice.
pub(crate) fn find_alternatives(rule: &BibRule, texts: &[DetectedText]) -> Vec<Vec<Alternative>> {
    let BibRule::StartList(list) = rule else { return vec![Vec::new(); texts.len()] };
    let others = |at: usize| texts.iter().enumerate().filter(move |(other, _)| *other != at);
    let taken_by_others = |at: usize| -> HashSet<String> {
        others(at)
            .filter(|(_, text)| is_bib(text.index_state) && list.find(&text.text).is_some())
            .map(|(_, it)| it.text.clone())
            .collect()
    };
    texts.iter().enumerate().map(|(at, text)| list.find_alternatives(text, &taken_by_others(at))).collect()
}

impl StartList {
    /// Whether the reader knows that a text is no bib although it looks like one: small letters, or a box with room for
    /// characters that were not read. The pattern by which it read is not kept with the text, and may have been another one:
    /// what a list has judged before matched none then, and is judged again.
    fn is_known_as_no_bib(&self, text: &DetectedText, read: &ReadText) -> bool {
        let is_no_bib = read.index_state == TextIndexState::Unindexed(UnindexedReason::NotABib);
        let was_judged = text.read.is_some();
        is_no_bib && !was_judged && self.matches_pattern(&read.text)
    }

    /// Judges a text; it is none of the bibs in `taken` unless it was read as one of them.
    fn judge(&self, text: &DetectedText, read: &ReadText, taken: &HashSet<String>) -> Judgement {
        if self.is_known_as_no_bib(text, read) {
            return Judgement::AsRead;
        }
        let Some(lattice) = &text.lattice else { return self.judge_without_lattice(read, taken) };
        let weights = self.weigh(read, &lattice.lattice, taken);
        match weights.best_bib() {
            Some((bib, weight)) if weight > weights.best_other() => {
                let probability = self.never_less_sure(read, bib, weight / weights.sum());
                confirm(read, bib, probability.min(text.max_confidence))
            }
            _ => self.judge_stranger(read),
        }
    }

    /// What a text may be, where the list judges it by its lattice. Words and small letters count, but are not shown.
    fn find_alternatives(&self, text: &DetectedText, taken: &HashSet<String>) -> Vec<Alternative> {
        let read = text.as_read();
        let Some(lattice) = text.lattice.as_ref().filter(|_| !self.is_known_as_no_bib(text, &read)) else {
            return Vec::new();
        };
        let weights = self.weigh(&read, &lattice.lattice, taken);
        let sum = weights.sum();
        let others = weights.others.into_iter().filter(|(text, _)| !has_small_letter(text));
        let all = weights.bibs.into_iter().map(|(bib, weight)| (bib.to_owned(), weight)).chain(others);
        let mut alternatives: Vec<Alternative> = all
            .map(|(text, weight)| Alternative { text, confidence: weight / sum })
            .filter(|alternative| alternative.confidence >= LEAST_ALTERNATIVE)
            .collect();
        alternatives.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then_with(|| a.text.cmp(&b.text)));
        alternatives.truncate(MAX_ALTERNATIVES);
        alternatives
    }

    /// The probability of a bib that the reader was sure of is not below the reader's own: that the list has the bib speaks
    /// for the reading. Neighbours on a dense list only say how likely a misreading is, which the reader knew.
    fn never_less_sure(&self, read: &ReadText, bib: &str, probability: f64) -> f64 {
        let was_sure = read.index_state == TextIndexState::Indexed && self.spells(&read.text, bib);
        if was_sure { probability.max(read.confidence) } else { probability }
    }

    /// Judges a text that is no bib of the list.
    fn judge_stranger(&self, read: &ReadText) -> Judgement {
        if read.index_state == TextIndexState::Indexed || self.is_excluded(&read.text) {
            let state = TextIndexState::Unindexed(UnindexedReason::NotOnStartList);
            return Judgement::otherwise(&read.text, read.confidence, state);
        }
        Judgement::AsRead
    }

    /// Judges a text of which only the best reading is known: the one bib of the list that looks like it, else the one
    /// of which a character at an end was cut off.
    fn judge_without_lattice(&self, read: &ReadText, taken: &HashSet<String>) -> Judgement {
        if let Some(bib) = self.find(&read.text) {
            return confirm(read, bib, read.confidence);
        }
        if self.is_excluded(&read.text) {
            return self.judge_stranger(read);
        }
        let unique = |texts: Vec<String>| {
            let mut bibs: Vec<&str> = texts.iter().filter_map(|text| self.find(text)).collect();
            bibs.retain(|bib| !taken.contains(*bib));
            // Equal texts need not lie side by side.
            bibs.sort_unstable();
            bibs.dedup();
            <[&str; 1]>::try_from(bibs).ok().map(|[bib]| bib)
        };
        if !matches!(read.index_state, TextIndexState::Unindexed(_)) {
            let similar = similar_texts(&read.text);
            if let Some(bib) = unique(similar.look_alikes) {
                return confirm(read, bib, read.confidence * LOOK_ALIKE_FACTOR);
            }
            if let Some(bib) = unique(similar.longer) {
                return confirm(read, bib, read.confidence * CUT_FACTOR);
            }
        }
        self.judge_stranger(read)
    }
}

/// Judges a text that is a bib of the list with this probability.
fn confirm(read: &ReadText, bib: &str, probability: f64) -> Judgement {
    let index_state = if probability >= INDEXED {
        TextIndexState::Indexed
    } else if probability >= CANDIDATE {
        TextIndexState::Candidate
    } else {
        let state = TextIndexState::Unindexed(UnindexedReason::LowConfidence);
        return Judgement::otherwise(&read.text, probability, state);
    };
    // A list that agrees changes nothing, so that nobody is told of photos that are the same.
    if bib == read.text && index_state == read.index_state {
        return Judgement::AsRead;
    }
    Judgement::otherwise(bib, probability, index_state)
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::lattice::Lattice;

    use super::*;
    use crate::conformance::{album_config, text};
    use crate::model::photo::TextLattice;

    const ALPHABET: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    /// A list of these bibs, and of others far away from them.
    fn list(bibs: &[&str]) -> StartList {
        let others = (0..200).map(|number| format!("X{number}"));
        let mut entries: Vec<StartListEntry> =
            bibs.iter().map(|bib| (*bib).to_owned()).chain(others).map(StartListEntry::of).collect();
        entries.push(StartListEntry { excluded: true, ..StartListEntry::of("999".to_owned()) });
        StartList::new(&entries, &album_config()).unwrap()
    }

    /// A text of which each character may be others too: `1207` with `1/7:.2` in place of the 1.
    fn reading(characters: &[&[(char, f32)]], confidence: f64, state: TextIndexState) -> DetectedText {
        let alphabet: Vec<char> = ALPHABET.chars().collect();
        let mut columns = Vec::new();
        for character in characters {
            let of = |other: &char| character.iter().find(|(it, _)| it == other).map_or(0.0, |it| it.1);
            columns.push(0.0);
            columns.extend(alphabet.iter().map(of));
            columns.push(1.0);
            columns.extend(alphabet.iter().map(|_| 0.0));
        }
        let lattice = Lattice::from_probabilities(&columns, &alphabet);
        let best: String = characters.iter().map(|character| character[0].0.to_ascii_uppercase()).collect();
        DetectedText {
            index_state: state,
            lattice: Some(TextLattice { recogniser: "test@1".to_owned(), lattice }),
            ..text(&best, confidence)
        }
    }

    fn sure(bib: &str) -> DetectedText {
        let cells: Vec<Vec<(char, f32)>> = bib.chars().map(|character| vec![(character, 0.99)]).collect();
        let cells: Vec<&[(char, f32)]> = cells.iter().map(Vec::as_slice).collect();
        reading(&cells, 0.99, TextIndexState::Indexed)
    }

    fn judge(list: &StartList, texts: &[DetectedText]) -> Vec<(String, TextIndexState)> {
        let judgements = judge_by_list(list, texts);
        let applied = texts.iter().zip(judgements).map(|(text, judgement)| {
            let mut text = text.clone();
            judgement.apply_to(&mut text);
            (text.text, text.index_state)
        });
        applied.collect()
    }

    const NOT_LISTED: TextIndexState = TextIndexState::Unindexed(UnindexedReason::NotOnStartList);
    const NO_BIB: TextIndexState = TextIndexState::Unindexed(UnindexedReason::NotABib);

    #[test]
    fn a_guess_becomes_the_bib_that_is_on_the_list() {
        let unsure: [&[(char, f32)]; 3] = [&[('7', 0.6), ('1', 0.4)], &[('2', 0.99)], &[('5', 0.99)]];
        let texts = [reading(&unsure, 0.86, TextIndexState::Candidate)];
        assert_eq!(judge(&list(&["125"]), &texts), [("125".to_owned(), TextIndexState::Indexed)]);
        let both = judge(&list(&["125", "725"]), &texts);
        assert_eq!(both, [("725".to_owned(), TextIndexState::Candidate)], "the list does not tell which");
    }

    #[test]
    fn no_list_makes_a_text_surer_than_the_reader_allows() {
        let unsure: [&[(char, f32)]; 3] = [&[('7', 0.6), ('1', 0.4)], &[('2', 0.99)], &[('5', 0.99)]];
        for bibs in [&["125"][..], &["725"]] {
            let free = reading(&unsure, 0.86, TextIndexState::Candidate);
            assert_eq!(judge(&list(bibs), std::slice::from_ref(&free))[0].1, TextIndexState::Indexed);
            let small = DetectedText { max_confidence: 0.89, ..free };
            let mut judged = small.clone();
            judge_by_list(&list(bibs), &[small]).remove(0).apply_to(&mut judged);
            assert_eq!((judged.text.as_str(), judged.index_state), (bibs[0], TextIndexState::Candidate));
            assert!(judged.confidence <= 0.89, "{}", judged.confidence);
        }
    }

    #[test]
    fn alternatives_are_what_else_the_characters_may_say_by_the_list() {
        let shown = |list: &StartList, texts: &[DetectedText]| -> Vec<Vec<(String, f64)>> {
            let rule = judge_by_list(list, texts);
            let mut judged = texts.to_vec();
            for (text, judgement) in judged.iter_mut().zip(rule) {
                judgement.apply_to(text);
            }
            let all = judged.iter().enumerate().map(|(at, text)| {
                let others = judged.iter().enumerate().filter(|(other, _)| *other != at);
                let taken = others.map(|(_, other)| other.text.clone()).collect();
                let alternatives = list.find_alternatives(text, &taken).into_iter();
                alternatives.map(|it| (it.text, (10.0 * it.confidence).round() / 10.0)).collect()
            });
            all.collect()
        };
        let unsure: [&[(char, f32)]; 3] = [&[('7', 0.6), ('1', 0.4)], &[('2', 0.99)], &[('5', 0.99)]];
        let text = reading(&unsure, 0.86, TextIndexState::Candidate);
        let both = shown(&list(&["125", "725"]), std::slice::from_ref(&text));
        assert_eq!(both, [[("725".to_owned(), 0.6), ("125".to_owned(), 0.4)]]);
        let one = shown(&list(&["125"]), std::slice::from_ref(&text));
        assert_eq!(one[0][0].0, "125");
        assert_eq!(one[0][1].0, "725", "a runner who is not on the list");
        let of_two = shown(&list(&["125", "725"]), &[sure("125"), text.clone()]);
        assert_eq!(of_two[1][0].0, "725");
        assert!(of_two[1].iter().all(|(bib, share)| bib != "125" || *share < 0.1), "{of_two:?}");
        assert_eq!(shown(&list(&["125"]), &[DetectedText { lattice: None, ..text.clone() }]), [[]; 1]);
        let no_rule = find_alternatives(&BibRule::AsRead, &[text]);
        assert_eq!(no_rule, [Vec::new()], "nothing is known of the event");
    }

    #[test]
    fn both_spellings_of_a_bib_count_for_it() {
        let columns =
            [[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        let lattice = Lattice::from_probabilities(columns.as_flattened(), &['0', '7', '5']);
        let list = list(&["075"]);
        let weights = list.weigh(&sure("75").as_read(), &lattice, &HashSet::new());
        let prior = (1.0 - list.off_list_share()) / list.len() as f64;
        let (bib, weight) = weights.best_bib().unwrap();
        assert!(bib == "075" && (0.97..1.03).contains(&(weight / prior)), "{bib} {}", weight / prior);
    }

    #[test]
    fn letters_that_look_like_digits_become_the_digits_of_the_list() {
        let cells: [&[(char, f32)]; 4] =
            [&[('I', 0.7), ('1', 0.3)], &[('2', 0.99)], &[('O', 0.6), ('0', 0.4)], &[('7', 0.99)]];
        let texts = [reading(&cells, 0.9, NO_BIB)];
        assert_eq!(judge(&list(&["1207"]), &texts), [("1207".to_owned(), TextIndexState::Indexed)]);
    }

    #[test]
    fn what_is_not_on_the_list_is_not_indexed_and_a_candidate_stays_one() {
        assert_eq!(judge(&list(&["125"]), &[sure("4711")]), [("4711".to_owned(), NOT_LISTED)]);
        assert_eq!(judge(&list(&["125"]), &[sure("999")]), [("999".to_owned(), NOT_LISTED)], "excluded");
        let candidate =
            DetectedText { index_state: TextIndexState::Candidate, confidence: 0.8, ..sure("4711") };
        assert_eq!(
            judge(&list(&["125"]), std::slice::from_ref(&candidate)),
            [("4711".to_owned(), TextIndexState::Candidate)]
        );
        let excluded = DetectedText { text: "999".to_owned(), ..candidate };
        assert_eq!(judge(&list(&["125"]), &[excluded])[0].1, NOT_LISTED);
    }

    #[test]
    fn words_stay_what_they_are() {
        let word: [&[(char, f32)]; 3] =
            [&[('L', 0.9), ('1', 0.01)], &[('O', 0.7), ('0', 0.3)], &[('S', 0.9), ('5', 0.1)]];
        let texts = [reading(&word, 0.93, NO_BIB)];
        assert_eq!(judge(&list(&["105"]), &texts), [("LOS".to_owned(), NO_BIB)]);
        let small = DetectedText { index_state: NO_BIB, ..sure("10") };
        assert_eq!(judge(&list(&["10"]), &[small]), [("10".to_owned(), NO_BIB)], "the reader knew why");
    }

    #[test]
    fn zeros_at_the_beginning_may_be_missing_and_the_list_spells_them() {
        assert_eq!(judge(&list(&["0123"]), &[sure("123")]), [("0123".to_owned(), TextIndexState::Indexed)]);
        assert_eq!(judge(&list(&["0123", "123"]), &[sure("123")])[0].0, "123");
        let two = list(&["012", "0012"]);
        assert_eq!(judge(&two, &[sure("12")]), [("12".to_owned(), NOT_LISTED)], "it may be either");
        assert_eq!(judge(&two, &[sure("0012")])[0], ("0012".to_owned(), TextIndexState::Indexed));
    }

    #[test]
    fn a_bib_that_is_read_twice_without_its_zeros_is_the_same_bib_twice() {
        let rule = BibRule::StartList(list(&["0123", "0128"]));
        for lattice in [true, false] {
            let text = sure("123");
            let text = DetectedText { lattice: text.lattice.clone().filter(|_| lattice), ..text };
            let mut texts = [text.clone(), text];
            let judgements = judge_photo(&rule, &texts);
            for (text, judgement) in texts.iter_mut().zip(judgements) {
                judgement.apply_to(text);
                assert_eq!((text.text.as_str(), text.index_state), ("0123", TextIndexState::Indexed));
            }
            if lattice {
                let alternatives = find_alternatives(&rule, &texts);
                assert!(alternatives.iter().all(|of_text| of_text[0].text == "0123"), "{alternatives:?}");
            }
        }
    }

    #[test]
    fn a_list_may_have_lost_the_zeros_that_are_printed() {
        for lattice in [true, false] {
            let read = |bib: &str| {
                let text = sure(bib);
                DetectedText { lattice: text.lattice.clone().filter(|_| lattice), ..text }
            };
            let found = judge(&list(&["42"]), &[read("0042")]);
            assert_eq!(found, [("42".to_owned(), TextIndexState::Indexed)]);
            assert_eq!(judge(&list(&["42", "0042"]), &[read("0042")])[0].0, "0042");
            assert_eq!(judge(&list(&["42", "042"]), &[read("0042")])[0].1, NOT_LISTED, "it may be either");
        }
    }

    #[test]
    fn an_excluded_number_is_not_its_neighbour_on_the_list() {
        let unsure: [&[(char, f32)]; 3] = [&[('9', 0.99)], &[('9', 0.99)], &[('9', 0.9), ('8', 0.09)]];
        let read = reading(&unsure, 0.96, TextIndexState::Indexed);
        let old = DetectedText { lattice: None, ..read.clone() };
        let near = list(&["998", "9990"]);
        assert_eq!(judge(&near, &[read]), [("999".to_owned(), NOT_LISTED)]);
        assert_eq!(judge(&near, &[old]), [("999".to_owned(), NOT_LISTED)]);
    }

    #[test]
    fn numbers_are_excluded_without_a_list() {
        let entries = [StartListEntry { excluded: true, ..StartListEntry::of("2024".to_owned()) }];
        let texts = [sure("2024"), sure("125"), DetectedText { index_state: NO_BIB, ..sure("2024") }];
        let judged = judge_photo(&BibRule::new(&entries, &album_config(), None), &texts);
        let excluded = Judgement::otherwise("2024", 0.99, NOT_LISTED);
        assert_eq!(judged, [excluded, Judgement::AsRead, Judgement::AsRead]);
        let disabled = AlbumConfig {
            start_list: crate::model::album::StartListConfig { enabled: false, off_list_share: 0.1 },
            ..album_config()
        };
        assert!(matches!(BibRule::new(&entries, &disabled, None), BibRule::AsRead));
    }

    #[test]
    fn a_pattern_that_is_widened_takes_no_bib_from_the_list() {
        let entries = [StartListEntry::of("123456".to_owned()), StartListEntry::of("123999".to_owned())];
        let mut judged = vec![DetectedText { index_state: NO_BIB, ..sure("123456") }];
        let default = album_config();
        let widened = AlbumConfig { bib_pattern: "^[0-9]{6}$".to_owned(), ..album_config() };
        for config in [&default, &widened, &widened] {
            let list = StartList::new(&entries, config).unwrap();
            let judgements = judge_by_list(&list, &judged);
            for (text, judgement) in judged.iter_mut().zip(judgements) {
                judgement.apply_to(text);
            }
            let found = (judged[0].text.as_str(), judged[0].index_state);
            assert_eq!(found, ("123456", TextIndexState::Indexed), "{}", config.bib_pattern);
        }
    }

    #[test]
    fn of_two_texts_that_may_be_one_runner_the_surer_is() {
        let unsure: [&[(char, f32)]; 3] = [&[('7', 0.6), ('1', 0.4)], &[('2', 0.99)], &[('5', 0.99)]];
        let texts = [reading(&unsure, 0.95, TextIndexState::Indexed), sure("125")];
        let judged = judge(&list(&["125"]), &texts);
        assert_eq!(judged, [("725".to_owned(), NOT_LISTED), ("125".to_owned(), TextIndexState::Indexed)]);
        let twice = judge(&list(&["125"]), &[sure("125"), sure("125")]);
        assert!(twice.iter().all(|judged| judged.1 == TextIndexState::Indexed), "chest and cap: {twice:?}");
    }

    #[test]
    fn a_text_that_is_no_bib_takes_none_from_the_one_that_is() {
        let unsure: [&[(char, f32)]; 2] = [&[('I', 0.6), ('1', 0.4)], &[('0', 0.99)]];
        let runner = reading(&unsure, 0.9, NO_BIB);
        let small = DetectedText { index_state: NO_BIB, ..sure("10") };
        let alone = judge(&list(&["10"]), std::slice::from_ref(&runner));
        assert_eq!(alone, [("10".to_owned(), TextIndexState::Indexed)]);
        let judged = judge(&list(&["10"]), &[small.clone(), runner.clone()]);
        assert_eq!(judged, [("10".to_owned(), NO_BIB), ("10".to_owned(), TextIndexState::Indexed)]);
        let rule = BibRule::StartList(list(&["10"]));
        assert_eq!(find_alternatives(&rule, &[small, runner])[1][0].text, "10");
    }

    #[test]
    fn without_a_lattice_the_one_bib_that_looks_like_the_text_is_meant() {
        let old = |bib: &str| DetectedText { lattice: None, ..sure(bib) };
        let judged = judge(&list(&["1207"]), &[old("I207")]);
        assert_eq!(judged, [("1207".to_owned(), TextIndexState::Candidate)]);
        assert_eq!(judge(&list(&["1207"]), &[old("207")])[0], ("1207".to_owned(), TextIndexState::Candidate));
        assert_eq!(judge(&list(&["1207", "2207"]), &[old("207")])[0].1, NOT_LISTED, "two are longer");
        assert_eq!(judge(&list(&["1207"]), &[old("1207")])[0], ("1207".to_owned(), TextIndexState::Indexed));
    }

    #[test]
    fn without_the_list_every_text_is_again_what_was_read() {
        let texts = [sure("4711"), sure("125")];
        let mut judged = texts.clone();
        for (text, judgement) in judged.iter_mut().zip(judge_by_list(&list(&["125"]), &texts)) {
            judgement.apply_to(text);
        }
        assert_ne!(judged, texts);
        for (at, judgement) in judge_photo(&BibRule::AsRead, &judged).into_iter().enumerate() {
            assert_eq!(judgement.is_of(&judged[at]), at == 1, "a list that agrees changes nothing");
            judgement.apply_to(&mut judged[at]);
        }
        assert_eq!(judged, texts);
        let disabled = AlbumConfig {
            start_list: crate::model::album::StartListConfig { enabled: false, off_list_share: 0.1 },
            ..album_config()
        };
        assert!(StartList::new(&[StartListEntry::of("1".to_owned())], &disabled).is_none());
    }
}
