//! One terminal: its program, its log, its watchers, and its pending input.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::Pid;

use super::slots::Key;
use crate::log::{Log, LogCursor};
use crate::pty::Pty;
use shell::{At, Driver, TerminalReader};
use wire::{ReplyCode, Shell, TerminalInfo};

/// How many bytes of input may wait for a program that does not read.
const MAX_INPUT_BYTES: usize = 64 << 10;

/// How often programs that wait to write are woken after a key that may have discarded output: the kernel handles the key
/// a little later.
const WAKES: u8 = 3;

/// How many write ids are remembered.
const MAX_WRITE_IDS: usize = 128;

/// A terminal of this host.
#[derive(Debug)]
pub(super) struct HostTerminal {
    pub(super) id: String,
    pub(super) program: ProgramState,
    pub(super) shell: Shell,
    pub(super) cols: u16,
    pub(super) rows: u16,
    pub(super) dir: PathBuf,
    pub(super) log: Log,
    pub(super) watchers: Vec<TerminalWatcher>,
    pub(super) input: Input,
    /// The driver of the shell, if the program is one.
    pub(super) driver: Option<Box<Driver>>,
    /// The directory of the terminal's cgroup.
    pub(super) cgroup: Option<PathBuf>,
    pub(super) opened_ms: u64,
    pub(super) output_ms: u64,
    /// The log is in the list of logs to sync.
    pub(super) awaits_sync: bool,
}

/// Whether the program of a terminal runs.
#[derive(Debug)]
pub(super) enum ProgramState {
    Running { pty: Pty, pid: Pid, session: Pid },
    Exited(ProcessExit),
}

/// How a program ended: an exit code, or -1 and the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessExit {
    pub(crate) code: i32,
    pub(crate) signal: i32,
}

/// A connection that is attached to a terminal.
#[derive(Debug)]
pub(super) struct TerminalWatcher {
    pub(super) connection: Key,
    pub(super) state: WatchState,
}

/// How far a watcher has read the output.
#[derive(Debug)]
pub(super) enum WatchState {
    /// The watcher is up to date and gets output directly from the PTY.
    Head,
    /// The watcher is behind and gets output from the log.
    Behind(LogCursor),
    /// The program's exit was reported to the watcher.
    Ended,
}

impl HostTerminal {
    pub(super) fn pty(&self) -> Option<&Pty> {
        match &self.program {
            ProgramState::Running { pty, .. } => Some(pty),
            ProgramState::Exited(_) => None,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        match &self.program {
            ProgramState::Running { pid, .. } => Some(*pid),
            ProgramState::Exited(_) => None,
        }
    }

    /// Returns the session of the program.
    pub(super) fn session(&self) -> Option<Pid> {
        match &self.program {
            ProgramState::Running { session, .. } => Some(*session),
            ProgramState::Exited(_) => None,
        }
    }

    /// Returns the foreground process group, if there is one.
    pub(super) fn foreground(&self) -> Option<Pid> {
        self.pty().and_then(|pty| rustix::termios::tcgetpgrp(&pty.master).ok())
    }

    pub(super) fn info(&self) -> TerminalInfo {
        let exit = match &self.program {
            ProgramState::Running { .. } => None,
            ProgramState::Exited(exit) => Some(*exit),
        };
        let pid = self.pid();
        TerminalInfo {
            terminal: self.id.clone(),
            pid: pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32),
            cols: self.cols,
            rows: self.rows,
            first_offset: self.log.first(),
            end_offset: self.log.end(),
            durable_offset: self.log.durable(),
            exited: exit.is_some(),
            code: exit.map_or(0, |exit| exit.code),
            signal: exit.map_or(0, |exit| exit.signal),
            shell: self.shell,
            busy: self.busy(),
            opened_ms: self.opened_ms,
            output_ms: self.output_ms,
            cgroup: self.cgroup.as_ref().map_or(Vec::new(), |path| {
                std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
            }),
            commands: self.driver.as_ref().map_or(Vec::new(), |driver| driver.commands().list()),
        }
    }

    fn busy(&self) -> bool {
        match (&self.driver, self.pty()) {
            (Some(driver), Some(pty)) => {
                driver.busy(At { now: Instant::now(), master: pty.master.as_fd() })
            }
            (None, Some(_)) => self.foreground() != self.pid(),
            (_, None) => false,
        }
    }

    /// Writes input to the PTY: as many bytes as it accepts at once, the rest later. A write with a known
    /// id is not repeated.
    pub(super) fn write_once(&mut self, write_id: &str, data: &[u8]) -> ReplyCode {
        let ProgramState::Running { pty, .. } = &self.program else { return ReplyCode::Exited };
        if self.input.seen(write_id) {
            return ReplyCode::AlreadyApplied;
        }
        if self.input.pending.len() + data.len() > MAX_INPUT_BYTES {
            return ReplyCode::InputFull;
        }
        self.input.remember(write_id);
        self.input.pending.extend(data);
        self.input.write(pty);
        ReplyCode::Ok
    }

