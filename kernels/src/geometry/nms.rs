//! Non-maximum suppression.

use crate::geometry::Rect;

/// Sorts by score in descending order (equal scores keep their order) and drops each box whose intersection over union
/// with a kept one is above `max_iou`.
pub fn non_max_suppression<T>(
    mut found: Vec<T>,
    max_iou: f32,
    rect: impl Fn(&T) -> Rect,
    score: impl Fn(&T) -> f32,
) -> Vec<T> {
    found.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let mut kept: Vec<T> = Vec::new();
    for candidate in found {
        let candidate_rect = rect(&candidate);
        if kept.iter().all(|other| rect(other).iou(&candidate_rect) <= max_iou) {
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
        let rect = |left: f32| Rect { left, top: 0.0, right: left + 10.0, bottom: 10.0 };
        let found = vec![(rect(0.0), 0.7), (rect(1.0), 0.9), (rect(20.0), 0.6), (rect(24.0), 0.6)];
        let kept = non_max_suppression(found, 0.3, |f| f.0, |f| f.1);
        assert_eq!(kept, [(rect(1.0), 0.9), (rect(20.0), 0.6)]);
    }
}
