//! Runs the peer: a pipeline of the usual Python libraries (`shared/peer/peer.py`), in a virtual environment with pinned
//! versions.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

use crate::paths::InputPaths;
use crate::python::{self, run_command};

/// Packages of the peer, pinned, so that a figure states what it is compared with.
const PACKAGES: [&str; 9] = [
    "opencv-python-headless==5.0.0.93",
    "onnxruntime==1.31.1",
    "numpy==2.4.6",
    "pyclipper==1.4.0",
    "shapely==2.2.0",
    "pillow==13.0.0",
    "PyYAML==6.0.3",
    "six==1.17.0",
    "tqdm==4.70.1",
];

/// Installed without its dependencies, which include the OpenCV package that needs a display.
const TEXT_READER: &str = "rapidocr-onnxruntime==1.4.4";

/// The prepared peer.
pub struct Peer {
    python: PathBuf,
    script: PathBuf,
    yunet: PathBuf,
    embedder: PathBuf,
    scratch: tempfile::TempDir,
}

/// Configuration of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerMode {
    /// Full decode, faces and text on the whole preview.
    Plain,
    /// Half-scale decode, faces at 640, text at 1280 without the angle classifier.
    Tuned,
}

impl fmt::Display for PeerMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "peer, plain",
            Self::Tuned => "peer, tuned",
        })
    }
}

/// Results of a run, as the peer prints them.
#[derive(Clone, Debug, Deserialize)]
pub struct PeerRun {
    /// Photos read.
    pub photos: usize,
    /// Faces detected in all photos.
    pub faces: usize,
    /// User and system time of the process per photo, without loading models.
    pub cpu_ms_per_photo: f64,
    /// Photos per second of wall time.
    pub photos_per_s: f64,
    /// CPU time per photo by stage, in ms.
    pub stages_ms: BTreeMap<String, f64>,
    /// Peak resident memory in MiB.
    pub peak_rss_mb: f64,
    /// Results by file.
    #[serde(skip)]
    pub seen: BTreeMap<String, PeerPhoto>,
}

/// Results of the peer for a photo.
#[derive(Clone, Debug, Deserialize)]
pub struct PeerPhoto {
    /// Number of faces.
    pub faces: usize,
    /// Texts with their confidence, 0 to 1.
    pub texts: Vec<(String, f64)>,
}

impl Peer {
    /// Creates the virtual environment if it does not exist.
    ///
    /// # Errors
    /// When Python, a package, the peer or its models are not available.
    pub fn prepare(paths: &InputPaths) -> anyhow::Result<Self> {
        let python = python::prepare_environment("venv-peer", &PACKAGES, &[TEXT_READER])?;
        let models = paths.find_models_dir()?;
        Ok(Self {
            python,
            script: paths.find_shared("peer/peer.py")?,
            yunet: models.join("yunet_n_dynamic.onnx"),
            embedder: models.join("omz_face_reid_0095_fused.onnx"),
            scratch: tempfile::tempdir()?,
        })
    }

    /// Returns the versions that matter for its speed.
    pub fn versions() -> Vec<String> {
        [PACKAGES[0], PACKAGES[1], TEXT_READER]
            .iter()
            .map(|package| format!("peer: {}", package.replace("==", " ")))
            .collect()
    }

    /// Runs the peer over a folder.
    ///
    /// # Errors
    /// When it fails or its output cannot be parsed.
    pub fn run(&self, mode: PeerMode, folder: &Path, threads: usize) -> anyhow::Result<PeerRun> {
        let results_file = self.scratch.path().join("results.json");
        let mut command = Command::new(&self.python);
        command
            .arg(&self.script)
            .arg(folder)
            .arg("--yunet")
            .arg(&self.yunet)
            .arg("--embedder")
            .arg(&self.embedder);
        command.arg("--threads").arg(threads.to_string()).arg("--out").arg(&results_file);
        // Each library would otherwise choose its own number of threads.
        command.env("OMP_NUM_THREADS", threads.to_string()).env("OPENBLAS_NUM_THREADS", threads.to_string());
        if mode == PeerMode::Tuned {
            command.arg("--tuned");
        }
        let printed = run_command(&mut command)?;
        let line =
            printed.lines().rfind(|line| line.starts_with('{')).context("the peer printed no figures")?;
        let mut results: PeerRun = serde_json::from_str(line)
            .with_context(|| format!("cannot parse the output of the peer: {line}"))?;
        results.seen = serde_json::from_slice(&std::fs::read(&results_file)?)?;
        Ok(results)
    }
}
