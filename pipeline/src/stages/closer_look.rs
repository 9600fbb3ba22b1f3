//! Decides where to look for small faces at full size, by what the detector saw in the whole frame at a smaller one.
//!
//! Where faces are missed because they are small, the detector has seen some of them, or traces: boxes with a score too
//! low for a face. A photo of few large faces has none and is not looked at again; in a crowd the parts with small faces
//! are. Parts take less time and memory than the whole frame at the same scale, also where they cover it: the network's
//! activations stay in the cache.

use photofinish_kernels::geometry::Rect;
use photofinish_kernels::image::frame::Size;
use photofinish_models::traits::Look;

use crate::stages::quality::face_size;
use crate::stages::sizes::WORKING_LONG_SIDE;

/// A face or trace smaller than this, in pixels of the first look, asks for a closer one. In composed crowds
/// whose median labelled face has 7, 9 and 15 of these pixels the first look finds .62, .84 and .98 of those faces. With 20 in
/// place of 12, 3 % more faces of such crowds are good enough for searches, but no more bibs are found (within .005), and
/// detection takes 5 to 25 % longer.
const MAX_HINT_SIZE: f32 = 12.0;

/// Side of the squares into which a frame is divided, and how far a part extends beyond them, in pixels of the working frame.
/// A small face in a square is whole in its part: it has less than 39 of these pixels. The network takes about the same time
/// for a pixel from 160 to 450 pixels a side and more above, so that small squares cost only their margins.
const SQUARE_SIDE: f32 = 160.0;
const MARGIN: f32 = 32.0;

/// Squares that are one part, at most, across and down: larger inputs of the network take more time for the same area.
const MAX_SQUARES: usize = 3;

/// The parts of a frame to look at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CloserLook {
    /// In whole pixels of the frame.
    pub(crate) parts: Vec<Rect>,
    /// Pixels to look at for each pixel of the frame, at most 1.
    pub(crate) scale: f32,
}

impl CloserLook {
    /// Returns the parts of a frame that need a closer look after one at the long side `seen_at`; none when the frame has
    /// no more pixels than that.
    pub(crate) fn plan(first: &Look, frame: Size, seen_at: u32) -> Self {
        let long_side = frame.long_side();
        let scale = (WORKING_LONG_SIDE as f32 / long_side.max(1) as f32).min(1.0);
        if long_side <= seen_at {
            return Self { parts: Vec::new(), scale };
        }
        let seen_scale = seen_at as f32 / long_side as f32;
        let mut squares = Squares::of_frame(frame, SQUARE_SIDE / scale);
        for face in first.faces.iter().chain(&first.traces) {
            if face_size(&face.rect) * seen_scale < MAX_HINT_SIZE {
                squares.mark_middle(&face.rect);
            }
        }
        let margin = (MARGIN / scale).round();
        let within = |position: f32, side: u32| position.clamp(0.0, side as f32);
        let widen = |rect: Rect| Rect {
            left: within(rect.left - margin, frame.width),
            top: within(rect.top - margin, frame.height),
            right: within(rect.right + margin, frame.width),
            bottom: within(rect.bottom + margin, frame.height),
        };
        Self { parts: squares.join_marked().into_iter().map(widen).collect(), scale }
    }
}

/// The squares of a frame, of which some are marked.
struct Squares {
    frame: Size,
    columns: usize,
    rows: usize,
    /// Row by row.
    marked: Vec<bool>,
}

impl Squares {
    fn of_frame(frame: Size, side: f32) -> Self {
        let count = |length: u32| ((length as f32 / side).round() as usize).max(1);
        let (columns, rows) = (count(frame.width), count(frame.height));
        Self { frame, columns, rows, marked: vec![false; columns * rows] }
    }

    /// Marks the square with the middle of a rectangle; that at the edge where the middle is outside the frame.
    fn mark_middle(&mut self, rect: &Rect) {
        let index = |middle: f32, length: u32, count: usize| {
            ((middle / length as f32 * count as f32).max(0.0) as usize).min(count - 1)
        };
        let column = index((rect.left + rect.right) / 2.0, self.frame.width, self.columns);
        let row = index((rect.top + rect.bottom) / 2.0, self.frame.height, self.rows);
        self.marked[row * self.columns + column] = true;
    }

