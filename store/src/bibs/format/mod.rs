//! The format of an event's bibs: learned from what was surely read, and used to find readings that are parts of bibs.

mod learn;
mod misreading;
mod numbering;
mod shapes;
mod tails;

use crate::model::bib_format::{BibFormatConfig, BibShape, LearnedFormat};
use crate::model::photo::{ReadText, TextIndexState, UnindexedReason};

pub(crate) use self::learn::learn;
use self::misreading::is_part_of;
pub(crate) use self::shapes::Sighting;

/// A format by which readings are judged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BibFormat {
    shapes: Vec<BibShape>,
    /// Bibs of other shapes, in order.
    exceptions: Vec<String>,
}

impl BibFormat {
    /// The format of an album; `None` if it has none.
    pub(crate) fn new(config: &BibFormatConfig, learned: Option<LearnedFormat>) -> Option<Self> {
        let format = match config {
            BibFormatConfig::Off => return None,
            BibFormatConfig::Fixed(shapes) => Self { shapes: shapes.clone(), exceptions: Vec::new() },
            BibFormatConfig::Auto => {
                let LearnedFormat { shapes, repeated, .. } = learned?;
                Self { shapes, exceptions: repeated }
            }
        };
        (!format.shapes.is_empty()).then_some(format)
    }

    /// What becomes of a reading; `None` where it stays as it is. Only readings that exact searches would find are judged:
    /// others are what they are already.
    pub(crate) fn judge(&self, read: &ReadText) -> Option<TextIndexState> {
        let is_part = read.index_state == TextIndexState::Indexed && self.is_part(&read.text);
        is_part.then_some(TextIndexState::Unindexed(UnindexedReason::Partial))
    }

    /// Whether a text does not fit, and is a cut or a slip of one letter from what fits.
    fn is_part(&self, text: &str) -> bool {
        let fits = self.shapes.contains(&BibShape::of(text))
            || self.exceptions.binary_search_by(|bib| bib.as_str().cmp(text)).is_ok();
        !fits && self.shapes.iter().any(|whole| is_part_of(text, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(text: &str) -> BibFormat {
        BibFormat::new(&text.parse().unwrap(), None).unwrap()
    }

    fn judge(format: &BibFormat, text: &str) -> bool {
        let read = ReadText { text: text.to_owned(), confidence: 0.97, index_state: TextIndexState::Indexed };
        format.judge(&read).is_some()
    }

    #[test]
    fn cuts_and_slips_are_parts_and_other_texts_stay() {
        let format = fixed("AA99999");
        for part in ["10423", "M10423", "KM104", "KM1042", "04", "KM1O423", "8M10423"] {
            assert!(judge(&format, part), "{part}");
        }
        for other in ["KM10423", "10423B", "KM104230", "K1", "KMX0423", "110423"] {
            assert_eq!(judge(&format, other), other == "K1", "{other}");
        }
        let two = fixed("9999|999A");
        for (text, is_part) in
            [("1207", false), ("120B", false), ("120", true), ("20B", true), ("247P", false)]
        {
            assert_eq!(judge(&two, text), is_part, "{text}");
        }
    }

    #[test]
    fn only_answers_are_judged() {
        let state = TextIndexState::Candidate;
        let read = ReadText { text: "120".to_owned(), confidence: 0.8, index_state: state };
        assert_eq!(fixed("9999").judge(&read), None);
    }

    #[test]
    fn the_organizer_has_the_last_word() {
        let learned = || LearnedFormat {
            shapes: vec![BibShape::of("1207")],
            repeated: vec!["33".into()],
            ..LearnedFormat::default()
        };
        let auto = BibFormat::new(&BibFormatConfig::Auto, Some(learned())).unwrap();
        assert!(judge(&auto, "120") && !judge(&auto, "33"));
        assert_eq!(BibFormat::new(&BibFormatConfig::Off, Some(learned())), None);
        assert_eq!(BibFormat::new(&BibFormatConfig::Auto, Some(LearnedFormat::default())), None);
        let three = BibFormat::new(&"999".parse().unwrap(), Some(learned())).unwrap();
        assert!(judge(&three, "33") && !judge(&three, "120") && !judge(&three, "1207"));
    }
}
