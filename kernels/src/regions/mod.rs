//! Text boxes from the probability map of a DBNet detector: binarise, dilate, trace contours, fit the minimum-area
//! rectangle of each, score it on the map, and unclip it, as the network was trained on shrunk boxes.
//!
//! The algorithm and its parameters are those of "Real-time Scene Text Detection with Differentiable Binarization"
//! (Liao et al., 2020, <https://arxiv.org/abs/1911.08947>) in PaddleOCR's `DBPostProcess`.

mod bitmap;
mod box_score;
mod contours;
mod probability_map;
mod rotated_rect;

pub(crate) use self::bitmap::Bitmap;
pub use self::probability_map::ProbabilityMap;
use crate::geometry::Quad;
use crate::image::frame::Size;
use crate::regions::box_score::{Span, box_score, list_spans};
use crate::regions::contours::Contours;
use crate::regions::rotated_rect::{RotatedRect, convex_hull};

/// Parameters of the post-processing. Lengths are pixels of the map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DbParameters {
    /// Pixels with a probability above this are text.
    pub bin_thresh: f32,
    /// Minimum shorter side of a contour's rectangle.
    pub min_side: f32,
    /// Minimum mean probability inside the rectangle.
    pub box_thresh: f32,
    /// Each side moves outwards by this times area over perimeter.
    pub unclip_ratio: f32,
    /// Minimum shorter side after unclipping.
    pub min_unclipped_side: f32,
}

/// A box with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectedBox {
    /// In pixels of the map, expanded by `unclip_ratio`: may reach outside the map.
    pub quad: Quad,
    /// Mean probability inside before unclipping, 0 to 1.
    pub score: f32,
}

/// Finds boxes; owns the buffers.
#[derive(Default)]
pub struct DbPostprocess {
    contours: Contours,
}

impl DbPostprocess {
    /// Finds the boxes of a map. The contours are those of the regions above `bin_thresh` after a dilation by one pixel
    /// to the right and down: outer contours (8-connected) and those of holes. The order is unspecified but
    /// deterministic.
    pub fn find_boxes(&mut self, map: ProbabilityMap<'_>, parameters: &DbParameters) -> Vec<DetectedBox> {
        self.contours.trace(map, parameters.bin_thresh);
        let candidates = self.list_candidates(parameters);
        let accept = |candidate: Candidate| {
            candidate.accept(box_score(map, &candidate.rectangle.corners()), parameters)
        };
        candidates.into_iter().filter_map(accept).collect()
    }

    /// Finds what may be boxes in a binary map, which is thresholded and dilated.
    pub(crate) fn find_candidates(&mut self, bitmap: &Bitmap, parameters: &DbParameters) -> Vec<Candidate> {
        self.contours.trace_bitmap(bitmap);
        self.list_candidates(parameters)
    }

    fn list_candidates(&self, parameters: &DbParameters) -> Vec<Candidate> {
        let mut found = Vec::new();
        for contour in self.contours.iter() {
            let rectangle = RotatedRect::min_area_around(&convex_hull(contour));
            if rectangle.shorter_side() < parameters.min_side {
                continue;
            }
            let distance = parameters.unclip_ratio * rectangle.area() / rectangle.perimeter();
            if rectangle.shorter_side() + 2.0 * distance >= parameters.min_unclipped_side {
                found.push(Candidate { rectangle, distance });
            }
        }
        found
    }
}

/// A rectangle around a contour, large enough for a box.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    rectangle: RotatedRect,
    /// By how much each side moves outwards.
    distance: f32,
}

impl Candidate {
    /// The pixels whose mean is the score.
    pub(crate) fn spans(&self, size: Size) -> Vec<Span> {
        list_spans(size, &self.rectangle.corners())
    }

    /// Returns the box, if the score is enough.
    pub(crate) fn accept(self, score: f32, parameters: &DbParameters) -> Option<DetectedBox> {
        let quad = || to_reading_order(self.rectangle.unclipped(self.distance));
        (score >= parameters.box_thresh).then(|| DetectedBox { quad: quad(), score })
    }
}

