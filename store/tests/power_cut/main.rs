//! Power cuts under the embedded profile, at every write.
//!
//! `kill -9` loses nothing that was written; a power cut loses what was not synchronised. So a writer, a process of its
//! own, works on a store and says what it has been answered, under strace: the record is the total order of all writes,
//! synchronisations and answers. Then the test takes the power away at many points of the record, makes what a disk may
//! have kept (the model: [`disk`]), opens a store on it, and looks whether all that had been answered is there.

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
use photofinish_store::StoreSettings;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use trace::{FileCall, TracedCall};
use writer::LINE_PREFIX;

/// Tells the writer its folder.
const FOLDER_VARIABLE: &str = "PHOTOFINISH_TEST_POWER_CUT_FOLDER";

/// How often chance decides before each synchronisation.
const RANDOM_CUTS_PER_SYNC: u64 = 4;

/// Points of the record besides those before synchronisations and after answers.
const RANDOM_POINTS: u64 = 600;

/// A cut and what becomes of the rest.
type Cut = (usize, UnsyncedOutcome);

#[test]
fn a_power_cut_at_any_write_loses_nothing_that_was_acknowledged() {
    let Some(record) = Recording::record_writer() else { return };
    let cuts = record.plan_cuts();
    let lost = record.check_cuts(SyncPolicy::All, &cuts, usize::MAX);
    println!("{} calls, {} power cuts, {} with a loss", record.traced.len(), cuts.len(), lost.len());
    assert!(lost.is_empty(), "{} of {} power cuts:\n{}", lost.len(), cuts.len(), lost.join("\n"));
    // Were one kind of synchronisation forgotten, this test would tell.
    let answered: Vec<Cut> =
        record.moments_after_answers().into_iter().map(|at| (at, UnsyncedOutcome::Lost)).collect();
    let careless = [
        SyncPolicy::Files,
        SyncPolicy::AllBut(".part"),
        SyncPolicy::AllBut("-wal"),
        SyncPolicy::AllBut(".db"),
    ];
    for honours in careless {
        let lost = record.check_cuts(honours, &answered, 1);
        println!("{honours:?}: {lost:?}");
        assert!(!lost.is_empty(), "nothing is lost where only these synchronisations count: {honours:?}");
    }
}

/// The process that the test above looks at is this program again, with a folder; without one there is nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_writer_writes() {
    if let Some(folder) = variable(FOLDER_VARIABLE) {
        writer::run_writer(Path::new(&folder)).await;
    }
}

/// What the writer did.
struct Recording {
    root: PathBuf,
    traced: Vec<TracedCall>,
    /// When which call begins or returns, in order.
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
    /// Of a new writer; nothing (said loudly) where processes cannot be traced.
    fn record_writer() -> Option<Self> {
        if let Err(why) = trace::check_strace() {
            assert!(variable("REQUIRE_SHARED").as_deref() != Some("1"), "REQUIRE_SHARED=1, and {why}");
            eprintln!("SKIPPED: {why}");
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
        let mut record = Self { root, traced, moments, _folder: folder };
        record.reorder_moments();
        Some(record)
    }

    /// Two calls that run at the same time may begin in one order and take effect in the other: a folder can be made in
    /// one that another thread is making. Such a call begins after the one that it needs.
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
        assert!(early.is_empty(), "folders were made in folders that nobody made");
        self.moments = moments;
    }

    /// Where to cut: before each synchronisation that makes something last, after each answer, and between.
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
        cuts.extend(self.moments_after_answers().into_iter().map(|at| (at, UnsyncedOutcome::Lost)));
        let mut chance = StdRng::seed_from_u64(1);
        for other in 0..RANDOM_POINTS {
            let at = chance.random_range(0..self.moments.len());
            let fate = match other % 6 {
                0 => UnsyncedOutcome::Kept,
                1 => UnsyncedOutcome::NamesOnly,
                _ => UnsyncedOutcome::Random(other),
            };
            cuts.push((at, fate));
        }
        cuts.sort_by_key(|(at, _)| *at);
        cuts
    }

    /// The moments after the writer said something.
    fn moments_after_answers(&self) -> Vec<usize> {
        let said = |moment: &Moment| !moment.is_end && self.writer_line(moment.call).is_some();
        self.moments.iter().enumerate().filter(|(_, m)| said(m)).map(|(at, _)| at + 1).collect()
    }

    fn writer_line(&self, call: usize) -> Option<String> {
        let FileCall::Write { file, bytes, .. } = &self.traced[call].call else { return None };
        let text = (file.descriptor == 1).then(|| String::from_utf8_lossy(bytes))?;
        text.split_once(LINE_PREFIX).map(|(_, line)| line.trim_end().to_owned())
    }

    /// Whether a synchronisation made something last.
    fn replay_moment(&self, moment: Moment, disk: &mut Disk) -> bool {
        let traced = &self.traced[moment.call];
        if moment.is_end {
            return disk.end_call(traced);
        }
        disk.begin_call(traced);
        false
    }

    /// Cuts the power and looks, up to so many losses; tells what was lost.
    fn check_cuts(&self, honours: SyncPolicy, cuts: &[Cut], at_most: usize) -> Vec<String> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        let lost = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (lost, mine) = (&lost, cuts.iter().skip(thread).step_by(threads));
                scope.spawn(move || {
                    self.check_cuts_on_thread(honours, &mine.copied().collect::<Vec<_>>(), (at_most, lost))
                });
            }
        });
        lost.into_inner().unwrap()
    }

    fn check_cuts_on_thread(
        &self,
        honours: SyncPolicy,
        cuts: &[Cut],
        (at_most, lost): (usize, &Mutex<Vec<String>>),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let moments: BTreeSet<usize> = cuts.iter().map(|(at, _)| *at).collect();
        let mut disk = Disk::new(&self.root, honours);
        let mut promises = Promises::default();
        for (at, moment) in self.moments.iter().enumerate() {
            if moments.contains(&at) {
                for (_, fate) in cuts.iter().filter(|(cut, _)| *cut == at) {
                    if lost.lock().unwrap().len() >= at_most {
                        return;
                    }
                    let remains = write_image(&disk.cut_power(*fate));
                    let checked = runtime.block_on(check::check_store(remains.path(), &promises));
                    if let Err(loss) = checked {
                        let line = moment.line + 1;
                        lost.lock().unwrap().push(format!("line {line} of the record, {fate:?}: {loss}"));
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

/// A folder with this in it, in memory where that is possible: synchronising it is not what is looked at.
fn write_image(remains: &DiskImage) -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for (path, bytes) in remains {
        let path = folder.path().join(path);
        match bytes {
            None => std::fs::create_dir(path).unwrap(),
            // The index of the log is shared memory: whatever is left of it must not be believed.
            Some(bytes) if path.to_string_lossy().ends_with("-shm") => {
                std::fs::write(path, vec![0xa5; bytes.len()]).unwrap();
            }
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
        }
    }
    folder
}

/// Rows and bytes in folders apart, which the store makes: nothing of it lasts by being beside something else.
fn settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        database_url: database_url(folder),
        storage_url: format!("file:{}", objects_folder(folder).display()),
        ..support::Home::new().settings()
    }
}

fn database_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("rows/photofinish.db").display())
}

fn objects_folder(folder: &Path) -> PathBuf {
    folder.join("bytes/objects")
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what they may use")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
