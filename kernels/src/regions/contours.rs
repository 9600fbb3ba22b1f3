//! Contours of the regions in a bitmap, by run-length encoding and union-find over the runs: of every 8-connected
//! region its outer contour, of every 4-connected hole the region's pixels around it. Keeps only the points that can be
//! corners of a convex hull.

use crate::regions::bitmap::Bitmap;
use crate::regions::probability_map::ProbabilityMap;

/// A run of equal pixels in a row; `end` is exclusive.
#[derive(Clone, Copy)]
struct Run {
    start: u32,
    end: u32,
    is_set: bool,
}

/// Node of the background outside all regions: unset runs that touch the edge of the map belong to it and have no
/// contour.
const OUTSIDE: u32 = 0;

/// A point of a contour. Sorts by contour, then from left to right, then down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ContourPoint {
    /// Root node of the contour's region or hole.
    owner: u32,
    x: i32,
    y: i32,
}

/// Traces contours; owns the buffers.
#[derive(Default)]
pub(super) struct Contours {
    row_above: Vec<bool>,
    mask: Vec<bool>,
    runs: Vec<Run>,
    /// Index of each row's first run, and one past the last run.
    row_starts: Vec<usize>,
    /// Union-find forest over [`OUTSIDE`] and the runs (node = index + 1).
    parents: Vec<u32>,
    contour_points: Vec<ContourPoint>,
    /// The points of all contours, one contour after another.
    points: Vec<(i32, i32)>,
    /// Where each contour ends in `points`.
    contour_ends: Vec<usize>,
}

/// Whether a value is above the threshold. Without an early exit, so that it is compiled to vector instructions.
fn has_above(values: &[f32], threshold: f32) -> bool {
    values.iter().fold(false, |any, &value| any | (value > threshold))
}

impl Contours {
    /// Finds the contours of the pixels above the threshold, dilated by one pixel to the right and down.
    pub(super) fn trace(&mut self, map: ProbabilityMap<'_>, threshold: f32) {
        self.points.clear();
        self.contour_ends.clear();
        if self.find_runs(map, threshold) {
            self.collect_contours(map.size.width);
        }
    }

    /// Finds the contours of a map that is thresholded and dilated.
    pub(super) fn trace_bitmap(&mut self, bitmap: &Bitmap) {
        self.points.clear();
        self.contour_ends.clear();
        if bitmap.is_empty() {
            return;
        }
        self.mask.resize(bitmap.size.width as usize, false);
        self.runs.clear();
        self.row_starts.clear();
        for y in 0..bitmap.size.height as usize {
            bitmap.read_row(y, &mut self.mask);
            self.add_row_of_runs();
        }
        self.row_starts.push(self.runs.len());
        self.collect_contours(bitmap.size.width);
    }

    fn collect_contours(&mut self, width: u32) {
        self.join_runs(width);
        self.collect_points();
        self.contour_points.sort_unstable();
        self.contour_points.dedup();
        for (index, &ContourPoint { owner, x, y }) in self.contour_points.iter().enumerate() {
            if index > 0 && self.contour_points[index - 1].owner != owner {
                self.contour_ends.push(self.points.len());
            }
            self.points.push((x, y));
        }
        self.contour_ends.push(self.points.len());
    }

