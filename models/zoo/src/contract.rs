//! How to call a network: shapes, channel order, scaling, thresholds. These are properties of the network, not settings.

use serde::Deserialize;

/// How to call a network.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Contract {
    /// YuNet: BGR 0 to 255, sides multiples of 32, outputs at strides 8, 16, 32.
    Yunet {
        /// Least score of a face, 0 to 1.
        score_threshold: f32,
        /// Of two faces with a larger intersection over union, the one with the higher score stays.
        iou_threshold: f32,
    },
    /// The library libfacedetection, called directly.
    Libfacedetection {
        /// Least score of a face, 0 to 1.
        score_threshold: f32,
    },
    /// A face embedder: aligned face in, vector out.
    Embedder(EmbedderContract),
    /// PP-OCR detector: BGR, -1 to 1, sides multiples of 32, one probability per pixel out. The light text detector is called
    /// alike, with 128 x 192 pixels.
    TextDetector {
        /// The file for calls with several pictures, which gives the same; `None`: the network's own file takes them.
        file_for_batches: Option<String>,
    },
    /// PP-OCR recogniser: BGR, -1 to 1, 48 rows, class probabilities per column out, CTC.
    TextRecogniser {
        /// The classes after the blank, in order.
        characters: String,
    },
    /// The bib gate: `image`, BGR, 0 to 255, 96 x 144 in; `score` [1, 2] and `map` [1, 2, 12, 8] out, probabilities of text
    /// and of a number. The file's metadata may name the thresholds `skip_below` and `second_pass_from`.
    BibGate,
}

/// How to call a face embedder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedderContract {
    /// Name of the input, `[N, 3, size, size]`.
    pub input: String,
    /// Name of the output, `[N, dimensions]`, not normalised.
    pub output: String,
    /// Side of the aligned crop, pixels.
    pub size: u32,
    /// Order of the input's colour planes.
    pub channels: ChannelOrder,
    /// Subtracted from each plane, 0 to 255.
    pub mean: [f32; 3],
    /// Divisor of each plane.
    pub deviation: [f32; 3],
    /// Positions of the five landmarks in the crop, in pixels: image-left eye, image-right eye, nose tip, mouth corners.
    pub template: [[f32; 2]; 5],
    /// Length of the vector.
    pub dimensions: usize,
    /// Conversion from cosine to confidence.
    pub calibration: Calibration,
}

/// Order of the colour planes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
}

/// How a selfie search reads cosines, measured and fitted as docs/EVALUATION.md says. The confidence of a hit is
/// `100 / (1 + exp(-slope * (score - midpoint)))`; its score is a cosine to the probe and the person's sure hits, less half
/// of the cosine that strangers reach.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The score of confidence 50.
    pub midpoint: f64,
    /// Steepness of the curve.
    pub slope: f64,
    /// From this cosine on two faces are surely of one person.
    pub sure_cosine: f64,
    /// What the bib of the person adds to a score, and another bib subtracts.
    pub bib_weight: f64,
    /// The cosine of strangers where an album has too few faces to measure it.
    pub few_faces_level: f64,
}