/// Orders the corners top-left, top-right, bottom-right, bottom-left: the two leftmost corners are the left side.
fn to_reading_order(rectangle: RotatedRect) -> Quad {
    let mut corners = rectangle.corners();
    corners.sort_by(|a, b| a.x.total_cmp(&b.x));
    let [a, b, c, d] = corners;
    let (top_left, bottom_left) = if b.y < a.y { (b, a) } else { (a, b) };
    let (top_right, bottom_right) = if d.y < c.y { (d, c) } else { (c, d) };
    Quad([top_left, top_right, bottom_right, bottom_left])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: DbParameters = DbParameters {
        bin_thresh: 0.3,
        min_side: 3.0,
        box_thresh: 0.5,
        unclip_ratio: 1.6,
        min_unclipped_side: 5.0,
    };

    fn map_of(size: Size, inside: impl Fn(f32, f32) -> bool) -> Vec<f32> {
        let pixel = |i: u32| ((i % size.width) as f32, (i / size.width) as f32);
        (0..size.area() as u32).map(pixel).map(|(x, y)| if inside(x, y) { 0.9 } else { 0.01 }).collect()
    }

    fn find(values: &[f32], size: Size) -> Vec<DetectedBox> {
        DbPostprocess::default().find_boxes(ProbabilityMap::new(values, size).unwrap(), &PARAMETERS)
    }

    #[test]
    fn an_upright_block_is_found_and_unclipped() {
        let size = Size { width: 100, height: 60 };
        // 40 x 12 pixels from (20, 30); dilation adds one to the right and down; sides are measured between pixel centres.
        let values = map_of(size, |x, y| (20.0..60.0).contains(&x) && (30.0..42.0).contains(&y));
        let found = find(&values, size);
        assert_eq!(found.len(), 1);
        let distance = 40.0 * 12.0 * 1.6 / (2.0 * 52.0);
        let expected = [(20.0, 30.0), (60.0, 30.0), (60.0, 42.0), (20.0, 42.0)];
        for (corner, (x, y)) in found[0].quad.0.iter().zip(expected) {
            let (outward_x, outward_y) =
                (if x == 20.0 { -distance } else { distance }, if y == 30.0 { -distance } else { distance });
            assert!(
                (corner.x - x - outward_x).abs() < 1e-3 && (corner.y - y - outward_y).abs() < 1e-3,
                "{corner:?}"
            );
        }
        // 41 x 13 pixels, of which 40 x 12 have probability .9.
        let mean = (0.9 * 480.0 + 0.01 * 53.0) / 533.0;
        assert!((found[0].score - mean).abs() < 1e-4, "{}, expected {mean}", found[0].score);
    }

    #[test]
    fn a_rotated_block_gets_a_rotated_box() {
        let size = Size { width: 200, height: 200 };
        let (sin, cos) = 20_f32.to_radians().sin_cos();
        let along =
            |x: f32, y: f32| ((x - 100.0) * cos + (y - 100.0) * sin, (y - 100.0) * cos - (x - 100.0) * sin);
        let values = map_of(size, |x, y| {
            let (u, v) = along(x, y);
            u.abs() < 60.0 && v.abs() < 12.0
        });
        let found = find(&values, size);
        assert_eq!(found.len(), 1);
        let [tl, tr, ..] = found[0].quad.0;
        let angle = (tr.y - tl.y).atan2(tr.x - tl.x).to_degrees();
        assert!((angle - 20.0).abs() < 1.5, "{angle} degrees");
        let (width, height) = found[0].quad.size();
        let grown = 2.0 * 1.6 * 120.0 * 24.0 / 288.0;
        assert!(
            (width - 120.0 - grown).abs() < 3.0 && (height - 24.0 - grown).abs() < 3.0,
            "{width} x {height}"
        );
    }

    #[test]
    fn thin_faint_and_absent_blocks_are_no_boxes() {
        let size = Size { width: 50, height: 50 };
        assert!(find(&map_of(size, |_, y| y == 20.0), size).is_empty());
        let faint: Vec<f32> = map_of(size, |x, y| (10.0..40.0).contains(&x) && (10.0..40.0).contains(&y))
            .into_iter()
            .map(|value| value.min(0.4))
            .collect();
        assert!(find(&faint, size).is_empty());
        assert!(find(&[0.0; 2500], size).is_empty());
    }

    #[test]
    fn a_ring_has_an_outer_contour_and_one_of_its_hole() {
        let size = Size { width: 80, height: 60 };
        let values = map_of(size, |x, y| {
            let (x, y) = ((x - 40.0).abs(), (y - 30.0).abs());
            x < 30.0 && y < 20.0 && !(x < 20.0 && y < 10.0)
        });
        let any_score = DbParameters { box_thresh: 0.0, ..PARAMETERS };
        let found =
            DbPostprocess::default().find_boxes(ProbabilityMap::new(&values, size).unwrap(), &any_score);
        assert_eq!(found.len(), 2);
        let mut widths: Vec<f32> = found.iter().map(|f| f.quad.size().0).collect();
        widths.sort_by(f32::total_cmp);
        assert!(widths[0] < widths[1]);
    }

    #[test]
    fn corners_come_in_reading_order() {
        let points = [(0, 2), (1, 8), (4, 1), (5, 9)];
        let hull = convex_hull(&points);
        let Quad([tl, tr, br, bl]) = to_reading_order(RotatedRect::min_area_around(&hull));
        assert!(tl.x < tr.x && bl.x < br.x && tl.y < bl.y && tr.y < br.y);
    }
}
