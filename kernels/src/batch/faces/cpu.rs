//! The reference.

use super::types::{Detections, FoundFace, Level};
use crate::geometry::nms::non_max_suppression;
use crate::geometry::{Point, Rect};

pub(super) fn find(detections: &Detections<'_>, photo: usize) -> Vec<FoundFace> {
    let mut found = Vec::new();
    for level in detections.levels {
        let cells = photo * level.cells()..(photo + 1) * level.cells();
        for (cell, at) in cells.enumerate() {
            let score = (level.classes[at].clamp(0.0, 1.0) * level.objects[at].clamp(0.0, 1.0)).sqrt();
            if score >= detections.min_score {
                found.push(decode(level, cell, at, score, detections.scales[photo]));
            }
        }
    }
    non_max_suppression(found, detections.max_iou, |face| face.rect, |face| face.score)
}

fn decode(level: &Level<'_>, cell: usize, at: usize, score: f32, scale: Point) -> FoundFace {
    let stride = level.stride as f32;
    let (column, row) = ((cell % level.columns) as f32, (cell / level.columns) as f32);
    let point = |x: f32, y: f32| Point { x: x * stride * scale.x, y: y * stride * scale.y };
    let [dx, dy, width, height] = [0, 1, 2, 3].map(|i| level.boxes[at * 4 + i]);
    let (half_width, half_height) = (width.exp() / 2.0, height.exp() / 2.0);
    let top_left = point(column + dx - half_width, row + dy - half_height);
    let bottom_right = point(column + dx + half_width, row + dy + half_height);
    let landmarks = [0, 1, 2, 3, 4].map(|index| {
        let offset = at * 10 + index * 2;
        point(column + level.landmarks[offset], row + level.landmarks[offset + 1])
    });
    let rect = Rect { left: top_left.x, top: top_left.y, right: bottom_right.x, bottom: bottom_right.y };
    FoundFace { rect, landmarks, score }
}
