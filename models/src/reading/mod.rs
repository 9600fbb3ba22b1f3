//! The bib reader. Bibs are on torsos under faces, so text is detected there only, at the scale at which the text
//! network reads digits best. `docs/READING.md` lists the steps; comments here cite them by number.
//!
//! A gate looks at each torso (`bib_gate`). Where it sees that a number may be, the runner gets a light pass on a CPU, which is
//! that of a small text detector, and the detected texts of a photo are read (`text_recogniser`). Where that leaves a text
//! without a confident bib, the runner gets a first pass (`torso`, `torso_detector`, `text_detector`). A runner who still has none
//! but a trace of one gets a second pass at a larger scale, and a third one at a smaller scale. The full frame is read when no
//! bib was accepted.
//! `readings` decides which of two readings of one text is kept. `reader` takes the photos of a batch through these steps
//! together, so that a call of a network has the torsos, or the texts, of several photos; a photo with many runners takes
//! several turns (`progress`), between which others are read.
//!
//! Knows nothing of albums except the pattern of their bibs.

mod bib_gate;
mod full_frame;
mod postprocess;
mod progress;
mod reader;
mod readings;
mod text_detector;
mod text_recogniser;
mod torso;
mod torso_detector;

use photofinish_kernels::image::frame::Size;
use photofinish_kernels::image::tensor::Tensor;

pub use self::bib_gate::{BibGate, GateScope, GateThresholds};
pub use self::full_frame::SharedTextDetector;
pub use self::reader::TorsoBibReader;
use self::torso::{FIRST_PASS, LIGHT_PASS, SECOND_PASS, THIRD_PASS, TorsoPass};
pub use self::torso::{RunnerBudget, limit_runners};
use crate::onnx::session::{Network, Workload};
use crate::traits::ModelError;

/// The networks that the reader runs. Each has its own session, because a session is fastest on one input shape.
pub struct ReaderNetworks {
    /// Decides which torsos are read, and where; without it, all are but those of small runners.
    pub bib_gate: Option<BibGate>,
    /// The light text detector, loaded with [`TorsoPassKind::whole_workload`]: it looks at torsos before the text detector, which
    /// then looks only where a text was seen that was not read for certain.
    pub light_pass: Option<Network>,
    /// Text detectors of the first pass, loaded with all of [`TorsoPassKind::workloads`] in this order, or with
    /// [`TorsoPassKind::whole_workload`] alone, which reads all of every torso.
    pub first_pass: Vec<Network>,
    /// The same for the second pass.
    pub second_pass: Vec<Network>,
    /// The same for the third pass.
    pub third_pass: Vec<Network>,
    /// Text detector for full frames of any shape.
    pub full_frame: SharedTextDetector,
    /// Text recogniser; its input is always 160 x 48.
    pub recogniser: Network,
    /// The recogniser's classes after the blank, in order.
    pub characters: String,
    /// Torsos per call of a text detector, and texts per call of the recogniser. More than one needs networks that were
    /// loaded for [`Items::Many`](crate::onnx::session::Items::Many).
    pub batch: usize,
}

/// The input of the bib gate, in pixels.
pub const BIB_GATE_INPUT: Size = bib_gate::INPUT;
/// The largest input of [`ReaderNetworks::first_pass`], in pixels.
pub const FIRST_PASS_CANVAS: Size = FIRST_PASS.canvas;
/// The input of [`ReaderNetworks::light_pass`], in pixels.
pub const LIGHT_PASS_CANVAS: Size = LIGHT_PASS.canvas;
/// The input of [`ReaderNetworks::recogniser`], in pixels.
pub const RECOGNISER_INPUT: Size =
    Size { width: text_recogniser::INPUT_WIDTH as u32, height: text_recogniser::INPUT_HEIGHT as u32 };
/// Workload to load [`ReaderNetworks::recogniser`] with.
pub const RECOGNISER_WORKLOAD: Workload =
    Workload::TextRecognition { width: text_recogniser::INPUT_WIDTH as u32 };

/// A pass over a torso.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorsoPassKind {
    /// That of the light text detector.
    Light,
    /// The first one of the text detector.
    First,
    /// The one at a larger scale.
    Second,
    /// The one at a smaller scale.
    Third,
}

impl TorsoPassKind {
    const fn pass(self) -> &'static TorsoPass {
        match self {
            Self::Light => &LIGHT_PASS,
            Self::First => &FIRST_PASS,
            Self::Second => &SECOND_PASS,
            Self::Third => &THIRD_PASS,
        }
    }

    /// Workloads to load its networks with: windows of the canvas, lowest first, and the whole canvas.
    pub fn workloads(self) -> [Workload; 3] {
        let width = self.pass().canvas.width;
        self.pass().heights().map(|height| Workload::TextDetection { width, height })
    }

    /// Workload for the whole canvas.
    pub fn whole_workload(self) -> Workload {
        let Size { width, height } = self.pass().canvas;
        Workload::TextDetection { width, height }
    }
}

/// Runs a network once as the light text detector.
///
/// # Errors
/// `File` when it is none.
pub fn check_light_detector(network: &mut Network) -> Result<(), ModelError> {
    let Size { width, height } = LIGHT_PASS.canvas;
    let mut input = Tensor::default();
    input.reshape([1, 3, height as usize, width as usize]);
    let values = network.run(&input).and_then(|outputs| Ok(outputs.first()?.values.len()));
    let detail = match values {
        Ok(values) if values == LIGHT_PASS.canvas.area() => return Ok(()),
        Ok(values) => {
            format!("not a light text detector: its map has {values} values for {width} x {height} pixels")
        }
        Err(error) => format!("not a light text detector: {error}"),
    };
    Err(ModelError::File { name: network.name().to_owned(), detail })
}
