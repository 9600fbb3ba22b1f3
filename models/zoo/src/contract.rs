//! How a network is called: shapes, channel order, scaling, thresholds. Facts of the network, not choices of ours.

use serde::Deserialize;

/// How a network is called.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Contract {
    /// YuNet: BGR 0 to 255, sides multiples of 32, outputs at strides 8, 16, 32.
    Yunet {
        /// Faces below are not given.
        score_threshold: f32,
        /// Of two faces that overlap more, the surer stays.
        iou_threshold: f32,
    },
    /// The library libfacedetection, called directly.
    Libfacedetection {
        /// Faces below are not given.
        score_threshold: f32,
    },
    /// Aligned face in, vector out.
    Embedder(EmbedderContract),
    /// PP-OCR detector: BGR, -1 to 1, sides multiples of 32, one probability a pixel out.
    TextDetector,
    /// PP-OCR recogniser: BGR, -1 to 1, 48 rows, class probabilities a column group out, CTC.
    TextRecogniser {
        /// The classes after the blank, in order.
        characters: String,
    },
}

/// How an embedder is called.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedderContract {
    /// Name of the input, `[N, 3, size, size]`.
    pub input: String,
    /// Name of the output, `[N, dimensions]`, not normalised.
    pub output: String,
    /// Side of the aligned crop, pixels.
    pub size: u32,
    /// Order of the input's planes.
    pub channels: ChannelOrder,
    /// Subtracted from each plane, 0 to 255.
    pub mean: [f32; 3],
    /// What each plane is divided by.
    pub deviation: [f32; 3],
    /// Where the five landmarks lie in the crop: image-left eye, image-right eye, nose tip, mouth corners.
    pub template: [[f32; 2]; 5],
    /// Length of the vector.
    pub dimensions: usize,
    /// What a cosine is worth.
    pub calibration: Calibration,
}

/// Order of an input's planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
}

/// Confidence from cosine: `100 / (1 + exp(-slope * (cosine - midpoint)))`, fitted by `cargo xtask eval calibrate`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The cosine of confidence 50.
    pub midpoint: f64,
    /// Steepness.
    pub slope: f64,
}
