//! The commands of a driver: their output, and how they ended.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::exit_sequence::ExitSequence;
use super::output::{Keep, Output, Piece};
use super::pipes::Pipe;
use super::status::Status;
use super::stdin::StdinPipe;
use wire::{CommandInfo, Event, Phase};

/// How many forgotten commands keep their output on disk.
const MAX_STORED_COMMANDS: usize = 512;

/// How many bytes of output all forgotten commands together keep on disk.
const MAX_STORED_BYTES: u64 = 256 << 20;

/// A command that was not forgotten.
#[derive(Debug)]
pub struct CommandState {
    /// The number of the command among this driver's commands.
    pub index: u64,
    /// Standard output and standard error.
    pub outputs: [Output; 2],
    pub exit_sequence: ExitSequence,
    /// The FIFOs to which the command or its background processes may still write.
    pub pipes: [Option<Pipe>; 2],
    /// The writing end of standard input, while it is open.
    pub stdin: Option<StdinPipe>,
    pub phase: Phase,
    pub started: Option<Instant>,
    /// The start by the wall clock, in milliseconds since the epoch.
    pub started_ms: u64,
    /// The command waits for input from the terminal.
    pub waiting: bool,
    pub status: Option<Status>,
    /// The command is dropped as soon as its streams are closed.
    pub forgotten: bool,
}

impl CommandState {
    fn new(index: u64, dir: &Path, id: &str, keep: Keep) -> Self {
        Self {
            index,
            outputs: [
                Output::new(dir.join(format!("{id}.out")), keep),
                Output::new(dir.join(format!("{id}.err")), keep),
            ],
            exit_sequence: ExitSequence::default(),
            pipes: [None, None],
            stdin: None,
            phase: Phase::Queued,
            started: None,
            started_ms: 0,
            waiting: false,
            status: None,
            forgotten: false,
        }
    }

    /// Releases standard error that was held back. Returns whether there was any.
    pub fn release_held(&mut self) -> bool {
        let held = self.exit_sequence.release();
        self.outputs[1].append(&held);
        !held.is_empty()
    }

    /// Releases standard error that was held back for long enough.
    pub fn release_due(&mut self) -> bool {
        self.exit_sequence.due().is_some_and(|due| due <= Instant::now()) && self.release_held()
    }
}

/// The events that have reported a command.
#[derive(Debug, Default)]
pub struct Reported {
    pub started: Option<Event>,
    /// The events that follow its output.
    pub ended: Vec<Event>,
}

/// All commands that were not forgotten, and the stored output of the others.
#[derive(Debug)]
pub struct Commands {
    dir: PathBuf,
    by_id: HashMap<String, CommandState>,
    by_index: HashMap<u64, String>,
    next: u64,
    /// Forgotten commands whose output is still on disk, oldest first.
    settled: VecDeque<(String, [Output; 2])>,
}

impl Commands {
    /// Creates an empty table. Large output is stored in `dir`, which may contain older output.
    pub fn new(dir: PathBuf) -> Self {
        let settled = VecDeque::new();
        let (by_id, by_index) = (HashMap::new(), HashMap::new());
        let mut commands = Self { dir, by_id, by_index, next: 1, settled };
        commands.find_settled();
        commands.trim();
        commands
    }

