//! The same on a GPU: one launch for each stride, one for the suppression.

use super::cpu;
use super::types::{DECODE, Detections, FoundFace, SUPPRESS};
use crate::geometry::{Point, Rect};
use crate::gpu::{Gpu, GpuError, MAX_GROUPS, Program, to_floats, to_words};

/// Candidates of a photo that the kernels keep, as in the sources. A photo that has more is decoded by the host.
const CAPACITY: usize = 1024;

/// Numbers of a candidate.
const RECORD: usize = 16;

pub(super) fn find_all(gpu: &dyn Gpu, detections: &Detections<'_>) -> Result<Vec<Vec<FoundFace>>, GpuError> {
    let photos = detections.scales.len();
    let most = (gpu.max_buffer_bytes() / most_bytes(detections)).min(MAX_GROUPS);
    if most == 0 {
        let (bytes, limit) = (most_bytes(detections), gpu.max_buffer_bytes());
        return Err(GpuError::TooLarge { bytes, limit });
    }
    let mut found = Vec::with_capacity(photos);
    for first in (0..photos).step_by(most) {
        let part = first..(first + most).min(photos);
        found.extend(find_part(gpu, detections, part)?);
    }
    Ok(found)
}

/// Bytes of the largest buffer a photo.
fn most_bytes(detections: &Detections<'_>) -> usize {
    let landmarks = detections.levels.iter().map(|level| level.cells() * 10 * 4).max().unwrap_or(0);
    landmarks.max(CAPACITY * RECORD * 4)
}

fn find_part(
    gpu: &dyn Gpu,
    detections: &Detections<'_>,
    part: std::ops::Range<usize>,
) -> Result<Vec<Vec<FoundFace>>, GpuError> {
    let photos = part.len();
    let mut program = Program::default();
    let scales: Vec<u32> = detections.scales[part.clone()]
        .iter()
        .flat_map(|scale| [scale.x.to_bits(), scale.y.to_bits()])
        .collect();
    let scales = program.words(&scales);
    let candidates = program.output(photos * CAPACITY * RECORD * 4);
    let counts = program.scratch(photos * 4);
    let kept = program.output(photos * (CAPACITY + 2) * 4);
    let mut first_cell = 0;
    for level in detections.levels {
        let cells = level.cells();
        let [stride, min_score, max_iou] =
            [level.stride as f32, detections.min_score, detections.max_iou].map(f32::to_bits);
        let [columns, cells_word, photos_word] = [level.columns, cells, photos].map(|value| value as u32);
        let words = [stride, columns, cells_word, photos_word, min_score, max_iou, first_cell, 0];
        let mut bindings = vec![program.words(&words), scales, candidates, counts];
        for (values, numbers) in
            [(level.classes, 1), (level.objects, 1), (level.boxes, 4), (level.landmarks, 10)]
        {
            bindings.push(program.floats(&values[part.start * cells * numbers..part.end * cells * numbers]));
        }
        program.launch(&DECODE, &bindings, [cells, photos, 1]);
        first_cell += cells_word;
    }
    let words = [0, 0, 0, 0, 0, detections.max_iou.to_bits(), 0, 0];
    let bindings = [program.words(&words), scales, candidates, counts, kept];
    program.launch(&SUPPRESS, &bindings, [photos * 256, 1, 1]);
    let outputs = gpu.run(&program)?;
    let [candidates, kept] = outputs.as_slice() else { return Ok(Vec::new()) };
    let (candidates, kept) = (to_floats(candidates), to_words(kept));
    let read = |(index, photo): (usize, usize)| {
        let kept = &kept[index * (CAPACITY + 2)..][..CAPACITY + 2];
        if kept[0] as usize > CAPACITY {
            return cpu::find(detections, photo);
        }
        let records = &candidates[index * CAPACITY * RECORD..][..CAPACITY * RECORD];
        kept[2..2 + kept[1] as usize]
            .iter()
            .map(|&which| read_face(&records[which as usize * RECORD..]))
            .collect()
    };
    Ok(part.enumerate().map(read).collect())
}

fn read_face(record: &[f32]) -> FoundFace {
    let landmarks = [0, 1, 2, 3, 4].map(|i| Point { x: record[4 + i * 2], y: record[5 + i * 2] });
    let rect = Rect { left: record[0], top: record[1], right: record[2], bottom: record[3] };
    FoundFace { rect, landmarks, score: record[14] }
}
