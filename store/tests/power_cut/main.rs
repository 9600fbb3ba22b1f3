//! Power cuts under the embedded profile, at every write.
//!
//! `kill -9` loses nothing that was written; a power cut loses what was not synchronised. So a writer, a process of its
//! own, works on a store and says what it has been answered, under strace: the record is the total order of all writes,
//! synchronisations and answers. Then the test takes the power away at many points of the record, makes what a disk may
//! have kept (the model: [`disk`]), opens a store on it, and looks whether all that had been answered is there.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod check;
mod disk;
#[path = "../embedded/mod.rs"]
mod embedded;
mod file;
mod trace;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use check::Promises;
use disk::{Disk, Fate, Honours, Remains};
use photofinish_store::StoreSettings;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use trace::{Call, Traced};
use writer::SAID;

/// Tells the writer its folder.
const FOLDER: &str = "PHOTOFINISH_TEST_POWER_CUT_FOLDER";

/// How often chance decides before each synchronisation.
const CHANCES: u64 = 4;

/// Points of the record besides those before synchronisations and after answers.
const OTHER_POINTS: u64 = 600;

/// A cut and what becomes of the rest.
type Cut = (usize, Fate);

#[test]
fn a_power_cut_at_any_write_loses_nothing_that_was_answered() {
    let Some(record) = Record::make() else { return };
    let cuts = record.cuts();
    let lost = record.try_cuts(Honours::All, &cuts, usize::MAX);
    println!("{} calls, {} power cuts, {} with a loss", record.traced.len(), cuts.len(), lost.len());
    assert!(lost.is_empty(), "{} of {} power cuts:\n{}", lost.len(), cuts.len(), lost.join("\n"));
    // Were one kind of synchronisation forgotten, this test would tell.
    let answered: Vec<Cut> = record.answers().into_iter().map(|at| (at, Fate::Lost)).collect();
    let careless =
        [Honours::Files, Honours::AllBut(".part"), Honours::AllBut("-wal"), Honours::AllBut(".db")];
    for honours in careless {
        let lost = record.try_cuts(honours, &answered, 1);
        println!("{honours:?}: {lost:?}");
        assert!(!lost.is_empty(), "nothing is lost where only these synchronisations count: {honours:?}");
    }
}

/// The process that the test above looks at is this program again, with a folder; without one there is nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_writer_writes() {
    if let Some(folder) = variable(FOLDER) {
        writer::write(Path::new(&folder)).await;
    }
}

/// What the writer did.
struct Record {
    root: PathBuf,
    traced: Vec<Traced>,
    /// When which call begins or returns, in order.
    moments: Vec<Moment>,
    _folder: TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    line: usize,
    ends: bool,
    call: usize,
}

