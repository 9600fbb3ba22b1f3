//! Grid mode: cuts a frame into overlapping cells, maps detections in a cell back to the frame, and removes duplicates.
//! Knows nothing of the network that runs on the cells.
//!
//! The network also runs on the whole frame, so that objects larger than an overlap are found uncut. Detections cut by
//! an inner edge of a cell are dropped: the neighbouring cell or the whole frame contains them.
//!
//! The grid of an album is an upper bound. Smaller cells than the networks' input show nothing new, and each cell costs a
//! run of a network: rows and columns are merged until cells are large and few enough.

use photofinish_kernels::geometry::{Point, Quad, Rect};
use photofinish_kernels::image::frame::{Frame, Picture, Size, Window};
use photofinish_kernels::resize::{ResizeTarget, Resizer};
use photofinish_models::traits::FaceBox;
use photofinish_store::model::album::{AlbumConfig, Grid, Recognition, RecognitionMode};

/// Fraction of a cell that overlaps its neighbour: a face or bib up to this fraction of a cell is whole in one of them.
const OVERLAP: f64 = 0.15;

/// Two detections whose intersection is at least this fraction of the smaller one are duplicates. Neighbouring faces in
/// crowds share less; parts of a bib are entirely inside it.
const MIN_SHARED_AREA: f32 = 0.5;

/// Detections this close to a cell's inner edge, in pixels of the cell, may be cut by it.
const EDGE_MARGIN: f32 = 2.0;

/// Least side of a cell, in pixels of the frame: the long side of the detectors' input. A network sees all pixels of such a
/// cell, so smaller cells would only be more.
pub(crate) const MIN_CELL_SIDE: u32 = 640;

/// Most of a side of a cell's picture: the long side of the frame in which photos are looked at as a whole. A run of the face
/// detector takes time and memory in proportion to the pixels of its input; whoever wants more detail has more cells.
pub(crate) const MAX_CELL_SIDE: u32 = 2048;

/// A grid, bounded for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellGrid {
    frame: Size,
    rows: u32,
    columns: u32,
    /// The largest picture of a cell.
    cell: Size,
}

/// A cell of a frame, copied into a picture.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) picture: Picture,
    /// The cell in pixels of the frame.
    frame_rect: Rect,
    frame_size: Size,
}

/// The grid of a recognition that is enabled and in grid mode.
pub(crate) fn grid_of(recognition: &Recognition) -> Option<&Grid> {
    let is_used = recognition.enabled && recognition.mode == RecognitionMode::Grid;
    recognition.grid.as_ref().filter(|_| is_used)
}

/// Whether a network may run on several cells of each photo.
pub(crate) fn has_cells(config: &AlbumConfig, max_cells: u32) -> bool {
    let is_divided = |grid: &Grid| grid.rows.saturating_mul(grid.columns).min(max_cells) > 1;
    [&config.face, &config.text].into_iter().filter_map(grid_of).any(is_divided)
}

/// Returns the long side of the frame at which each cell has the grid's cell size; at most the photo's own.
pub(crate) fn frame_long_side(grid: &Grid, photo: Size, max_cells: u32) -> u32 {
    let scale = CellGrid::bounded(grid, photo, max_cells).cell_scale().min(1.0);
    (f64::from(photo.width.max(photo.height)) * scale).ceil() as u32
}

impl CellGrid {
    /// Bounds a grid for a frame: no cell is smaller than [`MIN_CELL_SIDE`], where the frame is not, and there are at most
    /// `max_cells`. Of the grids that remain, returns the one that shows the most detail, and of those with the same detail
    /// the finest.
    pub(crate) fn bounded(grid: &Grid, frame: Size, max_cells: u32) -> Self {
        let side = |pixels: u32| pixels.clamp(MIN_CELL_SIDE, MAX_CELL_SIDE);
        let cell = Size { width: side(grid.cell_width), height: side(grid.cell_height) };
        let with = |rows: u32, columns: u32| Self { frame, rows, columns, cell };
        let max_columns = largest_count(frame.width, grid.columns);
        let best_columns = |rows: u32| max_columns.min(max_cells.max(1) / rows);
        let candidates = (1..=largest_count(frame.height, grid.rows).min(max_cells.max(1)))
            .flat_map(|rows| (1..=best_columns(rows)).map(move |columns| with(rows, columns)));
        candidates
            .max_by(|a, b| {
                a.cell_scale()
                    .total_cmp(&b.cell_scale())
                    .then((a.rows * a.columns).cmp(&(b.rows * b.columns)))
            })
            .unwrap_or(with(1, 1))
    }

