//! Grid mode: cuts a frame into overlapping cells, maps detections in a cell back to the frame, and removes duplicates.
//! Knows nothing of the network that runs on the cells.
//!
//! The network also runs on the whole frame, so that objects larger than an overlap are found uncut. Detections cut by
//! an inner edge of a cell are dropped: the neighbouring cell or the whole frame contains them.

use photofinish_kernels::geometry::{Point, Quad, Rect};
use photofinish_kernels::image::frame::{Frame, Picture, Size, Window};
use photofinish_kernels::resize::{ResizeTarget, Resizer};
use photofinish_models::traits::FaceBox;
use photofinish_store::model::album::Grid;

/// Fraction of a cell that overlaps its neighbour: a face or bib up to this fraction of a cell is whole in one of them.
const OVERLAP: f64 = 0.15;

/// Two detections whose intersection is at least this fraction of the smaller one are duplicates. Neighbouring faces in
/// crowds share less; parts of a bib are entirely inside it.
const MIN_SHARED_AREA: f32 = 0.5;

/// Detections this close to a cell's inner edge, in pixels of the cell, may be cut by it.
const EDGE_MARGIN: f32 = 2.0;

/// A cell of a frame, copied into a picture.
pub(crate) struct Cell {
    pub(crate) picture: Picture,
    /// The cell in pixels of the frame.
    frame_rect: Rect,
    frame_size: Size,
}

/// Returns the long side of the frame at which each cell has the grid's cell size; at most the photo's own.
pub(crate) fn frame_long_side(grid: &Grid, photo: Size) -> u32 {
    let across = cell_length(photo.width, grid.columns);
    let down = cell_length(photo.height, grid.rows);
    let scale = (f64::from(grid.cell_width) / across).min(f64::from(grid.cell_height) / down).min(1.0);
    (f64::from(photo.width.max(photo.height)) * scale).ceil() as u32
}

/// Cuts a frame into cells, row by row, and shrinks those that are larger than the grid's cell size.
pub(crate) fn cut_cells(frame: Frame<'_>, grid: &Grid, resizer: &mut Resizer) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (top, height) in cell_spans(frame.height(), grid.rows) {
        for (left, width) in cell_spans(frame.width(), grid.columns) {
            let Some(window) = frame.window(left, top, Size { width, height }) else { continue };
            cells.push(Cell {
                picture: shrink_to_cell(window, grid, resizer),
                frame_rect: Rect {
                    left: left as f32,
                    top: top as f32,
                    right: (left + width) as f32,
                    bottom: (top + height) as f32,
                },
                frame_size: frame.size(),
            });
        }
    }
    cells
}

fn shrink_to_cell(window: Window<'_>, grid: &Grid, resizer: &mut Resizer) -> Picture {
    let from = window.size();
    let across = f64::from(grid.cell_width) / f64::from(from.width);
    let down = f64::from(grid.cell_height) / f64::from(from.height);
    let scale = across.min(down).min(1.0);
    let scaled = |side: u32| ((f64::from(side) * scale).round() as u32).max(1);
    let size = Size { width: scaled(from.width), height: scaled(from.height) };
    let mut pixels = Vec::new();
    resizer.resize(window, ResizeTarget::for_network_input(from, size), &mut pixels);
    Picture::new(pixels, size.width, size.height).expect("resize writes width * height * 3 bytes")
}

/// Returns the length of each of `count` overlapping cells that cover a side of `length` pixels.
fn cell_length(length: u32, count: u32) -> f64 {
    let count = f64::from(count.max(1));
    f64::from(length) / (count - (count - 1.0) * OVERLAP)
}

/// Returns start and length of each cell along a side, pixels.
fn cell_spans(length: u32, count: u32) -> Vec<(u32, u32)> {
    let cell = cell_length(length, count);
    let long = (cell.ceil() as u32).clamp(1, length);
    let last = length - long;
    // The last cell ends exactly where the side ends, despite rounding.
    let begin = |i: u32| if i + 1 >= count { last } else { (f64::from(i) * cell * (1.0 - OVERLAP)) as u32 };
    (0..count.max(1)).map(|i| (begin(i).min(last), long)).collect()
}

impl Cell {
    /// The long side of the cell's picture, pixels.
    pub(crate) fn long_side(&self) -> u32 {
        self.picture.long_side()
    }

    /// Whether a detection, in pixels of the cell, is uncut: it touches no edge beyond which the photo continues.
    pub(crate) fn contains_whole(&self, rect: &Rect) -> bool {
        let (width, height) = (self.picture.width() as f32, self.picture.height() as f32);
        let inner = |edge: f32, border: f32| (edge - border).abs() > 0.5;
        let cut_left = rect.left <= EDGE_MARGIN && inner(self.frame_rect.left, 0.0);
        let cut_top = rect.top <= EDGE_MARGIN && inner(self.frame_rect.top, 0.0);
        let cut_right =
            rect.right >= width - EDGE_MARGIN && inner(self.frame_rect.right, self.frame_size.width as f32);
        let cut_bottom = rect.bottom >= height - EDGE_MARGIN
            && inner(self.frame_rect.bottom, self.frame_size.height as f32);
        !(cut_left || cut_top || cut_right || cut_bottom)
    }

    /// Maps a face from the cell to the frame.
    pub(crate) fn face_to_frame(&self, face: &FaceBox) -> FaceBox {
        map_face(face, |point| self.to_frame(point))
    }

    /// Maps a face from the frame to the cell; it may be outside the cell.
    pub(crate) fn face_to_cell(&self, face: &FaceBox) -> FaceBox {
        map_face(face, |point| self.to_cell(point))
    }

