//! The encoding of painted marks: a ring of one colour around black and white cells that hold the bits.

use photofinish_kernels::image::frame::Picture;

/// Cells along a side of a face mark, including the ring.
pub const FACE_CELLS: u32 = 8;
/// Columns of cells of a bib mark, including the ring.
pub const BIB_COLUMNS: u32 = 16;
/// Rows of cells of a bib mark, including the ring.
pub const BIB_ROWS: u32 = 5;

/// Colour of a face mark's ring.
pub(super) const FACE_RING: [u8; 3] = [255, 0, 255];
/// Colour of a bib mark's ring.
pub(super) const BIB_RING: [u8; 3] = [0, 255, 255];

/// Side of a bib mark's cell in pixels: large enough to survive the shrinking of a photo.
const BIB_CELL: u32 = 8;
/// Bits per character: 0 to 9, A to Z, end of text.
const CHARACTER_BITS: usize = 6;
/// Most characters of a bib mark.
pub(super) const MAX_CHARACTERS: usize = 6;
/// Bits of the checksum.
const CHECK_BITS: usize = 6;
/// Inner cells of a face mark: 16 bits, the same inverted, 4 cells for the orientation.
const FACE_BITS: usize = 36;
/// White, black, black, black: no rotation or mirror image looks the same.
const ORIENTATION_BITS: [bool; 4] = [true, false, false, false];

/// Paints a person's face mark: a square with the given upper left corner and side, in pixels.
///
/// # Panics
/// When the mark is not inside the picture.
pub fn paint_face(picture: &mut Picture, person: u16, [left, top, side]: [u32; 3]) {
    let bits = encode_person(person);
    let place = MarkGrid { left, top, width: side, height: side, columns: FACE_CELLS, rows: FACE_CELLS };
    paint_mark(picture, place, FACE_RING, &bits);
}

/// Paints a bib mark of up to six letters and digits: 128 x 40 pixels, with the given upper left corner.
///
/// # Panics
/// When the mark is not inside the picture, or the text is longer or contains other characters.
pub fn paint_bib(picture: &mut Picture, text: &str, [left, top]: [u32; 2]) {
    let place = MarkGrid {
        left,
        top,
        width: BIB_COLUMNS * BIB_CELL,
        height: BIB_ROWS * BIB_CELL,
        columns: BIB_COLUMNS,
        rows: BIB_ROWS,
    };
    paint_mark(picture, place, BIB_RING, &encode_text(text));
}

/// Decodes the inner cells of a face mark, row by row; `None` when they are not valid.
pub(super) fn decode_person(bits: &[bool]) -> Option<u16> {
    let (id, rest) = bits.split_at_checked(16)?;
    let (inverted, tail) = rest.split_at_checked(16)?;
    let is_valid = id.iter().zip(inverted).all(|(a, b)| a != b) && tail == ORIENTATION_BITS;
    is_valid.then(|| from_bits(id) as u16)
}

/// Decodes the inner cells of a bib mark, row by row; `None` when they are not valid.
pub(super) fn decode_text(bits: &[bool]) -> Option<String> {
    let (letters, check) = bits.split_at_checked(MAX_CHARACTERS * CHARACTER_BITS)?;
    let codes: Vec<u32> = letters.chunks(CHARACTER_BITS).map(from_bits).collect();
    if from_bits(check) != checksum(&codes) {
        return None;
    }
    let text: Option<String> = codes
        .iter()
        .take_while(|&&code| code != END_OF_TEXT)
        .map(|&code| char::from_digit(code, 36))
        .collect();
    text.filter(|text| !text.is_empty()).map(|text| text.to_ascii_uppercase())
}

struct MarkGrid {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    columns: u32,
    rows: u32,
}

fn paint_mark(picture: &mut Picture, place: MarkGrid, ring: [u8; 3], bits: &[bool]) {
    let picture_width = picture.width();
    assert!(
        place.left + place.width <= picture_width && place.top + place.height <= picture.height(),
        "a mark is inside its picture"
    );
    let pixels = picture.pixels_mut();
    for y in 0..place.height {
        for x in 0..place.width {
            let (column, row) = (x * place.columns / place.width, y * place.rows / place.height);
            let edge = column == 0 || row == 0 || column == place.columns - 1 || row == place.rows - 1;
            let colour = if edge {
                ring
            } else {
                let bit = bits[((row - 1) * (place.columns - 2) + column - 1) as usize];
                if bit { [255; 3] } else { [0; 3] }
            };
            let offset = ((place.top + y) * picture_width + place.left + x) as usize * 3;
            pixels[offset..offset + 3].copy_from_slice(&colour);
        }
    }
}

fn encode_person(person: u16) -> Vec<bool> {
    let id = to_bits(u32::from(person), 16);
    let inverted: Vec<bool> = id.iter().map(|bit| !bit).collect();
    let bits = [id, inverted, ORIENTATION_BITS.to_vec()].concat();
    debug_assert_eq!(bits.len(), FACE_BITS);
    bits
}

/// Code after the last character.
const END_OF_TEXT: u32 = 36;

fn encode_text(text: &str) -> Vec<bool> {
    assert!(text.len() <= MAX_CHARACTERS, "a bib mark has at most {MAX_CHARACTERS} characters");
    let mut codes: Vec<u32> =
        text.chars().map(|c| c.to_digit(36).expect("a bib mark contains letters and digits")).collect();
    codes.resize(MAX_CHARACTERS, END_OF_TEXT);
    let check = checksum(&codes);
    let letters = codes.iter().flat_map(|code| to_bits(*code, CHARACTER_BITS));
    letters.chain(to_bits(check, CHECK_BITS)).collect()
}

/// Returns a checksum: weighted, so that swapped characters are detected, and never 0, so that a black strip is invalid.
fn checksum(codes: &[u32]) -> u32 {
    let sum: u32 = codes.iter().zip(1..).map(|(code, weight)| (code + 1) * weight).sum();
    sum % 63 + 1
}

fn to_bits(number: u32, count: usize) -> Vec<bool> {
    (0..count).rev().map(|bit| number >> bit & 1 == 1).collect()
}

fn from_bits(bits: &[bool]) -> u32 {
    bits.iter().fold(0, |sum, &bit| sum << 1 | u32::from(bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_painted_can_be_decoded() {
        for person in [0, 1, 255, 4711, u16::MAX] {
            assert_eq!(decode_person(&encode_person(person)), Some(person));
        }
        for text in ["0", "4711", "AB123C", "ZZZZZZ", "000000"] {
            assert_eq!(decode_text(&encode_text(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_flipped_cell_is_detected() {
        for cell in 0..FACE_BITS {
            let mut bits = encode_person(1234);
            bits[cell] = !bits[cell];
            assert_eq!(decode_person(&bits), None, "cell {cell}");
        }
    }
}
