//! A model of a disk, and what a power cut may leave on it.
//!
//! Follows the model of file systems in "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014, the tool
//! ALICE), with the weakest guarantees that file systems give:
//! - a write is durable once its file is synced; until then it is kept, lost, kept up to a sector, or kept as a length
//!   without data;
//! - a change of names (create, rename, remove) is durable once its folder is synced; until then the changes of all
//!   folders are kept in order, up to any of them. Syncing a file does not make its name durable, and a rename is one
//!   step, durable once the target folder is synced.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::file::{FileChange, SimulatedFile};
use super::trace::{FileCall, OpenFile, TracedCall};

/// Which syncs take effect: all, or all except those that an incorrect store would omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    All,
    /// Only those of files, not of folders.
    Files,
    /// All except those of files whose path has this ending.
    AllBut(&'static str),
}

/// What happens to changes that were not synced.
#[derive(Clone, Copy, Debug)]
pub enum UnsyncedOutcome {
    /// All are lost.
    Lost,
    /// All are kept, as after `kill -9`.
    Kept,
    /// All names are kept, and no data.
    NamesOnly,
    /// Random for each write and for the number of names, with this seed.
    Random(u64),
}

/// The content of a disk after a power cut; folders have no bytes.
pub type DiskImage = BTreeMap<PathBuf, Option<Vec<u8>>>;

type Node = usize;
type NameTable = HashMap<Node, BTreeMap<String, Node>>;

/// The node of the root folder, which exists from the beginning.
const ROOT: Node = 0;

/// A name in a folder.
#[derive(Clone)]
struct DirectoryEntry {
    folder: Node,
    name: String,
}

enum NameChange {
    Made { entry: DirectoryEntry, node: Node },
    Moved { from: DirectoryEntry, to: DirectoryEntry, node: Node },
    Removed { entry: DirectoryEntry },
}

struct PendingNameChange {
    change: NameChange,
    /// When its call returned: a sync that began earlier need not cover it.
    ended: usize,
    /// Whether it is durable.
    synced: bool,
}

struct Descriptor {
    node: Node,
    position: u64,
    appends: bool,
}

/// The disk at a moment of a recording.
pub struct Disk {
    root: String,
    sync_policy: SyncPolicy,
    /// The files by node; folders have none.
    files: HashMap<Node, SimulatedFile>,
    names: NameTable,
    name_changes: Vec<PendingNameChange>,
    paths: HashMap<Node, String>,
    descriptors: HashMap<i32, Descriptor>,
    next_node: Node,
}

impl Disk {
    /// Creates a disk with an empty root folder.
    pub fn new(root: &Path, sync_policy: SyncPolicy) -> Self {
        Self {
            root: root.to_str().unwrap().to_owned(),
            sync_policy,
            files: HashMap::new(),
            names: HashMap::from([(ROOT, BTreeMap::new())]),
            name_changes: Vec::new(),
            paths: HashMap::from([(ROOT, String::new())]),
            descriptors: HashMap::new(),
            next_node: 1,
        }
    }

    /// Returns whether a call creates a folder in one that does not exist yet.
    pub fn lacks_parent_folder(&self, call: &TracedCall) -> bool {
        let FileCall::MakeFolder { path } = &call.call else { return false };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.is_below_root(folder) && self.find_node(folder).is_none()
    }

    /// Begins a call: its changes may reach the disk from now on.
    pub fn begin_call(&mut self, call: &TracedCall) {
        let ended = call.ended;
        match &call.call {
            FileCall::Open { path, flags, .. } => self.open_file(path, flags, ended),
            FileCall::Close { descriptor } => drop(self.descriptors.remove(descriptor)),
            FileCall::Write { file, at, bytes } => self.write(file, *at, bytes, ended),
            FileCall::Resize { file, length } => {
                if let Some(node) = self.find_open_node(file) {
                    self.change_file(node, FileChange::Resize { length: *length }, ended);
                }
            }
            FileCall::Move { from, to } => self.rename(from, to, ended),
            FileCall::Remove { path } => {
                if let Some(entry) = self.resolve_parent(path) {
                    self.record_name_change(NameChange::Removed { entry }, ended);
                }
            }
            FileCall::MakeFolder { path } => {
                if let Some(entry) = self.resolve_parent(path) {
                    let node = self.create_node(entry, path, ended);
                    self.names.insert(node, BTreeMap::new());
                }
            }
            // SQLite rebuilds the index of the log when it opens the database.
            FileCall::Map { file } => {
                assert!(
                    !self.is_below_root(&file.path) || file.path.ends_with("-shm"),
                    "{} is mapped",
                    file.path
                );
            }
            FileCall::Other { paths, line } => {
                assert!(!line.starts_with("io_uring"), "the model does not support {line}");
                assert!(
                    !paths.iter().any(|path| self.is_below_root(path)),
                    "the model does not support {line}"
                );
            }
            FileCall::Sync { .. } => {}
        }
    }

