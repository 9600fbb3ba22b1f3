//! The minimum-area rotated rectangle around points, by rotating over the edges of their convex hull (`minAreaRect` of
//! OpenCV).

use crate::geometry::Point;

/// A rotated rectangle. Its sides pass through the outermost points (pixel centres), not around their pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotatedRect {
    centre: (f64, f64),
    /// Unit vector along the first of `sides`.
    direction: (f64, f64),
    sides: (f64, f64),
}

/// Returns the convex hull (Andrew's monotone chain) of points sorted by x and then by y: counter-clockwise with y
/// upwards.
pub(super) fn convex_hull(sorted: &[(i32, i32)]) -> Vec<(i32, i32)> {
    debug_assert!(sorted.is_sorted());
    let mut hull: Vec<(i32, i32)> = Vec::with_capacity(sorted.len() + 1);
    let half = |points: &mut dyn Iterator<Item = (i32, i32)>, hull: &mut Vec<(i32, i32)>| {
        let base = hull.len();
        for point in points {
            while hull.len() >= base + 2
                && cross_product(hull[hull.len() - 2], hull[hull.len() - 1], point) <= 0
            {
                hull.pop();
            }
            hull.push(point);
        }
        // The last point is the first of the other half.
        hull.pop();
    };
    half(&mut sorted.iter().copied(), &mut hull);
    half(&mut sorted.iter().rev().copied(), &mut hull);
    if hull.is_empty() {
        hull.extend(sorted.first());
    }
    hull
}

fn cross_product(a: (i32, i32), b: (i32, i32), c: (i32, i32)) -> i64 {
    let (abx, aby) = (i64::from(b.0 - a.0), i64::from(b.1 - a.1));
    let (acx, acy) = (i64::from(c.0 - a.0), i64::from(c.1 - a.1));
    abx * acy - aby * acx
}

impl RotatedRect {
    /// Returns the rectangle of least area around a convex hull: one of its sides is on a side of the hull. Of equal
    /// areas the first along the hull; of no points an empty one at the origin.
    pub(super) fn min_area_around(hull: &[(i32, i32)]) -> Self {
        let Some(&first) = hull.first() else {
            return Self { centre: (0.0, 0.0), direction: (1.0, 0.0), sides: (0.0, 0.0) };
        };
        let point = |(x, y): (i32, i32)| (f64::from(x), f64::from(y));
        let mut best =
            Self { centre: point(first), direction: (1.0, 0.0), sides: (f64::INFINITY, f64::INFINITY) };
        for (index, &start) in hull.iter().enumerate() {
            let end = hull[(index + 1) % hull.len()];
            let (dx, dy) = (f64::from(end.0 - start.0), f64::from(end.1 - start.1));
            let length = dx.hypot(dy);
            let along = if length > 0.0 { (dx / length, dy / length) } else { (1.0, 0.0) };
            let candidate = Self::with_direction(hull, along);
            if candidate.sides.0 * candidate.sides.1 < best.sides.0 * best.sides.1 {
                best = candidate;
            }
        }
        best
    }

    fn with_direction(hull: &[(i32, i32)], direction: (f64, f64)) -> Self {
        let mut low = (f64::INFINITY, f64::INFINITY);
        let mut high = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for &(x, y) in hull {
            let (x, y) = (f64::from(x), f64::from(y));
            let (u, v) = (x * direction.0 + y * direction.1, y * direction.0 - x * direction.1);
            low = (low.0.min(u), low.1.min(v));
            high = (high.0.max(u), high.1.max(v));
        }
        let middle = ((low.0 + high.0) / 2.0, (low.1 + high.1) / 2.0);
        Self {
            centre: (
                middle.0 * direction.0 - middle.1 * direction.1,
                middle.0 * direction.1 + middle.1 * direction.0,
            ),
            direction,
            sides: (high.0 - low.0, high.1 - low.1),
        }
    }

    pub(super) fn shorter_side(&self) -> f32 {
        self.sides.0.min(self.sides.1) as f32
    }

    pub(super) fn area(&self) -> f32 {
        (self.sides.0 * self.sides.1) as f32
    }

    pub(super) fn perimeter(&self) -> f32 {
        (2.0 * (self.sides.0 + self.sides.1)) as f32
    }

    /// Moves every side outwards by `distance`.
    pub(super) fn unclipped(self, distance: f32) -> Self {
        let more = 2.0 * f64::from(distance);
        Self { sides: (self.sides.0 + more, self.sides.1 + more), ..self }
    }

    /// The corners in order around the rectangle.
    pub(super) fn corners(&self) -> [Point; 4] {
        let (u, v) = (self.sides.0 / 2.0, self.sides.1 / 2.0);
        [(-u, -v), (u, -v), (u, v), (-u, v)].map(|(u, v)| Point {
            x: (self.centre.0 + u * self.direction.0 - v * self.direction.1) as f32,
            y: (self.centre.1 + u * self.direction.1 + v * self.direction.0) as f32,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_square_on_its_corner_is_smaller_than_its_bounds() {
        let mut points = vec![(10, 0), (20, 10), (10, 20), (0, 10), (10, 10)];
        points.sort_unstable();
        let rectangle = RotatedRect::min_area_around(&convex_hull(&points));
        assert!((rectangle.area() - 200.0).abs() < 1e-3, "{}", rectangle.area());
    }

    #[test]
    fn points_on_a_line_have_no_area() {
        let points: Vec<_> = (0..10).map(|i| (i, 2 * i)).collect();
        assert_eq!(convex_hull(&points), [(0, 0), (9, 18)]);
        assert!(RotatedRect::min_area_around(&convex_hull(&points)).shorter_side() < 1e-3);
        assert_eq!(convex_hull(&[(3, 4)]), [(3, 4)]);
    }

    proptest! {
        #[test]
        fn the_rectangle_contains_all_points_and_no_direction_is_smaller(
            mut points in prop::collection::vec((0_i32..200, 0_i32..200), 3..60),
        ) {
            points.sort_unstable();
            points.dedup();
            let hull = convex_hull(&points);
            let best = RotatedRect::min_area_around(&hull);
            let all = RotatedRect::with_direction(&points, best.direction);
            prop_assert!(f64::from(all.area()) <= f64::from(best.area()) + 1e-2);
            for degrees in 0..90 {
                let (sin, cos) = f64::from(degrees).to_radians().sin_cos();
                let other = RotatedRect::with_direction(&hull, (cos, sin));
                prop_assert!(f64::from(best.area()) <= f64::from(other.area()) + 1e-2);
            }
        }
    }
}
