//! Converts decoded pictures to RGB in bands of a few rows, so that the conversion needs little memory beside them.

use heifer::color::{ColorParams, frame_to_rgba_into};

use super::canvas::Tile;
use super::stream::Frame;

/// Rows of a band. Even, as a row of colour may belong to two of brightness.
const BAND_ROWS: usize = 16;
/// Rows below a band that are converted with it: colour between two rows is made from both.
const EXTRA_ROWS: usize = 2;
/// Bytes that a band takes per pixel of its width: two bytes for each of three samples, four for the result, and some
/// numbers per column.
pub(super) const BAND_BYTES_PER_COLUMN: usize = (BAND_ROWS + EXTRA_ROWS) * 10 + 64;

/// Converts a tile, and hands each row to `paint` with its distance from the top of the tile: four bytes a pixel, the last
/// of no meaning.
pub(super) fn for_each_row(tile: &Tile, mut paint: impl FnMut(u32, &[u8])) {
    let (width, height) = (tile.size.width as usize, tile.size.height as usize);
    let frame_height = tile.frame.heights[0] as usize;
    let mut converted = vec![0; width * 4 * (BAND_ROWS + EXTRA_ROWS)];
    for top in (0..height).step_by(BAND_ROWS) {
        let rows = (BAND_ROWS + EXTRA_ROWS).min(frame_height - top);
        let mut targets: Vec<&mut [u8]> = converted.chunks_exact_mut(width * 4).take(rows).collect();
        let band = cut_band(&tile.frame, top, rows);
        convert(&band, tile.params, &mut targets, width);
        for (y, row) in (top..height.min(top + BAND_ROWS)).zip(&targets) {
            paint(y as u32, row);
        }
    }
}

fn convert(band: &Frame, params: ColorParams, targets: &mut [&mut [u8]], width: usize) {
    let rows = targets.len();
    frame_to_rgba_into(band, params, targets, width, rows);
}

/// Copies rows of a frame, and the rows of colour that belong to them.
fn cut_band(frame: &Frame, top: usize, rows: usize) -> Frame {
    let mut band = Frame { planes: Default::default(), ..*frame };
    let full_height = frame.heights[0] as usize;
    for plane in 0..3 {
        let (width, height) = (frame.widths[plane] as usize, frame.heights[plane] as usize);
        if width == 0 || height == 0 {
            continue;
        }
        let rows_per_sample = (full_height / height).max(1);
        let first = (top / rows_per_sample).min(height - 1);
        let end = (top + rows).div_ceil(rows_per_sample).clamp(first + 1, height);
        band.planes[plane] = frame.planes[plane][first * width..end * width].to_vec();
        band.heights[plane] = (end - first) as u32;
    }
    band
}
