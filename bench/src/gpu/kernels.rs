//! Every kernel on a device beside the processor: what differs, and how long a call takes beside what its copies alone
//! would take.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_kernels::batch::{characters, downscale, faces, letterbox, near, text_map, top_k, warp};
use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::{Point, Quad};
use photofinish_kernels::gpu::{self, Buffer, Gpu, GpuError, Program};
use photofinish_kernels::image::frame::{Picture, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};
use photofinish_kernels::quantised::{ProbeBatch, QuantisedRow, QuantisedRows, judge};
use photofinish_kernels::regions::{DbParameters, ProbabilityMap};
use photofinish_kernels::warp::align::Template;

use super::CheckedDevice;
use crate::photos::random::SplitMix;
use crate::report::Table;
use crate::report::goals::Goal;

/// Photos of a call, and their size: working frames.
const PHOTOS: usize = 4;
const FRAME: Size = Size { width: 2048, height: 1365 };
/// The input of the face detector for such a frame.
const CANVAS: Size = Size { width: 640, height: 448 };
const THUMBNAIL: Size = Size { width: 256, height: 171 };
/// Faces and texts of each photo.
const ITEMS: usize = 4;
const STRIP: Size = Size { width: 160, height: 48 };
/// The canvas of a torso.
const TORSO: Size = Size { width: 256, height: 384 };
/// Columns and classes of a strip that is recognised.
const COLUMNS: usize = 20;
const CLASSES: usize = 63;
/// Vectors of an album, their components, and what is searched.
const VECTORS: usize = 20_000;
const COMPONENTS: usize = 256;
const PROBES: usize = 16;
const BEST: usize = 100;
/// The least score of a row; that of random vectors of this length is off by .06.
const NEAR: f32 = 0.1;

/// Calls of which the fastest counts; the first one compiles.
const CALLS: usize = 5;

/// Bytes that are copied to and from the device to measure the rate of copies.
const COPIED_BYTES: usize = 32 << 20;

/// What a call read and wrote.
struct Call {
    /// As numbers, to be compared.
    written: Vec<f32>,
    /// Bytes that are copied for it, in both directions.
    copied: usize,
}

/// A kernel with its tolerance: the largest difference of a number that it writes.
struct Checked {
    name: &'static str,
    run: fn(&Device, &Inputs) -> Result<Call, GpuError>,
    tolerance: f64,
}

/// One level of a pixel where a device fuses products and sums, elsewhere the error of an exponential or of a sum, in pixels or
/// as a share.
const KERNELS: [Checked; 9] = [
    Checked { name: "letterbox", run: run_letterbox, tolerance: 1.0 },
    Checked { name: "downscale", run: run_downscale, tolerance: 1.0 },
    Checked { name: "faces aligned", run: run_align, tolerance: 1.0 },
    Checked { name: "texts rectified", run: run_rectify, tolerance: 1.0 },
    Checked { name: "faces decoded", run: run_faces, tolerance: 0.05 },
    Checked { name: "text maps", run: run_text_maps, tolerance: 1e-3 },
    Checked { name: "characters", run: run_characters, tolerance: 0.0 },
    Checked { name: "top k of vectors", run: run_top_k, tolerance: 0.0 },
    Checked { name: "rows near probes", run: run_near, tolerance: 0.0 },
];

/// What all kernels are given.
struct Inputs {
    photos: Vec<Picture>,
    /// Outputs of the face detector: classes, objects, boxes and landmarks of each stride.
    levels: Vec<[Vec<f32>; 4]>,
    maps: Vec<Vec<f32>>,
    probabilities: Vec<f32>,
    vectors: Vec<i8>,
    /// The same of unit length, and the first of them as probes.
    rows: QuantisedRows,
    probes: ProbeBatch,
}

const STRIDES: [u32; 3] = [8, 16, 32];

/// Opens the device; software in the place of a GPU too.
///
/// # Errors
/// When there is none.
pub fn open(device: CheckedDevice, library: &Path) -> anyhow::Result<Arc<dyn Gpu>> {
    let opened = match device {
        // The compiler is beside the library in images, else on the search path.
        CheckedDevice::Cuda => gpu::open_cuda(0, library.parent()).or_else(|_| gpu::open_cuda(0, None)),
        CheckedDevice::Wgpu => gpu::open_vulkan(true),
    };
    opened.context("opening the device of the kernels")
}

