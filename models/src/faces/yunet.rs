//! The default face detector, YuNet: boxes and five landmarks in one pass at three strides (Wu, Peng, Yu: "YuNet: a tiny
//! millisecond-level face detector", 2023).

use photofinish_kernels::batch::faces::{self, Detections, FoundFace, Level};
use photofinish_kernels::batch::letterbox::{self, Placement};
use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::Point;
use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Slot, Tensor};
use photofinish_kernels::resize::letterbox::{Letterbox, round_up_to_multiple};

use crate::bucket::{Bucket, padded};
use crate::onnx::kernels::KernelDevice;
use crate::onnx::session::{Network, Outputs};
use crate::traits::{FaceBox, FaceDetector, Look, ModelError, ModelIdentity};

/// The strides of the network's outputs.
const STRIDES: [u32; 3] = [8, 16, 32];
/// The input's sides are multiples of this, in pixels.
const SIZE_MULTIPLE: u32 = 32;
const INPUT_NORMALISATION: Normalisation = Normalisation::raw(Channels::Bgr);

/// Sides of canvases where frames are in batches: a device prepares the network for each size, which takes seconds. 256, 448 and
/// 576 are above what parts of a closer look have, one, two and three squares with their margins.
const COMMON_SIDES: [u32; 7] = [256, 448, 576, 640, 800, 1056, 1280];

/// Long side of whole frames at a first look. No part has it.
const WHOLE_LONG_SIDE: u32 = 640;

/// Sides of their canvases: 384, 448, 480 and 512 are what photos of 16:9, 3:2, 4:3 and 5:4 have by themselves, so that no
/// format gets other scores in batches. With the first three, upright and not, there are six canvases, and sessions for 1, 4 and
/// 16 frames of each; 13 canvases at most.
const WHOLE_SIDES: [u32; 7] = [256, 384, 448, 480, 512, 576, WHOLE_LONG_SIDE];

/// Larger sides are multiples of this there.
const COMMON_MULTIPLE: u32 = 256;

/// A canvas of more pixels is a large one.
const LARGE_AREA: usize = 640 * 640;

/// Least score of a trace. Of the faces of composed crowds that are missed at 640 pixels and found at 2048 most have more at
/// the first look.
const TRACE_SCORE: f32 = 0.1;

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
    kernels: KernelDevice,
    /// Frames per call, of those of a first look.
    bucket: Bucket,
    /// Frames per call above it: each takes several times the memory of the device.
    large_bucket: Bucket,
}