    /// The number of cells; 0 where the only cell would show a network what it sees in the whole frame.
    pub(crate) fn cell_count(&self) -> usize {
        let is_whole_frame = self.rows * self.columns == 1;
        if is_whole_frame && self.cell_picture_size(self.frame).long_side() <= MIN_CELL_SIDE {
            return 0;
        }
        (self.rows * self.columns) as usize
    }

    /// Cuts one cell, counted row by row, and shrinks it if it is larger than the grid's cell size. Cells are cut one at a
    /// time: together they are as large as the photo.
    pub(crate) fn cut(&self, frame: Frame<'_>, index: usize, resizer: &mut Resizer) -> Option<Cell> {
        let index = u32::try_from(index).ok()?;
        let (row, column) = (index / self.columns, index % self.columns);
        if row >= self.rows {
            return None;
        }
        let (top, height) = cell_span(frame.height(), self.rows, row);
        let (left, width) = cell_span(frame.width(), self.columns, column);
        let window = frame.window(left, top, Size { width, height })?;
        Some(Cell {
            picture: self.shrink_to_cell(window, resizer),
            frame_rect: Rect {
                left: left as f32,
                top: top as f32,
                right: (left + width) as f32,
                bottom: (top + height) as f32,
            },
            frame_size: frame.size(),
        })
    }

    /// Pixels of a cell's picture per pixel of the frame; more than 1 where the frame has too few.
    fn cell_scale(&self) -> f64 {
        let across = cell_length(self.frame.width, self.columns);
        let down = cell_length(self.frame.height, self.rows);
        (f64::from(self.cell.width) / across).min(f64::from(self.cell.height) / down)
    }

    fn cell_picture_size(&self, from: Size) -> Size {
        let across = f64::from(self.cell.width) / f64::from(from.width);
        let down = f64::from(self.cell.height) / f64::from(from.height);
        let scale = across.min(down).min(1.0);
        let scaled = |side: u32| ((f64::from(side) * scale).round() as u32).max(1);
        Size { width: scaled(from.width), height: scaled(from.height) }
    }

    fn shrink_to_cell(&self, window: Window<'_>, resizer: &mut Resizer) -> Picture {
        shrink(window, self.cell_picture_size(window.size()), resizer)
    }
}

fn shrink(window: Window<'_>, size: Size, resizer: &mut Resizer) -> Picture {
    let mut pixels = Vec::new();
    resizer.resize(window, ResizeTarget::for_network_input(window.size(), size), &mut pixels);
    Picture::new(pixels, size.width, size.height).expect("resize writes width * height * 3 bytes")
}

/// Returns into how many cells a side of `length` pixels can be divided, `count` at most.
fn largest_count(length: u32, count: u32) -> u32 {
    let min = MIN_CELL_SIDE.min(length);
    (1..=count.max(1)).rev().find(|count| cell_pixels(length, *count) >= min).unwrap_or(1)
}

/// Returns the length of each of `count` overlapping cells that cover a side of `length` pixels.
fn cell_length(length: u32, count: u32) -> f64 {
    let count = f64::from(count.max(1));
    f64::from(length) / (count - (count - 1.0) * OVERLAP)
}

/// The same in whole pixels.
fn cell_pixels(length: u32, count: u32) -> u32 {
    (cell_length(length, count).ceil() as u32).clamp(1, length.max(1))
}

/// Returns start and length of a cell along a side, pixels.
fn cell_span(length: u32, count: u32, index: u32) -> (u32, u32) {
    let long = cell_pixels(length, count);
    let last = length.saturating_sub(long);
    // The last cell ends exactly where the side ends, despite rounding.
    if index + 1 >= count {
        return (last, long);
    }
    let begin = (f64::from(index) * cell_length(length, count) * (1.0 - OVERLAP)) as u32;
    (begin.min(last), long)
}

