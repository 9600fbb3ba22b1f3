//! What is made of the outputs of networks: faces, text boxes, characters.

use photofinish_kernels::batch::characters::{Strips, decode_all};
use photofinish_kernels::batch::faces::{self, Detections, Level};
use photofinish_kernels::batch::text_map::{self, TextMap};
use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::{Point, Rect};
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::regions::{DbParameters, ProbabilityMap};

use crate::devices::{self, Noise};

/// The outputs of one stride.
struct Outputs {
    stride: u32,
    side: usize,
    values: [Vec<f32>; 4],
}

fn outputs(photos: usize, part_above: f32) -> Vec<Outputs> {
    let mut noise = Noise::new(6);
    let level = |stride: u32| {
        let side = 160 / stride as usize;
        let cells = side * side * photos;
        let mut numbers = |count: usize, low: f32, high: f32| -> Vec<f32> {
            (0..cells * count).map(|_| noise.number(low, high)).collect()
        };
        let mut classes = numbers(1, 0.0, 1.1);
        let faces = numbers(1, 0.0, 1.0);
        classes.iter_mut().zip(&faces).for_each(|(class, face)| *class *= f32::from(*face < part_above));
        let values = [classes, numbers(1, -0.1, 1.0), numbers(4, -0.5, 2.2), numbers(10, -1.0, 1.0)];
        Outputs { stride, side, values }
    };
    [8, 16, 32].map(level).into()
}

fn compare_faces(photos: usize, part_above: f32) {
    let outputs = outputs(photos, part_above);
    let levels: Vec<Level<'_>> = outputs
        .iter()
        .map(|Outputs { stride, side, values: [classes, objects, boxes, landmarks] }| Level {
            stride: *stride,
            columns: *side,
            rows: *side,
            classes,
            objects,
            boxes,
            landmarks,
        })
        .collect();
    let scales: Vec<Point> = (0..photos).map(|photo| Point { x: 1.0 + photo as f32, y: 1.5 }).collect();
    let detections = Detections { levels: &levels, scales: &scales, min_score: 0.2, max_iou: 0.3 };
    let expected = faces::find_all(&Device::Cpu, &detections).expect("no error");
    // Each photo has some, but for those of which no cell is above the score.
    assert!(expected.iter().all(|faces| faces.is_empty() != (part_above > 0.0)));
    let sides = |rect: Rect| [rect.left, rect.top, rect.right, rect.bottom];
    devices::for_each(2 << 16, |device| {
        let found = faces::find_all(device, &detections).expect("no error");
        assert_eq!(found.len(), photos);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.len(), expected.len(), "on {device:?}");
            for (face, expected) in found.iter().zip(expected) {
                let side = expected.rect.width().max(expected.rect.height());
                assert!((face.score - expected.score).abs() < 1e-6);
                for (found, wanted) in sides(face.rect).into_iter().zip(sides(expected.rect)) {
                    assert!((found - wanted).abs() <= 1e-4 * side + 1e-3, "{face:?}, {expected:?}");
                }
                assert_eq!(face.landmarks, expected.landmarks);
            }
        }
    });
}

#[test]
fn faces_are_found_and_suppressed_as_on_the_processor() {
    compare_faces(5, 0.1);
    compare_faces(1, 0.0);
    compare_faces(0, 0.1);
}

#[test]
fn a_photo_of_more_candidates_than_a_kernel_keeps_loses_none() {
    // A photo has 525 cells at this size: four times as large an input has 2,100 candidates.
    let mut noise = Noise::new(7);
    let side = 40;
    let mut numbers =
        |count: usize| -> Vec<f32> { (0..side * side * count).map(|_| noise.number(0.3, 1.0)).collect() };
    let values = [numbers(1), numbers(1), numbers(4), numbers(10)];
    let [classes, objects, boxes, landmarks] = &values;
    let level = Level { stride: 8, columns: side, rows: side, classes, objects, boxes, landmarks };
    let scales = [Point { x: 1.0, y: 1.0 }];
    let detections = Detections { levels: &[level], scales: &scales, min_score: 0.2, max_iou: 0.3 };
    let expected = faces::find_all(&Device::Cpu, &detections).expect("no error");
    devices::for_each(1 << 17, |device| {
        assert_eq!(faces::find_all(device, &detections).expect("no error"), expected, "on {device:?}");
    });
}

const PARAMETERS: DbParameters = DbParameters {
    bin_thresh: 0.3,
    min_side: 3.0,
    box_thresh: 0.5,
    unclip_ratio: 1.6,
    min_unclipped_side: 5.0,
};

/// Slanted bars on a faint ground, with a ring.
fn map(size: Size, seed: u32) -> Vec<f32> {
    let mut noise = Noise::new(seed);
    let slope = noise.number(-0.4, 0.4);
    (0..size.area())
        .map(|index| {
            let (x, y) = ((index % size.width as usize) as f32, (index / size.width as usize) as f32);
            let along = y + slope * x;
            let is_ring = (8.0..12.0).contains(&(x - 40.0).hypot(y - 40.0));
            let is_text = along.rem_euclid(40.0) < 14.0 && x.rem_euclid(90.0) < 70.0;
            if is_text || is_ring { noise.number(0.55, 1.0) } else { noise.number(0.0, 0.25) }
        })
        .collect()
}

#[test]
fn text_boxes_are_found_as_on_the_processor() {
    let sizes = [(256, 384), (1, 1), (33, 70), (256, 192), (97, 1), (320, 320)];
    let sizes = sizes.map(|(width, height)| Size { width, height });
    let values: Vec<Vec<f32>> = sizes.iter().zip(11..).map(|(size, seed)| map(*size, seed)).collect();
    let maps: Vec<TextMap<'_>> = sizes
        .iter()
        .zip(&values)
        .map(|(size, values)| TextMap {
            map: ProbabilityMap::new(values, *size).expect("no error"),
            columns: 20..90,
        })
        .collect();
    let expected = text_map::find_all(&Device::Cpu, &maps, &PARAMETERS).expect("no error");
    assert!(expected.iter().map(|texts| texts.boxes.len()).sum::<usize>() > 20);
    devices::for_each(500_000, |device| {
        let found = text_map::find_all(device, &maps, &PARAMETERS).expect("no error");
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.max_probability, expected.max_probability);
            assert_eq!(found.boxes.len(), expected.boxes.len());
            for (found, expected) in found.boxes.iter().zip(&expected.boxes) {
                assert_eq!(found.quad, expected.quad);
                assert!((found.score - expected.score).abs() < 1e-5, "{} {}", found.score, expected.score);
            }
        }
        assert!(text_map::find_all(device, &[], &PARAMETERS).expect("no error").is_empty());
    });
}

#[test]
fn characters_are_decoded_as_on_the_processor() {
    let mut noise = Noise::new(8);
    for (strips, columns, classes) in [(9, 20, 37), (3, 1, 2), (2, 80, 6_625), (1, 512, 5), (0, 20, 37)] {
        // Few different values: many columns repeat a class or have equal best ones.
        let probabilities: Vec<f32> =
            (0..strips * columns * classes).map(|_| (noise.word() % 64) as f32 / 64.0).collect();
        let strips = Strips { probabilities: &probabilities, columns, classes };
        let expected = decode_all(&Device::Cpu, &strips).expect("no error");
        devices::for_each(1 << 22, |device| {
            assert_eq!(decode_all(device, &strips).expect("no error"), expected, "on {device:?}");
        });
    }
}
