//! Which name stands for which file: as the operating system shows it, as the device has it, and the changes between
//! that wait for their directory to be synced.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_storage::disk::{Entry, Path, parent};

use super::file::Survival;
use crate::rng::Rng;

/// A file apart from its name.
pub(super) type Inode = u64;

#[derive(Clone, Default, Debug)]
struct Tree {
    files: BTreeMap<Path, Inode>,
    directories: BTreeSet<Path>,
}

#[derive(Clone, Debug)]
enum Change {
    Link {
        name: Path,
        inode: Inode,
    },
    Unlink {
        name: Path,
        inode: Inode,
    },
    /// Within one directory a rename happens as a whole or not.
    Rename {
        from: Path,
        to: Path,
        inode: Inode,
    },
    MakeDirectory {
        path: Path,
    },
    RemoveDirectory {
        path: Path,
    },
}

impl Change {
    /// The directory that has to be synced.
    fn directory(&self) -> &str {
        match self {
            Self::Link { name, .. } | Self::Unlink { name, .. } => parent(name),
            Self::Rename { to, .. } => parent(to),
            Self::MakeDirectory { path } | Self::RemoveDirectory { path } => parent(path),
        }
    }
}

impl Tree {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Link { name, inode } => drop(self.files.insert(name.clone(), *inode)),
            Change::Unlink { name, inode } => self.forget(name, *inode),
            Change::Rename { from, to, inode } => {
                self.forget(from, *inode);
                self.files.insert(to.clone(), *inode);
            }
            Change::MakeDirectory { path } => drop(self.directories.insert(path.clone())),
            Change::RemoveDirectory { path } => {
                self.files.retain(|name, _| !is_below(name, path));
                self.directories.retain(|name| name != path && !is_below(name, path));
            }
        }
    }

    fn forget(&mut self, name: &Path, inode: Inode) {
        if self.files.get(name) == Some(&inode) {
            self.files.remove(name);
        }
    }

    /// What is durable in a directory whose own name is not goes with it.
    fn forget_what_cannot_be_reached(&mut self) {
        let directories = std::mem::take(&mut self.directories);
        // In name order: those above come first.
        for path in directories {
            if self.has_directory(parent(&path)) {
                self.directories.insert(path);
            }
        }
        let mut files = std::mem::take(&mut self.files);
        files.retain(|name, _| self.has_directory(parent(name)));
        self.files = files;
    }

    fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || self.directories.contains(path)
    }
}

/// The directories on the way to a path, and itself.
fn with_those_above(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end]).filter(|directory| !directory.is_empty())
}

fn is_below(path: &str, directory: &str) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// The names of a disk.
#[derive(Default, Debug)]
pub(super) struct Names {
    now: Tree,
    durable: Tree,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn find(&self, path: &str) -> Option<Inode> {
        self.now.files.get(path).copied()
    }

    pub(super) fn has_directory(&self, path: &str) -> bool {
        self.now.has_directory(path)
    }

    /// What the names stand for, as the operating system shows them.
    pub(super) fn files(&self) -> impl Iterator<Item = Inode> {
        self.now.files.values().copied()
    }

    /// The entries of a directory in name order; `size` tells a file's.
    pub(super) fn list(&self, directory: &str, size: impl Fn(Inode) -> u64) -> Vec<Entry> {
        let child = |path: &Path| {
            (parent(path) == directory && is_below(path, directory))
                .then(|| path.rsplit_once('/').map_or(&**path, |(_, name)| name).to_owned())
        };
        let files =
            self.now.files.iter().filter_map(|(path, inode)| {
                Some(Entry { name: child(path)?, bytes: size(*inode), is_directory: false })
            });
        let directories = self
            .now
            .directories
            .iter()
            .filter_map(|path| Some(Entry { name: child(path)?, bytes: 0, is_directory: true }));
        let mut entries: Vec<Entry> = files.chain(directories).collect();
        entries.sort();
        entries
    }

    /// How many files a directory has.
    pub(super) fn count(&self, directory: &str) -> u64 {
        let below = self.now.files.range(Path::from(directory)..).take_while(|(path, _)| path.starts_with(directory));
        below.filter(|(path, _)| parent(path) == directory).count() as u64
    }

    pub(super) fn link(&mut self, name: &str, inode: Inode) {
        self.change(Change::Link { name: name.into(), inode });
    }

    pub(super) fn unlink(&mut self, name: &str, inode: Inode) {
        self.change(Change::Unlink { name: name.into(), inode });
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, inode: Inode) {
        if parent(from) == parent(to) {
            self.change(Change::Rename { from: from.into(), to: to.into(), inode });
        } else {
            self.change(Change::Link { name: to.into(), inode });
            self.change(Change::Unlink { name: from.into(), inode });
        }
    }

    /// Removes a directory: its files one by one, each durable or not by itself, then the directory.
    pub(super) fn remove_directory(&mut self, path: &str) {
        let files: Vec<_> =
            self.now.files.iter().filter(|(name, _)| is_below(name, path)).map(|(n, i)| (n.clone(), *i)).collect();
        for (name, inode) in files {
            self.change(Change::Unlink { name, inode });
        }
        self.change(Change::RemoveDirectory { path: path.into() });
    }

    /// Makes a directory and those above it, durably.
    pub(super) fn create_directory(&mut self, path: &str) {
        for directory in with_those_above(path) {
            self.make_directory(directory);
            self.sync_directory(parent(directory));
        }
    }

    /// Begins to make a directory and those above it: so many are made, and the last of these is not synced.
    pub(super) fn begin_directory(&mut self, path: &str, made: usize) {
        let mut directories = with_those_above(path).take(made).peekable();
        while let Some(directory) = directories.next() {
            self.make_directory(directory);
            if directories.peek().is_some() {
                self.sync_directory(parent(directory));
            }
        }
    }

    fn make_directory(&mut self, path: &str) {
        if !self.now.has_directory(path) {
            self.change(Change::MakeDirectory { path: path.into() });
        }
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_directory(&mut self, path: &str) {
        let (synced, pending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|change| change.directory() == path);
        self.pending = pending;
        for change in &synced {
            self.durable.apply(change);
            if let Change::RemoveDirectory { path } = change {
                self.pending.retain(|other| other.directory() != &**path && !is_below(other.directory(), path));
            }
        }
    }

    /// What is left when the power goes.
    pub(super) fn power_loss(&mut self, rng: &mut Rng) {
        let survival = Survival::draw(rng);
        let changes = std::mem::take(&mut self.pending);
        let kept = rng.below(changes.len() as u64 + 1) as usize;
        for (index, change) in changes.iter().enumerate() {
            let survives = match survival {
                Survival::Nothing => false,
                Survival::Everything => true,
                Survival::Prefix => index < kept,
                Survival::Changes | Survival::Sectors => rng.coin(),
            };
            if survives && self.durable.has_directory(change.directory()) {
                self.durable.apply(change);
            }
        }
        self.durable.forget_what_cannot_be_reached();
        self.now = self.durable.clone();
    }

    /// Every file that some name, present or possible after a power loss, stands for.
    pub(super) fn reachable(&self) -> BTreeSet<Inode> {
        let pending = self.pending.iter().filter_map(|change| match change {
            Change::Link { inode, .. } | Change::Unlink { inode, .. } | Change::Rename { inode, .. } => Some(*inode),
            Change::MakeDirectory { .. } | Change::RemoveDirectory { .. } => None,
        });
        self.now.files.values().chain(self.durable.files.values()).copied().chain(pending).collect()
    }

    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.pending.push(change);
    }
}
