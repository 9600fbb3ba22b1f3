//! The disk, and what a power cut may leave of it.
//!
//! After the model of file systems in "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014, the tool
//! ALICE), with the weaker of what file systems promise:
//! - what was written to a file is there for sure once the file was synchronised; until then each write is there, not
//!   there, there as a first part that ends at a sector, or there as a length without its data;
//! - a name (made, moved, removed) is there for sure once its folder was synchronised; until then the names of all
//!   folders come in the order they were made, up to any of them. Synchronising a file does not make its name last, and
//!   a move is one step, which lasts once the folder that it leads to was synchronised.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::file::{FileChange, SimulatedFile};
use super::trace::{FileCall, OpenFile, TracedCall};

/// Which synchronisations do something: all, or all but those that a careless store would have left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    All,
    /// Not those of folders.
    Files,
    /// Not those of files whose path ends so.
    AllBut(&'static str),
}

/// What becomes of that which was not synchronised.
#[derive(Clone, Copy, Debug)]
pub enum UnsyncedOutcome {
    /// It is all gone.
    Lost,
    /// It is all there: as after `kill -9`.
    Kept,
    /// All names are there and no data.
    NamesOnly,
    /// Chance decides on each write, and on how many of the names are there.
    Random(u64),
}

/// What is found after a power cut: folders are without bytes.
pub type DiskImage = BTreeMap<PathBuf, Option<Vec<u8>>>;

type Node = usize;
type NameTable = HashMap<Node, BTreeMap<String, Node>>;

/// Node of the folder that everything lies in; it was there before.
const ROOT: Node = 0;

enum NameChange {
    Made { folder: Node, name: String, node: Node },
    Moved { from: (Node, String), to: (Node, String), node: Node },
    Removed { folder: Node, name: String },
}

struct PendingNameChange {
    change: NameChange,
    /// When its call returned: a synchronisation that began before need not cover it.
    ended: usize,
    /// Whether it is there for sure.
    synced: bool,
}

struct Descriptor {
    node: Node,
    position: u64,
    appends: bool,
}

/// A disk at a moment of a record.
pub struct Disk {
    root: String,
    sync_policy: SyncPolicy,
    /// By node; folders have none.
    files: HashMap<Node, SimulatedFile>,
    names: NameTable,
    name_changes: Vec<PendingNameChange>,
    paths: HashMap<Node, String>,
    descriptors: HashMap<i32, Descriptor>,
    next_node: Node,
}

impl Disk {
    /// Nothing but an empty folder.
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

    /// Whether a call makes a folder in one that is not there yet.
    pub fn lacks_parent_folder(&self, traced: &TracedCall) -> bool {
        let FileCall::MakeFolder { path } = &traced.call else { return false };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.is_below_root(folder) && self.find_node(folder).is_none()
    }

    /// A call begins: what it changes may reach the disk from now on.
    pub fn begin_call(&mut self, traced: &TracedCall) {
        let ended = traced.ended;
        match &traced.call {
            FileCall::Open { path, flags, .. } => self.open_file(path, flags, ended),
            FileCall::Close { descriptor } => drop(self.descriptors.remove(descriptor)),
            FileCall::Write { file, at, bytes } => self.write(file, (*at, bytes), ended),
            FileCall::Resize { file, length } => {
                if let Some(node) = self.find_open_node(file) {
                    self.change_file(node, FileChange::Resize { length: *length }, ended);
                }
            }
            FileCall::Move { from, to } => self.rename(from, to, ended),
            FileCall::Remove { path } => {
                if let Some((folder, name)) = self.resolve_parent(path) {
                    self.record_name_change(NameChange::Removed { folder, name }, ended);
                }
            }
            FileCall::MakeFolder { path } => {
                if let Some(seat) = self.resolve_parent(path) {
                    let node = self.create_node(seat, path, ended);
                    self.names.insert(node, BTreeMap::new());
                }
            }
            // The log's index is made anew by whoever opens the database first.
            FileCall::Map { file } => {
                assert!(
                    !self.is_below_root(&file.path) || file.path.ends_with("-shm"),
                    "{} is mapped",
                    file.path
                );
            }
            FileCall::Other { paths, line } => {
                assert!(!line.starts_with("io_uring"), "the model cannot see {line}");
                assert!(!paths.iter().any(|path| self.is_below_root(path)), "the model does not know {line}");
            }
            FileCall::Sync { .. } => {}
        }
    }

    /// A call returns: what it promises holds from now on. Whether it changed what a power cut can leave.
    pub fn end_call(&mut self, traced: &TracedCall) -> bool {
        match &traced.call {
            FileCall::Open { path, flags, descriptor } => {
                if let Some(node) = self.find_node(path) {
                    let appends = flags.contains("O_APPEND");
                    self.descriptors.insert(*descriptor, Descriptor { node, position: 0, appends });
                }
                false
            }
            FileCall::Sync { file } => {
                self.find_open_node(file).is_some_and(|node| self.sync(node, traced.begun))
            }
            _ => false,
        }
    }

