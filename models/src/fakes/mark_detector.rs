//! Detects painted marks: blobs of a ring's colour, of the right shape, whose cells decode to valid bits.

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::image::frame::Frame;

use crate::fakes::marks::{
    BIB_COLUMNS, BIB_RING, BIB_ROWS, FACE_CELLS, FACE_RING, decode_person, decode_text,
};

/// Largest difference to the ring's colour in any channel: JPEG and resizing blur it.
const TOLERANCE: u8 = 90;
/// Least side of a cell in pixels: smaller ones cannot be decoded.
const MIN_CELL: f32 = 1.8;
/// Largest deviation of a mark's aspect ratio.
const SHAPE_TOLERANCE: f32 = 0.15;

/// Returns the face marks of a frame with their persons, from top to bottom.
pub(super) fn find_faces(frame: Frame<'_>) -> Vec<(Rect, u16)> {
    let squares =
        find_blobs(frame, FACE_RING).into_iter().filter(|rect| has_shape(rect, FACE_CELLS, FACE_CELLS));
    squares.filter_map(|rect| Some((rect, decode_face(frame, rect)?))).collect()
}

/// Decodes the person of the face mark in `rect`.
pub(super) fn decode_face(frame: Frame<'_>, rect: Rect) -> Option<u16> {
    decode_person(&sample_cells(frame, rect, FACE_CELLS, FACE_CELLS)?)
}

/// Returns the bib marks of a frame with their texts, from top to bottom.
pub(super) fn find_bibs(frame: Frame<'_>) -> Vec<(Rect, String)> {
    let strips =
        find_blobs(frame, BIB_RING).into_iter().filter(|rect| has_shape(rect, BIB_COLUMNS, BIB_ROWS));
    let text = |rect: Rect| decode_text(&sample_cells(frame, rect, BIB_COLUMNS, BIB_ROWS)?);
    strips.filter_map(|rect| Some((rect, text(rect)?))).collect()
}

fn has_shape(rect: &Rect, columns: u32, rows: u32) -> bool {
    let (cell_width, cell_height) = (rect.width() / columns as f32, rect.height() / rows as f32);
    let is_large_enough = cell_width.min(cell_height) >= MIN_CELL;
    is_large_enough && (cell_width / cell_height - 1.0).abs() <= SHAPE_TOLERANCE
}

/// Samples the cells inside the ring at their centres, row by row; true is white.
fn sample_cells(frame: Frame<'_>, rect: Rect, columns: u32, rows: u32) -> Option<Vec<bool>> {
    let mut bits = Vec::with_capacity(((columns - 2) * (rows - 2)) as usize);
    for row in 1..rows - 1 {
        for column in 1..columns - 1 {
            let x = rect.left + (column as f32 + 0.5) / columns as f32 * rect.width();
            let y = rect.top + (row as f32 + 0.5) / rows as f32 * rect.height();
            let [red, green, blue] = pixel_at(frame, x as u32, y as u32)?;
            bits.push(u32::from(red) + u32::from(green) + u32::from(blue) > 3 * 127);
        }
    }
    Some(bits)
}

fn pixel_at(frame: Frame<'_>, x: u32, y: u32) -> Option<[u8; 3]> {
    if x >= frame.width() || y >= frame.height() {
        return None;
    }
    let offset = (y as usize * frame.width() as usize + x as usize) * 3;
    frame.pixels()[offset..offset + 3].try_into().ok()
}

/// Returns the bounds of each connected blob of a colour, from top to bottom.
fn find_blobs(frame: Frame<'_>, colour: [u8; 3]) -> Vec<Rect> {
    let has_colour = |pixel: &[u8]| pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= TOLERANCE);
    let mut unvisited: Vec<bool> = frame.pixels().chunks_exact(3).map(has_colour).collect();
    let (width, height) = (frame.width() as usize, frame.height() as usize);
    let mut found = Vec::new();
    let mut stack = Vec::new();
    for start in 0..unvisited.len() {
        if !unvisited[start] {
            continue;
        }
        unvisited[start] = false;
        stack.push(start);
        let (mut left, mut right, mut top, mut bottom) = (width, 0, height, 0);
        while let Some(index) = stack.pop() {
            let (x, y) = (index % width, index / width);
            (left, right) = (left.min(x), right.max(x));
            (top, bottom) = (top.min(y), bottom.max(y));
            let mut visit = |is_inside: bool, neighbour: usize| {
                if is_inside && unvisited[neighbour] {
                    unvisited[neighbour] = false;
                    stack.push(neighbour);
                }
            };
            visit(x > 0, index.wrapping_sub(1));
            visit(x + 1 < width, index + 1);
            visit(y > 0, index.wrapping_sub(width));
            visit(y + 1 < height, index + width);
        }
        found.push(Rect {
            left: left as f32,
            top: top as f32,
            right: right as f32 + 1.0,
            bottom: bottom as f32 + 1.0,
        });
    }
    found
}
