//! How a bib may have been misread: the texts that may be stored for a query, each with the kind of misreading.
//!
//! They are looked up by index, so that a fuzzy search costs the same in an album of any size.

use std::collections::HashMap;

use crate::traits::TextMatch;

/// Longer queries are only matched exactly: neither start lists nor formats have bibs that long, and the number of variants stays
/// bounded: of 12 characters 1,000 look-alikes, 3 cuts, and at most 12 texts with one character less, 468 with one more and 432 with
/// another one.
const MAX_FUZZY_LENGTH: usize = 12;

/// The largest number of look-alike variants (`1111111` alone has 2,186); those with the fewest replacements come first.
const MAX_LOOK_ALIKE_VARIANTS: usize = 1_000;

/// Groups of characters that look alike to a reader, or on a bent bib.
const LOOK_ALIKE_CLASSES: [&str; 5] = ["0O", "1I7", "5S", "8B", "6G"];

/// The characters of bibs.
const ALPHABET: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// How a text may have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextVariant {
    /// The kind of misreading.
    pub kind: TextMatch,
    /// Number of characters replaced, missing or added.
    pub edits: u32,
}

/// The zeros of scripts whose digits people type, from Arabic to full width: the nine characters after each are its other
/// digits.
const ZEROS: [char; 19] = [
    '\u{660}', '\u{6f0}', '\u{7c0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}', '\u{be6}',
    '\u{c66}', '\u{ce6}', '\u{d66}', '\u{e50}', '\u{ed0}', '\u{f20}', '\u{1040}', '\u{17e0}', '\u{1810}',
    '\u{ff10}',
];

/// The first capital of full width.
const WIDE_A: char = '\u{ff21}';

/// Capitals of Cyrillic and Greek that are typed for the Latin ones below them.
const LIKE_LATIN: &str = "АВЕКМНОРСТУХΑΒΕΖΗΙΚΜΝΟΡΤΥΧ";
const LATIN: &str = "ABEKMHOPCTYXABEZHIKMNOPTYX";

/// A partner's or runner's input as texts are kept: trimmed, upper-case, letters and digits only, in Latin letters and
/// the digits 0 to 9 as far as others look or count like them. Leading zeros stay: they are printed on the bib.
pub fn normalise_bib(input: &str) -> String {
    let characters = input.chars().flat_map(char::to_uppercase).map(to_ascii);
    characters.filter(|character| character.is_alphanumeric()).collect()
}

/// Capitals and digits as readers of bibs write them; any other character stays what it is.
fn to_ascii(character: char) -> char {
    if character.is_ascii() {
        return character;
    }
    let digit = |zero: char| char::from_digit(u32::from(character).checked_sub(u32::from(zero))?, 10);
    let wide = || char::from_u32(u32::from(character).checked_sub(u32::from(WIDE_A))? + u32::from('A'));
    let like_latin = || LIKE_LATIN.chars().zip(LATIN.chars()).find(|(like, _)| *like == character);
    (ZEROS.into_iter().find_map(digit))
        .or_else(|| wide().filter(char::is_ascii_uppercase))
        .or_else(|| like_latin().map(|(_, latin)| latin))
        .unwrap_or(character)
}

/// Returns every text that `text` may have been read as, itself included. If two misreadings lead to the same text, the
/// more likely one is kept: look-alikes, then cuts, then edits.
pub fn find_variants(text: &str) -> HashMap<String, TextVariant> {
    let characters: Vec<char> = text.chars().collect();
    let mut found = HashMap::new();
    found.insert(text.to_owned(), TextVariant { kind: TextMatch::Exact, edits: 0 });
    if characters.len() <= MAX_FUZZY_LENGTH {
        add_look_alikes(&characters, &mut found);
        add_cuts(&characters, &mut found);
        add_single_edits(&characters, &mut found);
    }
    found
}

