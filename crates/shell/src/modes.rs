//! The terminal's modes: a line editor's while the shell is at its prompt, a program's while a
//! command takes its time.

use rustix::fd::BorrowedFd;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::prompt;

/// The modes of one terminal.
#[derive(Debug)]
pub struct TtyModes {
    /// The shell has a line editor with modes of its own.
    edits_lines: bool,
    /// The modes while the shell was last at its prompt.
    at_prompt: Option<Termios>,
    /// A program's modes are set for the current command.
    cooked: bool,
    /// The terminal's echo is off until the current run has begun.
    echo_hidden: bool,
}

impl TtyModes {
    pub fn new(edits_lines: bool) -> Self {
        Self { edits_lines, at_prompt: None, cooked: false, echo_hidden: false }
    }

    /// Remembers the modes: the shell is at its prompt.
    pub fn save(&mut self, master: BorrowedFd) {
        self.at_prompt = tcgetattr(master).ok();
    }

    /// Prepares for a line or key that is about to be typed. A terminal that echoes by itself must
    /// not echo it.
    pub fn begin_run(&mut self, master: BorrowedFd) {
        self.cooked = false;
        self.echo_hidden = !self.edits_lines && hide_echo(master);
    }

    /// Lets the terminal echo again: the run has begun.
    pub fn restore_echo(&self, master: BorrowedFd) {
        if self.echo_hidden {
            cook(master);
        }
    }

    /// Sets the modes a program expects, once per command.
    pub fn cook_once(&mut self, master: BorrowedFd) {
        if self.cooked {
            return;
        }
        // After an upgrade the modes to go back to are those that are set.
        if self.at_prompt.is_none() {
            self.at_prompt = tcgetattr(master).ok().filter(prompt::raw);
        }
        self.cooked = true;
        cook(master);
    }

    /// Gives the line editor its modes back: it does not set them after a key of ours, and a command
    /// may have left others.
    pub fn restore(&mut self, master: BorrowedFd) {
        if let (true, Some(modes)) = (self.edits_lines, &self.at_prompt) {
            set_unless_raw(master, modes);
        }
        self.cooked = false;
    }

    /// Gives a shell whose line editor has no keys to bind its modes back: [`cook_once`] may have set
    /// a program's when the shell was already at its prompt. No line was entered since, so when the
    /// shell polls it edits.
    ///
    /// [`cook_once`]: Self::cook_once
    pub fn repair(&self, shell: i32, master: BorrowedFd) {
        let canonical = |modes: &Termios| modes.local_modes.contains(LocalModes::ICANON);
        if !self.edits_lines
            && let Some(own) = self.at_prompt.as_ref().filter(|own| !canonical(own))
            && tcgetattr(master).is_ok_and(|modes| canonical(&modes))
            && prompt::polls_in_foreground(shell, master)
        {
            set_unless_raw(master, own);
        }
    }
}

/// Makes the terminal what a program expects: the line editor's own modes would keep a person's
/// Enter from ending a line.
fn cook(master: BorrowedFd) {
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

/// Turns the echo off. Returns `false` if the terminal is in a program's raw mode.
fn hide_echo(master: BorrowedFd) -> bool {
    let Ok(mut modes) = tcgetattr(master) else { return false };
    if !modes.local_modes.contains(LocalModes::ICANON) {
        return false;
    }
    modes.local_modes &= !LocalModes::ECHO;
    tcsetattr(master, OptionalActions::Now, &modes).is_ok()
}

fn set_unless_raw(master: BorrowedFd, modes: &Termios) {
    if tcgetattr(master).is_ok_and(|current| !prompt::raw(&current)) {
        let _ = tcsetattr(master, OptionalActions::Now, modes);
    }
}