impl Record {
    /// Of a new writer; nothing (said loudly) where processes cannot be traced.
    fn make() -> Option<Self> {
        if let Err(why) = trace::is_possible() {
            assert!(variable("REQUIRE_SHARED").as_deref() != Some("1"), "REQUIRE_SHARED=1, and {why}");
            eprintln!("SKIPPED: {why}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("disk");
        std::fs::create_dir(&root).unwrap();
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["the_writer_writes", "--exact", "--nocapture"]).env(FOLDER, &root);
        let traced = trace::run(&mut writer, &folder.path().join("record"));
        let mut moments: Vec<Moment> = (0..traced.len())
            .flat_map(|call| {
                let Traced { begun, ended, .. } = traced[call];
                [Moment { line: begun, ends: false, call }, Moment { line: ended, ends: true, call }]
            })
            .collect();
        moments.sort();
        let mut record = Self { root, traced, moments, _folder: folder };
        record.put_in_order();
        Some(record)
    }

    /// Two calls that run at the same time may begin in one order and take effect in the other: a folder can be made in
    /// one that another thread is making. Such a call begins after the one that it needs.
    fn put_in_order(&mut self) {
        let mut disk = Disk::new(&self.root, Honours::All);
        let mut moments = Vec::with_capacity(self.moments.len());
        let mut early: Vec<Moment> = Vec::new();
        for moment in &self.moments {
            if !moment.ends && disk.lacks_folder_of(&self.traced[moment.call]) {
                early.push(*moment);
                continue;
            }
            self.play(*moment, &mut disk);
            moments.push(*moment);
            while let Some(at) =
                early.iter().position(|early| !disk.lacks_folder_of(&self.traced[early.call]))
            {
                let late = early.remove(at);
                self.play(late, &mut disk);
                moments.push(late);
            }
        }
        assert!(early.is_empty(), "folders were made in folders that nobody made");
        self.moments = moments;
    }

    /// Where to cut: before each synchronisation that makes something last, after each answer, and between.
    fn cuts(&self) -> Vec<Cut> {
        let mut disk = Disk::new(&self.root, Honours::All);
        let mut cuts = Vec::new();
        for (at, moment) in self.moments.iter().enumerate() {
            if self.play(*moment, &mut disk) {
                cuts.push((at, Fate::Lost));
                cuts.extend((0..CHANCES).map(|seed| (at, Fate::Chance(seed << 32 | at as u64))));
            }
        }
        cuts.extend(self.answers().into_iter().map(|at| (at, Fate::Lost)));
        let mut chance = StdRng::seed_from_u64(1);
        for other in 0..OTHER_POINTS {
            let at = chance.random_range(0..self.moments.len());
            let fate = match other % 6 {
                0 => Fate::Kept,
                1 => Fate::Names,
                _ => Fate::Chance(other),
            };
            cuts.push((at, fate));
        }
        cuts.sort_by_key(|(at, _)| *at);
        cuts
    }

    /// The moments after the writer said something.
    fn answers(&self) -> Vec<usize> {
        let said = |moment: &Moment| !moment.ends && self.said(moment.call).is_some();
        self.moments.iter().enumerate().filter(|(_, m)| said(m)).map(|(at, _)| at + 1).collect()
    }

    fn said(&self, call: usize) -> Option<String> {
        let Call::Write { file, bytes, .. } = &self.traced[call].call else { return None };
        let text = (file.descriptor == 1).then(|| String::from_utf8_lossy(bytes))?;
        text.split_once(SAID).map(|(_, line)| line.trim_end().to_owned())
    }

    /// Whether a synchronisation made something last.
    fn play(&self, moment: Moment, disk: &mut Disk) -> bool {
        let traced = &self.traced[moment.call];
        if moment.ends {
            return disk.end(traced);
        }
        disk.begin(traced);
        false
    }

    /// Cuts the power and looks, up to so many losses; tells what was lost.
    fn try_cuts(&self, honours: Honours, cuts: &[Cut], at_most: usize) -> Vec<String> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        let lost = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (lost, mine) = (&lost, cuts.iter().skip(thread).step_by(threads));
                scope.spawn(move || {
                    self.try_some(honours, &mine.copied().collect::<Vec<_>>(), (at_most, lost))
                });
            }
        });
        lost.into_inner().unwrap()
    }

    fn try_some(&self, honours: Honours, cuts: &[Cut], (at_most, lost): (usize, &Mutex<Vec<String>>)) {
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
                    let remains = laid_out(&disk.cut(*fate));
                    let checked = runtime.block_on(check::check(remains.path(), &promises));
                    if let Err(loss) = checked {
                        let line = moment.line + 1;
                        lost.lock().unwrap().push(format!("line {line} of the record, {fate:?}: {loss}"));
                    }
                }
            }
            if let (false, Some(line)) = (moment.ends, self.said(moment.call)) {
                promises.add(&line);
            }
            self.play(*moment, &mut disk);
        }
    }
}

/// A folder with this in it, in memory where that is possible: synchronising it is not what is looked at.
fn laid_out(remains: &Remains) -> TempDir {
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
        database_url: database(folder),
        storage_url: format!("file:{}", objects(folder).display()),
        ..embedded::Home::new().settings()
    }
}

fn database(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("rows/photofinish.db").display())
}

fn objects(folder: &Path) -> PathBuf {
    folder.join("bytes/objects")
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what they may use")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