/// What messages call the network.
const NAME: &str = "yunet";

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
    /// Wraps a loaded network, with kernels on the processor and one frame per call.
    pub fn new(network: Network, thresholds: YunetThresholds, identity: ModelIdentity) -> Self {
        let letterbox = Letterbox::new(&Device::Cpu);
        let (kernels, bucket) = (KernelDevice::cpu(), Bucket::new(1));
        let (input, large_bucket) = (Tensor::default(), bucket);
        Self { network, thresholds, identity, letterbox, input, kernels, bucket, large_bucket }
    }

    /// With kernels on this device, and as many frames per call as the bucket says.
    #[must_use]
    pub fn on_device(self, kernels: KernelDevice, bucket: Bucket) -> Self {
        Self { kernels, bucket, large_bucket: bucket.smaller(), ..self }
    }

    /// Where a frame goes: in batches on one of few canvases.
    fn plan(&self, frame: Frame<'_>, long_side: u32) -> LetterboxPlacement {
        let placement = plan_letterbox(frame, long_side);
        let canvas = if self.bucket.has_several() { common_canvas(placement.size) } else { placement.canvas };
        LetterboxPlacement { canvas, ..placement }
    }

    /// Runs one call on the frames with the indices `group`, which share a canvas size.
    fn detect_group(
        &mut self,
        frames: &[Frame<'_>],
        placements: &[LetterboxPlacement],
        group: &[usize],
    ) -> Result<Vec<Look>, ModelError> {
        let canvas = placements[group[0]].canvas;
        if self.kernels.is_gpu() {
            let place = |index: &usize| Placement {
                window: frames[*index].as_window(),
                size: placements[*index].size,
                skipped_rows: 0,
            };
            let (items, input): (Vec<_>, _) = (group.iter().map(place).collect(), &mut self.input);
            let place_all =
                |device: &Device| letterbox::place_all(device, &items, canvas, &INPUT_NORMALISATION, input);
            self.kernels.run(NAME, place_all)?;
        } else {
            self.place_one_by_one(frames, placements, group);
        }
        self.input.reshape([padded(group.len()), 3, canvas.height as usize, canvas.width as usize]);
        let outputs = self.network.run(&self.input)?;
        let placements: Vec<LetterboxPlacement> = group.iter().map(|&index| placements[index]).collect();
        decode_faces(&self.kernels, &outputs, &placements, self.thresholds)
    }

    /// Fills the input on this thread, with buffers that are kept between calls.
    fn place_one_by_one(&mut self, frames: &[Frame<'_>], placements: &[LetterboxPlacement], group: &[usize]) {
        let canvas = placements[group[0]].canvas;
        self.input.reshape([group.len(), 3, canvas.height as usize, canvas.width as usize]);
        for (item, &index) in group.iter().enumerate() {
            let slot = Slot { tensor: &mut self.input, item, normalisation: &INPUT_NORMALISATION };
            self.letterbox.place(frames[index].as_window(), placements[index].size, slot);
        }
    }
}

impl FaceDetector for Yunet {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        Ok(self.look(frames, long_side)?.into_iter().map(|look| look.faces).collect())
    }

    fn look(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Look>, ModelError> {
        let placements: Vec<LetterboxPlacement> =
            frames.iter().map(|frame| self.plan(*frame, long_side)).collect();
        let mut found = vec![Look::default(); frames.len()];
        let mut remaining: Vec<usize> = (0..frames.len()).collect();
        while let Some(&first) = remaining.first() {
            let canvas = placements[first].canvas;
            let (group, rest) = remaining.into_iter().partition(|&index| placements[index].canvas == canvas);
            let group: Vec<usize> = group;
            let is_large = canvas.area() > LARGE_AREA;
            let mut bucket = if is_large { self.large_bucket } else { self.bucket };
            let looks = bucket.run(&group, |part| self.detect_group(frames, &placements, part));
            *(if is_large { &mut self.large_bucket } else { &mut self.bucket }) = bucket;
            for (look, &index) in looks?.into_iter().zip(&group) {
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

/// Where a frame goes, on the smallest canvas that the network takes.
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

/// One of few canvases. What is beyond a frame is seen by later layers: a canvas that is much larger than the frame moves the
/// scores of faces at its sides, by up to .06.
fn common_canvas(size: Size) -> Size {
    let sides = if size.long_side() == WHOLE_LONG_SIDE { WHOLE_SIDES } else { COMMON_SIDES };
    let side = |shown: u32| {
        let common = sides.into_iter().find(|&side| shown <= side);
        common.unwrap_or_else(|| round_up_to_multiple(shown, COMMON_MULTIPLE))
    };
    Size { width: side(size.width), height: side(size.height) }
}

/// Reads the outputs of a stride for the first `frames` items.
fn read_level<'o>(
    outputs: &'o Outputs<'_>,
    canvas: Size,
    stride: u32,
    frames: usize,
) -> Result<Level<'o>, ModelError> {
    let values = |head: &str| -> Result<&'o [f32], ModelError> {
        let values = outputs.get(&format!("{head}_{stride}"))?.values;
        Ok(&values[..values.len() / padded(frames) * frames])
    };
    Ok(Level {
        stride,
        columns: (canvas.width / stride) as usize,
        rows: (canvas.height / stride) as usize,
        classes: values("cls")?,
        objects: values("obj")?,
        boxes: values("bbox")?,
        landmarks: values("kps")?,
    })
}

/// Decodes the outputs of frames whose inputs have one size.
fn decode_faces(
    kernels: &KernelDevice,
    outputs: &Outputs<'_>,
    placements: &[LetterboxPlacement],
    thresholds: YunetThresholds,
) -> Result<Vec<Look>, ModelError> {
    let canvas = placements[0].canvas;
    let levels = STRIDES.map(|stride| read_level(outputs, canvas, stride, placements.len()));
    let [small, medium, large] = levels;
    let levels = [small?, medium?, large?];
    let scales: Vec<Point> = placements.iter().map(|placement| placement.scale).collect();
    let min_score = TRACE_SCORE.min(thresholds.score);
    let detections = Detections { levels: &levels, scales: &scales, min_score, max_iou: thresholds.iou };
    let found = kernels.run(NAME, |device| faces::find_all(device, &detections))?;
    // A trace suppresses no face: boxes are kept by their score.
    let look = |found: Vec<FoundFace>| {
        let boxes =
            found.into_iter().map(|FoundFace { rect, landmarks, score }| FaceBox { rect, landmarks, score });
        let (faces, traces) = boxes.partition(|face| face.score >= thresholds.score);
        Look { faces, traces }
    };
    Ok(found.into_iter().map(look).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_batch_are_on_few_canvases_that_show_all_of_them() {
        let canvas = |width, height| {
            let Size { width, height } = common_canvas(Size { width, height });
            (width, height)
        };
        for short in [360, 384, 427, 480, 512, 640] {
            let alone = round_up_to_multiple(short, SIZE_MULTIPLE);
            let canvases = [canvas(640, short), canvas(short, 640)];
            assert_eq!(canvases, [(640, alone), (alone, 640)], "as each by itself");
        }
        assert_eq!([canvas(640, 40), canvas(530, 640), canvas(1, 360)], [(640, 256), (576, 640), (256, 448)]);
        assert_eq!([canvas(1280, 853), canvas(2048, 1365)], [(1280, 1056), (2048, 1536)]);
        // One, two and three squares of 158 pixels at the edge of a frame and within it.
        let parts = [190, 222, 347, 379, 505, 537].map(|side| canvas(side, side).0);
        assert_eq!(parts, [256, 256, 448, 448, 576, 576]);
        for side in 1..3000 {
            let shown = canvas(side, side).0;
            assert!(shown >= side && shown.is_multiple_of(SIZE_MULTIPLE), "{side}: {shown}");
            let whole = canvas(WHOLE_LONG_SIDE, side.min(WHOLE_LONG_SIDE)).1;
            assert!(
                whole >= side.min(WHOLE_LONG_SIDE) && whole.is_multiple_of(SIZE_MULTIPLE),
                "{side}: {whole}"
            );
        }
    }
}
