//! What the pipeline asks of networks. `&mut self`: a session belongs to one thread. Results are in pixels of the
//! frame given, one per input, in order.

use photofinish_kernels::frame::Frame;
use photofinish_kernels::geometry::{Point, Quad, Rect};

/// Finds faces.
pub trait FaceDetector: Send {
    /// Faces of each frame, surest first. The frame is shrunk so that its long side is at most `long_side` pixels,
    /// never enlarged.
    ///
    /// # Errors
    /// When the runtime fails; nothing about one frame is an error of the others.
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError>;
    /// Which network this is.
    fn identity(&self) -> &ModelIdentity;
}

/// Turns faces into unit vectors.
pub trait FaceEmbedder: Send {
    /// One vector of length 1 per face. Aligns the face by its landmarks first.
    ///
    /// # Errors
    /// When the runtime fails.
    fn embed(&mut self, faces: &[FaceCrop<'_>]) -> Result<Vec<EmbeddedFace>, ModelError>;
    /// Which network this is.
    fn identity(&self) -> &ModelIdentity;
}

/// Reads bibs.
pub trait BibReader: Send {
    /// Texts of each photo, surest first: by the recipe of `docs/READING.md`.
    ///
    /// # Errors
    /// When the runtime fails.
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError>;
    /// Which networks these are.
    fn identity(&self) -> &ModelIdentity;
}

/// Makes the networks, on the thread that will own them.
pub trait ModelFactory: Send + Sync {
    /// A face detector.
    ///
    /// # Errors
    /// When the file, the runtime or the device does not serve.
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError>;
    /// A face embedder.
    ///
    /// # Errors
    /// When the file, the runtime or the device does not serve.
    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError>;
    /// A bib reader.
    ///
    /// # Errors
    /// When the file, the runtime or the device does not serve.
    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError>;
    /// Batch sizes that suit the device.
    fn batch_sizes(&self) -> BatchSizes;
}

/// How many items a call should carry: 1 on a CPU, where batching costs (activations leave the cache).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Frames a call of the detector.
    pub detect: usize,
    /// Faces a call of the embedder.
    pub embed: usize,
    /// Photos a call of the reader.
    pub read: usize,
}

/// A face found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaceBox {
    /// Where; may reach beyond the frame.
    pub rect: Rect,
    /// Image-left eye, image-right eye, nose tip, image-left and image-right mouth corner.
    pub landmarks: [Point; 5],
    /// 0 to 1.
    pub score: f32,
}

/// A face to embed.
#[derive(Clone, Copy, Debug)]
pub struct FaceCrop<'a> {
    /// The picture that it is in.
    pub frame: Frame<'a>,
    /// As in [`FaceBox`].
    pub landmarks: [Point; 5],
}

/// A face's vector with what its aligned crop showed.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedFace {
    /// Unit length.
    pub vector: Vec<f32>,
    /// Variance of the Laplacian of the aligned crop's grey values (0 to 255), scaled to a 112 px crop: blur is low.
    pub sharpness: f32,
}

/// A photo to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// The upright working frame, long side at most 2048 in `photo` mode.
    pub frame: Frame<'a>,
    /// The faces found in it.
    pub faces: &'a [FaceBox],
    /// What a bib of this event looks like.
    pub pattern: &'a BibPattern,
}

/// A text read.
#[derive(Clone, Debug, PartialEq)]
pub struct BibText {
    /// Upper-case letters and digits; never empty.
    pub text: String,
    /// Where.
    pub quad: Quad,
    /// Mean probability of its characters, 0 to 1.
    pub confidence: f32,
    /// Whether the whole text matches the pattern.
    pub is_bib: bool,
}

/// What a bib looks like: a regular expression over upper-case letters and digits, anchored, checked once.
#[derive(Clone, Debug)]
pub struct BibPattern(regex::Regex);

impl BibPattern {
    /// Compiles a pattern; bounded in size, so that a partner's pattern cannot take the service down.
    ///
    /// # Errors
    /// When it is no regular expression, or too large a one.
    pub fn new(pattern: &str) -> Result<Self, ModelError> {
        regex::RegexBuilder::new(&format!("^(?:{pattern})$"))
            .size_limit(1 << 18)
            .build()
            .map(Self)
            .map_err(|error| ModelError::Pattern(error.to_string()))
    }

    /// Whether the whole text is a bib.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Name and version of a network; stored with each vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelIdentity {
    /// For example `omz-face-reidentification-0095`.
    pub name: String,
    /// Raised when vectors or boxes change meaning.
    pub version: u32,
}

impl std::fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// Why a network cannot serve, by what an operator can do about it.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No runtime library, or one too old.
    #[error("onnx runtime: {0}")]
    Runtime(String),
    /// A model file is missing, damaged or not the one expected.
    #[error("model {name}: {detail}")]
    File {
        /// The model.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The device asked for is not there.
    #[error("device {device}: {detail}")]
    Device {
        /// As configured.
        device: String,
        /// A plain sentence.
        detail: String,
    },
    /// The network failed while running: device lost, out of memory, an output of the wrong shape.
    #[error("model {name} failed: {detail}")]
    Inference {
        /// The model.
        name: String,
        /// The runtime's words.
        detail: String,
    },
    /// An album's bib pattern is not usable.
    #[error("bib pattern: {0}")]
    Pattern(String),
}
