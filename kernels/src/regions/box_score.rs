//! The score of a box: the mean probability of the pixels inside and on its outline (`box_score_fast` of DBNet).

use std::ops::Range;

use crate::geometry::Point;
use crate::image::frame::Size;
use crate::regions::probability_map::ProbabilityMap;

/// Returns the mean probability of the pixels inside or on the outline of a convex quadrilateral, whose corners are
/// truncated to whole pixels first; 0 when no pixel of it is on the map.
pub(super) fn box_score(map: ProbabilityMap<'_>, corners: &[Point; 4]) -> f32 {
    let (mut sum, mut count) = (0.0_f64, 0_usize);
    for Span { row, columns } in list_spans(map.size, corners) {
        let row = &map.row(row)[columns];
        sum += row.iter().map(|&value| f64::from(value)).sum::<f64>();
        count += row.len();
    }
    if count == 0 { 0.0 } else { (sum / count as f64) as f32 }
}

/// Pixels of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) row: usize,
    pub(crate) columns: Range<usize>,
}

/// Lists the pixels of a map that a box's score is of, row by row.
pub(super) fn list_spans(size: Size, corners: &[Point; 4]) -> Vec<Span> {
    // The tolerance keeps a corner that is a rounding error below a whole number.
    let truncate = |value: f32| {
        if value < 0.0 { value.trunc() as i32 } else { (value + 1e-3) as i32 }
    };
    let corners = corners.map(|corner| (truncate(corner.x), truncate(corner.y)));
    let top = corners.iter().map(|c| c.1).min().unwrap_or(0).max(0);
    let bottom = corners.iter().map(|c| c.1).max().unwrap_or(0).min(size.height as i32 - 1);
    let span = |y: i32| {
        let (left, right) = row_span(&corners, y)?;
        let (left, right) = (left.max(0), right.min(size.width as i32 - 1));
        (left <= right).then(|| Span { row: y as usize, columns: left as usize..right as usize + 1 })
    };
    (top..=bottom).filter_map(span).collect()
}

/// The leftmost and rightmost pixel of the outline in row `y`; `None` when the outline does not cross the row.
fn row_span(corners: &[(i32, i32); 4], y: i32) -> Option<(i32, i32)> {
    let mut span: Option<(i32, i32)> = None;
    for (index, &start) in corners.iter().enumerate() {
        let end = corners[(index + 1) % 4];
        let (upper, lower) = if start.1 <= end.1 { (start, end) } else { (end, start) };
        if y < upper.1 || y > lower.1 {
            continue;
        }
        let (low, high) = line_span(upper, lower, y);
        span = Some(span.map_or((low, high), |(left, right)| (left.min(low), right.max(high))));
    }
    span
}

/// The first and last pixel that an 8-connected line one pixel wide has in row `y`, which it crosses.
fn line_span(upper: (i32, i32), lower: (i32, i32), y: i32) -> (i32, i32) {
    let (dx, dy) = (f64::from(lower.0 - upper.0), f64::from(lower.1 - upper.1));
    if dy == 0.0 {
        return (upper.0.min(lower.0), upper.0.max(lower.0));
    }
    let slope = dx / dy;
    let x_in_row = |row: f64| f64::from(upper.0) + (row - f64::from(upper.1)) * slope;
    if slope.abs() <= 1.0 {
        let x = x_in_row(f64::from(y)).round() as i32;
        return (x, x);
    }
    // A flat line stays in the row while it is nearer to it than to the next.
    let (a, b) = (x_in_row(f64::from(y) - 0.5), x_in_row(f64::from(y) + 0.5));
    let (low, high) = (a.min(b).ceil() as i32, a.max(b).floor() as i32);
    let (left, right) = (upper.0.min(lower.0), upper.0.max(lower.0));
    (low.clamp(left, right), high.clamp(left, right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::frame::Size;

    fn mean(inside: impl Fn(i32, i32) -> bool, corners: [(f32, f32); 4]) -> f32 {
        let values: Vec<f32> = (0..400).map(|i| if inside(i % 20, i / 20) { 1.0 } else { 0.0 }).collect();
        let map = ProbabilityMap::new(&values, Size { width: 20, height: 20 }).unwrap();
        box_score(map, &corners.map(|(x, y)| Point { x, y }))
    }

    #[test]
    fn the_outline_belongs_to_the_box() {
        let block = |x: i32, y: i32| (5..=9).contains(&x) && (3..=6).contains(&y);
        let corners = [(5.0, 3.0), (9.0, 3.0), (9.0, 6.0), (5.0, 6.0)];
        assert_eq!(mean(block, corners), 1.0);
        let larger = [(4.0, 3.0), (9.0, 3.0), (9.0, 6.0), (4.0, 6.0)];
        assert!((mean(block, larger) - 20.0 / 24.0).abs() < 1e-6);
    }

    #[test]
    fn a_diamond_covers_exactly_its_pixels() {
        let diamond = |x: i32, y: i32| (x - 10).abs() + (y - 10).abs() <= 6;
        let corners = [(10.0, 4.0), (16.0, 10.0), (10.0, 16.0), (4.0, 10.0)];
        assert_eq!(mean(diamond, corners), 1.0);
        assert_eq!(mean(|x, y| !diamond(x, y), corners), 0.0);
    }

    #[test]
    fn pixels_outside_the_map_do_not_count() {
        assert_eq!(mean(|_, _| true, [(-5.0, -5.0), (30.0, -5.0), (30.0, 30.0), (-5.0, 30.0)]), 1.0);
        assert_eq!(mean(|_, _| true, [(-9.0, 2.0), (-5.0, 2.0), (-5.0, 8.0), (-9.0, 8.0)]), 0.0);
    }
}
