//! Draws the test picture: dark digits on a light ground, so that text networks have something to find.

use photofinish_kernels::image::tensor::Tensor;

/// Digits 0 to 9, 5 x 7 pixels; a row is five bits.
const DIGITS: [[u8; 7]; 10] = [
    [0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110],
    [0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110],
    [0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111],
    [0b01110, 0b10001, 0b00001, 0b00110, 0b00001, 0b10001, 0b01110],
    [0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010],
    [0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110],
    [0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110],
    [0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000],
    [0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110],
    [0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100],
];

/// The number on the picture.
const NUMBER: [usize; 4] = [2, 7, 1, 8];

/// Columns of a digit with the gap after it.
const DIGIT_COLUMNS: usize = 6;
const DIGIT_ROWS: usize = 7;

/// Brightness of ground and ink, from black (0) to white (1).
const GROUND: f32 = 0.9;
const INK: f32 = 0.1;

/// Fills each item of the input with a number in the middle, as large as fits into four fifths of the picture.
pub(super) fn draw(input: &mut Tensor, [black, white]: [f32; 2]) {
    let [_, _, rows, columns] = input.shape();
    let number_columns = NUMBER.len() * DIGIT_COLUMNS - 1;
    let zoom = (columns * 4 / 5 / number_columns).min(rows * 4 / 5 / DIGIT_ROWS).max(1);
    let left = columns.saturating_sub(zoom * number_columns) / 2;
    let top = rows.saturating_sub(zoom * DIGIT_ROWS) / 2;
    let plane = rows * columns;
    for (index, value) in input.data_mut().iter_mut().enumerate() {
        let (y, x) = (index % plane / columns, index % columns);
        let is_ink = y >= top && x >= left && is_digit_pixel((x - left) / zoom, (y - top) / zoom);
        *value = black + (white - black) * if is_ink { INK } else { GROUND };
    }
}

/// Whether a pixel of the unscaled number is ink.
fn is_digit_pixel(x: usize, y: usize) -> bool {
    let (Some(&digit), column) = (NUMBER.get(x / DIGIT_COLUMNS), x % DIGIT_COLUMNS) else { return false };
    column + 1 < DIGIT_COLUMNS && DIGITS[digit].get(y).is_some_and(|row| row >> (4 - column) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_in_the_middle_of_every_plane() {
        let mut input = Tensor::default();
        input.reshape([2, 3, 9, 29]);
        draw(&mut input, [-1.0, 1.0]);
        let (first, second) = input.data().split_at(3 * 9 * 29);
        assert_eq!(first, second, "each item");
        let row = &input.data()[9 * 29..][29..58];
        let row: String = row.iter().map(|value| if *value < 0.0 { '#' } else { '.' }).collect();
        assert_eq!(row, "....###..#####...#....###....");
    }
}