    /// Joins marked squares to rectangles, in whole pixels of the frame: each as wide as possible, then as high. Together
    /// they cover every marked square once and no other.
    fn join_marked(mut self) -> Vec<Rect> {
        let mut joined = Vec::new();
        while let Some(first) = self.marked.iter().position(|is_marked| *is_marked) {
            let (top, left) = (first / self.columns, first % self.columns);
            let is_full = |marked: &[bool], row: usize, right: usize| {
                marked[row * self.columns + left..row * self.columns + right].iter().all(|square| *square)
            };
            let most_right = (left + MAX_SQUARES).min(self.columns);
            let right = (left + 1..=most_right).rev().find(|right| is_full(&self.marked, top, *right));
            let right = right.unwrap_or(left + 1);
            let most_bottom = (top + MAX_SQUARES).min(self.rows);
            let bottom =
                (top + 1..most_bottom).find(|row| !is_full(&self.marked, *row, right)).unwrap_or(most_bottom);
            for row in top..bottom {
                self.marked[row * self.columns + left..row * self.columns + right].fill(false);
            }
            let edge = |square: usize, length: u32, count: usize| {
                (square as f32 * length as f32 / count as f32).floor()
            };
            joined.push(Rect {
                left: edge(left, self.frame.width, self.columns),
                top: edge(top, self.frame.height, self.rows),
                right: edge(right, self.frame.width, self.columns),
                bottom: edge(bottom, self.frame.height, self.rows),
            });
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::Point;
    use photofinish_models::traits::FaceBox;
    use proptest::prelude::*;

    use super::*;

    /// 13 squares across of 157.5 and nine down of 151.7 pixels.
    const FRAME: Size = Size { width: 2048, height: 1365 };

    fn face(left: f32, top: f32, side: f32) -> FaceBox {
        let rect = Rect { left, top, right: left + side, bottom: top + side };
        FaceBox { rect, landmarks: [Point::default(); 5], score: 0.9 }
    }

    fn parts_for(faces: &[FaceBox], traces: &[FaceBox]) -> Vec<[f32; 4]> {
        let look = Look { faces: faces.to_vec(), traces: traces.to_vec() };
        let parts = CloserLook::plan(&look, FRAME, 640).parts;
        parts.iter().map(|rect| [rect.left, rect.top, rect.right, rect.bottom]).collect()
    }

    #[test]
    fn large_faces_and_empty_frames_need_no_closer_look() {
        assert!(parts_for(&[], &[]).is_empty());
        assert!(parts_for(&[face(600.0, 300.0, 120.0)], &[face(1500.0, 300.0, 60.0)]).is_empty());
    }

    #[test]
    fn the_surroundings_of_small_faces_and_of_traces_are_looked_at() {
        assert_eq!(parts_for(&[face(100.0, 100.0, 30.0)], &[]), [[0.0, 0.0, 189.0, 183.0]]);
        assert_eq!(parts_for(&[], &[face(2020.0, 1340.0, 20.0)]), [[1858.0, 1181.0, 2048.0, 1365.0]]);
        let outside = face(-40.0, -40.0, 20.0);
        assert_eq!(parts_for(&[outside], &[]), [[0.0, 0.0, 189.0, 183.0]]);
    }

    #[test]
    fn neighbouring_squares_are_one_part() {
        let row = [face(300.0, 300.0, 20.0), face(400.0, 300.0, 20.0)];
        assert_eq!(parts_for(&row, &[]), [[125.0, 271.0, 504.0, 487.0]]);
        let corner = [row[0], row[1], face(300.0, 500.0, 20.0)];
        assert_eq!(parts_for(&corner, &[]).len(), 2, "no part covers a square without a hint");
    }

    #[test]
    fn a_frame_that_was_seen_in_full_is_not_looked_at_again() {
        let look = Look { faces: vec![face(100.0, 100.0, 8.0)], traces: Vec::new() };
        assert!(CloserLook::plan(&look, Size { width: 640, height: 480 }, 640).parts.is_empty());
        assert_eq!(CloserLook::plan(&look, Size { width: 720, height: 480 }, 640).parts.len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn each_small_face_is_whole_in_a_part_and_the_work_is_bounded(
            (width, height) in (16_u32..12_000, 16_u32..12_000),
            places in prop::collection::vec((0.0_f32..1.0, 0.0_f32..1.0), 1..200),
        ) {
            let frame = Size { width, height };
            let side = 0.9 * MAX_HINT_SIZE * frame.long_side() as f32 / 640.0;
            let faces: Vec<FaceBox> = places
                .iter()
                .map(|(x, y)| face(x * width as f32 - side / 2.0, y * height as f32 - side / 2.0, side))
                .collect();
            let CloserLook { parts, scale } =
                CloserLook::plan(&Look { faces: faces.clone(), traces: Vec::new() }, frame, 640);
            if frame.long_side() <= 640 {
                prop_assert!(parts.is_empty());
                return Ok(());
            }
            let inside = Rect { left: 0.0, top: 0.0, right: width as f32, bottom: height as f32 };
            for face in &faces {
                let visible = face.rect.intersection(&inside);
                prop_assert!(
                    parts.iter().any(|part| part.intersection_area(&visible) >= 0.999 * visible.area()),
                    "{visible:?} is in none of {parts:?}"
                );
            }
            let looked_at: f32 = parts.iter().map(|part| part.area() * scale * scale).sum();
            prop_assert!(looked_at <= 2.5 * 2048.0 * 2048.0, "{looked_at} pixels");
            for part in &parts {
                prop_assert!(part.left >= 0.0 && part.right <= width as f32 && part.width() >= 1.0);
                prop_assert!(part.width() * scale <= 640.0 && part.height() * scale <= 640.0, "{part:?}");
            }
        }
    }
}
