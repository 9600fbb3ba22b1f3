//! Power cuts under the embedded profile, at every write.
//!
//! `kill -9` loses nothing that was written; a power cut loses what was not synced. A separate process, the writer, uses a
//! store under strace and prints each acknowledged call: the recording is the total order of all writes, syncs and
//! acknowledgements. The test then cuts the power at many points of the recording, builds what a disk may have kept (the
//! model is in [`disk`]), opens a store on it and checks that everything acknowledged before the cut is there.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod check;
mod disk;
mod file;
#[path = "../support/mod.rs"]
mod support;
mod trace;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use check::Promises;
use disk::{Disk, DiskImage, SyncPolicy, UnsyncedOutcome};
use photofinish_servers::{read_variable, skip_or_fail};
use photofinish_store::StoreSettings;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use trace::{FileCall, TracedCall};
use writer::LINE_PREFIX;

/// The environment variable with the folder of the writer.
const FOLDER_VARIABLE: &str = "PHOTOFINISH_TEST_POWER_CUT_FOLDER";

/// How many random outcomes are tried before each sync.
const RANDOM_CUTS_PER_SYNC: u64 = 4;

/// How many points of the recording are tried besides those before syncs and after acknowledgements.
const RANDOM_POINTS: u64 = 600;

/// The index of a moment, and what happens to unsynced data.
type Cut = (usize, UnsyncedOutcome);

#[test]
fn a_power_cut_at_any_write_loses_nothing_that_was_acknowledged() {
    let Some(recording) = Recording::record_writer() else { return };
    let cuts = recording.plan_cuts();
    let lost = recording.check_cuts(SyncPolicy::All, &cuts, usize::MAX);
    println!("{} calls, {} power cuts, {} with a loss", recording.traced.len(), cuts.len(), lost.len());
    assert!(lost.is_empty(), "{} of {} power cuts:\n{}", lost.len(), cuts.len(), lost.join("\n"));
    // The test would detect if one kind of sync were missing.
    let acknowledged: Vec<Cut> = recording
        .moments_after_acknowledgements()
        .into_iter()
        .map(|at| (at, UnsyncedOutcome::Lost))
        .collect();
    let incomplete = [
        SyncPolicy::Files,
        SyncPolicy::AllBut(".part"),
        SyncPolicy::AllBut("-wal"),
        SyncPolicy::AllBut(".db"),
    ];
    for policy in incomplete {
        let lost = recording.check_cuts(policy, &acknowledged, 1);
        println!("{policy:?}: {lost:?}");
        assert!(!lost.is_empty(), "nothing is lost if only these syncs take effect: {policy:?}");
    }
}

/// Runs the writer when the test above starts this program again, with a folder; otherwise does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_writer_writes() {
    if let Some(folder) = read_variable(FOLDER_VARIABLE) {
        writer::run_writer(Path::new(&folder)).await;
    }
}

/// What the writer did.
struct Recording {
    root: PathBuf,
    traced: Vec<TracedCall>,
    /// The beginning and the end of each call, in order.
    moments: Vec<Moment>,
    _folder: TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    line: usize,
    is_end: bool,
    call: usize,
}

impl Recording {
    /// Records a new writer; returns `None`, and prints why, if processes cannot be traced.
    fn record_writer() -> Option<Self> {
        if let Err(reason) = trace::check_strace() {
            skip_or_fail("power cuts", &reason);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("disk");
        std::fs::create_dir(&root).unwrap();
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["the_writer_writes", "--exact", "--nocapture"]).env(FOLDER_VARIABLE, &root);
        let traced = trace::trace_program(&mut writer, &folder.path().join("record"));
        let mut moments: Vec<Moment> = (0..traced.len())
            .flat_map(|call| {
                let TracedCall { begun, ended, .. } = traced[call];
                [Moment { line: begun, is_end: false, call }, Moment { line: ended, is_end: true, call }]
            })
            .collect();
        moments.sort();
        let mut recording = Self { root, traced, moments, _folder: folder };
        recording.reorder_moments();
        Some(recording)
    }

    /// Two concurrent calls may begin in one order and take effect in the other: a folder can be created in one that
    /// another thread is creating. Moves the beginning of such a call after the call that it depends on.
    fn reorder_moments(&mut self) {
        let mut disk = Disk::new(&self.root, SyncPolicy::All);
        let mut moments = Vec::with_capacity(self.moments.len());
        let mut early: Vec<Moment> = Vec::new();
        for moment in &self.moments {
            if !moment.is_end && disk.lacks_parent_folder(&self.traced[moment.call]) {
                early.push(*moment);
                continue;
            }
            self.replay_moment(*moment, &mut disk);
            moments.push(*moment);
            while let Some(at) =
                early.iter().position(|early| !disk.lacks_parent_folder(&self.traced[early.call]))
            {
                let late = early.remove(at);
                self.replay_moment(late, &mut disk);
                moments.push(late);
            }
        }
        assert!(early.is_empty(), "folders were created in folders that do not exist");
        self.moments = moments;
    }

