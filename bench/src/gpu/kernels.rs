//! Every kernel on a device beside the processor: what differs, and how long a call takes beside what its copies alone
//! would take.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use photofinish_kernels::batch::{characters, downscale, faces, letterbox, near, text_map, top_k, warp};
use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::{Point, Quad};
use photofinish_kernels::gpu::{self, CudaFolders, Gpu, GpuError};
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};
use photofinish_kernels::quantised::judge;
use photofinish_kernels::regions::{DbParameters, ProbabilityMap};
use photofinish_kernels::warp::align::Template;

use super::compare::known_difference;
use super::copies::{Call, CopyRates, fastest};
use super::kernel_inputs::{
    CANVAS, CLASSES, COLUMNS, COMPONENTS, FRAME, Inputs, PHOTOS, PROBES, STRIDES, TORSO, VECTORS, half_to_f64,
};
use super::options::CheckedDevice;
use crate::report::goals::Goal;
use crate::report::{Report, Table};

const THUMBNAIL: Size = Size { width: 256, height: 171 };
const STRIP: Size = Size { width: 160, height: 48 };
const BEST: usize = 100;
/// The least score of a row; that of random vectors of this length is off by .06.
const NEAR: f32 = 0.1;

/// A kernel with its tolerance: the largest difference of a number that it writes.
struct Checked {
    name: &'static str,
    run: fn(&Device, &Inputs) -> Result<Call, GpuError>,
    tolerance: f64,
}

/// One level of a pixel where a device fuses products and sums, elsewhere the error of an exponential or of a sum, in pixels or
/// as a share.
const KERNELS: [Checked; 10] = [
    Checked { name: "letterbox", run: run_letterbox, tolerance: 1.0 },
    Checked { name: "downscale", run: run_downscale, tolerance: 1.0 },
    Checked { name: "faces aligned", run: run_align, tolerance: 1.0 },
    Checked { name: "texts rectified", run: run_rectify, tolerance: 1.0 },
    Checked { name: "faces decoded", run: run_faces, tolerance: 0.05 },
    Checked { name: "text maps", run: run_text_maps, tolerance: 1e-3 },
    Checked { name: "characters", run: run_characters, tolerance: 0.0 },
    Checked { name: "top k of vectors, i8", run: run_top_k, tolerance: 0.0 },
    // A score within the operation's own 1e-5, and of two rows that differ by less, either.
    Checked { name: "top k of vectors, f16", run: run_top_k_of_halves, tolerance: 2e-5 },
    Checked { name: "rows near probes", run: run_near, tolerance: 0.0 },
];

/// Opens the device; software in the place of a GPU too.
///
/// # Errors
/// When there is none.
pub fn open(device: CheckedDevice, library: &Path) -> anyhow::Result<Arc<dyn Gpu>> {
    let opened = match device {
        // The compiler is beside the library where set-up put both, else on the search path.
        CheckedDevice::Cuda => {
            let beside = CudaFolders { compiler: library.parent().map(Path::to_path_buf), cache: None };
            gpu::open_cuda(0, &beside).or_else(|_| gpu::open_cuda(0, &CudaFolders::default()))
        }
        CheckedDevice::Wgpu => gpu::open_vulkan(true),
    };
    opened.context("opening the device of the kernels")
}

