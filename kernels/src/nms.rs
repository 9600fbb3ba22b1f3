//! Keeps the surest of boxes that show the same thing.

use crate::geometry::Rect;

/// Sorts by score, surest first (equal scores in the order given), and drops each box that overlaps a kept one by
/// more than `at_most` (intersection over union).
pub fn non_max_suppression<T>(
    mut found: Vec<T>,
    at_most: f32,
    rect: impl Fn(&T) -> Rect,
    score: impl Fn(&T) -> f32,
) -> Vec<T> {
    found.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let mut kept: Vec<T> = Vec::new();
    for candidate in found {
        let place = rect(&candidate);
        if kept.iter().all(|other| rect(other).iou(&place) <= at_most) {
            kept.push(candidate);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_score_of_overlapping_boxes_is_kept() {
        let at = |left: f32| Rect { left, top: 0.0, right: left + 10.0, bottom: 10.0 };
        let found = vec![(at(0.0), 0.7), (at(1.0), 0.9), (at(20.0), 0.6), (at(24.0), 0.6)];
        let kept = non_max_suppression(found, 0.3, |f| f.0, |f| f.1);
        assert_eq!(kept, [(at(1.0), 0.9), (at(20.0), 0.6)]);
    }
}
