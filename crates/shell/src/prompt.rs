//! Detecting whether the shell's line editor reads the terminal.

use std::fs;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::fd::BorrowedFd;
use rustix::termios::{InputModes, LocalModes, Termios, tcgetattr, tcgetpgrp};

use super::kind::Kind;
use super::procs;

/// Returns whether the shell `pid` is in its line editor. `read -n1` and the like keep `ICRNL`.
pub fn at_prompt(pid: i32, master: BorrowedFd) -> bool {
    in_foreground(pid, master)
        && tcgetattr(master).is_ok_and(|modes| is_line_editor(&modes))
        && procs::waits_for_key(pid)
}

/// Returns whether the shell `pid`, which has no line editor or one without keys to bind, reads its next
/// command from the terminal.
pub fn at_plain_prompt(pid: i32, master: BorrowedFd) -> bool {
    in_foreground(pid, master)
        && (procs::reads_terminal(pid)
            || procs::polls(pid)
                && tcgetattr(master)
                    .is_ok_and(|modes| !modes.local_modes.contains(LocalModes::ICANON)))
}

/// Returns whether the shell `pid` is in the foreground and sleeps in a poll.
pub fn polls_in_foreground(pid: i32, master: BorrowedFd) -> bool {
    in_foreground(pid, master) && procs::polls(pid)
}

/// Returns whether the shell itself, and not a program it started, is in the foreground.
pub fn in_foreground(pid: i32, master: BorrowedFd) -> bool {
    tcgetpgrp(master).is_ok_and(|group| group.as_raw_nonzero().get() == pid)
}

/// Returns whether a shell that ran a drive file is back in its line editor. The terminal's modes do not
/// matter: while the drive file runs, standard output and error are redirected. If the whole shell is
/// redirected, the line editor is recognized by its select before each read. A shell without a line editor
/// that reads another descriptor waits for a substitution in the drive file.
pub fn left_drive(pid: i32, kind: Kind, master: BorrowedFd) -> bool {
    if !kind.edits_lines() {
        return at_plain_prompt(pid, master);
    }
    let to_terminal = |descriptor: i32| {
        fs::read_link(format!("/proc/{pid}/fd/{descriptor}"))
            .is_ok_and(|target| target.starts_with("/dev/pts"))
    };
    in_foreground(pid, master)
        && procs::waits_for_key(pid)
        && to_terminal(0)
        && (to_terminal(1) && to_terminal(2) || procs::selects(pid))
}

/// Returns whether the shell runs a command: its standard output is one of the FIFOs in `run`.
pub fn in_command(pid: i32, run: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/fd/1")).is_ok_and(|target| target.starts_with(run))
}

/// Returns whether the modes are those of a line editor: readline reads a carriage return unchanged, ZLE
/// swaps it with a newline, and `read -n1` does neither.
pub fn is_line_editor(modes: &Termios) -> bool {
    let input = modes.input_modes;
    !modes.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
        && (!input.contains(InputModes::ICRNL) || input.contains(InputModes::INLCR))
}

/// Returns whether there is terminal output that the host has not read.
pub fn has_unread(master: BorrowedFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(master, PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// What would happen to a line that is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalReader {
    /// No program waits for input.
    None,
    /// The terminal echoes the line, or the program reads keys and may show them.
    Visible,
    /// A program waits for a line that is not echoed, as for a password.
    Hidden,
}

/// Returns how the foreground reads the terminal. A program without echo that still reads whole lines has turned
/// the echo off; a line editor reads keys and shows them itself.
pub fn reader(master: BorrowedFd) -> TerminalReader {
    let (Ok(modes), Ok(group)) = (tcgetattr(master), tcgetpgrp(master)) else {
        return TerminalReader::None;
    };
    let leader = group.as_raw_nonzero().get();
    let waits = procs::waits_for_terminal(leader)
        || procs::all()
            .iter()
            .any(|process| process.group == leader && procs::waits_for_terminal(process.pid));
    let (canonical, echo) = (
        modes.local_modes.contains(LocalModes::ICANON),
        modes.local_modes.contains(LocalModes::ECHO),
    );
    match (waits, canonical, echo) {
        (false, _, _) => TerminalReader::None,
        (true, true, false) => TerminalReader::Hidden,
        (true, _, _) => TerminalReader::Visible,
    }
}

/// Returns whether a program of the foreground reads a terminal that it opened itself, as programs do that ask for a
/// password. A command starts with the modes of the line editor, which have no echo, so the modes do not tell.
pub fn reads_own_terminal(shell: i32, master: BorrowedFd) -> bool {
    let Ok(group) = tcgetpgrp(master) else { return false };
    let leader = group.as_raw_nonzero().get();
    procs::all().iter().any(|process| {
        process.group == leader && process.pid != shell && procs::reads_own_terminal(process.pid)
    })
}

/// Returns whether a program has turned the echo off, given the modes of the line editor: `read -s` turns more off than
/// a line editor does.
pub fn is_echo_turned_off(own: &Termios, modes: &Termios) -> bool {
    (own.local_modes - modes.local_modes).contains(LocalModes::ECHOK)
        && !modes.local_modes.contains(LocalModes::ECHO)
}

/// Returns whether a process of the foreground group sleeps in a read of its terminal.
pub fn foreground_reads(master: BorrowedFd) -> bool {
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
