//! The traits through which the pipeline uses networks. Methods take `&mut self` because a session belongs to one thread.
//! Results are one per input, in the same order, in pixels of the input frame.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use photofinish_kernels::geometry::{Point, Quad, Rect};
use photofinish_kernels::gpu::Gpu;
use photofinish_kernels::image::frame::Frame;
use photofinish_kernels::lattice::Lattice;

/// Asks calls of a network to end early; set from another thread, for good. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends running calls after their current run of a network, and all later calls at once.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether calls are to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Called before each run of a network.
    ///
    /// # Errors
    /// `Interrupted` when calls are to end.
    pub fn check(&self) -> Result<(), ModelError> {
        if self.is_set() { Err(ModelError::Interrupted) } else { Ok(()) }
    }
}

/// Detects faces.
pub trait FaceDetector: Send {
    /// Detects the faces of each frame, highest score first. Frames are shrunk to a long side of at most `long_side`
    /// pixels and never enlarged.
    ///
    /// # Errors
    /// `Inference` when the runtime fails; then no frame has a result.
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError>;
    /// Detects the same faces, and also returns what may be a face: it tells where to look more closely. None by default.
    ///
    /// # Errors
    /// As of [`Self::detect`].
    fn look(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Look>, ModelError> {
        let to_look = |faces| Look { faces, traces: Vec::new() };
        Ok(self.detect(frames, long_side)?.into_iter().map(to_look).collect())
    }
    /// Name and version of the network.
    fn identity(&self) -> &ModelIdentity;
}

/// Turns faces into embeddings.
pub trait FaceEmbedder: Send {
    /// Aligns each face by its landmarks and returns its vector of length 1, or none where it is too blurred.
    ///
    /// # Errors
    /// `Inference` when the runtime fails.
    fn embed(&mut self, faces: &[FaceCrop<'_>]) -> Result<Vec<EmbeddedFace>, ModelError>;
    /// Name and version of the network.
    fn identity(&self) -> &ModelIdentity;
}

/// Reads bibs.
pub trait BibReader: Send {
    /// Reads the texts of each photo, most confident first, by the steps of `docs/READING.md`.
    ///
    /// # Errors
    /// `Inference` when the runtime fails, `Interrupted` when the reader was interrupted.
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError>;
    /// Takes the next step of each photo: some runs of a network, so that others can be served between two steps of a photo
    /// with many runners. The texts at the end are those of [`Self::read`]. By default a photo is one step.
    ///
    /// # Errors
    /// As of [`Self::read`]; the steps can then be taken again.
    fn read_step(&mut self, photos: &[OpenReading<'_>]) -> Result<Vec<ReadStep>, ModelError> {
        let requests: Vec<ReadRequest<'_>> = photos.iter().map(|photo| photo.request).collect();
        Ok(self.read(&requests)?.into_iter().map(ReadStep::Done).collect())
    }
    /// Has calls end early once `interrupt` is set. Reading a photo takes many runs of networks, up to seconds; a reader
    /// that runs a single one per photo ignores this.
    fn end_when_set(&mut self, _interrupt: Interrupt) {}
    /// Returns what became of the torsos since the last call.
    fn take_counts(&mut self) -> TorsoCounts {
        TorsoCounts::default()
    }
    /// Names and version of the networks.
    fn identity(&self) -> &ModelIdentity;
}

/// Creates the networks. Called on the thread that will own the result.
pub trait ModelFactory: Send + Sync {
    /// Loads the face detector.
    ///
    /// # Errors
    /// `File`, `Runtime` or `Device` when the model file, the runtime or the device cannot be used.
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError>;
    /// Loads the face embedder.
    ///
    /// # Errors
    /// `File`, `Runtime` or `Device` when the model file, the runtime or the device cannot be used.
    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError>;
    /// Loads the networks of the bib reader.
    ///
    /// # Errors
    /// `File`, `Runtime` or `Device` when the model file, the runtime or the device cannot be used.
    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError>;
    /// Returns the batch sizes that suit the device.
    fn batch_sizes(&self) -> BatchSizes;
    /// For how long the oldest call of the device has been running; `None` when there is none, and on a CPU. Called from other
    /// threads than those that own networks.
    fn longest_device_call(&self) -> Option<Duration> {
        None
    }
    /// Whether the threads that call networks compute them, on cores that others want too; on a device they wait. The software
    /// that stands in for a GPU with Vulkan has threads of its own.
    fn uses_cores(&self) -> bool {
        true
    }
    /// Returns the GPU of the models for other work, once they have opened it; `None` on a CPU. A caller keeps it: once it is
    /// lost it stays so. What a caller has there is freed when the models lack memory, and its next call says so.
    fn lend_gpu(&self) -> Option<Arc<dyn Gpu>> {
        None
    }
    /// Names the device, for logs and the status of a process with several: the first NVIDIA GPU is `cuda:0`.
    fn device_name(&self) -> Option<String> {
        None
    }
    /// Returns the models by their roles, for reports to operators; empty where they have none.
    fn identities(&self) -> Vec<(&'static str, ModelIdentity)> {
        Vec::new()
    }
}

/// Items per call: 1 on a CPU, where a batch is slower per item because activations no longer fit the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Frames per call of the detector.
    pub detect: usize,
    /// Faces per call of the embedder.
    pub embed: usize,
    /// Photos per call of the reader, and torsos or texts per call of the text networks.
    pub read: usize,
}

impl BatchSizes {
    /// Whether every call has one item, as on a CPU.
    pub fn are_single(&self) -> bool {
        self.detect <= 1 && self.embed <= 1 && self.read <= 1
    }
}

/// A detected face.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaceBox {
    /// Bounding box; may extend beyond the frame.
    pub rect: Rect,
    /// Image-left eye, image-right eye, nose tip, image-left and image-right mouth corner.
    pub landmarks: [Point; 5],
    /// The detector's score, 0 to 1.
    pub score: f32,
}

/// What a detector saw in a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// The faces, highest score first.
    pub faces: Vec<FaceBox>,
    /// Boxes whose score is too low for a face. Some are small faces, which the detector finds at a larger scale.
    pub traces: Vec<FaceBox>,
}

/// A face to embed.
#[derive(Clone, Copy, Debug)]
pub struct FaceCrop<'a> {
    /// The picture that contains the face.
    pub frame: Frame<'a>,
    /// As in [`FaceBox`].
    pub landmarks: [Point; 5],
    /// It gets no vector where its crop is less sharp; 0 for one in any case. See [`EmbeddedFace::sharpness`].
    pub least_sharpness: f32,
}