/// What a text that was read may be.
pub(crate) struct SimilarTexts {
    /// With one character that looks like the one that was read.
    pub(crate) look_alikes: Vec<String>,
    /// With one character more at an end.
    pub(crate) longer: Vec<String>,
}

/// Returns the texts that may have been read as this one.
pub(crate) fn similar_texts(text: &str) -> SimilarTexts {
    let characters: Vec<char> = text.chars().collect();
    let look_alike = |at: usize| {
        let (before, after) = (&characters[..at], &characters[at + 1..]);
        let replaced = |other| before.iter().copied().chain([other]).chain(after.iter().copied()).collect();
        similar_characters(characters[at]).map(replaced).collect::<Vec<String>>()
    };
    SimilarTexts {
        look_alikes: (0..characters.len()).flat_map(look_alike).collect(),
        longer: ALPHABET
            .chars()
            .flat_map(|other| [format!("{other}{text}"), format!("{text}{other}")])
            .collect(),
    }
}

fn insert_variant(
    found: &mut HashMap<String, TextVariant>,
    text: impl IntoIterator<Item = char>,
    variant: TextVariant,
) {
    let text: String = text.into_iter().collect();
    if !text.is_empty() {
        found.entry(text).or_insert(variant);
    }
}

/// Replaces one character more in each round, so that a text is first found with the fewest replacements.
fn add_look_alikes(characters: &[char], found: &mut HashMap<String, TextVariant>) {
    let mut round: Vec<(Vec<char>, usize)> = vec![(characters.to_vec(), 0)];
    for edits in 1..=characters.len() as u32 {
        let mut next = Vec::new();
        for (text, from) in &round {
            for at in *from..text.len() {
                for other in similar_characters(text[at]) {
                    if found.len() > MAX_LOOK_ALIKE_VARIANTS {
                        return;
                    }
                    let mut replaced = text.clone();
                    replaced[at] = other;
                    insert_variant(
                        found,
                        replaced.iter().copied(),
                        TextVariant { kind: TextMatch::Confusable, edits },
                    );
                    next.push((replaced, at + 1));
                }
            }
        }
        round = next;
    }
}

fn similar_characters(character: char) -> impl Iterator<Item = char> {
    let class = LOOK_ALIKE_CLASSES.iter().find(|class| class.contains(character)).copied().unwrap_or("");
    class.chars().filter(move |other| *other != character)
}

/// Adds the texts without the first or the last character, which the frame or a fold may have cut off. A reading that is
/// longer than the query is another runner's number and counts as an edit at most. All zeros in front count as one cut: a start
/// list may have lost them.
fn add_cuts(characters: &[char], found: &mut HashMap<String, TextVariant>) {
    let variant = TextVariant { kind: TextMatch::Truncated, edits: 1 };
    insert_variant(found, characters.iter().skip(1).copied(), variant);
    insert_variant(found, characters.iter().take(characters.len().saturating_sub(1)).copied(), variant);
    insert_variant(found, characters.iter().copied().skip_while(|character| *character == '0'), variant);
}