/// Measures copies, and runs each kernel on both; reports all.
///
/// # Errors
/// When the device fails.
pub fn check(gpu: &Arc<dyn Gpu>, report: &mut Report) -> anyhow::Result<()> {
    let rates = CopyRates::measure(gpu)?;
    report.tables.push(rates.to_table());
    let caption = format!(
        "Kernels on {PHOTOS} frames of {} x {}, on {}: a call with its copies, beside the time that the copies alone take at \
         the rates above",
        FRAME.width,
        FRAME.height,
        gpu.name()
    );
    let columns =
        ["kernel", "largest difference", "CPU ms", "device ms", "copies alone ms", "times the copies"];
    let mut table = Table::new(&caption, &columns);
    let inputs = Inputs::draw()?;
    for Checked { name, run, tolerance } in KERNELS {
        let (expected, on_cpu) = fastest(|| run(&Device::Cpu, &inputs))?;
        let (found, on_device) = fastest(|| run(&Device::Gpu(Arc::clone(gpu)), &inputs))?;
        let difference = largest_difference(&expected.written, &found.written);
        let copies = rates.time_of(&found);
        let milliseconds = |seconds: f64| format!("{:.2}", seconds * 1e3);
        table.add_row([
            name.to_owned(),
            format!("{difference}"),
            milliseconds(on_cpu.as_secs_f64()),
            milliseconds(on_device.as_secs_f64()),
            milliseconds(copies),
            format!("{:.1}", on_device.as_secs_f64() / copies),
        ]);
        report.goals.push(Goal::at_most(&format!("largest difference of {name}"), difference, tolerance));
    }
    report.tables.push(table);
    Ok(())
}

/// Infinite where one wrote more than the other, or something that is not a number.
fn largest_difference(expected: &[f32], found: &[f32]) -> f64 {
    if expected.len() != found.len() {
        return f64::INFINITY;
    }
    let pairs = expected.iter().zip(found);
    let differences = pairs.map(|(a, b)| if a == b { 0.0 } else { known_difference((a - b).abs()) });
    differences.fold(0.0, f64::max)
}

fn run_letterbox(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let mut tensor = Tensor::default();
    let size = FRAME.fit_within(CANVAS.width);
    let windows = inputs.photos.iter().map(|photo| photo.frame().as_window());
    let placements: Vec<_> =
        windows.map(|window| letterbox::Placement { window, size, skipped_rows: 0 }).collect();
    letterbox::place_all(device, &placements, CANVAS, &Normalisation::raw(Channels::Bgr), &mut tensor)?;
    Ok(inputs.call_on_photos(tensor.data().to_vec(), 4))
}

fn run_downscale(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let photos: Vec<_> = inputs.photos.iter().map(|photo| (photo.frame(), THUMBNAIL)).collect();
    let small = downscale::resize_all(device, &photos)?;
    let levels = small.iter().flat_map(|photo| photo.frame().pixels().iter().map(|&level| f32::from(level)));
    Ok(inputs.call_on_photos(levels.collect(), 1))
}

fn run_align(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let side = 128;
    let at = |x: f32, y: f32| Point { x: x * side as f32, y: y * side as f32 };
    let points = [at(0.34, 0.46), at(0.66, 0.46), at(0.5, 0.64), at(0.37, 0.8), at(0.63, 0.8)];
    let template = Template { points, side };
    let mut faces = Vec::new();
    for (photo, item) in inputs.items() {
        let turn = 0.2 * item as f32;
        let move_point = |point: Point| Point {
            x: 200.0 + 380.0 * item as f32 + 1.7 * (point.x * turn.cos() - point.y * turn.sin()),
            y: 300.0 + 1.7 * (point.x * turn.sin() + point.y * turn.cos()),
        };
        faces.push(warp::Face { frame: photo.frame(), landmarks: points.map(move_point) });
    }
    let mut tensor = Tensor::default();
    warp::align_all(device, &faces, &template, &Normalisation::raw(Channels::Bgr), &mut tensor)?;
    Ok(inputs.call_on_photos(tensor.data().to_vec(), 4))
}

fn run_rectify(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let quad = |item: usize| {
        let (left, top) = (100.0 + 400.0 * item as f32, 500.0 + 13.0 * item as f32);
        let corners = [(0.0, 0.0), (170.0, 21.0), (163.0, 90.0), (4.0, 71.0)];
        Quad(corners.map(|(x, y)| Point { x: left + x, y: top + y }))
    };
    let mut texts = Vec::new();
    for (photo, item) in inputs.items() {
        texts.push(warp::Text { frame: photo.frame(), quad: quad(item) });
    }
    let mut tensor = Tensor::default();
    warp::rectify_all(device, &texts, STRIP, &Normalisation::raw(Channels::Bgr), &mut tensor)?;
    Ok(inputs.call_on_photos(tensor.data().to_vec(), 4))
}

