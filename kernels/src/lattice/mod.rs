//! What a text recogniser thought of a line besides its best text: the probable characters of each column of its
//! output, small enough to be stored with every text. Whoever learns later which texts are possible judges the line
//! again from this, without the photo.
//!
//! The columns are those of connectionist temporal classification (CTC, Graves et al. 2006): a text is spelled by every
//! path of classes through the columns that becomes the text when repetitions are collapsed and blanks dropped.

mod spell;
mod trie;

pub use self::spell::SpelledText;
pub use self::trie::Trie;

/// The first byte of an encoded lattice.
const ENCODING: u8 = 1;

/// The class between characters. Signs count as blanks: a text has letters and digits only.
const BLANK: u8 = 0;

/// Classes below this probability are left out of a column.
const LEAST_PROBABILITY: f32 = 0.002;

/// Most classes of a column, the blank included.
const MAX_CLASSES: usize = 8;

/// Costs are sixteenths of a nat: `round(-16 ln p)`, which is exact to 3 %.
const COST_SCALE: f32 = 16.0;

/// The probable characters of each column of a text line.
///
/// Encoded as the byte 1, the number of columns, and for each column the number of classes and a pair of bytes for
/// each: the ASCII character (0 for the blank) and `round(-16 ln p)`, 255 at most. Characters and not class numbers, so
/// that a lattice means the same whichever recogniser made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lattice(Vec<u8>);

/// Why bytes are no lattice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an encoded lattice")]
pub struct MalformedLattice;

/// A class of a column with its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    class: u8,
    probability: f64,
}

impl Lattice {
    /// Takes the probabilities of the blank and of each character of `alphabet`, column after column.
    pub fn from_probabilities(probabilities: &[f32], alphabet: &[char]) -> Self {
        let mut columns: Vec<Vec<(u8, f32)>> = Vec::new();
        for column in probabilities.chunks_exact(alphabet.len() + 1) {
            let cells = probable_classes(column, alphabet);
            match (columns.last_mut().map(Vec::as_mut_slice), cells.as_slice()) {
                // Two certain blanks say the same as one.
                (Some([(BLANK, before)]), [(BLANK, probability)]) => *before *= probability,
                _ => columns.push(cells),
            }
        }
        Self::encode_columns(&columns)
    }

    /// Takes the columns as they are: the classes of each with their probabilities.
    fn encode_columns(columns: &[Vec<(u8, f32)>]) -> Self {
        let columns = &columns[..columns.len().min(usize::from(u8::MAX))];
        let mut bytes = vec![ENCODING, columns.len() as u8];
        for cells in columns {
            bytes.push(cells.len() as u8);
            bytes.extend(cells.iter().flat_map(|(class, probability)| [*class, cost(*probability)]));
        }
        Self(bytes)
    }

    /// Decodes what [`Self::as_bytes`] returned.
    ///
    /// # Errors
    /// [`MalformedLattice`] for anything else.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, MalformedLattice> {
        let [ENCODING, column_count, rest @ ..] = bytes.as_slice() else { return Err(MalformedLattice) };
        let mut rest = rest;
        for _ in 0..*column_count {
            let (count, cells) = rest.split_first().ok_or(MalformedLattice)?;
            rest = cells.get(2 * usize::from(*count)..).ok_or(MalformedLattice)?;
        }
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(MalformedLattice) }
    }

    /// The encoded lattice.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The probability that the columns spell exactly this text, letters and digits in the case that was read: the sum
    /// over all paths, by the forward pass of CTC.
    pub fn likelihood(&self, text: &str) -> f64 {
        let text = text.as_bytes();
        // States: before the first character, in it, after it, in the second one, ..
        let mut reached = vec![0.0_f64; 2 * text.len() + 1];
        reached[0] = 1.0;
        for column in self.columns() {
            let of =
                |class: u8| column.clone().find(|cell| cell.class == class).map_or(0.0, |it| it.probability);
            let blank = of(BLANK);
            for state in (0..reached.len()).rev() {
                let is_character = state % 2 == 1;
                let mut from = reached[state] + if state > 0 { reached[state - 1] } else { 0.0 };
                // A character may follow another one without a blank between them.
                if is_character && state >= 3 && text[state / 2] != text[state / 2 - 1] {
                    from += reached[state - 2];
                }
                reached[state] = from * if is_character { of(text[state / 2]) } else { blank };
            }
        }
        reached.iter().rev().take(2).sum()
    }

    /// The columns, each with its cells, most probable first.
    fn columns(&self) -> impl Iterator<Item = impl Iterator<Item = Cell> + Clone> {
        let mut rest = self.0.get(2..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (count, cells) = rest.split_first()?;
            let (cells, after) = cells.split_at(2 * usize::from(*count));
            rest = after;
            Some(cells.chunks_exact(2).map(|cell| Cell { class: cell[0], probability: probability(cell[1]) }))
        })
    }
}

