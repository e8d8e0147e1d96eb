//! The memories of one project as a map. Pure: validates changes and applies them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::memory::record::Op;
use crate::{FileError, FileKind, Relative, Stat};
use model::Timestamp;

/// Limits for the hot memories of one project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotLimits {
    /// The number of files and directories.
    pub entries: u64,
    /// The total size of all names and contents.
    pub bytes: u64,
    /// The size of one content.
    pub entry_bytes: u64,
}

impl Default for HotLimits {
    fn default() -> Self {
        Self { entries: 10_000, bytes: 64 << 20, entry_bytes: 4 << 20 }
    }
}

/// One memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    pub bytes: Bytes,
    pub modified_at: Timestamp,
    /// The number of the write that created this content, unique in the project.
    pub version: u64,
}

impl MemoryEntry {
    /// Returns the metadata for this path.
    #[must_use]
    pub fn stat(&self, path: &str) -> Stat {
        Stat {
            path: path.to_owned(),
            kind: FileKind::File,
            size: self.bytes.len() as u64,
            modified_at: Some(self.modified_at),
            mode: None,
            owner: None,
            target: None,
            version: Some(self.version),
        }
    }
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    #[default]
    Anything,
    /// The path does not exist.
    Absent,
    /// The file has this version.
    Version(u64),
}

/// A requested change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryChange {
    /// Writes a file and creates missing parent directories.
    Put { path: Relative, bytes: Bytes, expect: Expect },
    /// Creates a directory.
    MakeDirectory { path: Relative },
    /// Removes a file or an empty directory.
    Remove { path: Relative },
    /// Removes a file, or a directory with everything below it.
    RemoveTree { path: Relative },
    /// Renames a file or directory.
    Move {
        from: Relative,
        to: Relative,
        /// The precondition for the target.
        expect: Expect,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// A file and its size. In an index the content is empty.
    File(MemoryEntry, u64),
    /// A directory that exists even if it is empty.
    Directory(Timestamp),
}

/// All memories of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// A directory exists if it has a node, or if a node is below it.
    nodes: BTreeMap<Box<str>, Node>,
    bytes: u64,
    /// The number of the last write.
    version: u64,
}

impl Map {
    /// Returns the number of entries and bytes.
    pub(super) fn usage(&self) -> (u64, u64) {
        (self.nodes.len() as u64, self.bytes)
    }

    /// Returns the number of the last write.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the file at a path.
    pub(super) fn file(&self, path: &Relative) -> Result<&MemoryEntry, FileError> {
        match self.nodes.get(path.as_str()) {
            Some(Node::File(entry, _)) => Ok(entry),
            _ if self.is_directory(path.as_str()) => {
                Err(FileError::IsDirectory { path: path.to_string() })
            }
            _ => Err(self.missing(path)),
        }
    }