fn run_faces(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let levels: Vec<_> = STRIDES
        .iter()
        .zip(&inputs.levels)
        .map(|(&stride, [classes, objects, boxes, landmarks])| faces::Level {
            stride,
            columns: (CANVAS.width / stride) as usize,
            rows: (CANVAS.height / stride) as usize,
            classes,
            objects,
            boxes,
            landmarks,
        })
        .collect();
    let scales = [Point { x: 3.2, y: 3.2 }; PHOTOS];
    let detections = faces::Detections { levels: &levels, scales: &scales, min_score: 0.6, max_iou: 0.3 };
    let found = faces::find_all(device, &detections)?;
    let values = |face: &faces::FoundFace| [face.rect.left, face.rect.top, face.rect.right, face.rect.bottom];
    let written: Vec<f32> = found.iter().flatten().flat_map(values).collect();
    let to_device = inputs.levels.iter().flatten().map(Vec::len).sum::<usize>() * 4;
    Ok(Call { to_device, from_device: written.len() * 4, written })
}

fn run_text_maps(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let parameters = DbParameters {
        bin_thresh: 0.3,
        min_side: 3.0,
        box_thresh: 0.5,
        unclip_ratio: 1.6,
        min_unclipped_side: 5.0,
    };
    let maps: Vec<_> = inputs
        .maps
        .iter()
        .filter_map(|map| ProbabilityMap::new(map, TORSO))
        .map(|map| text_map::TextMap { map, columns: 0..TORSO.width as usize })
        .collect();
    let found = text_map::find_all(device, &maps, &parameters)?;
    let values = |map: &text_map::MapTexts| {
        let corners = map.boxes.iter().flat_map(|found| found.quad.0.map(|point| [point.x, point.y]));
        corners.flatten().chain([map.max_probability]).collect::<Vec<f32>>()
    };
    let written: Vec<f32> = found.iter().flat_map(values).collect();
    // The maps go there twice: for the binary maps, and for the scores of the boxes.
    let to_device = 2 * 4 * inputs.maps.iter().map(Vec::len).sum::<usize>();
    // What is text, a bit a pixel.
    Ok(Call { to_device, from_device: to_device / (2 * 4 * 8), written })
}

fn run_characters(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let strips =
        characters::Strips { probabilities: &inputs.probabilities, columns: COLUMNS, classes: CLASSES };
    let found = characters::decode_all(device, &strips)?;
    let values = |found: &characters::Character| [found.class as f32, found.probability];
    let written: Vec<f32> = found.iter().flatten().flat_map(values).collect();
    Ok(Call { to_device: inputs.probabilities.len() * 4, from_device: written.len() * 4, written })
}

fn run_top_k(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let factors = vec![1.0 / 16384.0; VECTORS];
    let all = top_k::Vectors { components: top_k::Components::I8(&inputs.vectors), factors: &factors };
    let album = top_k::Album::new(device, &all, COMPONENTS)?;
    let probes = &inputs.vectors[..PROBES * COMPONENTS];
    let probes = top_k::Vectors { components: top_k::Components::I8(probes), factors: &factors[..PROBES] };
    let found = top_k::search(&album, &probes, BEST)?;
    let values = |found: &top_k::Found| [found.row as f32, found.score];
    let written: Vec<f32> = found.iter().flatten().flat_map(values).collect();
    Ok(Call { to_device: inputs.vectors.len(), from_device: written.len() * 4, written })
}

/// The candidates of a pass, which the processor judges: a device may find a few rows more, that are at a bound.
fn run_near(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let Inputs { rows, probes, .. } = inputs;
    // It would stay for the next call.
    rows.device_copy().clear();
    let mut min_scores = [NEAR; PROBES];
    let found = near::find(device, probes, &[rows], 0, &min_scores)?;
    let mut written = Vec::new();
    judge(probes, rows, found.list(0), &mut min_scores, |candidate| {
        written.extend([candidate.probe as f32, candidate.row as f32, candidate.lower, candidate.upper]);
        NEAR
    });
    Ok(Call { to_device: near::count_bytes(rows), from_device: VECTORS * PROBES / 8, written })
}

