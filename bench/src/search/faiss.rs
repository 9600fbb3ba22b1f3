//! Runs faiss (`bench/peers/faiss_search.py`) on the same vectors, in a virtual environment with pinned versions.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use super::contender::{DIMENSION, HITS, REPETITIONS, SearchTimes};
use super::ours::Answer;
use crate::paths;
use crate::python::{prepare_environment, run_command};

/// The library, pinned, so that a figure states what it is compared with.
pub const PACKAGE: &str = "faiss-cpu==1.15.1";

/// The indexes that it is asked for: all vectors in `f32`, and 8 bits a component without a second look.
pub const INDEXES: [&str; 2] = ["faiss, IndexFlatIP", "faiss, SQ8"];

/// Faiss and the files that it reads.
pub struct Faiss {
    python: PathBuf,
    folder: tempfile::TempDir,
}

/// What the script prints.
#[derive(Deserialize)]
struct Output {
    one_ms: Vec<f64>,
    many_ms: Vec<f64>,
    /// Rows of each probe's hits, best first.
    hits: Vec<Vec<usize>>,
}

impl Faiss {
    /// Installs faiss, and writes the vectors to a file.
    pub fn prepare(rows: &[f32], probes: &[&[f32]]) -> anyhow::Result<Self> {
        let python = prepare_environment("venv-faiss", &[PACKAGE, "numpy==2.4.6"], &[])?;
        let folder = tempfile::tempdir()?;
        write_vectors(folder.path().join("rows.f32"), rows)?;
        write_vectors(folder.path().join("probes.f32"), &probes.concat())?;
        Ok(Self { python, folder })
    }

    /// Measures both indexes on this many threads.
    pub fn measure(&self, threads: usize, expected: &[Answer]) -> anyhow::Result<Vec<(String, SearchTimes)>> {
        let mut command = Command::new(&self.python);
        command.arg(paths::root().join("bench/peers/faiss_search.py")).arg(self.folder.path());
        for number in [DIMENSION, HITS, threads, REPETITIONS] {
            command.arg(number.to_string());
        }
        command.env("OMP_NUM_THREADS", threads.to_string());
        let outputs: BTreeMap<String, Output> = serde_json::from_str(&run_command(&mut command)?)?;
        Ok(outputs.into_iter().map(|(name, output)| (name, to_times(output, expected))).collect())
    }
}

fn to_times(output: Output, expected: &[Answer]) -> SearchTimes {
    let rows = |answer: &Answer| answer.iter().map(|hit| hit.0).collect::<Vec<_>>();
    let pairs = || output.hits.iter().zip(expected.iter().map(rows));
    let found: usize =
        pairs().map(|(found, expected)| found.iter().filter(|row| expected.contains(row)).count()).sum();
    SearchTimes {
        right: pairs().filter(|(found, expected)| *found == expected).count(),
        checked: expected.len(),
        recall: found as f64 / (HITS * expected.len()) as f64,
        one: output.one_ms,
        each_of_many: output.many_ms.iter().map(|all| all / expected.len() as f64).collect(),
    }
}

fn write_vectors(path: PathBuf, vectors: &[f32]) -> anyhow::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for value in vectors {
        file.write_all(&value.to_le_bytes())?;
    }
    Ok(file.flush()?)
}
