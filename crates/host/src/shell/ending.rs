//! Ending a command before its time, signalling it, feeding it; and the terminal's modes and limits.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp,
    tcsetattr,
};

use super::commands::Stdin;
use super::driver::{Driver, Phase};
use super::overdue::SOON;
use super::procs::{self, Family};
use super::run::{Job, Run};
use super::{At, Effect, End, Spec, prompt};
use crate::wire::{Code, Outcome, Phase as Progress, StdinMode};

/// How often the processes are looked at while they are being ended.
const PASS: Duration = Duration::from_millis(1);
/// After so many looks the shell is ended whatever is left: something forks faster than we look.
const PASSES: u32 = 2000;
/// Bytes of standard input that may wait for room in the pipe.
const PENDING: usize = 1 << 20;
/// Ids of writes that are remembered.
const TAKEN: usize = 256;

/// A run whose processes are being ended: all are stopped first, so that none forks while others
/// are looked for, then all are killed, and the shell last.
#[derive(Debug)]
pub(super) struct Ending {
    run: Run,
    end: End,
    known: HashSet<i32>,
    killing: bool,
    passes: u32,
    next: Instant,
}

impl Ending {
    pub(super) fn next(&self) -> Instant {
        self.next
    }
    pub(super) fn run(&self) -> &Run {
        &self.run
    }
    pub(super) fn into_parts(self) -> (Run, End) {
        (self.run, self.end)
    }
}

impl Driver {
    /// Begins to end what runs, and its shell with it.
    pub(super) fn end_running(&mut self, end: End) {
        let Phase::Running(mut run) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        procs::signal(self.pid, Signal::STOP);
        let now = Instant::now();
        run.finish_at(now);
        // A command that has its status only lost its shell: what it left behind lives on.
        let killing = end.0 == Outcome::Finished;
        if killing {
            procs::signal(self.pid, Signal::KILL);
        }
        let passes = if killing { PASSES } else { 0 };
        self.phase = Phase::Ending(Box::new(Ending {
            run: *run,
            end,
            known: HashSet::new(),
            killing,
            passes,
            next: now,
        }));
    }

    pub(super) fn tick_ending(&mut self, at: At) {
        let Phase::Ending(ending) = &mut self.phase else { return };
        if at.now < ending.next {
            return;
        }
        ending.next = at.now + PASS;
        ending.passes += 1;
        if ending.passes > PASSES {
            procs::signal(self.pid, Signal::KILL);
            ending.next = at.now + Duration::from_millis(100);
            return;
        }
        let family = Family {
            shell: self.pid,
            session: self.session,
            terminal: &self.setup.terminal,
            cgroup: self.setup.cgroup.as_deref(),
            since: ending.run.moment,
        };
        let born = family.born(&ending.known);
        if born.is_empty() {
            ending.passes = PASSES;
            procs::signal(self.pid, Signal::KILL);
            return;
        }
        let mut fresh = false;
        for process in &born {
            fresh |= ending.known.insert(process.pid);
            procs::signal(process.pid, if ending.killing { Signal::KILL } else { Signal::STOP });
        }
        if !fresh {
            ending.killing = true;
            for process in &born {
                procs::signal(process.pid, Signal::KILL);
            }
        }
    }

    /// Ends a command: a queued one is dropped, a running one ends as by a time-out.
    pub fn cancel(&mut self, command: &str, effects: &mut Vec<Effect>) -> Result<(), Code> {
        if self.unqueue(command, Outcome::Cancelled, effects) {
            return Ok(());
        }
        self.running(command)?;
        self.end_running((Outcome::Cancelled, None, None));
        Ok(())
    }

    /// Drops a command that is still queued. One that has begun runs on.
    pub fn withdraw(&mut self, command: &str, effects: &mut Vec<Effect>) -> Result<(), Code> {
        if self.unqueue(command, Outcome::NotStarted, effects) {
            return Ok(());
        }
        self.running(command)?;
        Err(Code::StillRunning)
    }

