//! Bibs whose numbers are counted from one, so that there are short ones: of 1 to 3500 a fortieth has two digits.

use std::collections::HashMap;

use super::shapes::{OfShape, Shapes};
use super::tails;
use crate::model::bib_format::BibShape;

/// A length of which fewer than this part of the bibs is expected is not worth keeping. `EXPECTED_PART` of what counting
/// from one predicts is enough for a length to be kept, and `BETWEEN_PART` for the lengths between it and the longest:
/// runners of a wave may have been photographed less, and cuts are no proof of shorter numbers.
const LEAST_SHARE: f64 = 0.003;
const EXPECTED_PART: f64 = 1.0 / 3.0;
const BETWEEN_PART: f64 = 1.0 / 1.5;

/// The probability below which there are too few bibs of a length.
const TOO_FEW: f64 = 0.05;

/// With so many bibs in two photos or more, these alone are counted: cuts are hardly among them.
const ENOUGH_REPEATED: u64 = 30;

/// A shape of letters, digits and letters.
struct Numbering<'a> {
    before: &'a str,
    digits: usize,
    after: &'a str,
}

fn parse(shape: &BibShape) -> Option<Numbering<'_>> {
    let text = shape.as_str();
    let from = text.find('9')?;
    let to = text.rfind('9')? + 1;
    let digits = &text[from..to];
    let is_number = digits.bytes().all(|sign| sign == b'9');
    is_number.then(|| Numbering { before: &text[..from], digits: digits.len(), after: &text[to..] })
}

/// The number of a bib.
fn number_of(bib: &str) -> Option<u64> {
    bib.trim_matches(|character: char| !character.is_ascii_digit()).parse().ok()
}

/// Whether bibs of `shape` are what one must expect where those of the longer shape `of` are counted from one.
///
/// The numbers from 1000 to 1999 say how densely numbers are used: nine tenths as many are expected from 100 to 999, and
/// nine hundredths from 10 to 99.
pub(super) fn is_counted_from_one(shape: &BibShape, of: &BibShape, shapes: &Shapes<'_>) -> bool {
    let (Some(short), Some(long)) = (parse(shape), parse(of)) else { return false };
    if (short.before, short.after) != (long.before, long.after) || short.digits >= long.digits {
        return false;
    }
    let by_shape: HashMap<&BibShape, &OfShape<'_>> = shapes.iter().map(|it| (&it.shape, it)).collect();
    let Some(whole) = by_shape.get(of) else { return false };
    let repeated_only = whole.repeated() >= ENOUGH_REPEATED;
    let count = |it: &OfShape<'_>| if repeated_only { it.repeated() } else { it.len() };
    let first = 10_u64.pow(long.digits as u32 - 1);
    let dense = whole.bibs.iter().filter(|bib| !repeated_only || bib.photos > 1);
    let dense = dense.filter(|bib| number_of(&bib.bib).is_some_and(|it| (first..2 * first).contains(&it)));
    let dense = dense.count() as f64;
    (short.digits..long.digits).all(|digits| {
        let text = format!("{}{}{}", short.before, "9".repeat(digits), short.after);
        let found = BibShape::try_from(text).ok().and_then(|shape| by_shape.get(&shape).map(|it| count(it)));
        let found = found.unwrap_or_default();
        let expected = 0.9 * dense / 10_f64.powi((long.digits - 1 - digits) as i32);
        let all = count(whole) + found;
        let is_short = digits == short.digits;
        if all == 0 || (is_short && expected < LEAST_SHARE * all as f64) {
            return false;
        }
        let least = expected * if is_short { EXPECTED_PART } else { BETWEEN_PART };
        tails::at_most(found, all, (least / all as f64).min(0.99)) >= TOO_FEW
    })
}