    /// The points of each contour, sorted from left to right and then down.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[(i32, i32)]> {
        let points = &self.points;
        let mut start = 0;
        self.contour_ends.iter().map(move |&end| {
            let contour = &points[start..end];
            start = end;
            contour
        })
    }

    /// Thresholds and dilates the map row by row and splits the rows into runs. Returns whether any value is above the threshold.
    fn find_runs(&mut self, map: ProbabilityMap<'_>, threshold: f32) -> bool {
        let width = map.size.width as usize;
        self.row_above.clear();
        self.row_above.resize(width, false);
        self.mask.resize(width, false);
        self.runs.clear();
        self.row_starts.clear();
        let (mut has_any, mut was_empty) = (false, true);
        for y in 0..map.size.height as usize {
            let is_empty = !has_above(map.row(y), threshold);
            if is_empty && was_empty {
                // As most are: below an empty row it is one run after the dilation too, and `row_above` has no set pixel.
                self.add_empty_row(map.size.width);
                continue;
            }
            (has_any, was_empty) = (true, is_empty);
            // `row_above` is the undilated row above; each pixel is replaced by this row's once it was read.
            let mut left = (false, false);
            for ((set, above), &value) in self.mask.iter_mut().zip(&mut self.row_above).zip(map.row(y)) {
                let here = (value > threshold, *above);
                *set = here.0 | here.1 | left.0 | left.1;
                *above = here.0;
                left = here;
            }
            self.add_row_of_runs();
        }
        self.row_starts.push(self.runs.len());
        has_any
    }

    fn add_empty_row(&mut self, width: u32) {
        self.row_starts.push(self.runs.len());
        self.runs.push(Run { start: 0, end: width, is_set: false });
    }

    /// Splits the row in `mask` into runs.
    fn add_row_of_runs(&mut self) {
        self.row_starts.push(self.runs.len());
        let mut start = 0;
        for end in 1..=self.mask.len() {
            if end == self.mask.len() || self.mask[end] != self.mask[start] {
                self.runs.push(Run { start: start as u32, end: end as u32, is_set: self.mask[start] });
                start = end;
            }
        }
    }

    /// Joins touching runs of neighbouring rows: set ones 8-connected, unset ones 4-connected.
    fn join_runs(&mut self, width: u32) {
        self.parents.clear();
        self.parents.extend(0..=self.runs.len() as u32);
        let last_row = self.row_starts.len() - 2;
        for row in 0..=last_row {
            for index in self.row_starts[row]..self.row_starts[row + 1] {
                let run = self.runs[index];
                let at_edge = row == 0 || row == last_row || run.start == 0 || run.end == width;
                if !run.is_set && at_edge {
                    join_sets(&mut self.parents, OUTSIDE, index as u32 + 1);
                }
            }
            if row == 0 {
                continue;
            }
            let mut upper = self.row_starts[row - 1];
            for lower in self.row_starts[row]..self.row_starts[row + 1] {
                let run = self.runs[lower];
                // Go back to the first run of the row above that can touch this one at a corner.
                while upper > self.row_starts[row - 1] && self.runs[upper - 1].end >= run.start {
                    upper -= 1;
                }
                while upper < self.row_starts[row] && self.runs[upper].start <= run.end {
                    let other = self.runs[upper];
                    let by_side = other.start < run.end && run.start < other.end;
                    let by_corner = other.start <= run.end && run.start <= other.end;
                    if other.is_set == run.is_set && (by_side || (run.is_set && by_corner)) {
                        join_sets(&mut self.parents, upper as u32 + 1, lower as u32 + 1);
                    }
                    upper += 1;
                }
            }
        }
    }

    fn collect_points(&mut self) {
        self.contour_points.clear();
        let point = |owner, x, y| ContourPoint { owner, x, y };
        for row in 0..self.row_starts.len() - 1 {
            for index in self.row_starts[row]..self.row_starts[row + 1] {
                let owner = find_root(&mut self.parents, index as u32 + 1);
                if owner == OUTSIDE {
                    continue;
                }
                let (run, y) = (self.runs[index], row as i32);
                let (start, end) = (run.start as i32, run.end as i32);
                if run.is_set {
                    self.contour_points.extend([point(owner, start, y), point(owner, end - 1, y)]);
                } else {
                    // A hole's contour is around it. It never reaches the edge, so there are rows above and below.
                    self.contour_points.extend([point(owner, start - 1, y), point(owner, end, y)]);
                    for next_row in [row - 1, row + 1] {
                        let y = next_row as i32;
                        for other in &self.runs[self.row_starts[next_row]..self.row_starts[next_row + 1]] {
                            let from = run.start.max(other.start) as i32;
                            let to = run.end.min(other.end) as i32;
                            if other.is_set && from < to {
                                self.contour_points.extend([point(owner, from, y), point(owner, to - 1, y)]);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn find_root(parents: &mut [u32], mut node: u32) -> u32 {
    while parents[node as usize] != node {
        let grandparent = parents[parents[node as usize] as usize];
        parents[node as usize] = grandparent;
        node = grandparent;
    }
    node
}

/// The smaller root becomes the parent, so that `OUTSIDE` stays a root.
fn join_sets(parents: &mut [u32], a: u32, b: u32) {
    let (a, b) = (find_root(parents, a), find_root(parents, b));
    let (low, high) = (a.min(b), a.max(b));
    parents[high as usize] = low;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::frame::Size;

    /// The contours of a drawing; `#` is set. The dilation makes each `#` two pixels wide and high.
    fn contours(rows: &[&str]) -> Vec<Vec<(i32, i32)>> {
        let values: Vec<f32> = rows.concat().bytes().map(|b| if b == b'#' { 1.0 } else { 0.0 }).collect();
        let size = Size { width: rows[0].len() as u32, height: rows.len() as u32 };
        let mut contours = Contours::default();
        contours.trace(ProbabilityMap::new(&values, size).unwrap(), 0.5);
        contours.iter().map(<[(i32, i32)]>::to_vec).collect()
    }

    #[test]
    fn a_dot_becomes_two_by_two() {
        assert_eq!(contours(&[".....", ".#...", ".....", "....."]), [vec![(1, 1), (1, 2), (2, 1), (2, 2)]]);
    }

    #[test]
    fn regions_below_empty_rows_are_where_they_are() {
        let dot = |x, y| vec![(x, y), (x, y + 1), (x + 1, y), (x + 1, y + 1)];
        let found =
            contours(&["......", ".#....", "......", "......", "......", "......", "...#..", "......"]);
        assert_eq!(found, [dot(1, 1), dot(3, 6)]);
        assert!(contours(&["...", "...", "..."]).is_empty());
    }

    #[test]
    fn corners_join_regions() {
        // Dilated: (0..=1, 0..=1) and (2..=3, 2..=3) touch at a corner; (6.., 0..) is apart.
        let found = contours(&["#.....#.", "........", "..#.....", "........"]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].first(), Some(&(0, 0)));
        assert_eq!(found[0].last(), Some(&(3, 3)));
    }

    #[test]
    fn a_hole_has_its_own_contour_and_the_outside_has_none() {
        let found = contours(&[".......", ".####..", ".#..#..", ".#..#..", ".####..", "......."]);
        // Dilated: outer 1..=5 x 1..=5, hole is the one pixel (3, 3).
        assert_eq!(found.len(), 2);
        let hole = found.iter().min_by_key(|points| points.len()).unwrap();
        assert_eq!(hole, &vec![(2, 3), (3, 2), (3, 4), (4, 3)]);
    }

    #[test]
    fn a_gap_at_the_edge_is_no_hole() {
        assert_eq!(contours(&["####", "#...", "#...", "####"]).len(), 1);
    }
}
