//! The default face detector, YuNet: boxes and five landmarks in one pass at three strides (Wu, Peng, Yu: "YuNet: a tiny
//! millisecond-level face detector", 2023).

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::nms::non_max_suppression;
use photofinish_kernels::geometry::{Point, Rect};
use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Slot, Tensor};
use photofinish_kernels::resize::letterbox::{Letterbox, round_up_to_multiple};

use crate::onnx::session::{Network, Outputs};
use crate::traits::{FaceBox, FaceDetector, Look, ModelError, ModelIdentity};

/// The strides of the network's outputs.
const STRIDES: [u32; 3] = [8, 16, 32];
/// The input's sides are multiples of this, in pixels.
const SIZE_MULTIPLE: u32 = 32;
const INPUT_NORMALISATION: Normalisation = Normalisation::raw(Channels::Bgr);

/// Least score of a trace. Small faces that are missed at one scale and found at twice the scale mostly have more at the
/// first one.
const TRACE_SCORE: f32 = 0.2;

/// Thresholds of a detection.
#[derive(Clone, Copy, Debug)]
pub struct YunetThresholds {
    /// Least score, 0 to 1.
    pub score: f32,
    /// Non-maximum suppression: of two boxes with a larger intersection over union, the one with the higher score stays.
    pub iou: f32,
}

/// The YuNet detector. Keeps its buffers between calls.
pub struct Yunet {
    network: Network,
    thresholds: YunetThresholds,
    identity: ModelIdentity,
    letterbox: Letterbox,
    input: Tensor,
}

/// Where a frame is in the input.
#[derive(Clone, Copy)]
struct LetterboxPlacement {
    /// Size of the shrunk frame.
    size: Size,
    /// Size of the input.
    canvas: Size,
    /// Frame pixels per input pixel, horizontally and vertically.
    scale: Point,
}

impl Yunet {
    /// Wraps a loaded network.
    pub fn new(network: Network, thresholds: YunetThresholds, identity: ModelIdentity) -> Self {
        let letterbox = Letterbox::new(&Device::Cpu);
        Self { network, thresholds, identity, letterbox, input: Tensor::default() }
    }

    /// Runs one call on the frames with the indices `group`, which share a canvas size.
    fn detect_group(
        &mut self,
        frames: &[Frame<'_>],
        placements: &[LetterboxPlacement],
        group: &[usize],
    ) -> Result<Vec<Look>, ModelError> {
        let canvas = placements[group[0]].canvas;
        self.input.reshape([group.len(), 3, canvas.height as usize, canvas.width as usize]);
        for (item, &index) in group.iter().enumerate() {
            let slot = Slot { tensor: &mut self.input, item, normalisation: &INPUT_NORMALISATION };
            self.letterbox.place(frames[index].as_window(), placements[index].size, slot);
        }
        let outputs = self.network.run(&self.input)?;
        let mut found = Vec::with_capacity(group.len());
        for (item, &index) in group.iter().enumerate() {
            found.push(decode_faces(&outputs, item, placements[index], self.thresholds)?);
        }
        Ok(found)
    }
}

impl FaceDetector for Yunet {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        Ok(self.look(frames, long_side)?.into_iter().map(|look| look.faces).collect())
    }

    fn look(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Look>, ModelError> {
        let placements: Vec<LetterboxPlacement> =
            frames.iter().map(|frame| plan_letterbox(*frame, long_side)).collect();
        let mut found = vec![Look::default(); frames.len()];
        let mut remaining: Vec<usize> = (0..frames.len()).collect();
        while let Some(&first) = remaining.first() {
            let canvas = placements[first].canvas;
            let (group, rest) = remaining.into_iter().partition(|&index| placements[index].canvas == canvas);
            let group: Vec<usize> = group;
            for (look, &index) in self.detect_group(frames, &placements, &group)?.into_iter().zip(&group) {
                found[index] = look;
            }
            remaining = rest;
        }
        Ok(found)
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

fn plan_letterbox(frame: Frame<'_>, long_side: u32) -> LetterboxPlacement {
    let size = frame.size().fit_within(long_side);
    let canvas = Size {
        width: round_up_to_multiple(size.width, SIZE_MULTIPLE),
        height: round_up_to_multiple(size.height, SIZE_MULTIPLE),
    };
    let scale =
        Point { x: frame.width() as f32 / size.width as f32, y: frame.height() as f32 / size.height as f32 };
    LetterboxPlacement { size, canvas, scale }
}

/// The outputs of one stride for one item of the batch.
struct FeatureLevel<'o> {
    stride: u32,
    columns: usize,
    class_scores: &'o [f32],
    objectness: &'o [f32],
    boxes: &'o [f32],
    landmarks: &'o [f32],
}

impl<'o> FeatureLevel<'o> {
    fn from_outputs(
        outputs: &'o Outputs<'_>,
        item: usize,
        canvas: Size,
        stride: u32,
    ) -> Result<Self, ModelError> {
        let columns = (canvas.width / stride) as usize;
        let cells = columns * (canvas.height / stride) as usize;
        let values = |head: &str, width: usize| {
            let name = format!("{head}_{stride}");
            let output = outputs.get(&name)?;
            output.values.get(item * cells * width..(item + 1) * cells * width).ok_or_else(|| {
                ModelError::Inference { name: "yunet".into(), detail: format!("{name} is too short") }
            })
        };
        Ok(Self {
            stride,
            columns,
            class_scores: values("cls", 1)?,
            objectness: values("obj", 1)?,
            boxes: values("bbox", 4)?,
            landmarks: values("kps", 10)?,
        })
    }

    fn decode_face(&self, cell: usize, score: f32, scale: Point) -> FaceBox {
        let stride = self.stride as f32;
        let (column, row) = ((cell % self.columns) as f32, (cell / self.columns) as f32);
        let at = |x: f32, y: f32| Point { x: x * stride * scale.x, y: y * stride * scale.y };
        let [dx, dy, width, height] = [0, 1, 2, 3].map(|i| self.boxes[cell * 4 + i]);
        let (half_width, half_height) = (width.exp() / 2.0, height.exp() / 2.0);
        let top_left = at(column + dx - half_width, row + dy - half_height);
        let bottom_right = at(column + dx + half_width, row + dy + half_height);
        let landmarks = [0, 1, 2, 3, 4].map(|point| {
            let offset = cell * 10 + point * 2;
            at(column + self.landmarks[offset], row + self.landmarks[offset + 1])
        });
        let rect = Rect { left: top_left.x, top: top_left.y, right: bottom_right.x, bottom: bottom_right.y };
        FaceBox { rect, landmarks, score }
    }
}

fn decode_faces(
    outputs: &Outputs<'_>,
    item: usize,
    placement: LetterboxPlacement,
    thresholds: YunetThresholds,
) -> Result<Look, ModelError> {
    let mut found = Vec::new();
    for stride in STRIDES {
        let level = FeatureLevel::from_outputs(outputs, item, placement.canvas, stride)?;
        for (cell, (class, object)) in level.class_scores.iter().zip(level.objectness).enumerate() {
            let score = (class.clamp(0.0, 1.0) * object.clamp(0.0, 1.0)).sqrt();
            if score >= TRACE_SCORE.min(thresholds.score) {
                found.push(level.decode_face(cell, score, placement.scale));
            }
        }
    }
    // A trace suppresses no face: boxes are kept by their score.
    let kept = non_max_suppression(found, thresholds.iou, |face| face.rect, |face| face.score);
    let (faces, traces) = kept.into_iter().partition(|face| face.score >= thresholds.score);
    Ok(Look { faces, traces })
}