    /// What a power cut leaves now.
    pub fn cut_power(&self, fate: UnsyncedOutcome) -> DiskImage {
        let mut chance =
            StdRng::seed_from_u64(if let UnsyncedOutcome::Random(seed) = fate { seed } else { 0 });
        let waiting = self.name_changes.iter().filter(|pending| !pending.synced).count();
        let last = match fate {
            UnsyncedOutcome::Lost => 0,
            UnsyncedOutcome::Kept | UnsyncedOutcome::NamesOnly => waiting,
            // Mostly among the last: a file system writes its journal out every few seconds.
            UnsyncedOutcome::Random(_) => match chance.random_range(0..4) {
                0 => chance.random_range(0..=waiting),
                _ => waiting - chance.random_range(0..=waiting.min(8)),
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
        let mut remains = DiskImage::new();
        self.visit_files(&names, (ROOT, PathBuf::new()), &mut |path, file| {
            remains.insert(path, file.map(|file| file.bytes_after_cut(fate, &mut chance)));
        });
        remains
    }

    fn visit_files(
        &self,
        names: &NameTable,
        (folder, path): (Node, PathBuf),
        found: &mut impl FnMut(PathBuf, Option<&SimulatedFile>),
    ) {
        for (name, node) in names.get(&folder).into_iter().flatten() {
            let path = path.join(name);
            let file = self.files.get(node);
            found(path.clone(), file);
            if file.is_none() {
                self.visit_files(names, (*node, path), found);
            }
        }
    }

    /// Makes the file where an open call does, and empties it where it does.
    fn open_file(&mut self, path: &str, flags: &str, ended: usize) {
        match self.find_node(path) {
            None if flags.contains("O_CREAT") => {
                if let Some(seat) = self.resolve_parent(path) {
                    let node = self.create_node(seat, path, ended);
                    self.files.insert(node, SimulatedFile::default());
                }
            }
            Some(node) if flags.contains("O_TRUNC") => {
                self.change_file(node, FileChange::Resize { length: 0 }, ended)
            }
            _ => {}
        }
    }

    fn write(&mut self, file: &OpenFile, (at, bytes): (Option<u64>, &[u8]), ended: usize) {
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

    fn create_node(&mut self, (folder, name): (Node, String), path: &str, ended: usize) -> Node {
        let node = self.next_node;
        self.next_node += 1;
        self.paths.insert(node, path.to_owned());
        self.record_name_change(NameChange::Made { folder, name, node }, ended);
        node
    }

    fn rename(&mut self, from: &str, to: &str, ended: usize) {
        let (Some(source), Some(target)) = (self.resolve_parent(from), self.resolve_parent(to)) else {
            assert!(!self.is_below_root(from) && !self.is_below_root(to), "{from} was moved out or in: {to}");
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
        let honoured = match self.sync_policy {
            SyncPolicy::All => true,
            SyncPolicy::Files => is_file,
            SyncPolicy::AllBut(end) => !(is_file && self.paths[&node].ends_with(end)),
        };
        if !honoured {
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

    /// The node of an open file below the root.
    fn find_open_node(&self, file: &OpenFile) -> Option<Node> {
        let node = self.descriptors.get(&file.descriptor).map(|descriptor| descriptor.node);
        assert!(node.is_some() || !self.is_below_root(&file.path), "{} was opened unseen", file.path);
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

    /// The folder of a path and the name in it.
    fn resolve_parent(&self, path: &str) -> Option<(Node, String)> {
        if path == self.root || !self.is_below_root(path) {
            return None;
        }
        let (folder, name) = path.rsplit_once('/')?;
        let found = self.find_node(folder);
        assert!(found.is_some(), "{path} lies in a folder that was made unseen");
        found.map(|folder| (folder, name.to_owned()))
    }
}

impl NameChange {
    /// The folder whose synchronisation makes it last.
    fn synced_folder(&self) -> Node {
        match self {
            Self::Made { folder, .. } | Self::Removed { folder, .. } => *folder,
            Self::Moved { to: (folder, _), .. } => *folder,
        }
    }

    fn apply(&self, names: &mut NameTable) {
        match self {
            Self::Made { folder, name, node } => {
                names.entry(*folder).or_default().insert(name.clone(), *node);
            }
            Self::Moved { from, to, node } => {
                names.entry(from.0).or_default().remove(&from.1);
                names.entry(to.0).or_default().insert(to.1.clone(), *node);
            }
            Self::Removed { folder, name } => {
                names.entry(*folder).or_default().remove(name);
            }
        }
    }
}