    /// Returns where to cut: before each sync that makes something durable, after each acknowledgement, and at random points.
    fn plan_cuts(&self) -> Vec<Cut> {
        let mut disk = Disk::new(&self.root, SyncPolicy::All);
        let mut cuts = Vec::new();
        for (at, moment) in self.moments.iter().enumerate() {
            if self.replay_moment(*moment, &mut disk) {
                cuts.push((at, UnsyncedOutcome::Lost));
                cuts.extend(
                    (0..RANDOM_CUTS_PER_SYNC)
                        .map(|seed| (at, UnsyncedOutcome::Random(seed << 32 | at as u64))),
                );
            }
        }
        cuts.extend(self.moments_after_acknowledgements().into_iter().map(|at| (at, UnsyncedOutcome::Lost)));
        let mut random = StdRng::seed_from_u64(1);
        for other in 0..RANDOM_POINTS {
            let at = random.random_range(0..self.moments.len());
            let outcome = match other % 6 {
                0 => UnsyncedOutcome::Kept,
                1 => UnsyncedOutcome::NamesOnly,
                _ => UnsyncedOutcome::Random(other),
            };
            cuts.push((at, outcome));
        }
        cuts.sort_by_key(|(at, _)| *at);
        cuts
    }

    /// Returns the moments after the writer printed a line.
    fn moments_after_acknowledgements(&self) -> Vec<usize> {
        let is_line = |moment: &Moment| !moment.is_end && self.writer_line(moment.call).is_some();
        self.moments.iter().enumerate().filter(|(_, moment)| is_line(moment)).map(|(at, _)| at + 1).collect()
    }

    /// Returns the line that a call printed.
    fn writer_line(&self, call: usize) -> Option<String> {
        let FileCall::Write { file, bytes, .. } = &self.traced[call].call else { return None };
        let text = (file.descriptor == 1).then(|| String::from_utf8_lossy(bytes))?;
        text.split_once(LINE_PREFIX).map(|(_, line)| line.trim_end().to_owned())
    }

    /// Returns whether a sync made something durable.
    fn replay_moment(&self, moment: Moment, disk: &mut Disk) -> bool {
        let traced = &self.traced[moment.call];
        if moment.is_end {
            return disk.end_call(traced);
        }
        disk.begin_call(traced);
        false
    }

    /// Cuts the power at these points and returns what was lost, `max_losses` at most.
    fn check_cuts(&self, policy: SyncPolicy, cuts: &[Cut], max_losses: usize) -> Vec<String> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        let lost = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (lost, own_cuts) = (&lost, cuts.iter().skip(thread).step_by(threads));
                scope.spawn(move || {
                    let own_cuts: Vec<Cut> = own_cuts.copied().collect();
                    self.check_cuts_on_thread(policy, &own_cuts, max_losses, lost)
                });
            }
        });
        lost.into_inner().unwrap()
    }

    fn check_cuts_on_thread(
        &self,
        policy: SyncPolicy,
        cuts: &[Cut],
        max_losses: usize,
        lost: &Mutex<Vec<String>>,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let moments: BTreeSet<usize> = cuts.iter().map(|(at, _)| *at).collect();
        let mut disk = Disk::new(&self.root, policy);
        let mut promises = Promises::default();
        for (at, moment) in self.moments.iter().enumerate() {
            if moments.contains(&at) {
                for (_, outcome) in cuts.iter().filter(|(cut, _)| *cut == at) {
                    if lost.lock().unwrap().len() >= max_losses {
                        return;
                    }
                    let folder = write_image(&disk.cut_power(*outcome));
                    let checked = runtime.block_on(check::check_store(folder.path(), &promises));
                    if let Err(loss) = checked {
                        let line = moment.line + 1;
                        lost.lock()
                            .unwrap()
                            .push(format!("line {line} of the recording, {outcome:?}: {loss}"));
                    }
                }
            }
            if let (false, Some(line)) = (moment.is_end, self.writer_line(moment.call)) {
                promises.add_line(&line);
            }
            self.replay_moment(*moment, &mut disk);
        }
    }
}

/// Writes a disk image to a folder, in memory if possible: its own syncs are not tested.
fn write_image(image: &DiskImage) -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for (path, bytes) in image {
        let path = folder.path().join(path);
        match bytes {
            None => std::fs::create_dir(path).unwrap(),
            // The index of the log is shared memory: SQLite must not trust what is left of it.
            Some(bytes) if path.to_string_lossy().ends_with("-shm") => {
                std::fs::write(path, vec![0xa5; bytes.len()]).unwrap();
            }
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
        }
    }
    folder
}

/// Returns settings with database and objects in separate folders, which the store creates: nothing becomes durable by
/// accident because it is beside something else.
fn settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        database_url: database_url(folder),
        storage_url: format!("file:{}", objects_folder(folder).display()),
        ..support::TestStore::new().settings()
    }
}

fn database_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("rows/photofinish.db").display())
}

fn objects_folder(folder: &Path) -> PathBuf {
    folder.join("bytes/objects")
}
