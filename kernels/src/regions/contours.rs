//! The borders of regions in a bitmap, found by runs: of every region (joined by sides or corners) its outer
//! border, of every hole (joined by sides) the pixels of the region around it. Only the points that can be corners
//! of a convex hull are kept.

use super::ProbabilityMap;

/// A stretch of equal pixels in a row.
#[derive(Clone, Copy)]
struct Run {
    start: u32,
    end: u32,
    is_set: bool,
}

/// The outside: holes that reach the edge of the map are no holes. Also the parent of its own in the forest.
const OUTSIDE: u32 = 0;

/// A point of a border, and whose.
type ContourPoint = (u32, (i32, i32));

/// Traces borders; keeps its buffers.
#[derive(Default)]
pub(super) struct Contours {
    row_above: Vec<bool>,
    mask: Vec<bool>,
    runs: Vec<Run>,
    /// Where each row's runs begin; one more than there are rows.
    row_starts: Vec<usize>,
    /// A forest over runs (index + 1) and the outside.
    parents: Vec<u32>,
    contour_points: Vec<ContourPoint>,
    points: Vec<(i32, i32)>,
    contour_ends: Vec<usize>,
}

impl Contours {
    /// Finds the borders of what is above the threshold, dilated by one pixel to the right and down.
    pub(super) fn trace(&mut self, map: ProbabilityMap<'_>, threshold: f32) {
        self.points.clear();
        self.contour_ends.clear();
        if map.values.iter().all(|&value| value <= threshold) {
            return;
        }
        self.find_runs(map, threshold);
        self.join_runs(map.size.width);
        self.collect_points();
        self.contour_points.sort_unstable();
        self.contour_points.dedup();
        for (index, &(owner, point)) in self.contour_points.iter().enumerate() {
            if index > 0 && self.contour_points[index - 1].0 != owner {
                self.contour_ends.push(self.points.len());
            }
            self.points.push(point);
        }
        self.contour_ends.push(self.points.len());
    }

    /// The points of each border, sorted from left to right and then down.
    pub(super) fn iter(&mut self) -> impl Iterator<Item = &[(i32, i32)]> {
        let points = &self.points;
        let mut start = 0;
        self.contour_ends.iter().map(move |&end| {
            let border = &points[start..end];
            start = end;
            border
        })
    }

    fn find_runs(&mut self, map: ProbabilityMap<'_>, threshold: f32) {
        let width = map.size.width as usize;
        self.row_above.clear();
        self.row_above.resize(width, false);
        self.mask.resize(width, false);
        self.runs.clear();
        self.row_starts.clear();
        for y in 0..map.size.height as usize {
            // `above` holds the undilated row above, then becomes this row.
            let mut left = (false, false);
            for ((set, above), &value) in self.mask.iter_mut().zip(&mut self.row_above).zip(map.row(y)) {
                let here = (value > threshold, *above);
                *set = here.0 | here.1 | left.0 | left.1;
                *above = here.0;
                left = here;
            }
            self.row_starts.push(self.runs.len());
            let mut start = 0;
            for end in 1..=width {
                if end == width || self.mask[end] != self.mask[start] {
                    self.runs.push(Run { start: start as u32, end: end as u32, is_set: self.mask[start] });
                    start = end;
                }
            }
        }
        self.row_starts.push(self.runs.len());
    }

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
                // Back to the first run above that can touch this one at a corner.
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
        for row in 0..self.row_starts.len() - 1 {
            for index in self.row_starts[row]..self.row_starts[row + 1] {
                let owner = find_root(&mut self.parents, index as u32 + 1);
                if owner == OUTSIDE {
                    continue;
                }
                let (run, y) = (self.runs[index], row as i32);
                let (start, end) = (run.start as i32, run.end as i32);
                if run.is_set {
                    self.contour_points.extend([(owner, (start, y)), (owner, (end - 1, y))]);
                } else {
                    // A hole's border lies around it; it never reaches the edge, so there are rows above and below.
                    self.contour_points.extend([(owner, (start - 1, y)), (owner, (end, y))]);
                    for near in [row - 1, row + 1] {
                        for other in &self.runs[self.row_starts[near]..self.row_starts[near + 1]] {
                            let (from, to) =
                                (run.start.max(other.start) as i32, run.end.min(other.end) as i32);
                            if other.is_set && from < to {
                                self.contour_points
                                    .extend([(owner, (from, near as i32)), (owner, (to - 1, near as i32))]);
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

/// The smaller root becomes the parent, so the outside stays one.
fn join_sets(parents: &mut [u32], a: u32, b: u32) {
    let (a, b) = (find_root(parents, a), find_root(parents, b));
    let (low, high) = (a.min(b), a.max(b));
    parents[high as usize] = low;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Size;

    /// Borders of a drawing; `#` is set. The dilation makes each `#` two pixels wide and high.
    fn borders(rows: &[&str]) -> Vec<Vec<(i32, i32)>> {
        let values: Vec<f32> = rows.concat().bytes().map(|b| if b == b'#' { 1.0 } else { 0.0 }).collect();
        let size = Size { width: rows[0].len() as u32, height: rows.len() as u32 };
        let mut borders = Contours::default();
        borders.trace(ProbabilityMap::new(&values, size).unwrap(), 0.5);
        borders.iter().map(<[(i32, i32)]>::to_vec).collect()
    }

    #[test]
    fn a_dot_becomes_two_by_two() {
        assert_eq!(borders(&[".....", ".#...", ".....", "....."]), [vec![(1, 1), (1, 2), (2, 1), (2, 2)]]);
    }

    #[test]
    fn corners_join_regions() {
        // Dilated: (0..=1, 0..=1) and (2..=3, 2..=3) touch at a corner; (6.., 0..) is apart.
        let found = borders(&["#.....#.", "........", "..#.....", "........"]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].first(), Some(&(0, 0)));
        assert_eq!(found[0].last(), Some(&(3, 3)));
    }

    #[test]
    fn a_hole_has_its_own_contour_and_the_outside_has_none() {
        let found = borders(&[".......", ".####..", ".#..#..", ".#..#..", ".####..", "......."]);
        // Dilated: outer 1..=5 x 1..=5, hole is the one pixel (3, 3).
        assert_eq!(found.len(), 2);
        let hole = found.iter().min_by_key(|points| points.len()).unwrap();
        assert_eq!(hole, &vec![(2, 3), (3, 2), (3, 4), (4, 3)]);
    }

    #[test]
    fn a_gap_at_the_edge_is_no_hole() {
        assert_eq!(borders(&["####", "#...", "#...", "####"]).len(), 1);
    }
}