/// Adds the texts with one character replaced, missing or added.
fn add_single_edits(characters: &[char], found: &mut HashMap<String, TextVariant>) {
    let variant = TextVariant { kind: TextMatch::OneEdit, edits: 1 };
    for at in 0..=characters.len() {
        let (before, after) = characters.split_at(at);
        let rest = after.get(1..).unwrap_or_default();
        if !after.is_empty() {
            insert_variant(found, before.iter().chain(rest).copied(), variant);
        }
        for other in ALPHABET.chars() {
            let added = before.iter().copied().chain([other]).chain(after.iter().copied());
            insert_variant(found, added, variant);
            if !after.is_empty() {
                let replaced = before.iter().copied().chain([other]).chain(rest.iter().copied());
                insert_variant(found, replaced, variant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_variant(query: &str, read: &str) -> Option<(TextMatch, u32)> {
        find_variants(query).get(read).map(|variant| (variant.kind, variant.edits))
    }

    #[test]
    fn input_is_trimmed_upper_cased_and_stripped_and_keeps_its_zeros() {
        assert_eq!(normalise_bib("  a-012 3.\u{a0}"), "A0123");
        assert_eq!(normalise_bib("é7"), "É7");
        assert_eq!(normalise_bib(" -. "), "");
    }

    #[test]
    fn digits_of_other_scripts_and_letters_that_look_latin_are_those_of_bibs() {
        for zero in ZEROS {
            let digits: String =
                (0..10).filter_map(|digit| char::from_u32(u32::from(zero) + digit)).collect();
            assert_eq!(normalise_bib(&digits), "0123456789");
        }
        assert_eq!(normalise_bib("１２３"), "123", "full width");
        assert_eq!(normalise_bib("٤٢"), "42", "Arabic");
        assert_eq!(normalise_bib("Ａ１ｚ"), "A1Z");
        assert_eq!(normalise_bib("АВЕКМНОРСТУХ а"), "ABEKMHOPCTYXA", "Cyrillic");
        assert_eq!(normalise_bib("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ α"), "ABEZHIKMNOPTYXA", "Greek");
        assert_eq!(normalise_bib("Ж7Ω"), "Ж7Ω", "what looks like no other stays");
        assert_eq!(LIKE_LATIN.chars().count(), LATIN.len());
    }

    #[test]
    fn look_alikes_are_found_with_the_number_of_replacements() {
        assert_eq!(find_variant("1234", "1234"), Some((TextMatch::Exact, 0)));
        assert_eq!(find_variant("1234", "I234"), Some((TextMatch::Confusable, 1)));
        assert_eq!(find_variant("1234", "7234"), Some((TextMatch::Confusable, 1)));
        assert_eq!(find_variant("8051", "BOS1"), Some((TextMatch::Confusable, 3)));
    }

    #[test]
    fn a_digit_cut_off_an_end_is_a_cut_and_one_inside_an_edit() {
        assert_eq!(find_variant("1234", "123"), Some((TextMatch::Truncated, 1)));
        assert_eq!(find_variant("1234", "234"), Some((TextMatch::Truncated, 1)));
        assert_eq!(find_variant("1234", "134"), Some((TextMatch::OneEdit, 1)));
        assert_eq!(find_variant("1234", "12"), None);
        assert_eq!(find_variant("0042", "42"), Some((TextMatch::Truncated, 1)), "zeros in front");
        assert_eq!(find_variant("42", "0042"), None);
    }

    #[test]
    fn a_longer_reading_is_never_exact_and_two_longer_is_never_found() {
        assert_eq!(find_variant("123", "1234"), Some((TextMatch::OneEdit, 1)));
        assert_eq!(find_variant("123", "0123"), Some((TextMatch::OneEdit, 1)));
        assert_eq!(find_variant("123", "12345"), None);
    }

    /// Start lists and formats have bibs of up to 12 characters.
    #[test]
    fn the_longest_bibs_are_found_as_misread() {
        assert_eq!(find_variant("AB1234567890", "AB123456789O"), Some((TextMatch::Confusable, 1)));
        assert_eq!(find_variant("AB1234567890", "B1234567890"), Some((TextMatch::Truncated, 1)));
        assert_eq!(find_variant("AB123456789", "AB12X456789"), Some((TextMatch::OneEdit, 1)));
    }

    #[test]
    fn two_different_edits_are_not_found() {
        assert_eq!(find_variant("1234", "1299"), None);
        assert_eq!(find_variant("1234", "2143"), None);
    }

    #[test]
    fn the_number_of_variants_is_bounded() {
        for longest in ["111111111111", "1B5071B5071B", "ABCDEFGHIJKL", "ÄÖÜÄÖÜÄÖÜÄÖÜ"] {
            let count = find_variants(longest).len();
            assert!((500..2_000).contains(&count), "{count} of {longest}");
        }
        assert_eq!(find_variants("1111111111111").len(), 1);
        assert_eq!(find_variants("1").get(""), None);
    }
}