    /// Returns why a secret may not be typed. A write with a known id is left to [`type_once`](Self::type_once).
    pub(super) fn refuses_secret(&self, write_id: &str) -> Option<ReplyCode> {
        let ProgramState::Running { pty, .. } = &self.program else {
            return Some(ReplyCode::Exited);
        };
        if self.input.seen(write_id) {
            return None;
        }
        // Pending input would be read first.
        if !self.input.pending.is_empty() {
            return Some(ReplyCode::NotReading);
        }
        match shell::reader(pty.master.as_fd()) {
            TerminalReader::None => Some(ReplyCode::NotReading),
            TerminalReader::Visible => Some(ReplyCode::Visible),
            TerminalReader::Hidden => None,
        }
    }

    /// Wakes programs that wait to write if a key may have discarded output, unless a person has stopped the output.
    /// Returns whether to do so again.
    pub(super) fn wake_writers(&mut self) -> bool {
        let ProgramState::Running { pty, .. } = &self.program else { return false };
        if self.input.wakes == 0 {
            return false;
        }
        if !(self.input.stops_output && pty.has_flow_control()) {
            pty.wake_writers();
        }
        self.input.wakes -= 1;
        self.input.wakes > 0
    }

    /// Writes pending input to the PTY, as far as it accepts it.
    pub(super) fn write_pending(&mut self) {
        if let ProgramState::Running { pty, .. } = &self.program {
            self.input.write(pty);
        }
    }
}

/// The pending input, and the ids of past writes.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) pending: VecDeque<u8>,
    /// Fingerprints of the latest write ids, oldest first.
    pub(super) ids: VecDeque<u64>,
    /// The loop waits for the PTY to become writable.
    pub(super) awaited: bool,
    /// How often writers are still to be woken after a key that may have discarded output.
    pub(super) wakes: u8,
    /// A person has stopped the output with Ctrl-S.
    pub(super) stops_output: bool,
}

impl Input {
    fn seen(&self, write_id: &str) -> bool {
        !write_id.is_empty() && self.ids.contains(&fingerprint(write_id))
    }

    fn remember(&mut self, write_id: &str) {
        if write_id.is_empty() {
            return;
        }
        if self.ids.len() == MAX_WRITE_IDS {
            self.ids.pop_front();
        }
        self.ids.push_back(fingerprint(write_id));
    }

    /// Notes the keys that stop and start the output, and those that may discard it.
    fn note_control(&mut self, data: &[u8]) {
        const XOFF: u8 = 0x13;
        const XON: u8 = 0x11;
        // By default Ctrl-C, Ctrl-\ and Ctrl-Z; a program may choose others.
        let is_signal = |byte: &u8| matches!(byte, 0..=0x1f) && !b"\r\n\t\x1b\x13".contains(byte);
        if let Some(last) = data.iter().rfind(|byte| **byte == XOFF || is_signal(byte)) {
            self.stops_output = *last == XOFF;
        }
        if data.iter().any(|byte| *byte != XON && is_signal(byte)) {
            self.wakes = WAKES;
        }
    }

    fn write(&mut self, pty: &Pty) {
        loop {
            let (front, _) = self.pending.as_slices();
            if front.is_empty() {
                break;
            }
            match rustix::io::write(&pty.master, front) {
                Ok(count) => {
                    let written: Vec<u8> = self.pending.drain(..count).collect();
                    self.note_control(&written);
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        if self.pending.capacity() > 4 << 10 {
            self.pending = VecDeque::new();
        }
    }
}

/// FNV-1a: the same in every build, so that ids survive an upgrade. A client that constructs colliding
/// ids harms only itself.
fn fingerprint(write_id: &str) -> u64 {
    write_id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stop_start_and_discard_output() {
        let mut input = Input::default();
        for (typed, stops, discards) in [
            ("ls\r\x1b[A", false, false),
            ("\x13", true, false),
            ("ls\r", true, false),
            ("\x11", false, false),
            ("\x11\x13", true, false),
            ("\x03", false, true),
            ("\x1cls", false, true),
        ] {
            input.wakes = 0;
            input.note_control(typed.as_bytes());
            assert_eq!((input.stops_output, input.wakes > 0), (stops, discards), "{typed:?}");
        }
    }

    #[test]
    fn only_the_latest_write_ids_are_remembered() {
        let mut input = Input::default();
        for number in 0..=MAX_WRITE_IDS {
            let id = format!("write-{number}");
            assert!(!input.seen(&id));
            input.remember(&id);
            assert!(input.seen(&id));
        }
        assert_eq!(input.ids.len(), MAX_WRITE_IDS);
        assert!(!input.seen("write-0"));
        assert!(!input.seen(""));
    }
}
