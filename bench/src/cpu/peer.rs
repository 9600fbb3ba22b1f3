//! The peer: what an organizer's engineer writes today in Python (`shared/peer/peer.py`), in an environment of its own
//! with pinned versions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

use crate::paths::{InputPaths, state_dir};

/// What the peer needs, pinned: a figure names the rivals it was taken against.
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

/// Without its dependencies: it names the OpenCV package that needs a display, in place of the headless one above.
const TEXT_READER: &str = "rapidocr-onnxruntime==1.4.4";

/// A Python that can run the peer.
pub struct Peer {
    python: PathBuf,
    script: PathBuf,
    yunet: PathBuf,
    embedder: PathBuf,
    scratch: tempfile::TempDir,
}

/// How the peer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerMode {
    /// Full decode, faces and text on the whole preview.
    Plain,
    /// Half-scale decode, faces at 640, text at 1280 without the angle classifier.
    Tuned,
}

/// What the peer says of a run.
#[derive(Clone, Debug, Deserialize)]
pub struct PeerRun {
    /// Photos read.
    pub photos: usize,
    /// Faces found in all of them.
    pub faces: usize,
    /// User and system time of the process a photo, models loaded before.
    pub cpu_ms_per_photo: f64,
    /// By the wall.
    pub photos_per_s: f64,
    /// Of that, by stage.
    pub stages_ms: BTreeMap<String, f64>,
    /// Most memory ever resident.
    pub peak_rss_mb: f64,
    /// What was seen, by file.
    #[serde(skip)]
    pub seen: BTreeMap<String, PeerPhoto>,
}

/// What the peer saw in a photo.
#[derive(Clone, Debug, Deserialize)]
pub struct PeerPhoto {
    /// How many faces.
    pub faces: usize,
    /// Texts with their confidence, 0 to 1.
    pub texts: Vec<(String, f64)>,
}

impl Peer {
    /// Makes the environment when it is not there yet.
    ///
    /// # Errors
    /// When Python or a package cannot be had, or the peer or its models are not there.
    pub fn prepare(places: &InputPaths) -> anyhow::Result<Self> {
        let folder = state_dir().join("venv-peer");
        let python = folder.join("bin").join("python");
        let complete = folder.join("packages.txt");
        let wanted = PACKAGES.join("\n") + "\n" + TEXT_READER;
        if std::fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
            println!("the peer's environment is there: {}", folder.display());
        } else {
            println!("making the peer's environment in {}", folder.display());
            run_command(Command::new("python3").arg("-m").arg("venv").arg(&folder))?;
            let pip = |arguments: &[&str]| {
                run_command(
                    Command::new(&python)
                        .args(["-m", "pip", "install", "-q", "--disable-pip-version-check"])
                        .args(arguments),
                )
            };
            pip(&PACKAGES)?;
            pip(&["--no-deps", TEXT_READER])?;
            std::fs::write(&complete, wanted)?;
        }
        let models = places.find_models_dir()?;
        Ok(Self {
            python,
            script: places.find_shared("peer/peer.py")?,
            yunet: models.join("yunet_n_dynamic.onnx"),
            embedder: models.join("omz_face_reid_0095_fused.onnx"),
            scratch: tempfile::tempdir()?,
        })
    }

    /// The versions that matter for its speed.
    pub fn versions() -> Vec<String> {
        [PACKAGES[0], PACKAGES[1], TEXT_READER]
            .iter()
            .map(|package| format!("peer: {}", package.replace("==", " ")))
            .collect()
    }

    /// Runs the peer over a folder.
    ///
    /// # Errors
    /// When it fails or its answer is not understood.
    pub fn run(&self, mode: PeerMode, folder: &Path, threads: usize) -> anyhow::Result<PeerRun> {
        let results = self.scratch.path().join("results.json");
        let mut command = Command::new(&self.python);
        command
            .arg(&self.script)
            .arg(folder)
            .arg("--yunet")
            .arg(&self.yunet)
            .arg("--embedder")
            .arg(&self.embedder);
        command.arg("--threads").arg(threads.to_string()).arg("--out").arg(&results);
        // One thread count for every library that would start its own.
        command.env("OMP_NUM_THREADS", threads.to_string()).env("OPENBLAS_NUM_THREADS", threads.to_string());
        if mode == PeerMode::Tuned {
            command.arg("--tuned");
        }
        let printed = run_command(&mut command)?;
        let line =
            printed.lines().rfind(|line| line.starts_with('{')).context("the peer printed no figures")?;
        let mut answer: PeerRun =
            serde_json::from_str(line).with_context(|| format!("the peer said {line}"))?;
        answer.seen = serde_json::from_slice(&std::fs::read(&results)?)?;
        Ok(answer)
    }
}

/// Runs a command to its end; answers what it printed.
fn run_command(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} failed ({}): {error}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