/// Runs each kernel on both; returns its table and the goals.
///
/// # Errors
/// When the device fails.
pub fn check(gpu: &Arc<dyn Gpu>) -> anyhow::Result<(Table, Vec<Goal>)> {
    let rate = measure_copies(gpu)?;
    let caption = format!(
        "Kernels on {PHOTOS} frames of {} x {}, on {}: a call with its copies, beside the time of the copies alone at the \
         {:.1} GB/s that this device copies in both directions together",
        FRAME.width,
        FRAME.height,
        gpu.name(),
        rate / 1e9
    );
    let columns =
        ["kernel", "largest difference", "CPU ms", "device ms", "copies alone ms", "times the copies"];
    let mut table = Table::new(&caption, &columns);
    let mut goals = Vec::new();
    let inputs = Inputs::draw()?;
    for Checked { name, run, tolerance } in KERNELS {
        let (expected, on_cpu) = fastest(|| run(&Device::Cpu, &inputs))?;
        let (found, on_device) = fastest(|| run(&Device::Gpu(Arc::clone(gpu)), &inputs))?;
        let difference = largest_difference(&expected.written, &found.written);
        let copies = found.copied as f64 / rate;
        let milliseconds = |seconds: f64| format!("{:.2}", seconds * 1e3);
        table.add_row([
            name.to_owned(),
            format!("{difference}"),
            milliseconds(on_cpu.as_secs_f64()),
            milliseconds(on_device.as_secs_f64()),
            milliseconds(copies),
            format!("{:.1}", on_device.as_secs_f64() / copies),
        ]);
        goals.push(Goal::at_most(&format!("largest difference of {name}"), difference, tolerance));
    }
    Ok((table, goals))
}

/// Infinite where one wrote more than the other.
fn largest_difference(expected: &[f32], found: &[f32]) -> f64 {
    if expected.len() != found.len() {
        return f64::INFINITY;
    }
    expected.iter().zip(found).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
}

/// Bytes per second that the device copies, of memory that is not pinned.
fn measure_copies(gpu: &Arc<dyn Gpu>) -> anyhow::Result<f64> {
    let bytes = vec![1_u8; COPIED_BYTES.min(gpu.max_buffer_bytes())];
    let copy = || {
        let mut program = Program::default();
        program.buffers.push(Buffer::Input(bytes.as_slice().into()));
        program.buffers.push(Buffer::Output(bytes.len()));
        gpu.run(&program)
    };
    let (_, time) = fastest(copy)?;
    Ok(2.0 * bytes.len() as f64 / time.as_secs_f64())
}

fn fastest<T>(run: impl Fn() -> Result<T, GpuError>) -> anyhow::Result<(T, Duration)> {
    let mut result = (run()?, Duration::MAX);
    for _ in 0..CALLS {
        let start = Instant::now();
        let found = run()?;
        result = (found, result.1.min(start.elapsed()));
    }
    Ok(result)
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
    let copied = inputs.levels.iter().flatten().map(Vec::len).sum::<usize>() * 4 + written.len() * 4;
    Ok(Call { written, copied })
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
    let copied = 2 * 4 * inputs.maps.iter().map(Vec::len).sum::<usize>();
    Ok(Call { written, copied })
}

fn run_characters(device: &Device, inputs: &Inputs) -> Result<Call, GpuError> {
    let strips =
        characters::Strips { probabilities: &inputs.probabilities, columns: COLUMNS, classes: CLASSES };
    let found = characters::decode_all(device, &strips)?;
    let values = |found: &characters::Character| [found.class as f32, found.probability];
    let written: Vec<f32> = found.iter().flatten().flat_map(values).collect();
    Ok(Call { copied: inputs.probabilities.len() * 4 + written.len() * 4, written })
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
    Ok(Call { copied: inputs.vectors.len() + written.len() * 4, written })
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
    Ok(Call { copied: near::count_bytes(rows) + VECTORS * PROBES / 8, written })
}