/// By which vectors of halves are multiplied, so that their scores are about cosines.
const HALVES_FACTOR: f32 = 0.15;

fn run_top_k_of_halves(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let factors = vec![HALVES_FACTOR; VECTORS];
    let all = top_k::Vectors { components: top_k::Components::F16(&inputs.halves), factors: &factors };
    let album = top_k::Album::new(device, &all, COMPONENTS)?;
    let probes = top_k::Components::F16(&inputs.halves[..PROBES * COMPONENTS]);
    let probes = top_k::Vectors { components: probes, factors: &factors[..PROBES] };
    let found = top_k::search(&album, &probes, BEST)?;
    let written = list_scores_of_halves(inputs, &found);
    Ok(Call { to_device: 2 * inputs.halves.len(), from_device: written.len() * 4, written })
}

/// Of rows whose scores differ by rounding alone, a device may return one or the other: so each score, and beside it the
/// exact one of the row that was returned.
fn list_scores_of_halves(inputs: &Inputs, found: &[Vec<top_k::Found>]) -> Vec<f32> {
    let row = |index: usize| &inputs.halves[index * COMPONENTS..(index + 1) * COMPONENTS];
    let exact = |probe: usize, found: &top_k::Found| {
        let products = row(probe).iter().zip(row(found.row)).map(|(a, b)| half_to_f64(*a) * half_to_f64(*b));
        (products.sum::<f64>() * f64::from(HALVES_FACTOR).powi(2)) as f32
    };
    let scores = |(probe, rows): (usize, &Vec<top_k::Found>)| {
        rows.iter().flat_map(|found| [found.score, exact(probe, found)]).collect::<Vec<f32>>()
    };
    found.iter().enumerate().flat_map(scores).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_writes_something_that_can_be_compared() {
        let inputs = Inputs::draw().unwrap();
        for Checked { name, run, .. } in KERNELS {
            let call = run(&Device::Cpu, &inputs).unwrap();
            assert!(call.written.len() > 16 && call.to_device > 0 && call.from_device > 0, "{name}");
            assert!(call.written.iter().any(|value| *value != call.written[0]), "{name}: all the same");
        }
    }

    #[test]
    fn a_wrong_row_of_halves_is_noticed_also_with_the_right_score() {
        let inputs = Inputs::draw().unwrap();
        let call = run_top_k_of_halves(&Device::Cpu, &inputs).unwrap();
        assert_eq!(call.written.len(), PROBES * BEST * 2);
        let differences = call.written.chunks_exact(2).map(|pair| f64::from((pair[0] - pair[1]).abs()));
        assert!(differences.fold(0.0, f64::max) < 1e-5, "the scores are those of the rows");
        // The most similar to a vector is itself.
        let found = top_k::Found { row: 0, score: call.written[0] };
        let right = list_scores_of_halves(&inputs, &[vec![found]]);
        let wrong = list_scores_of_halves(&inputs, &[vec![top_k::Found { row: 1, ..found }]]);
        assert!(largest_difference(&call.written[..2], &right) < 1e-5);
        assert!(largest_difference(&right, &wrong) > 0.1);
    }

    #[test]
    fn a_result_of_another_length_differs_infinitely() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 2.5]), 0.5);
        assert_eq!(largest_difference(&[1.0], &[1.0, 2.0]), f64::INFINITY);
    }

    #[test]
    fn what_is_not_a_number_differs_infinitely() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[f32::NAN, 2.0]), f64::INFINITY);
        assert_eq!(largest_difference(&[f32::NAN], &[f32::NAN]), f64::INFINITY);
        assert_eq!(largest_difference(&[f32::INFINITY, 1.0], &[f32::INFINITY, 1.0]), 0.0);
    }
}
