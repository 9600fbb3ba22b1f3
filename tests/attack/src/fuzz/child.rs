//! The process that reads the inputs: it writes the number of each before it reads it, and ends with whatever the input
//! does to it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::FuzzTarget;

/// More than reading the largest permitted picture takes: an allocation beyond it ends the process.
const MEMORY_LIMIT_BYTES: u64 = 3 << 30;

/// What a child does.
#[derive(Clone, Debug, clap::Args)]
pub struct ChildOptions {
    /// The target
    #[arg(long)]
    pub target: String,
    /// Decides the inputs
    #[arg(long)]
    pub seed: u64,
    /// The number of the first input
    #[arg(long)]
    pub first: u64,
    /// How long to go on
    #[arg(long)]
    pub seconds: u64,
    /// The file for the number of the input that is read
    #[arg(long)]
    pub progress: PathBuf,
}

/// Reads inputs until the time is over.
///
/// # Errors
/// When the target or the file cannot be made.
///
/// # Panics
/// When an input makes the target panic.
pub fn run(options: &ChildOptions) -> anyhow::Result<()> {
    limit(Resource::As, MEMORY_LIMIT_BYTES)?;
    limit(Resource::Core, 0)?;
    let scratch = tempfile::tempdir()?;
    let target = FuzzTarget::new(&options.target, scratch.path())?;
    let progress = OpenOptions::new().write(true).create(true).truncate(false).open(&options.progress)?;
    let (begun, limit) = (Instant::now(), Duration::from_secs(options.seconds));
    let mut number = options.first;
    while begun.elapsed() < limit {
        let input = target.input(options.seed, number);
        progress.write_all_at(&encode_progress(number, &input), 0)?;
        target.check(&input);
        number += 1;
    }
    progress.write_all_at(&encode_progress(number, b""), 0)?;
    Ok(())
}

/// What a child was at when it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of the input that it read, or would have read next.
    pub(super) number: u64,
    pub(super) input: Vec<u8>,
}

/// Number and length, eight bytes each, then the input. Longer inputs before it may have left bytes behind it.
fn encode_progress(number: u64, input: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes()[..], &(input.len() as u64).to_le_bytes(), input].concat()
}

/// What a child wrote last; `None` before its first input.
pub(super) fn read_progress(path: &Path) -> Option<Progress> {
    let bytes = std::fs::read(path).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (number, length) = (number(0)?, number(8)? as usize);
    Some(Progress { number, input: bytes.get(16..)?.get(..length)?.to_vec() })
}

fn limit(resource: Resource, value: u64) -> anyhow::Result<()> {
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) }).context("limiting the process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_that_ended_a_child_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        assert_eq!(read_progress(&path), None);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        file.write_all_at(&encode_progress(7, b"a long input"), 0).unwrap();
        file.write_all_at(&encode_progress(8, b"short"), 0).unwrap();
        assert_eq!(read_progress(&path), Some(Progress { number: 8, input: b"short".to_vec() }));
    }
}