    /// Maps a quad from the cell to the frame.
    pub(crate) fn quad_to_frame(&self, quad: &Quad) -> Quad {
        Quad(quad.0.map(|corner| self.to_frame(corner)))
    }

    /// Whether a rectangle of the frame overlaps the cell.
    pub(crate) fn overlaps(&self, rect: &Rect) -> bool {
        self.frame_rect.intersection_area(rect) > 0.0
    }

    /// Pixels of the frame per pixel of the cell, across and down.
    fn scale(&self) -> (f32, f32) {
        (
            self.frame_rect.width() / self.picture.width() as f32,
            self.frame_rect.height() / self.picture.height() as f32,
        )
    }

    fn to_frame(&self, point: Point) -> Point {
        let (across, down) = self.scale();
        Point { x: point.x * across + self.frame_rect.left, y: point.y * down + self.frame_rect.top }
    }

    fn to_cell(&self, point: Point) -> Point {
        let (across, down) = self.scale();
        Point { x: (point.x - self.frame_rect.left) / across, y: (point.y - self.frame_rect.top) / down }
    }
}

fn map_face(face: &FaceBox, to: impl Fn(Point) -> Point) -> FaceBox {
    let begin = to(Point { x: face.rect.left, y: face.rect.top });
    let end = to(Point { x: face.rect.right, y: face.rect.bottom });
    FaceBox {
        rect: Rect { left: begin.x, top: begin.y, right: end.x, bottom: end.y },
        landmarks: face.landmarks.map(&to),
        score: face.score,
    }
}

/// Keeps the first of detections that are duplicates; the caller sorts them, the most reliable first.
pub(crate) fn remove_duplicates<T>(found: Vec<T>, rect: impl Fn(&T) -> Rect) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for candidate in found {
        let candidate_rect = rect(&candidate);
        let is_duplicate = |other: &T| {
            let other = rect(other);
            let smaller = candidate_rect.area().min(other.area());
            smaller <= 0.0 || candidate_rect.intersection_area(&other) >= MIN_SHARED_AREA * smaller
        };
        if !kept.iter().any(is_duplicate) {
            kept.push(candidate);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rect(left: f32, top: f32, right: f32, bottom: f32) -> Rect {
        Rect { left, top, right, bottom }
    }

    fn flat_picture(width: u32, height: u32) -> Picture {
        Picture::new(vec![0; (width * height * 3) as usize], width, height).unwrap()
    }

    #[test]
    fn of_duplicates_the_first_is_kept() {
        let found = vec![rect(0., 0., 10., 10.), rect(1., 1., 5., 5.), rect(9., 0., 19., 10.)];
        assert_eq!(remove_duplicates(found.clone(), |r| *r), [found[0], found[2]]);
    }

    #[test]
    fn a_rect_cut_by_an_inner_edge_is_not_whole() {
        let picture = flat_picture(400, 300);
        let grid = Grid { rows: 1, columns: 2, cell_width: 4000, cell_height: 4000 };
        let cells = cut_cells(picture.frame(), &grid, &mut Resizer::default());
        assert_eq!(cells.len(), 2);
        let right = cells[0].picture.width() as f32;
        assert!(cells[0].contains_whole(&rect(0., 0., 20., 20.)), "the photo's own edge");
        assert!(!cells[0].contains_whole(&rect(right - 20., 10., right, 30.)));
        assert!(!cells[1].contains_whole(&rect(0., 10., 20., 30.)));
    }

    proptest! {
        #[test]
        fn cells_cover_the_frame_and_points_map_back(
            width in 64_u32..900,
            height in 64_u32..900,
            (rows, columns) in (1_u32..6, 1_u32..6),
            cell in 64_u32..400,
        ) {
            let picture = flat_picture(width, height);
            let grid = Grid { rows, columns, cell_width: cell, cell_height: cell };
            let cells = cut_cells(picture.frame(), &grid, &mut Resizer::default());
            prop_assert_eq!(cells.len() as u32, rows * columns);
            for y in (0..height).step_by(13) {
                for x in (0..width).step_by(13) {
                    let pixel = rect(x as f32, y as f32, x as f32 + 1.0, y as f32 + 1.0);
                    prop_assert!(cells.iter().any(|cell| cell.frame_rect.intersection_area(&pixel) > 0.99));
                }
            }
            for cell in &cells {
                prop_assert!(cell.picture.width() <= grid.cell_width && cell.picture.height() <= grid.cell_height);
                prop_assert!(cell.frame_rect.right <= width as f32 && cell.frame_rect.bottom <= height as f32);
                let point = Point { x: cell.frame_rect.left + 3.0, y: cell.frame_rect.bottom - 5.0 };
                let back = cell.to_frame(cell.to_cell(point));
                prop_assert!((back.x - point.x).abs() < 0.01 && (back.y - point.y).abs() < 0.01);
            }
        }

        #[test]
        fn a_frame_of_the_wanted_size_gives_each_cell_its_pixels(
            width in 500_u32..6000,
            height in 500_u32..6000,
            (rows, columns) in (1_u32..8, 1_u32..8),
        ) {
            let grid = Grid { rows, columns, cell_width: 640, cell_height: 640 };
            let photo = Size { width, height };
            let frame = photo.fit_within(frame_long_side(&grid, photo));
            let (across, down) = (cell_length(frame.width, columns), cell_length(frame.height, rows));
            prop_assert!(across <= 642.0 && down <= 642.0, "a cell larger than the network's input: {across} x {down}");
            prop_assert!(frame == photo || across > 637.0 || down > 637.0, "a frame with too few pixels: {across} x {down}");
        }
    }
}