impl Inputs {
    fn draw() -> anyhow::Result<Self> {
        let mut random = SplitMix(7);
        let mut numbers = |count: usize, most: f32| -> Vec<f32> {
            (0..count).map(|_| (random.next() >> 40) as f32 / (1_u32 << 24) as f32 * most).collect()
        };
        let levels = STRIDES.map(|stride| {
            let cells = PHOTOS * (CANVAS.width / stride * (CANVAS.height / stride)) as usize;
            let scores =
                |values: Vec<f32>| values.into_iter().map(|v| if v > 0.99 { v } else { 0.1 * v }).collect();
            let classes: Vec<f32> = scores(numbers(cells, 1.0));
            [classes, vec![0.9; cells], numbers(cells * 4, 1.5), numbers(cells * 10, 1.0)]
        });
        let maps = (0..PHOTOS * ITEMS).map(|map| draw_map(map, &numbers(TORSO.area(), 0.2)));
        let maps = maps.collect();
        let probabilities = numbers(PHOTOS * ITEMS * COLUMNS * CLASSES, 1.0);
        let vectors = numbers(VECTORS * COMPONENTS, 255.0).into_iter().map(|value| (value - 127.5) as i8);
        let vectors: Vec<i8> = vectors.collect();
        let units: Vec<Vec<f32>> = vectors.chunks_exact(COMPONENTS).map(to_unit_vector).collect();
        let probes: Vec<&[f32]> = units[..PROBES].iter().map(Vec::as_slice).collect();
        let mut rows = QuantisedRows::new(COMPONENTS);
        units.iter().for_each(|unit| rows.push(&QuantisedRow::new(unit)));
        let photos = (0..PHOTOS).map(draw_photo).collect::<anyhow::Result<_>>()?;
        let (levels, probes) = (levels.into(), ProbeBatch::new(&probes));
        Ok(Self { photos, levels, maps, probabilities, vectors, rows, probes })
    }

    /// Each photo with the index of each of its items.
    fn items(&self) -> impl Iterator<Item = (&Picture, usize)> {
        self.photos.iter().flat_map(|photo| (0..ITEMS).map(move |item| (photo, item)))
    }

    /// A call that was given all photos; each number that it wrote has so many bytes.
    fn call_on_photos(&self, written: Vec<f32>, bytes: usize) -> Call {
        let photos: usize = self.photos.iter().map(|photo| photo.frame().pixels().len()).sum();
        Call { copied: photos + written.len() * bytes, written }
    }
}

fn to_unit_vector(vector: &[i8]) -> Vec<f32> {
    let length = vector.iter().map(|value| f32::from(*value).powi(2)).sum::<f32>().sqrt();
    vector.iter().map(|value| f32::from(*value) / length).collect()
}

/// Noise over a gradient.
fn draw_photo(seed: usize) -> anyhow::Result<Picture> {
    let mut random = SplitMix(seed as u64);
    let pixels = (0..FRAME.area() * 3)
        .map(|index| ((index / 24_000) as u8 / 2).wrapping_add((random.next() >> 58) as u8));
    Ok(Picture::new(pixels.collect(), FRAME.width, FRAME.height)?)
}

/// Two bars of text on noise.
fn draw_map(index: usize, noise: &[f32]) -> Vec<f32> {
    let width = TORSO.width as usize;
    let is_text = |x: usize, y: usize| {
        let bar = |top: usize| (top + x / 16..top + 30 + x / 16).contains(&y);
        (20 + index..width - 40).contains(&x) && (bar(60) || bar(200 + index))
    };
    let value =
        |(at, noise): (usize, &f32)| if is_text(at % width, at / width) { 0.7 + noise } else { *noise };
    noise.iter().enumerate().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_writes_something_that_can_be_compared() {
        let inputs = Inputs::draw().unwrap();
        for Checked { name, run, .. } in KERNELS {
            let call = run(&Device::Cpu, &inputs).unwrap();
            assert!(call.written.len() > 16 && call.copied > call.written.len(), "{name}");
            assert!(call.written.iter().any(|value| *value != call.written[0]), "{name}: all the same");
        }
    }

    #[test]
    fn a_result_of_another_length_differs_infinitely() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.0, 2.5]), 0.5);
        assert_eq!(largest_difference(&[1.0], &[1.0, 2.0]), f64::INFINITY);
    }
}