impl<'a> FaceCrop<'a> {
    /// A face that is embedded however blurred it is.
    pub fn new(frame: Frame<'a>, landmarks: [Point; 5]) -> Self {
        Self { frame, landmarks, least_sharpness: 0.0 }
    }
}

/// The embedding of a face, with the sharpness of its aligned crop.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedFace {
    /// The embedding; its length is 1. Without numbers for a face that is less sharp than was asked for.
    pub vector: Vec<f32>,
    /// Variance of the Laplacian of the aligned crop's grey values (0 to 255), scaled to a 112 px crop. Low means blurred.
    pub sharpness: f32,
}

/// What became of torsos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorsoCounts {
    /// Text was detected on them, as far as there was any.
    pub read: u64,
    /// The bib gate saw no number.
    pub no_number: u64,
}

/// A photo to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// The upright working frame, long side at most 2048 in `photo` mode.
    pub frame: Frame<'a>,
    /// The faces detected in it.
    pub faces: &'a [FaceBox],
    /// The album's bib pattern.
    pub pattern: &'a BibPattern,
}

/// A photo of which a reader has taken some steps.
#[derive(Clone, Copy, Debug)]
pub struct OpenReading<'a> {
    /// The photo, the same in all steps.
    pub request: ReadRequest<'a>,
    /// What the step before returned; `None` for the first one.
    pub progress: Option<&'a ReadProgress>,
}

/// What a step of reading led to.
#[derive(Clone, Debug)]
pub enum ReadStep {
    /// The photo needs more steps.
    More(ReadProgress),
    /// The texts of the photo, most confident first.
    Done(Vec<BibText>),
}

/// How far a reader is with a photo; only readers of its kind know what is in it. Cheap to clone.
#[derive(Clone)]
pub struct ReadProgress(Arc<dyn Any + Send + Sync>);

impl ReadProgress {
    /// Wraps what a reader knows of a photo.
    pub fn new<T: Any + Send + Sync>(state: T) -> Self {
        Self(Arc::new(state))
    }

    /// Returns what [`Self::new`] wrapped; `None` if that was of another type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for ReadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadProgress").finish_non_exhaustive()
    }
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct BibText {
    /// Upper-case letters and digits, at least one.
    pub text: String,
    /// Corners in pixels of the frame.
    pub quad: Quad,
    /// Mean probability of its characters, 0 to 1, at most `max_confidence`.
    pub confidence: f32,
    /// The highest confidence that whoever judges the text again may have; 1 for no limit. Lower where the characters are
    /// too small to tell a number from its neighbours, whatever is known of the event.
    pub max_confidence: f32,
    /// Whether the whole text matches the pattern.
    pub is_bib: bool,
    /// What else the recogniser thought it may say.
    pub lattice: Lattice,
}

/// A bib pattern: an anchored regular expression over upper-case letters and digits, compiled.
#[derive(Clone, Debug)]
pub struct BibPattern(regex::Regex);

impl BibPattern {
    /// Compiles a pattern. The compiled size is limited, so that a partner's pattern cannot exhaust the memory.
    ///
    /// # Errors
    /// `Pattern` when it is not a regular expression or compiles to more than 256 KiB.
    pub fn new(pattern: &str) -> Result<Self, ModelError> {
        regex::RegexBuilder::new(&format!("^(?:{pattern})$"))
            .size_limit(1 << 18)
            .build()
            .map(Self)
            .map_err(|error| ModelError::Pattern(error.to_string()))
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Name and version of a network. Stored with each embedding: embeddings of different models are never compared.
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

/// Why a network cannot be used, by what an operator can do about it.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The runtime library is missing, too old or unusable.
    #[error("onnx runtime: {0}")]
    Runtime(String),
    /// A model file is missing, damaged or not the expected one.
    #[error("model {name}: {detail}")]
    File {
        /// The model's name.
        name: String,
        /// What is wrong with the file.
        detail: String,
    },
    /// The configured device is not available, or was lost while it worked.
    #[error("device {device}: {detail}")]
    Device {
        /// The device, as configured.
        device: String,
        /// Why it is not available.
        detail: String,
    },
    /// The network failed while running, for example by an output of the wrong shape.
    #[error("model {name} failed: {detail}")]
    Inference {
        /// The model's name.
        name: String,
        /// The runtime's message.
        detail: String,
    },
    /// The device has not enough memory for a call: fewer items may fit.
    #[error("model {name}: the device is out of memory: {detail}")]
    OutOfMemory {
        /// What was called.
        name: String,
        /// The message of the runtime or the driver.
        detail: String,
    },
    /// A bib pattern cannot be compiled.
    #[error("bib pattern: {0}")]
    Pattern(String),
    /// The call ended early because its [`Interrupt`] was set; it found nothing.
    #[error("interrupted")]
    Interrupted,
}