    /// Returns the metadata of a path.
    pub(super) fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        match self.nodes.get(path.as_str()) {
            Some(node) => Ok(node.stat(path.as_str())),
            None if self.is_directory(path.as_str()) => Ok(directory(path.as_str(), None)),
            None => Err(self.missing(path)),
        }
    }

    /// Lists the entries below a path up to a depth, sorted by name, starting after `after`.
    pub(super) fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        if !self.is_directory(path.as_str()) {
            return Err(match self.nodes.contains_key(path.as_str()) {
                true => FileError::NotDirectory { path: path.to_string() },
                false => self.missing(path),
            });
        }
        let mut found: BTreeMap<String, Stat> = BTreeMap::new();
        let after = after.map(|after| sort_key(after.as_str()));
        let is_after =
            |key: &str| after.as_deref().is_none_or(|after| sort_key(key).as_str() > after);
        let own = path.as_str().split('/').filter(|name| !name.is_empty()).count();
        for (key, node) in self.below(path.as_str()) {
            let names = key.split('/').count() - own;
            if names <= depth as usize && is_after(key) {
                found.insert(sort_key(key), node.stat(key));
            }
            // Nodes imply the directories above them.
            for (at, _) in key.match_indices('/') {
                let above = &key[..at];
                let names = above.split('/').count();
                if names > own && names - own <= depth as usize && is_after(above) {
                    found.entry(sort_key(above)).or_insert_with(|| directory(above, None));
                }
            }
        }
        Ok(found.into_values().take(limit).collect())
    }

    /// Returns all files at or below a path, sorted by name.
    pub(super) fn files(&self, path: &Relative) -> Vec<(Box<str>, MemoryEntry)> {
        let own = self.nodes.get_key_value(path.as_str()).into_iter();
        own.chain(self.below(path.as_str()))
            .filter_map(|(key, node)| match node {
                Node::File(entry, _) => Some((key.clone(), entry.clone())),
                Node::Directory(_) => None,
            })
            .collect()
    }

    /// Returns the changes that turn an empty map into this one.
    pub(super) fn ops(&self) -> impl Iterator<Item = Op> {
        self.nodes.iter().map(|(key, node)| match node {
            Node::File(MemoryEntry { bytes, modified_at, version }, _) => Op::Put {
                key: key.clone(),
                bytes: bytes.clone(),
                at: *modified_at,
                version: *version,
            },
            Node::Directory(at) => Op::MakeDirectory { key: key.clone(), at: *at },
        })
    }

    /// Validates a change and returns its effect.
    pub(super) fn plan(
        &self,
        change: &MemoryChange,
        limits: &HotLimits,
        now: Timestamp,
    ) -> Result<Op, FileError> {
        match change {
            MemoryChange::Put { path, bytes, expect } => {
                self.expect(path, *expect)?;
                let key = path.as_str();
                if self.is_directory(key) {
                    return Err(FileError::IsDirectory { path: path.to_string() });
                }
                self.no_file_above(path)?;
                let size = bytes.len() as u64;
                if size > limits.entry_bytes {
                    let limit = limits.entry_bytes;
                    return Err(FileError::TooLarge { path: path.to_string(), limit });
                }
                let before = self.nodes.get(key).map_or(0, |node| node.size(key));
                let more = size + key.len() as u64;
                self.fits(!self.nodes.contains_key(key), more.saturating_sub(before), limits)?;
                let version = self.version + 1;
                Ok(Op::Put { key: key.into(), bytes: bytes.clone(), at: now, version })
            }
            MemoryChange::MakeDirectory { path } => {
                if self.stat(path).is_ok() {
                    return Err(FileError::Exists { path: path.to_string() });
                }
                self.no_file_above(path)?;
                self.fits(true, path.as_str().len() as u64, limits)?;
                Ok(Op::MakeDirectory { key: path.as_str().into(), at: now })
            }
            MemoryChange::Remove { path } => {
                self.stat(path)?;
                if self.below(path.as_str()).next().is_some() {
                    return Err(FileError::NotEmpty { path: path.to_string() });
                }
                Ok(Op::Remove { key: path.as_str().into() })
            }
            MemoryChange::RemoveTree { path } => {
                self.stat(path)?;
                Ok(Op::Remove { key: path.as_str().into() })
            }
            MemoryChange::Move { from, to, expect } => self.plan_move(from, to, *expect, limits),
        }
    }

    fn plan_move(
        &self,
        from: &Relative,
        to: &Relative,
        expect: Expect,
        limits: &HotLimits,
    ) -> Result<Op, FileError> {
        self.stat(from)?;
        if to.below(from).is_some_and(|rest| !rest.is_root()) {
            let why = "it is below the source";
            return Err(FileError::BadPath { path: to.to_string(), why });
        }
        if from != to {
            self.expect(to, expect)?;
            if self.is_directory(to.as_str()) {
                return Err(FileError::IsDirectory { path: to.to_string() });
            }
            self.no_file_above(to)?;
        }
        let moved = self.below(from.as_str()).count() as u64 + 1;
        let longer = (to.as_str().len() as u64).saturating_sub(from.as_str().len() as u64);
        self.fits(false, moved * longer, limits)?;
        Ok(Op::Move { from: from.as_str().into(), to: to.as_str().into() })
    }

    /// Applies a change that was planned, in this process or before a restart.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Put { key, bytes, at, version } => {
                self.version = self.version.max(*version);
                let entry =
                    MemoryEntry { bytes: bytes.clone(), modified_at: *at, version: *version };
                let size = bytes.len() as u64;
                self.insert(key.clone(), Node::File(entry, size));
            }
            Op::MakeDirectory { key, at } => self.insert(key.clone(), Node::Directory(*at)),
            Op::Remove { key } => {
                self.take(key);
            }
            Op::Move { from, to } => {
                let removed = self.take(from);
                self.take(to);
                for (key, node) in removed {
                    let key = format!("{to}{}", &key[from.len()..]);
                    self.insert(key.into(), node);
                }
            }
            Op::Begin { version, .. } => self.version = self.version.max(*version),
            Op::End { .. } => {}
        }
    }

    /// Raises the number of the last write to this one.
    pub(super) fn raise(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    pub(super) fn insert(&mut self, key: Box<str>, node: Node) {
        self.bytes += node.size(&key);
        if let Some(before) = self.nodes.get(&key) {
            self.bytes -= before.size(&key);
        }
        self.nodes.insert(key, node);
    }

    /// Removes a node and everything below it.
    fn take(&mut self, key: &str) -> Vec<(Box<str>, Node)> {
        let own = self.nodes.contains_key(key).then(|| key.into());
        let keys: Vec<Box<str>> =
            own.into_iter().chain(self.below(key).map(|(key, _)| key.clone())).collect();
        keys.into_iter()
            .filter_map(|key| {
                let node = self.nodes.remove(&key)?;
                self.bytes -= node.size(&key);
                Some((key, node))
            })
            .collect()
    }

    fn below(&self, key: &str) -> impl Iterator<Item = (&Box<str>, &Node)> {
        let prefix: Box<str> = if key.is_empty() { "".into() } else { format!("{key}/").into() };
        self.nodes.range(prefix.clone()..).take_while(move |(key, _)| key.starts_with(&*prefix))
    }

    fn is_directory(&self, key: &str) -> bool {
        key.is_empty()
            || matches!(self.nodes.get(key), Some(Node::Directory(_)))
            || self.below(key).next().is_some()
    }

    fn no_file_above(&self, path: &Relative) -> Result<(), FileError> {
        let key = path.as_str();
        let blocked = key
            .match_indices('/')
            .any(|(at, _)| matches!(self.nodes.get(&key[..at]), Some(Node::File(..))));
        if blocked { Err(FileError::NotDirectory { path: path.to_string() }) } else { Ok(()) }
    }

    fn expect(&self, path: &Relative, expect: Expect) -> Result<(), FileError> {
        match expect {
            Expect::Anything => Ok(()),
            Expect::Absent if self.stat(path).is_ok() => {
                Err(FileError::Exists { path: path.to_string() })
            }
            Expect::Absent => Ok(()),
            Expect::Version(version) => match self.file(path) {
                Ok(entry) if entry.version == version => Ok(()),
                Ok(_) | Err(_) => Err(FileError::Changed { path: path.to_string() }),
            },
        }
    }

    fn fits(&self, is_new: bool, bytes: u64, limits: &HotLimits) -> Result<(), FileError> {
        if is_new && self.nodes.len() as u64 >= limits.entries {
            return Err(FileError::Full { what: "memories", limit: limits.entries });
        }
        if bytes > 0 && self.bytes + bytes > limits.bytes {
            return Err(FileError::Full { what: "bytes of memories", limit: limits.bytes });
        }
        Ok(())
    }

    fn missing(&self, path: &Relative) -> FileError {
        match self.no_file_above(path) {
            Ok(()) => FileError::Missing { path: path.to_string() },
            Err(error) => error,
        }
    }
}

impl Node {
    fn size(&self, key: &str) -> u64 {
        let content = match self {
            Node::File(_, size) => *size,
            Node::Directory(_) => 0,
        };
        key.len() as u64 + content
    }

    fn stat(&self, key: &str) -> Stat {
        match self {
            Node::File(entry, size) => Stat { size: *size, ..entry.stat(key) },
            Node::Directory(at) => directory(key, Some(*at)),
        }
    }
}

fn directory(key: &str, at: Option<Timestamp>) -> Stat {
    Stat {
        path: key.to_owned(),
        kind: FileKind::Directory,
        size: 0,
        modified_at: at,
        mode: None,
        owner: None,
        target: None,
        version: None,
    }
}

/// Returns a sort key for paths: a directory directly precedes its entries.
fn sort_key(key: &str) -> String {
    key.replace('/', "\0")
}

#[cfg(test)]
mod tests;
