//! Reads detected texts: rectifies each to a strip, runs the recognition network on them and decodes its output. Does not
//! know what a bib looks like.

use std::ops::Range;

use photofinish_kernels::batch::characters::{self, Character};
use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Quad;
use photofinish_kernels::image::frame::Frame;
use photofinish_kernels::image::tensor::{Channels, Normalisation, Slot, Tensor};
use photofinish_kernels::lattice::Lattice;
use photofinish_kernels::warp::rectify::Rectifier;

use crate::bucket::{Bucket, padded};
use crate::onnx::session::{Network, OutputTensor};
use crate::traits::{Interrupt, ModelError};

/// Height of the network's input in pixels (step 9).
pub(super) const INPUT_HEIGHT: usize = 48;

/// Width of the network's input in pixels (step 9). The widest bibs of five digits are squeezed into it without loss.
pub(super) const INPUT_WIDTH: usize = 160;

/// Pixels from -1 to 1; padding beside the strip is grey, as in the network's training.
const INPUT_NORMALISATION: Normalisation =
    Normalisation { channels: Channels::Bgr, mean: [127.5; 3], scale: [2.0 / 255.0; 3], padding: 0.0 };

/// Part of its height by which a text is extended at each end (step 9): detected boxes tend to cut the outer digits.
const EXTENSION: f32 = 0.1;

/// The same for the second try (step 10).
const RETRY_EXTENSION: f32 = 0.3;

/// Range of confidence in which a reading is tried again (step 10).
const RETRY_CONFIDENCE: Range<f32> = 0.5..0.95;

/// The same for a look beyond the ends of a bib (step 11): room for one digit more at each end.
const ENDS_EXTENSION: f32 = 0.6;

/// Least probability of each character of a text on a small runner for its confidence to count, and the highest confidence
/// of others (step 10): only fuzzy searches find those.
const SMALL_LEAST: f32 = 0.97;
const SMALL_MAX_CONFIDENCE: f32 = 0.89;

/// How far the confidence in a text may exceed the probability of its least certain character (step 10).
const MAX_ABOVE_LEAST: f32 = 0.3;

/// A text recognition network for single lines. Keeps its buffers between calls.
pub(super) struct TextRecogniser {
    network: Network,
    /// Characters of the classes after the blank.
    alphabet: Vec<char>,
    input: Tensor,
    rectifier: Rectifier,
    /// Strips per call.
    bucket: Bucket,
}

/// A text and the photo in which it is; its corners are in pixels of the photo.
#[derive(Clone, Copy)]
pub(super) struct TextOfFrame<'a> {
    pub(super) frame: Frame<'a>,
    pub(super) quad: Quad,
}

/// The text of a strip.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecognisedLine {
    /// Letters, in the case that was read, and digits; may be empty.
    pub(super) text: String,
    /// Mean probability of all characters read, 0 to 1, and at most [`MAX_ABOVE_LEAST`] above the lowest one: a mean alone
    /// hides that one digit of five is a guess. 0 when there are none.
    pub(super) confidence: f32,
    /// The lowest of these probabilities.
    pub(super) least: f32,
    /// What else the strip may say.
    pub(super) lattice: Lattice,
}

impl TextRecogniser {
    pub(super) fn new(device: &Device, network: Network, characters: &str, bucket: Bucket) -> Self {
        let (input, rectifier) = (Tensor::default(), Rectifier::new(device));
        Self { network, alphabet: characters.chars().collect(), input, rectifier, bucket }
    }

