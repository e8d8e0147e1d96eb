//! The terminal's modes: those of a line editor while the shell is at its prompt, those of a program while
//! a command runs for long.

use rustix::fd::BorrowedFd;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::kind::Kind;
use super::prompt;

/// The modes of one terminal.
#[derive(Debug)]
pub struct TtyModes {
    kind: Kind,
    /// The modes while the shell was last at its prompt.
    at_prompt: Option<Termios>,
    /// A program's modes are set for the current command.
    cooked: bool,
    /// The terminal's echo is off until the current run has begun.
    echo_hidden: bool,
}

impl TtyModes {
    pub fn new(kind: Kind) -> Self {
        Self { kind, at_prompt: None, cooked: false, echo_hidden: false }
    }

    /// Saves the modes of a shell that is at its prompt.
    pub fn save(&mut self, master: BorrowedFd) {
        self.at_prompt = tcgetattr(master).ok();
    }

    /// Prepares for a line or key that is about to be typed. The terminal itself must not echo it.
    pub fn begin_run(&mut self, master: BorrowedFd) {
        self.cooked = false;
        self.echo_hidden = !self.kind.edits_lines() && hide_echo(master);
    }

    /// Turns the terminal's echo on again after the run has begun.
    pub fn restore_echo(&self, master: BorrowedFd) {
        if self.echo_hidden {
            cook(master, |_| false);
        }
    }

    /// Sets the modes that a program expects, once per command. The echo stays off for a program that reads a
    /// password.
    pub fn cook_once(&mut self, shell: i32, master: BorrowedFd) {
        if self.cooked {
            return;
        }
        // After an upgrade the current modes are those to restore.
        if self.at_prompt.is_none() {
            self.at_prompt = tcgetattr(master).ok().filter(prompt::is_line_editor);
        }
        self.cooked = true;
        let own = self.at_prompt.as_ref().filter(|_| self.kind.edits_lines());
        // This takes a while, so it comes before the modes are read that are then changed.
        let reads = own.is_some() && prompt::reads_own_terminal(shell, master);
        cook(master, |modes| {
            reads || own.is_some_and(|own| prompt::is_echo_turned_off(own, modes))
        });
    }

    /// Restores the modes of the line editor: it does not set them after a bound key, and a command may
    /// have changed them.
    pub fn restore(&mut self, master: BorrowedFd) {
        if let (true, Some(modes)) = (self.kind.edits_lines(), &self.at_prompt) {
            set_unless_raw(master, modes);
        }
        self.cooked = false;
    }

    /// Restores the modes of a shell whose line editor has no keys to bind: [`cook_once`] may have set the
    /// modes of a program when the shell was already at its prompt. The caller knows that no line was
    /// entered since, so a shell that sleeps in a poll is in its line editor.
    ///
    /// [`cook_once`]: Self::cook_once
    pub fn repair(&self, shell: i32, master: BorrowedFd) {
        let canonical = |modes: &Termios| modes.local_modes.contains(LocalModes::ICANON);
        if !self.kind.edits_lines()
            && let Some(own) = self.at_prompt.as_ref().filter(|own| !canonical(own))
            && tcgetattr(master).is_ok_and(|modes| canonical(&modes))
            && prompt::polls_in_foreground(shell, master)
        {
            set_unless_raw(master, own);
        }
    }
}

/// Sets the modes that a program expects: in the line editor's modes, Enter would not end a line. The echo stays off if
/// the program hides its input, which `hides` tells from the current modes.
fn cook(master: BorrowedFd, hides: impl FnOnce(&Termios) -> bool) {
    let Ok(mut modes) = tcgetattr(master) else { return };
    if modes.local_modes.contains(LocalModes::ECHO) {
        return;
    }
    let hides = hides(&modes);
    modes.local_modes |= LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
    if !hides {
        modes.local_modes |= LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK;
    }
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
    if tcgetattr(master).is_ok_and(|current| !prompt::is_line_editor(&current)) {
        let _ = tcsetattr(master, OptionalActions::Now, modes);
    }
}
