//! The format of an event's bibs: which shapes they have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest bib, characters.
const MAX_LENGTH: usize = 12;

/// Most shapes of a format that an organizer fixes.
const MAX_SHAPES: usize = 8;

/// The shape of a bib: `A` for each letter, `9` for each digit. `AA99999` is that of `KM10423`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BibShape(String);

/// Why a text is no shape or no format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected auto, off, or shapes of 1 to 12 times A (a letter) or 9 (a digit), separated by |, 8 at most"
)]
pub struct MalformedFormat;

impl BibShape {
    /// The shape of a bib in upper-case letters and digits. Other characters count as letters.
    pub fn of(bib: &str) -> Self {
        Self(bib.chars().map(|character| if character.is_ascii_digit() { '9' } else { 'A' }).collect())
    }

    /// `A` and `9`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Characters of a bib of this shape.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is the shape of no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<String> for BibShape {
    type Error = MalformedFormat;

    fn try_from(text: String) -> Result<Self, MalformedFormat> {
        let is_shape =
            (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(|it| matches!(it, b'A' | b'9'));
        if is_shape { Ok(Self(text)) } else { Err(MalformedFormat) }
    }
}

impl From<BibShape> for String {
    fn from(shape: BibShape) -> Self {
        shape.0
    }
}

/// Which format the bibs of an album are judged by, where there is no start list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BibFormatConfig {
    /// The one that is learned from the album.
    #[default]
    Auto,
    /// None.
    Off,
    /// These shapes.
    Fixed(Vec<BibShape>),
}

impl FromStr for BibFormatConfig {
    type Err = MalformedFormat;

    fn from_str(text: &str) -> Result<Self, MalformedFormat> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            shapes => {
                let shapes: Vec<BibShape> =
                    shapes.split('|').map(|shape| shape.to_owned().try_into()).collect::<Result<_, _>>()?;
                if shapes.len() > MAX_SHAPES { Err(MalformedFormat) } else { Ok(Self::Fixed(shapes)) }
            }
        }
    }
}

impl TryFrom<String> for BibFormatConfig {
    type Error = MalformedFormat;

    fn try_from(text: String) -> Result<Self, MalformedFormat> {
        text.parse()
    }
}

impl fmt::Display for BibFormatConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Fixed(shapes) => {
                let shapes: Vec<&str> = shapes.iter().map(BibShape::as_str).collect();
                f.write_str(&shapes.join("|"))
            }
        }
    }
}

impl From<BibFormatConfig> for String {
    fn from(config: BibFormatConfig) -> Self {
        config.to_string()
    }
}

/// The format that an album shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedFormat {
    /// The shapes of its bibs, most frequent first; empty where it shows no format.
    pub shapes: Vec<BibShape>,
    /// The part of the different bibs that have one of the shapes, 0 to 1.
    pub share: f64,
    /// Different bibs that were surely read.
    pub readings: u64,
    /// Bibs that would be parts of others by their shape and stand all the same, in order: they were read in several photos.
    pub repeated: Vec<String>,
}

impl LearnedFormat {
    /// Whether texts are judged the same by both.
    pub fn judges_as(&self, other: &Self) -> bool {
        let sorted = |format: &Self| {
            let mut shapes = format.shapes.clone();
            shapes.sort();
            shapes
        };
        sorted(self) == sorted(other) && self.repeated == other.repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_written_as_it_is_read() {
        for text in ["auto", "off", "9999", "AA99999|999"] {
            let config: BibFormatConfig = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<BibFormatConfig>(&json).unwrap(), config);
        }
        for text in ["", "|", "99|", "B9", "AUTO", "9999999999999", "9|9|9|9|9|9|9|9|9", "^9$"] {
            assert_eq!(text.parse::<BibFormatConfig>(), Err(MalformedFormat), "{text}");
        }
    }

    #[test]
    fn a_shape_has_a_sign_for_each_character() {
        assert_eq!(BibShape::of("KM10423").as_str(), "AA99999");
        assert_eq!(BibShape::of("247P").as_str(), "999A");
        assert_eq!(BibShape::of("").len(), 0);
    }
}
