//! DBNet's probability maps to text boxes: binary maps, contours, rectangles and scores.
//!
//! The device does what touches every pixel: it thresholds and dilates, packs the result into one bit a pixel, and adds
//! up the probabilities in boxes. Contours are traced on the host: they are a union of runs whose parents are looked up
//! one after another, a map of 256 x 384 pixels has few runs, and what is copied for them is a 32nd of the map.

mod plan;

use std::ops::Range;

use crate::device::Device;
use crate::gpu::{GpuError, Kernel, Source};
use crate::regions::{DbParameters, DbPostprocess, DetectedBox, ProbabilityMap};

pub(super) static SOURCE: Source = Source {
    name: "text_map",
    wgsl: include_str!("text_map.wgsl"),
    cuda: include_str!("text_map.cu"),
    entries: &["text_bits", "text_scores"],
};

static BITS: Kernel = Kernel { source: &SOURCE, entry: "text_bits", group: [32, 4, 1], writable: &[2, 3] };
static SCORES: Kernel = Kernel { source: &SOURCE, entry: "text_scores", group: [64, 1, 1], writable: &[3] };

/// A map, and the columns of which the highest probability is wanted.
#[derive(Clone, Debug)]
pub struct TextMap<'a> {
    /// The network's output.
    pub map: ProbabilityMap<'a>,
    /// Clamped to the map.
    pub columns: Range<usize>,
}

/// What is in a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapTexts {
    /// As [`DbPostprocess::find_boxes`] finds them.
    pub boxes: Vec<DetectedBox>,
    /// As [`ProbabilityMap::max_in_columns`].
    pub max_probability: f32,
}

/// Finds the boxes of each map. Boxes are the same on every device, their scores within 1e-5 of the reference, which
/// adds up in f64.
///
/// # Errors
/// When the device fails, or a map is more than its largest buffer.
pub fn find_all(
    device: &Device,
    maps: &[TextMap<'_>],
    parameters: &DbParameters,
) -> Result<Vec<MapTexts>, GpuError> {
    let mut postprocess = DbPostprocess::default();
    match device {
        Device::Cpu => {
            let find = |text: &TextMap<'_>| MapTexts {
                boxes: postprocess.find_boxes(text.map, parameters),
                max_probability: text.map.max_in_columns(text.columns.start, text.columns.end),
            };
            Ok(maps.iter().map(find).collect())
        }
        Device::Gpu(gpu) => plan::find_all(&**gpu, maps, parameters, &mut postprocess),
    }
}