    /// Signals a running command: the group that has the terminal, or all of its processes. An
    /// interrupt goes to the shell too, and so does what finds no process.
    pub fn signal(&mut self, command: &str, signal: Signal, at: At) -> Result<(), Code> {
        self.look_begun();
        let run = self.running(command)?;
        let since = run.moment;
        if !run.begun || !prompt::in_command(self.pid, &self.paths.run) {
            // It would meet the line editor, or what comes before and behind the command.
            if let Phase::Running(run) = &mut self.phase {
                run.signal = Some(signal);
                run.check = at.now + SOON;
            }
            return Ok(());
        }
        if !prompt::in_foreground(self.pid, at.master)
            && let Ok(group) = tcgetpgrp(at.master)
        {
            let _ = kill_process_group(group, signal);
            return Ok(());
        }
        let family = Family {
            shell: self.pid,
            session: self.session,
            terminal: &self.setup.terminal,
            cgroup: self.setup.cgroup.as_deref(),
            since,
        };
        let born = family.born(&HashSet::new());
        // As Ctrl-C would: the rest of the line is not to run. The shell first, so that it knows
        // when it sees what the others died of.
        if born.is_empty() || signal == Signal::INT {
            procs::signal(self.pid, signal);
        }
        for process in &born {
            procs::signal(process.pid, signal);
        }
        Ok(())
    }

    /// Feeds a command opened with [`StdinMode::Open`].
    pub fn stdin(
        &mut self,
        command: &str,
        write_id: &str,
        data: &[u8],
        eof: bool,
    ) -> Result<(), Code> {
        let found = self.commands.get_mut(command).ok_or(Code::NoSuchCommand)?;
        let Some(stdin) = &mut found.stdin else {
            return Err(Code::CommandEnded);
        };
        if !write_id.is_empty() && stdin.taken.iter().any(|taken| taken == write_id) {
            return Err(Code::AlreadyApplied);
        }
        if stdin.eof {
            return Err(Code::CommandEnded);
        }
        if stdin.pending.len() + data.len() > PENDING {
            return Err(Code::InputFull);
        }
        if !write_id.is_empty() {
            if stdin.taken.len() >= TAKEN {
                stdin.taken.remove(0);
            }
            stdin.taken.push(write_id.to_owned());
        }
        stdin.pending.extend(data);
        stdin.eof |= eof;
        stdin.flush();
        self.feed(command, Instant::now());
        Ok(())
    }

    /// Writes what waits for a command, and closes its input when that was all. The end is held
    /// back until the command has surely opened its side: closing before would take the data along.
    pub(super) fn feed(&mut self, command: &str, now: Instant) {
        let opened = match &self.phase {
            Phase::Running(run) => run.surely_open(now),
            Phase::Absent
            | Phase::Starting { .. }
            | Phase::Idle
            | Phase::Refreshing(_)
            | Phase::Ending(_)
            | Phase::Over => false,
        };
        let Some(found) = self.commands.get_mut(command) else { return };
        if let Some(stdin) = &mut found.stdin {
            stdin.flush();
            if opened && found.phase == Progress::Running && stdin.done() {
                found.stdin = None;
            }
        }
    }

    fn running(&self, command: &str) -> Result<&Run, Code> {
        match &self.phase {
            Phase::Running(run) if matches!(&run.job, Job::Command { id, .. } if id == command) => {
                Ok(run)
            }
            _ if self.commands.get(command).is_none() => Err(Code::NoSuchCommand),
            _ => Err(Code::CommandEnded),
        }
    }

    pub(super) fn make_stdin(&self, spec: &Spec) -> io::Result<Option<Stdin>> {
        match spec.stdin {
            StdinMode::Null | StdinMode::Other(_) => Ok(None),
            StdinMode::Given => {
                self.paths.write("stdin", &spec.stdin_data)?;
                Ok(None)
            }
            StdinMode::Open => {
                let path = self.paths.run.join(format!("i.{}", spec.command));
                mkfifoat(CWD, &path, Mode::from_raw_mode(0o600))?;
                let fd =
                    open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
                let pending = spec.stdin_data.iter().copied().collect();
                let mut stdin = Stdin { path, fd, pending, eof: false, taken: Vec::new() };
                stdin.flush();
                Ok(Some(stdin))
            }
        }
    }
}