    /// Ends a call: its guarantees apply from now on. Returns whether it changed what a power cut can leave.
    pub fn end_call(&mut self, call: &TracedCall) -> bool {
        match &call.call {
            FileCall::Open { path, flags, descriptor } => {
                if let Some(node) = self.find_node(path) {
                    let appends = flags.contains("O_APPEND");
                    self.descriptors.insert(*descriptor, Descriptor { node, position: 0, appends });
                }
                false
            }
            FileCall::Sync { file } => {
                self.find_open_node(file).is_some_and(|node| self.sync(node, call.begun))
            }
            _ => false,
        }
    }

    /// Returns what a power cut leaves now.
    pub fn cut_power(&self, outcome: UnsyncedOutcome) -> DiskImage {
        let mut random =
            StdRng::seed_from_u64(if let UnsyncedOutcome::Random(seed) = outcome { seed } else { 0 });
        let unsynced = self.name_changes.iter().filter(|pending| !pending.synced).count();
        let last = match outcome {
            UnsyncedOutcome::Lost => 0,
            UnsyncedOutcome::Kept | UnsyncedOutcome::NamesOnly => unsynced,
            // Mostly one of the last: a file system writes its journal every few seconds.
            UnsyncedOutcome::Random(_) => match random.random_range(0..4) {
                0 => random.random_range(0..=unsynced),
                _ => unsynced - random.random_range(0..=unsynced.min(8)),
            },
        };
        let mut names: NameTable = HashMap::from([(ROOT, BTreeMap::new())]);
        let mut passed = 0;
        for pending in &self.name_changes {
            passed += usize::from(!pending.synced);
            if pending.synced || passed <= last {
                pending.change.apply(&mut names);
            }
        }
        let mut image = DiskImage::new();
        self.visit_files(&names, ROOT, PathBuf::new(), &mut |path, file| {
            image.insert(path, file.map(|file| file.bytes_after_cut(outcome, &mut random)));
        });
        image
    }

    /// Visits everything below a folder; `visit` gets no file for folders.
    fn visit_files(
        &self,
        names: &NameTable,
        folder: Node,
        path: PathBuf,
        visit: &mut impl FnMut(PathBuf, Option<&SimulatedFile>),
    ) {
        for (name, node) in names.get(&folder).into_iter().flatten() {
            let path = path.join(name);
            let file = self.files.get(node);
            visit(path.clone(), file);
            if file.is_none() {
                self.visit_files(names, *node, path, visit);
            }
        }
    }

    /// Creates or truncates the file if the flags say so.
    fn open_file(&mut self, path: &str, flags: &str, ended: usize) {
        match self.find_node(path) {
            None if flags.contains("O_CREAT") => {
                if let Some(entry) = self.resolve_parent(path) {
                    let node = self.create_node(entry, path, ended);
                    self.files.insert(node, SimulatedFile::default());
                }
            }
            Some(node) if flags.contains("O_TRUNC") => {
                self.change_file(node, FileChange::Resize { length: 0 }, ended)
            }
            _ => {}
        }
    }

    fn write(&mut self, file: &OpenFile, at: Option<u64>, bytes: &[u8], ended: usize) {
        let Some(node) = self.find_open_node(file) else { return };
        let length = self.files[&node].length();
        let descriptor = self.descriptors.get_mut(&file.descriptor).unwrap();
        let at = at.unwrap_or_else(|| {
            let at = if descriptor.appends { length } else { descriptor.position };
            descriptor.position = at + bytes.len() as u64;
            at
        });
        self.change_file(node, FileChange::Write { at, bytes: bytes.to_vec() }, ended);
    }

