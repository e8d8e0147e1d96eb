//! The inputs of a drive file, and the contents of a dump.

use super::paths::Paths;
use super::quote::{self, single};
use super::state::State;

/// The inputs of a drive file.
pub struct Drive<'a> {
    /// The files of the shell.
    pub paths: &'a Paths,
    /// The number in the names of this run's records.
    pub number: u64,
    /// The number of the key that will be typed.
    pub key: usize,
    /// The file empties itself first, so that a key typed twice runs it once.
    pub once: bool,
    /// The command is harmless: the state is not dumped after it.
    pub harmless: bool,
    /// The previous command was interrupted, so that the settings made for it are still in effect.
    pub interrupted: bool,
    /// The state before the command.
    pub state: &'a State,
    pub text: &'a [u8],
    /// The exit code of the previous command.
    pub status: i32,
    /// Variables for this command alone.
    pub env: &'a [(Vec<u8>, Vec<u8>)],
    /// Directory for this command alone.
    pub cwd: Option<&'a [u8]>,
    /// The path of standard input.
    pub stdin: Vec<u8>,
    /// The path of standard output.
    pub stdout: Vec<u8>,
    /// The path of standard error.
    pub stderr: Vec<u8>,
}

impl Drive<'_> {
    /// Changes to the directory of this command alone. Where that fails, the command must not run: its text
    /// becomes the same attempt, whose error and status are those of the command.
    pub fn enter_cwd(&self, text: &mut Vec<u8>, call: &[u8], cd: &[u8]) {
        let Some(cwd) = self.cwd else { return };
        let attempt = [cd, &single(cwd)].concat();
        let instead = [&attempt, &b" || "[..], call, b"return\n"].concat();
        put(text, &[&attempt, b" 2>/dev/null || ", call, b"printf %s ", &single(&instead)]);
        put(text, &[b" >|", &single(&self.paths.command()), b"\n"]);
    }
}

/// The syntax that differs between zsh and POSIX shells.
pub struct Syntax {
    /// The prefix that calls a builtin even if a function has its name.
    pub call: &'static [u8],
    /// The redirection to a file that may exist.
    pub to: &'static [u8],
    /// The command that changes the directory silently.
    pub cd: &'static [u8],
}

impl Syntax {
    /// Appends the command that creates a record, whose name is the message.
    pub fn mark(&self, text: &mut Vec<u8>, path: &[u8], status: &[u8]) {
        put(text, &[self.call, b": ", self.to, &single(path), status, b"\n"]);
    }

    /// Empties the drive file, so that a key typed twice runs it once.
    pub fn once(&self, text: &mut Vec<u8>, drive: &Drive) {
        if drive.once {
            self.mark(text, &drive.paths.drive(), b"");
        }
    }

    /// Records the status of the preceding command.
    pub fn record(&self, text: &mut Vec<u8>, drive: &Drive) {
        self.mark(text, &drive.paths.ctl(&format!("{}.", drive.number)), b"\"$?\"");
    }

    /// Runs the command's text with its streams.
    pub fn source(&self, text: &mut Vec<u8>, drive: &Drive) {
        let (stdin, stdout) = (single(&drive.stdin), single(&drive.stdout));
        put(text, &[self.call, b". ", &single(&drive.paths.command()), b" <", &stdin]);
        put(text, &[b" ", self.to, &stdout, b" 2", self.to, &single(&drive.stderr), b"\n"]);
    }

    /// Sets the variables of the command alone.
    pub fn set_env(&self, text: &mut Vec<u8>, drive: &Drive) {
        for (name, value) in drive.env {
            put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
        }
    }

    /// Restores these variables. `own` recognizes the line of the state that sets a variable.
    pub fn restore_env(
        &self,
        text: &mut Vec<u8>,
        drive: &Drive,
        own: impl Fn(&[u8], &[u8]) -> bool,
    ) {
        for (name, _) in drive.env {
            if let Some((_, value)) = drive.state.env().find(|(known, _)| known == name) {
                put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
                continue;
            }
            put(text, &[b"unset ", name, b"\n"]);
            for line in quote::lines(drive.state.get("vars")).filter(|line| own(line, name)) {
                text.extend_from_slice(line);
            }
        }
    }

    /// Restores the directory after a command that had its own.
    pub fn restore_cwd(&self, text: &mut Vec<u8>, drive: &Drive) {
        if drive.cwd.is_some() {
            put(text, &[self.cd, &single(drive.state.get("cwd")), b"\n"]);
            put(text, &[b"OLDPWD=", &single(drive.state.get("oldpwd")), b"\n"]);
        }
    }
}

/// The parsed output of a dump.
#[derive(Debug, Default)]
pub struct Dump {
    /// The sections in the dump.
    pub state: State,
    /// The last entry of the shell's history, with its number.
    pub history: Option<Vec<u8>>,
    /// How many commands were typed into this shell, if it counts them.
    pub typed: Option<u64>,
}

/// Appends all parts to a text.
pub fn put(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.extend_from_slice(part);
    }
}