/// Returns the blank and the letters and digits of a column, most probable first.
fn probable_classes(column: &[f32], alphabet: &[char]) -> Vec<(u8, f32)> {
    let mut blank = column[0];
    let mut cells = Vec::with_capacity(MAX_CLASSES);
    for (character, &probability) in alphabet.iter().zip(&column[1..]) {
        if !character.is_ascii_alphanumeric() {
            blank += probability;
        } else if probability >= LEAST_PROBABILITY {
            cells.push((*character as u8, probability));
        }
    }
    if blank >= LEAST_PROBABILITY {
        cells.push((BLANK, blank));
    }
    cells.sort_by(|a, b| b.1.total_cmp(&a.1));
    cells.truncate(MAX_CLASSES);
    cells
}

fn cost(probability: f32) -> u8 {
    (-COST_SCALE * probability.ln()).round().clamp(0.0, 255.0) as u8
}

fn probability(cost: u8) -> f64 {
    (-f64::from(cost) / f64::from(COST_SCALE)).exp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALPHABET: [char; 4] = ['1', '7', 'a', '-'];

    /// What a path of classes spells.
    fn collapse(path: &[u8]) -> String {
        let mut text = String::new();
        let mut last = BLANK;
        for class in path {
            if *class != last && *class != BLANK {
                text.push(char::from(*class));
            }
            last = *class;
        }
        text
    }

    /// Every path through the lattice with its probability.
    fn paths(lattice: &Lattice) -> Vec<(Vec<u8>, f64)> {
        let mut paths = vec![(Vec::new(), 1.0)];
        for column in lattice.columns() {
            paths = paths
                .iter()
                .flat_map(|(path, probability)| {
                    column.clone().map(move |cell| {
                        ([path.as_slice(), &[cell.class]].concat(), probability * cell.probability)
                    })
                })
                .collect();
        }
        paths
    }

    fn lattices() -> impl Strategy<Value = Lattice> {
        let column = prop::collection::vec(0.0_f32..1.0, 4);
        prop::collection::vec(column, 0..5).prop_map(|columns| {
            let normalised = columns.iter().flat_map(|column| {
                let sum: f32 = column.iter().sum::<f32>().max(1e-6);
                column.iter().map(move |value| value / sum)
            });
            Lattice::from_probabilities(&normalised.collect::<Vec<f32>>(), &ALPHABET[..3])
        })
    }

    proptest! {
        #[test]
        fn the_likelihood_of_a_text_is_the_sum_over_its_paths(lattice in lattices(), text in "[17a]{0,4}") {
            let expected: f64 = paths(&lattice)
                .iter()
                .filter(|(path, _)| collapse(path) == text)
                .map(|(_, probability)| probability)
                .sum();
            let likelihood = lattice.likelihood(&text);
            prop_assert!((likelihood - expected).abs() < 1e-9, "{likelihood} {expected}");
        }

        #[test]
        fn a_decoded_lattice_is_the_encoded_one(lattice in lattices()) {
            prop_assert_eq!(Lattice::decode(lattice.as_bytes().to_vec()), Ok(lattice));
        }

        #[test]
        fn any_bytes_are_a_lattice_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(lattice) = Lattice::decode(bytes) {
                lattice.likelihood("17");
                lattice.spell(None, 4);
            }
        }

        #[test]
        fn a_wide_search_finds_every_text_with_its_likelihood(lattice in lattices()) {
            let found = lattice.spell(None, 1000);
            let mut texts: Vec<String> = paths(&lattice).iter().map(|(path, _)| collapse(path)).collect();
            texts.sort();
            texts.dedup();
            let mut spelled: Vec<&String> = found.iter().map(|text| &text.text).collect();
            spelled.sort();
            prop_assert_eq!(spelled, texts.iter().collect::<Vec<_>>());
            for text in &found {
                prop_assert!((text.likelihood - lattice.likelihood(&text.text)).abs() < 1e-9);
            }
        }

        #[test]
        fn a_search_for_known_texts_finds_those_alone(lattice in lattices(), words in prop::collection::vec("[17a]{1,3}", 0..5)) {
            let trie = Trie::new(words.iter().map(String::as_str));
            let found = lattice.spell(Some(&trie), 1000);
            for word in &words {
                let likelihood = lattice.likelihood(word);
                let spelled = found.iter().filter(|text| text.text == *word).map(|text| text.likelihood);
                prop_assert!((spelled.sum::<f64>() - likelihood).abs() < 1e-9);
            }
            prop_assert!(found.iter().all(|text| words.contains(&text.text)));
        }
    }

    #[test]
    fn a_sign_separates_characters_as_a_blank_does() {
        let mut columns = Vec::new();
        for class in [1, 4, 1] {
            let mut column = vec![0.0; 5];
            column[class] = 1.0;
            columns.extend(column);
        }
        let lattice = Lattice::from_probabilities(&columns, &ALPHABET);
        assert!(lattice.likelihood("11") > 0.99);
        assert!(lattice.likelihood("1") < 0.01);
    }

    #[test]
    fn what_is_hardly_probable_is_left_out_and_blanks_are_one_column() {
        let columns = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.001, 0.998, 0.001, 0.0];
        let lattice = Lattice::from_probabilities(&columns, &ALPHABET[..3]);
        assert_eq!(lattice.as_bytes(), [1, 2, 1, 0, 0, 1, b'1', 0]);
    }
}