    /// Reads texts, of one photo or of several. Those that contain a digit and have medium confidence are read a second time
    /// with a larger extension; of each the more confident reading is returned.
    pub(super) fn read_all(
        &mut self,
        texts: &[TextOfFrame<'_>],
        interrupt: &Interrupt,
    ) -> Result<Vec<RecognisedLine>, ModelError> {
        let mut lines = self.read_lengthened(texts, EXTENSION, interrupt)?;
        let doubtful: Vec<usize> = (0..lines.len()).filter(|&index| lines[index].needs_retry()).collect();
        let again: Vec<TextOfFrame<'_>> = doubtful.iter().map(|&index| texts[index]).collect();
        let longer = self.read_lengthened(&again, RETRY_EXTENSION, interrupt)?;
        for (index, longer) in doubtful.into_iter().zip(longer) {
            if longer.confidence > lines[index].confidence {
                lines[index] = longer;
            }
        }
        Ok(lines)
    }

    /// Reads texts with what is beyond their ends.
    pub(super) fn read_beyond_ends(
        &mut self,
        texts: &[TextOfFrame<'_>],
        interrupt: &Interrupt,
    ) -> Result<Vec<RecognisedLine>, ModelError> {
        self.read_lengthened(texts, ENDS_EXTENSION, interrupt)
    }

    fn read_lengthened(
        &mut self,
        texts: &[TextOfFrame<'_>],
        extension: f32,
        interrupt: &Interrupt,
    ) -> Result<Vec<RecognisedLine>, ModelError> {
        let mut bucket = self.bucket;
        let lines = bucket.run(texts, |part| {
            interrupt.check()?;
            self.read_in_call(part, extension)
        });
        self.bucket = bucket;
        lines
    }

    fn read_in_call(
        &mut self,
        texts: &[TextOfFrame<'_>],
        extension: f32,
    ) -> Result<Vec<RecognisedLine>, ModelError> {
        let items = padded(texts.len());
        self.input.reshape([items, 3, INPUT_HEIGHT, INPUT_WIDTH]);
        for (item, text) in texts.iter().enumerate() {
            let slot = Slot { tensor: &mut self.input, item, normalisation: &INPUT_NORMALISATION };
            self.rectifier.place(text.frame, &text.quad.lengthened(extension), slot);
        }
        let outputs = self.network.run(&self.input)?;
        let output = outputs.first()?;
        let classes = self.alphabet.len() + 1;
        if !has_strips(items, classes, output) {
            let detail =
                format!("output of shape {:?}, expected [{items}, columns, {classes}]", output.shape);
            return Err(ModelError::Inference { name: "text recogniser".into(), detail });
        }
        let strips = output.values.chunks_exact((output.values.len() / items).max(1));
        let decode = |strip| RecognisedLine::decode_ctc(strip, &self.alphabet);
        Ok(strips.take(texts.len()).map(decode).collect())
    }
}

impl RecognisedLine {
    /// Decodes greedily by CTC: the most probable class of each column, repetitions collapsed, blanks dropped.
    ///
    /// `probabilities` contains, for each column of the strip, the blank and then the alphabet.
    fn decode_ctc(probabilities: &[f32], alphabet: &[char]) -> Self {
        let (mut text, mut sum, mut count, mut least) = (String::new(), 0.0, 0_u32, 1.0_f32);
        for Character { class, probability } in characters::decode(probabilities, alphabet.len() + 1) {
            let character = alphabet[class - 1];
            if character.is_ascii_alphanumeric() {
                text.push(character);
            }
            sum += probability;
            count += 1;
            least = least.min(probability);
        }
        let mean = if count > 0 { sum / count as f32 } else { 0.0 };
        let confidence = mean.min(least + MAX_ABOVE_LEAST);
        let lattice = Lattice::from_probabilities(probabilities, alphabet);
        Self { text, confidence, least: if count > 0 { least } else { 0.0 }, lattice }
    }

    /// The highest confidence that counts for a text on a small runner, 1 for no limit: not enough for an exact search
    /// unless every character is certain.
    pub(super) fn max_confidence_when_small(&self) -> f32 {
        if self.least >= SMALL_LEAST { 1.0 } else { SMALL_MAX_CONFIDENCE }
    }

    fn needs_retry(&self) -> bool {
        RETRY_CONFIDENCE.contains(&self.confidence) && self.text.contains(|c: char| c.is_ascii_digit())
    }
}

fn has_strips(items: usize, classes: usize, output: OutputTensor<'_>) -> bool {
    let is_whole = !output.values.is_empty() && output.values.len().is_multiple_of(items * classes);
    is_whole && output.shape.last() == Some(&(classes as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes columns with the classes blank, '1', 'a' and '-', given as class and probability.
    fn decode(columns: &[(usize, f32)]) -> RecognisedLine {
        let mut probabilities = vec![0.0; columns.len() * 4];
        for (column, &(class, probability)) in columns.iter().enumerate() {
            probabilities[column * 4 + class] = probability;
        }
        RecognisedLine::decode_ctc(&probabilities, &['1', 'a', '-'])
    }

    #[test]
    fn repetitions_are_one_character_unless_a_blank_separates_them() {
        let line = decode(&[(1, 0.9), (1, 0.8), (0, 0.9), (1, 0.7), (2, 0.8), (0, 1.0)]);
        assert_eq!(line.text, "11a");
        assert!((line.confidence - 0.8).abs() < 1e-6, "{}", line.confidence);
    }

    #[test]
    fn signs_are_left_out_of_the_text_but_not_of_its_confidence() {
        let line = decode(&[(1, 0.9), (3, 0.5)]);
        assert_eq!(line.text, "1");
        assert!((line.confidence - 0.7).abs() < 1e-6, "{}", line.confidence);
    }

    #[test]
    fn a_text_with_a_guessed_character_is_not_confident() {
        let digits = |probability| {
            decode(&[(1, 1.0), (0, 1.0), (1, 1.0), (0, 1.0), (1, 1.0), (2, 1.0), (1, probability)])
        };
        assert!((digits(0.7).confidence - 0.94).abs() < 1e-6, "the mean");
        assert!((digits(0.55).confidence - 0.85).abs() < 1e-6, "not the mean, which is .91");
    }

    #[test]
    fn on_a_small_runner_every_character_must_be_certain() {
        let limit = |probability| decode(&[(1, 1.0), (0, 1.0), (1, probability)]).max_confidence_when_small();
        assert!((limit(0.98) - 1.0).abs() < 1e-6);
        assert!(limit(0.96) < 0.9);
    }

    #[test]
    fn a_line_keeps_what_else_it_may_say() {
        let line = RecognisedLine::decode_ctc(&[0.0, 0.7, 0.3, 0.0], &['1', '7', '-']);
        assert_eq!(line.text, "1");
        assert!((line.lattice.likelihood("7") - 0.3).abs() < 0.01);
    }

    #[test]
    fn blanks_decode_to_nothing() {
        for line in [decode(&[(0, 0.9), (0, 1.0)]), decode(&[])] {
            assert_eq!((line.text.as_str(), line.confidence, line.least), ("", 0.0, 0.0));
        }
    }

    #[test]
    fn only_digits_of_medium_confidence_are_read_again() {
        let line = |text: &str, confidence| RecognisedLine {
            text: text.into(),
            confidence,
            least: confidence,
            lattice: Lattice::from_probabilities(&[], &[]),
        };
        assert!(line("a1", 0.5).needs_retry());
        assert!(!line("a1", 0.49).needs_retry());
        assert!(!line("a1", 0.95).needs_retry());
        assert!(!line("aa", 0.7).needs_retry());
    }
}