impl Cell {
    /// Cuts a part, in whole pixels of the frame, and multiplies its sides by `scale`, at most 1. `None` where the frame does
    /// not contain it.
    pub(crate) fn cut_out(frame: Frame<'_>, part: Rect, scale: f32, resizer: &mut Resizer) -> Option<Self> {
        let size = Size { width: part.width() as u32, height: part.height() as u32 };
        let window = frame.window(part.left as u32, part.top as u32, size)?;
        let scaled = |side: u32| ((side as f32 * scale).round() as u32).clamp(1, side);
        let target = Size { width: scaled(size.width), height: scaled(size.height) };
        let picture = shrink(window, target, resizer);
        Some(Self { picture, frame_rect: part, frame_size: frame.size() })
    }

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

    /// All cells of a frame, for tests.
    fn cut_all(frame: Frame<'_>, grid: &CellGrid) -> Vec<Cell> {
        let mut resizer = Resizer::default();
        let count = grid.cell_count();
        assert!(grid.cut(frame, count.max(1), &mut resizer).is_none());
        (0..count).map(|i| grid.cut(frame, i, &mut resizer).unwrap()).collect()
    }

    #[test]
    fn a_rect_cut_by_an_inner_edge_is_not_whole() {
        let picture = flat_picture(1400, 300);
        let grid = Grid { rows: 1, columns: 2, cell_width: 4000, cell_height: 4000 };
        let cells = cut_all(picture.frame(), &CellGrid::bounded(&grid, picture.size(), 16));
        assert_eq!(cells.len(), 2);
        let right = cells[0].picture.width() as f32;
        assert!(cells[0].contains_whole(&rect(0., 0., 20., 20.)), "the photo's own edge");
        assert!(!cells[0].contains_whole(&rect(right - 20., 10., right, 30.)));
        assert!(!cells[1].contains_whole(&rect(0., 10., 20., 30.)));
    }

    fn bounded(cells: (u32, u32), cell: u32, frame: (u32, u32), max_cells: u32) -> (u32, u32) {
        let grid = Grid { rows: cells.0, columns: cells.1, cell_width: cell, cell_height: cell };
        let bounded = CellGrid::bounded(&grid, Size { width: frame.0, height: frame.1 }, max_cells);
        (bounded.rows, bounded.columns)
    }

    /// One photo of such an album took 96 s: issue 9.
    #[test]
    fn a_grid_of_256_cells_is_merged_to_what_it_gains() {
        let photo = (4592, 3056);
        assert_eq!(bounded((16, 16), 640, photo, 256), (5, 8), "661 x 695 pixels each");
        assert_eq!(bounded((16, 16), 64, photo, 256), (5, 8));
        assert_eq!(bounded((16, 16), 640, photo, 16), (3, 5));
        assert_eq!(bounded((16, 16), 640, (2048, 1365), 16), (2, 3));
        assert_eq!(bounded((16, 16), 640, (1200, 800), 16), (1, 2));
        assert_eq!(bounded((16, 16), 640, (1100, 800), 16), (1, 1));
        assert_eq!(bounded((16, 16), 640, photo, 1), (1, 1));
        assert_eq!(bounded((16, 16), 640, photo, 0), (1, 1));
    }

    #[test]
    fn a_grid_within_the_bounds_is_taken_as_it_is() {
        assert_eq!(bounded((2, 3), 2000, (4000, 2600), 16), (2, 3));
        assert_eq!(bounded((3, 1), 640, (2048, 2048), 16), (3, 1));
        assert_eq!(bounded((1, 1), 640, (4000, 2600), 16), (1, 1));
    }

    #[test]
    fn a_cell_that_shows_what_the_whole_frame_shows_is_left_out() {
        let grid = |cell: u32| Grid { rows: 16, columns: 16, cell_width: cell, cell_height: cell };
        let small = Size { width: 1000, height: 700 };
        assert_eq!(CellGrid::bounded(&grid(640), small, 16).cell_count(), 0);
        assert_eq!(
            CellGrid::bounded(&grid(1000), small, 16).cell_count(),
            1,
            "more pixels than the first pass"
        );
    }