    fn find_settled(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return };
        let mut found: Vec<_> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let id = name.strip_suffix(".out").or_else(|| name.strip_suffix(".err"))?;
                Some((entry.metadata().ok()?.modified().ok()?, id.to_owned()))
            })
            .collect();
        found.sort();
        let mut seen = std::collections::HashSet::new();
        for (_, id) in found {
            if seen.insert(id.clone()) {
                let outputs = stored(&self.dir, &id);
                self.settled.push_back((id, outputs));
            }
        }
    }

    /// Adds a command. Returns `false` if the id exists already.
    pub fn add(&mut self, id: &str, keep: Keep) -> bool {
        if self.by_id.contains_key(id) {
            return false;
        }
        self.settled.retain(|(name, _)| name != id);
        let index = self.next;
        self.next += 1;
        self.by_index.insert(index, id.to_owned());
        self.by_id.insert(id.to_owned(), CommandState::new(index, &self.dir, id, keep));
        true
    }

    pub fn get(&self, id: &str) -> Option<&CommandState> {
        self.by_id.get(id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut CommandState> {
        self.by_id.get_mut(id)
    }

    /// Returns the commands that have ended and whose streams are still open.
    pub fn done(&self) -> Vec<String> {
        let done = self.by_id.iter().filter(|(_, command)| command.phase == Phase::Done);
        done.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the id of a command by its number.
    pub fn id(&self, index: u64) -> Option<&String> {
        self.by_index.get(&index)
    }

    pub fn all(&self) -> impl Iterator<Item = &CommandState> {
        self.by_id.values()
    }

    pub fn ids(&self) -> impl Iterator<Item = &String> {
        self.by_id.keys()
    }

    /// Returns one stream of a command, forgotten or not.
    pub fn output(&self, id: &str, stream: usize) -> Option<&Output> {
        match self.by_id.get(id) {
            Some(command) => command.outputs.get(stream),
            None => {
                let (_, outputs) = self.settled.iter().find(|(name, _)| name == id)?;
                outputs.get(stream)
            }
        }
    }

    /// Drops a command from memory as soon as its streams are closed. Its output stays on disk until newer
    /// output needs the space. Returns `false` if the command does not exist.
    pub fn forget(&mut self, id: &str) -> bool {
        match self.by_id.get_mut(id) {
            None => return false,
            Some(command) if command.phase != Phase::Sealed => {
                command.forgotten = true;
                return true;
            }
            Some(_) => {}
        }
        if let Some(command) = self.by_id.remove(id) {
            self.by_index.remove(&command.index);
            let mut outputs = command.outputs;
            if outputs.iter().any(|output| output.written() > 0) {
                for output in &mut outputs {
                    output.settle();
                }
                self.settled.push_back((id.to_owned(), outputs));
            }
        }
        self.trim();
        true
    }

    /// Returns whether a command is forgotten but its output is still on disk.
    pub fn is_settled(&self, id: &str) -> bool {
        self.settled.iter().any(|(name, _)| name == id)
    }

    /// Moves the output of a running command to disk, so that bytes which a client has seen survive if this
    /// process is killed.
    pub fn persist(&mut self, id: &str) {
        if let Some(command) = self.by_id.get_mut(id)
            && command.phase == Phase::Running
        {
            command.outputs.iter_mut().for_each(Output::persist);
        }
    }

    /// Reads a part of a command's output; `None` if the command does not exist. The flag is set if no
    /// output will ever follow.
    pub fn read(
        &self,
        id: &str,
        stream: usize,
        from: u64,
        limit: usize,
    ) -> Option<io::Result<(Piece, bool)>> {
        let output = self.output(id, stream)?;
        let sealed = self.get(id).is_none_or(|found| found.phase == Phase::Sealed);
        Some(output.read(from, limit).map(|piece| {
            let end = sealed && piece.next == output.written();
            (piece, end)
        }))
    }

    /// Returns the commands that were not forgotten, ordered by id.
    pub fn list(&self) -> Vec<CommandInfo> {
        let mut list: Vec<CommandInfo> = self
            .by_id
            .iter()
            .map(|(id, found)| CommandInfo {
                command: id.clone(),
                phase: found.phase,
                stdout_bytes: found.outputs[0].written(),
                stderr_bytes: found.outputs[1].written(),
            })
            .collect();
        list.sort_by(|one, other| one.command.cmp(&other.command));
        list
    }

    /// Returns the events that have reported a command so far.
    pub fn reported(&self, id: &str, terminal: String, offset: u64) -> Reported {
        let mut reported = Reported::default();
        let Some(found) = self.get(id) else { return reported };
        if found.started.is_some() {
            let (command, terminal) = (id.to_owned(), terminal.clone());
            reported.started =
                Some(Event::Started { command, terminal, offset, time_ms: found.started_ms });
        }
        if found.waiting {
            reported.ended.push(Event::Waiting { command: id.to_owned(), waiting: true });
        }
        if let Some(status) = &found.status {
            reported.ended.push(status.clone().event(id.to_owned(), terminal, offset));
        }
        if found.phase == Phase::Sealed {
            reported.ended.push(Event::Sealed {
                command: id.to_owned(),
                stdout_bytes: found.outputs[0].written(),
                stderr_bytes: found.outputs[1].written(),
            });
        }
        reported
    }

    /// Returns whether the command is in memory or its output is on disk.
    pub fn knows(&self, id: &str) -> bool {
        self.by_id.contains_key(id) || self.is_settled(id)
    }

    fn trim(&mut self) {
        let size = |outputs: &[Output; 2]| -> u64 {
            outputs
                .iter()
                .map(|output| output.written().min(output.keep().head + output.keep().tail))
                .sum()
        };
        let mut bytes: u64 = self.settled.iter().map(|(_, outputs)| size(outputs)).sum();
        while self.settled.len() > MAX_STORED_COMMANDS || bytes > MAX_STORED_BYTES {
            let Some((_, outputs)) = self.settled.pop_front() else {
                break;
            };
            bytes -= size(&outputs);
            for output in &outputs {
                output.remove();
            }
        }
    }
}

/// Opens the output of a command that another host left, which may have been killed.
fn stored(dir: &Path, id: &str) -> [Output; 2] {
    [".out", ".err"].map(|end| {
        let path = dir.join(format!("{id}{end}"));
        match Output::left(path.clone()) {
            Ok(mut output) => {
                output.settle();
                output
            }
            Err(_) => Output::new(path, Keep { head: 0, tail: 0 }),
        }
    })
}
