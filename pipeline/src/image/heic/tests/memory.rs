//! Tests of the peak memory that is planned for the largest pictures. They claim their size: nothing here decodes them.

use photofinish_store::model::photo::FailureReason;

use super::files::{HeicFile, Item, coded, plain_box, size_box};
use super::{plan, scene};
use crate::image::heic::bands::BAND_BYTES_PER_COLUMN;

/// Where the parameters of a picture have their number, bits from the start: behind two bytes that say what they are, one on
/// layers and twelve on the profile (H.265, 7.3.2.2).
const NUMBER_AT: usize = 120;
/// The bytes of a list of parameters before the first group of them.
const LIST_HEAD: usize = 23;
/// The kind of parameters that have the size of the picture.
const SIZED: u8 = 33;

/// How colour is sampled, as parameters have it.
#[derive(Clone, Copy)]
enum Colour {
    Quarter = 1,
    Full = 3,
}

fn to_bits(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8_u8).rev().map(move |bit| (*byte >> bit) & 1 == 1)).collect()
}

fn to_bytes(bits: &[bool]) -> Vec<u8> {
    let bit = |bits: &[bool], at: usize| u8::from(bits.get(at) == Some(&true));
    let to_byte = |bits: &[bool]| (0..8).fold(0_u8, |byte, at| (byte << 1) | bit(bits, at));
    bits.chunks(8).map(to_byte).collect()
}

/// Reads a number of variable length (H.265, 9.2), and moves behind it.
fn read_number(bits: &[bool], at: &mut usize) -> u32 {
    let zeros = bits[*at..].iter().take_while(|bit| !**bit).count();
    let code = &bits[*at + zeros..=*at + 2 * zeros];
    *at += 2 * zeros + 1;
    code.iter().fold(0_u32, |code, bit| (code << 1) | u32::from(*bit)) - 1
}

fn push_number(bits: &mut Vec<bool>, number: u32) {
    let code = number + 1;
    let length = u32::BITS - code.leading_zeros();
    bits.extend(std::iter::repeat_n(false, length as usize - 1));
    bits.extend((0..length).rev().map(|bit| (code >> bit) & 1 == 1));
}

/// Removes the 3 that stands between two zeros and a small number.
fn unescape(unit: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, byte) in unit.iter().enumerate() {
        let is_escape = *byte == 3 && at >= 2 && unit[at - 2..at] == [0, 0];
        bytes.extend((!is_escape).then_some(*byte));
    }
    bytes
}

fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut unit = Vec::new();
    for byte in bytes {
        if *byte <= 3 && unit.ends_with(&[0, 0]) {
            unit.push(3);
        }
        unit.push(*byte);
    }
    unit
}

/// Changes the parameters of a picture to claim a square of this side.
fn claim(unit: &[u8], colour: Colour, side: u32) -> Vec<u8> {
    let old = to_bits(&unescape(unit));
    assert!(!old[20..23].contains(&true), "there are no more layers");
    let mut at = NUMBER_AT;
    let number = read_number(&old, &mut at);
    if read_number(&old, &mut at) == Colour::Full as u32 {
        at += 1;
    }
    for _ in 0..2 {
        read_number(&old, &mut at);
    }
    let mut bits = old[..NUMBER_AT].to_vec();
    push_number(&mut bits, number);
    push_number(&mut bits, colour as u32);
    if matches!(colour, Colour::Full) {
        // The colours are not coded apart.
        bits.push(false);
    }
    push_number(&mut bits, side);
    push_number(&mut bits, side);
    bits.extend_from_slice(&old[at..]);
    // A unit ends with its last 1.
    let end = bits.iter().rposition(|bit| *bit).unwrap();
    escape(&to_bytes(&bits[..=end]))
}

/// Changes a list of parameters, a property of an item, so that the picture claims a square of this side.
fn claim_in_list(list: &[u8], colour: Colour, side: u32) -> Vec<u8> {
    let (head, mut rest) = list.split_at(LIST_HEAD);
    let mut changed = head.to_vec();
    for _ in 0..head[LIST_HEAD - 1] {
        let (group, units) = rest.split_at(3);
        changed.extend_from_slice(group);
        rest = units;
        for _ in 0..u16::from_be_bytes([group[1], group[2]]) {
            let (length, units) = rest.split_at(2);
            let (unit, units) = units.split_at(usize::from(u16::from_be_bytes([length[0], length[1]])));
            let is_sized = group[0] & 63 == SIZED;
            let unit = if is_sized { claim(unit, colour, side) } else { unit.to_vec() };
            changed.extend((unit.len() as u16).to_be_bytes());
            changed.extend(unit);
            rest = units;
        }
    }
    plain_box(b"hvcC", &changed)
}

/// A file of one coded picture that claims a square of this side.
fn giant(colour: Colour, side: u16) -> HeicFile {
    let mut file = HeicFile::single(&scene(64, 64), &[]);
    for property in &mut file.items[0].properties {
        if property[4..8] == *b"ispe" {
            *property = size_box(side, side);
        } else if property[4..8] == *b"hvcC" {
            *property = claim_in_list(&property[8..], colour, side.into());
        }
    }
    file
}

#[test]
fn a_picture_that_is_no_grid_is_read_up_to_what_its_memory_permits() {
    // Bytes per pixel are those of the result and of decoding.
    for (colour, bytes_per_pixel, largest, larger) in
        [(Colour::Quarter, 3 + 7, 13_568, 13_632), (Colour::Full, 3 + 13, 10_688, 10_816)]
    {
        let file = giant(colour, largest);
        let side = usize::from(largest);
        let stream = 2 * file.items[0].data.len();
        let expected = side * side * bytes_per_pixel + stream + side * BAND_BYTES_PER_COLUMN;
        assert_eq!(plan(&file.to_bytes()).unwrap().peak_bytes, expected, "{largest}");
        let refused = plan(&giant(colour, larger).to_bytes()).err().unwrap();
        assert_eq!(refused.reason, FailureReason::TooManyPixels, "{larger}: {refused}");
    }
}

#[test]
fn tiles_of_phones_are_read_up_to_the_limit_of_pixels_and_need_little_more_than_the_result() {
    const SIDES: [u16; 2] = [28 * 512, 27 * 512];
    let tile = Item { data: vec![0; 8], ..coded(&scene(512, 512)) };
    let planned = plan(&HeicFile::grid(&tile, [28, 27], SIDES).to_bytes()).unwrap();
    let result = usize::from(SIDES[0]) * usize::from(SIDES[1]) * 3;
    assert!(result > 198_000_000 * 3);
    assert!((result..result + (8 << 20)).contains(&planned.peak_bytes), "{}", planned.peak_bytes);
}
