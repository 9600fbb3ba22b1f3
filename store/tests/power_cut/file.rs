//! A file of the model: what is synced, what was written since, and what a power cut may leave of that.

use rand::RngExt;
use rand::rngs::StdRng;

use super::disk::UnsyncedOutcome;

/// Bytes that a disk writes completely or not at all.
const SECTOR: u64 = 512;

#[derive(Default)]
pub struct SimulatedFile {
    /// The durable content.
    synced: Vec<u8>,
    /// Later changes in order, and when each call returned: a sync that began earlier need not cover it.
    pending: Vec<(FileChange, usize)>,
    /// Length with all pending changes.
    length: u64,
}

/// A change of the content.
#[derive(Clone)]
pub enum FileChange {
    Write { at: u64, bytes: Vec<u8> },
    Resize { length: u64 },
}

impl FileChange {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Resize { length } => bytes.resize(usize::try_from(*length).unwrap(), 0),
            Self::Write { at, bytes: written } => {
                let (at, end) =
                    (usize::try_from(*at).unwrap(), usize::try_from(*at).unwrap() + written.len());
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[at..end].copy_from_slice(written);
            }
        }
    }

    /// Returns a random remainder of the change.
    fn tear(&self, random: &mut StdRng) -> Option<Self> {
        let Self::Write { at, bytes } = self else { return random.random_bool(0.5).then(|| self.clone()) };
        match random.random_range(0..6) {
            0 | 1 => None,
            2 => Some(Self::Resize { length: at + bytes.len() as u64 }),
            3 => {
                let end = (at + random.random_range(0..=bytes.len() as u64)) / SECTOR * SECTOR;
                let length = usize::try_from(end.saturating_sub(*at)).unwrap();
                Some(Self::Write { at: *at, bytes: bytes[..length].to_vec() })
            }
            _ => Some(self.clone()),
        }
    }
}

impl SimulatedFile {
    /// Returns the length in bytes with all pending changes.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn change(&mut self, change: FileChange, ended: usize) {
        self.length = match &change {
            FileChange::Write { at, bytes } => self.length.max(at + bytes.len() as u64),
            FileChange::Resize { length } => *length,
        };
        self.pending.push((change, ended));
    }

    /// Makes durable what was written before a sync began; returns whether there was anything.
    pub fn sync(&mut self, begun: usize) -> bool {
        let before = self.pending.len();
        let (covered, later): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|(_, ended)| *ended <= begun);
        covered.iter().for_each(|(change, _)| change.apply(&mut self.synced));
        self.pending = later;
        self.pending.len() < before
    }

    /// Returns the content after a power cut.
    pub fn bytes_after_cut(&self, outcome: UnsyncedOutcome, random: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for (change, _) in &self.pending {
            let left = match outcome {
                UnsyncedOutcome::Lost | UnsyncedOutcome::NamesOnly => None,
                UnsyncedOutcome::Kept => Some(change.clone()),
                UnsyncedOutcome::Random(_) => change.tear(random),
            };
            match left {
                // A length without its data does not truncate.
                Some(FileChange::Resize { length })
                    if matches!(change, FileChange::Write { .. }) && length < bytes.len() as u64 => {}
                Some(left) => left.apply(&mut bytes),
                None => {}
            }
        }
        bytes
    }
}