    fn change_file(&mut self, node: Node, change: FileChange, ended: usize) {
        self.files.get_mut(&node).unwrap().change(change, ended);
    }

    fn create_node(&mut self, entry: DirectoryEntry, path: &str, ended: usize) -> Node {
        let node = self.next_node;
        self.next_node += 1;
        self.paths.insert(node, path.to_owned());
        self.record_name_change(NameChange::Made { entry, node }, ended);
        node
    }

    fn rename(&mut self, from: &str, to: &str, ended: usize) {
        let (Some(source), Some(target)) = (self.resolve_parent(from), self.resolve_parent(to)) else {
            assert!(
                !self.is_below_root(from) && !self.is_below_root(to),
                "{from} was moved out of or into the root: {to}"
            );
            return;
        };
        let node = self.find_node(from).unwrap();
        self.paths.insert(node, to.to_owned());
        self.record_name_change(NameChange::Moved { from: source, to: target, node }, ended);
    }

    fn record_name_change(&mut self, change: NameChange, ended: usize) {
        change.apply(&mut self.names);
        self.name_changes.push(PendingNameChange { change, ended, synced: false });
    }

    fn sync(&mut self, node: Node, begun: usize) -> bool {
        let is_file = self.files.contains_key(&node);
        let takes_effect = match self.sync_policy {
            SyncPolicy::All => true,
            SyncPolicy::Files => is_file,
            SyncPolicy::AllBut(end) => !(is_file && self.paths[&node].ends_with(end)),
        };
        if !takes_effect {
            return false;
        }
        let Some(file) = self.files.get_mut(&node) else {
            let mut changed = false;
            for pending in &mut self.name_changes {
                if !pending.synced && pending.ended <= begun && pending.change.synced_folder() == node {
                    pending.synced = true;
                    changed = true;
                }
            }
            return changed;
        };
        file.sync(begun)
    }

    /// Returns the node of an open file; `None` if it is not below the root.
    fn find_open_node(&self, file: &OpenFile) -> Option<Node> {
        let node = self.descriptors.get(&file.descriptor).map(|descriptor| descriptor.node);
        assert!(
            node.is_some() || !self.is_below_root(&file.path),
            "{} was opened by an untraced call",
            file.path
        );
        node
    }

    fn is_below_root(&self, path: &str) -> bool {
        path == self.root || path.strip_prefix(&self.root).is_some_and(|below| below.starts_with('/'))
    }

    fn find_node(&self, path: &str) -> Option<Node> {
        let below = self.is_below_root(path).then(|| &path[self.root.len()..])?;
        below
            .split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |folder, name| self.names.get(&folder)?.get(name).copied())
    }

    /// Returns the folder of a path and the name in it; `None` if the path is not below the root.
    fn resolve_parent(&self, path: &str) -> Option<DirectoryEntry> {
        if path == self.root || !self.is_below_root(path) {
            return None;
        }
        let (folder, name) = path.rsplit_once('/')?;
        let found = self.find_node(folder);
        assert!(found.is_some(), "{path} is in a folder that was created by an untraced call");
        found.map(|folder| DirectoryEntry { folder, name: name.to_owned() })
    }
}

impl NameChange {
    /// Returns the folder whose sync makes the change durable.
    fn synced_folder(&self) -> Node {
        match self {
            Self::Made { entry, .. } | Self::Removed { entry } => entry.folder,
            Self::Moved { to, .. } => to.folder,
        }
    }

    fn apply(&self, names: &mut NameTable) {
        match self {
            Self::Made { entry, node } => {
                names.entry(entry.folder).or_default().insert(entry.name.clone(), *node);
            }
            Self::Moved { from, to, node } => {
                names.entry(from.folder).or_default().remove(&from.name);
                names.entry(to.folder).or_default().insert(to.name.clone(), *node);
            }
            Self::Removed { entry } => {
                names.entry(entry.folder).or_default().remove(&entry.name);
            }
        }
    }
}