impl Stdin {
    fn flush(&mut self) {
        while !self.pending.is_empty() {
            let (first, _) = self.pending.as_slices();
            match rustix::io::write(&self.fd, first) {
                Ok(length) => drop(self.pending.drain(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn done(&self) -> bool {
        self.eof && self.pending.is_empty()
    }
}

/// Makes the terminal what a program expects: the line editor's own modes would keep a person's
/// Enter from ending a line.
pub(super) fn cook_modes(master: BorrowedFd) {
    let Ok(mut modes) = tcgetattr(master) else { return };
    if modes.local_modes.contains(LocalModes::ECHO) {
        return;
    }
    modes.local_modes |= LocalModes::ICANON
        | LocalModes::ECHO
        | LocalModes::ECHOE
        | LocalModes::ECHOK
        | LocalModes::ISIG
        | LocalModes::IEXTEN;
    modes.input_modes |= InputModes::ICRNL;
    modes.input_modes &= !InputModes::INLCR;
    modes.special_codes[SpecialCodeIndex::VEOF] = 4;
    let _ = tcsetattr(master, OptionalActions::Now, &modes);
}

/// Keeps what is typed next off the screen; false when the terminal is in somebody's raw mode.
pub(super) fn hide_echo(master: BorrowedFd) -> bool {
    let Ok(mut modes) = tcgetattr(master) else { return false };
    if !modes.local_modes.contains(LocalModes::ICANON) {
        return false;
    }
    modes.local_modes &= !LocalModes::ECHO;
    tcsetattr(master, OptionalActions::Now, &modes).is_ok()
}

/// Gives the line editor its modes back, when others are set.
pub(super) fn restore_modes(master: BorrowedFd, raw: &Termios) {
    if tcgetattr(master).is_ok_and(|modes| !prompt::raw(&modes)) {
        let _ = tcsetattr(master, OptionalActions::Now, raw);
    }
}

/// Whether a process of the foreground group sleeps in a read of its terminal.
pub(super) fn foreground_reads(master: BorrowedFd) -> bool {
    let Ok(group) = tcgetpgrp(master) else {
        return false;
    };
    let leader = group.as_raw_nonzero().get();
    if procs::reads_terminal(leader) {
        return true;
    }
    procs::all()
        .iter()
        .filter(|process| process.group == leader && process.pid != leader && process.state == b'S')
        .any(|process| procs::reads_terminal(process.pid))
}

/// The limits that a shell's `ulimit` sets, by the names `/proc/PID/limits` has.
const LIMITS: [(&str, Resource); 15] = [
    ("Max cpu time", Resource::Cpu),
    ("Max file size", Resource::Fsize),
    ("Max data size", Resource::Data),
    ("Max stack size", Resource::Stack),
    ("Max core file size", Resource::Core),
    ("Max resident set", Resource::Rss),
    ("Max processes", Resource::Nproc),
    ("Max open files", Resource::Nofile),
    ("Max locked memory", Resource::Memlock),
    ("Max address space", Resource::As),
    ("Max file locks", Resource::Locks),
    ("Max pending signals", Resource::Sigpending),
    ("Max msgqueue size", Resource::Msgqueue),
    ("Max nice priority", Resource::Nice),
    ("Max realtime priority", Resource::Rtprio),
];

/// The limits of a process: a name and two numbers a line.
pub(super) fn limits(pid: i32) -> Vec<u8> {
    let text = procs::told(&format!("/proc/{pid}/limits")).unwrap_or_default();
    let mut found = String::new();
    for line in text.lines() {
        if LIMITS.iter().any(|(name, _)| line.starts_with(name))
            && let Some((name, rest)) = line.split_at_checked(26)
        {
            let mut values = rest.split_ascii_whitespace();
            if let (Some(soft), Some(hard)) = (values.next(), values.next()) {
                found.push_str(&format!("{}:{soft}:{hard}\n", name.trim_end()));
            }
        }
    }
    found.into_bytes()
}

/// Sets the limits of a process as [`limits`] told them; what may not be set stays.
pub(super) fn apply_limits(pid: i32, limits: &[u8]) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    for line in String::from_utf8_lossy(limits).lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(soft), Some(hard)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if let Some((_, resource)) = LIMITS.iter().find(|(known, _)| *known == name) {
            let limit = Rlimit { current: soft.parse().ok(), maximum: hard.parse().ok() };
            let _ = prlimit(Some(pid), *resource, limit);
        }
    }
}