    #[test]
    fn only_albums_that_use_a_grid_have_cells() {
        let mut config = crate::testing::album_config();
        assert!(!has_cells(&config, 16));
        config.text.grid = Some(Grid { rows: 4, columns: 4, cell_width: 640, cell_height: 640 });
        assert!(!has_cells(&config, 16), "mode photo");
        config.text.mode = RecognitionMode::Grid;
        assert!(has_cells(&config, 16));
        assert!(!has_cells(&config, 1));
        config.text.enabled = false;
        assert!(!has_cells(&config, 16));
    }

    /// A cell in pixels of the frame.
    fn cell_size(grid: &CellGrid) -> Size {
        Size {
            width: cell_pixels(grid.frame.width, grid.columns),
            height: cell_pixels(grid.frame.height, grid.rows),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn cells_cover_the_frame_and_points_map_back(
            width in 64_u32..2200,
            height in 64_u32..1600,
            (rows, columns) in (1_u32..6, 1_u32..6),
            cell in 64_u32..800,
        ) {
            let picture = flat_picture(width, height);
            let grid = Grid { rows, columns, cell_width: cell, cell_height: cell };
            let bounded = CellGrid::bounded(&grid, picture.size(), 16);
            let cells = cut_all(picture.frame(), &bounded);
            prop_assume!(!cells.is_empty());
            for y in (0..height).step_by(13) {
                for x in (0..width).step_by(13) {
                    let pixel = rect(x as f32, y as f32, x as f32 + 1.0, y as f32 + 1.0);
                    prop_assert!(cells.iter().any(|cell| cell.frame_rect.intersection_area(&pixel) > 0.99));
                }
            }
            for cell in &cells {
                let (max_width, max_height) = (bounded.cell.width, bounded.cell.height);
                prop_assert!(cell.picture.width() <= max_width && cell.picture.height() <= max_height);
                prop_assert!(cell.frame_rect.right <= width as f32 && cell.frame_rect.bottom <= height as f32);
                let point = Point { x: cell.frame_rect.left + 3.0, y: cell.frame_rect.bottom - 5.0 };
                let back = cell.to_frame(cell.to_cell(point));
                prop_assert!((back.x - point.x).abs() < 0.01 && (back.y - point.y).abs() < 0.01);
            }
        }

        #[test]
        fn cells_are_never_smaller_than_the_input_of_the_networks_nor_more_than_the_limit(
            width in 1_u32..12_000,
            height in 1_u32..12_000,
            (rows, columns) in (1_u32..=16, 1_u32..=16),
            (cell_width, cell_height) in (64_u32..=8192, 64_u32..=8192),
            max_cells in 1_u32..=256,
        ) {
            let grid = Grid { rows, columns, cell_width, cell_height };
            let photo = Size { width, height };
            let frame = photo.fit_within(frame_long_side(&grid, photo, max_cells));
            for size in [photo, frame] {
                let bounded = CellGrid::bounded(&grid, size, max_cells);
                prop_assert!(bounded.rows <= rows && bounded.columns <= columns, "the album's grid is a bound");
                prop_assert!(bounded.rows * bounded.columns <= max_cells, "{bounded:?}");
                prop_assert!(bounded.cell_count() <= max_cells as usize);
                prop_assert!(bounded.cell_picture_size(cell_size(&bounded)).long_side() <= MAX_CELL_SIDE);
                let cell = cell_size(&bounded);
                prop_assert!(cell.width >= MIN_CELL_SIDE.min(size.width), "{cell:?} of {size:?}");
                prop_assert!(cell.height >= MIN_CELL_SIDE.min(size.height), "{cell:?} of {size:?}");
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
            let frame = photo.fit_within(frame_long_side(&grid, photo, 16));
            let bounded = CellGrid::bounded(&grid, photo, 16);
            let across = cell_length(frame.width, bounded.columns);
            let down = cell_length(frame.height, bounded.rows);
            prop_assert!(across <= 642.0 && down <= 642.0, "a cell larger than the network's input: {across} x {down}");
            prop_assert!(frame == photo || across > 637.0 || down > 637.0, "a frame with too few pixels: {across} x {down}");
        }
    }
}
