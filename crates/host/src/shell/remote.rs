//! Commands with state where nothing but `sh -c` can be run: each is wrapped in a script that gives a
//! fresh shell the state, runs the command, and prints the state behind its output.
//!
//! ```text
//! stdout:  what the command wrote | MARK shell status newline | the state
//! ```
//! Where the output goes to files, so may the state ([`Command::told`]): then nothing but the command's own
//! output is in them.
//!
//! The mark is random for each command and made by the caller, so that nothing a command prints can be
//! taken for it. Standard error is the command's alone. bash is used where there is one, else `sh`,
//! whose functions are known from the commands that define them. An EXIT trap belongs to the command that sets it, as each has a
//! shell of its own.
//!
//! Nothing here runs anything: [`wrap`] makes the script, [`read`] takes its output apart.

use super::defined::functions;
use super::dialect::put;
use super::quote::{self, is_name, single};
use super::state::State;
use super::{bash, sh};

/// A command and what it starts with.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// The shell text.
    pub text: &'a [u8],
    /// The state as it was last told.
    pub state: &'a State,
    /// Variables for this command alone.
    pub env: &'a [(Vec<u8>, Vec<u8>)],
    /// Directory for this command alone.
    pub cwd: Option<&'a [u8]>,
    /// Random letters and digits, at least twenty, never used before.
    pub mark: &'a str,
    /// A file that is told the state, instead of standard output. When it is whole, one of the same
    /// name with [`WHOLE`] behind it is there.
    pub told: Option<&'a [u8]>,
}

/// What the name of the file ends with that says that the state was told whole.
pub const WHOLE: &str = ".whole";

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What the command wrote to standard output.
    pub stdout: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
    /// The sections that were told; empty when the shell ended before it could. To be absorbed.
    pub state: State,
}

/// The script to run with `sh -c`. One longer than 128 KiB has to be run from a file.
#[must_use]
pub fn wrap(command: &Command<'_>) -> Vec<u8> {
    let mut text =
        b"if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc -c ".to_vec();
    put(&mut text, &[&single(&in_bash(command)), b" bash; fi\n"]);
    text.extend_from_slice(&in_sh(command));
    text
}

/// Where a script tells the state: what a redirection to it has behind its `>`, first and then.
fn targets(command: &Command<'_>) -> (Vec<u8>, Vec<u8>) {
    match command.told {
        // Whatever the command has set: `|` for noclobber.
        Some(path) => ([b"|", &single(path)[..]].concat(), [b">", &single(path)[..]].concat()),
        None => (b"&1".to_vec(), b"&1".to_vec()),
    }
}

fn whole(text: &mut Vec<u8>, command: &Command<'_>) {
    if let Some(path) = command.told {
        put(text, &[b">|", &single(&[path, WHOLE.as_bytes()].concat()), b"\n"]);
    }
}

/// The script for bash alone.
#[must_use]
pub fn in_bash(command: &Command<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    clear_env(&mut text, command.state);
    text.extend_from_slice(b"shopt -s expand_aliases\n");
    let cwd = cwd_of(command.state);
    if !command.state.is_empty() {
        put(&mut text, &[&bash::restore(command.state, cwd, true), b"}\n"]);
    }
    // The state is told however the command ends, unless it sets a trap of its own for that.
    let (first, then) = targets(command);
    let mut tell = b"builtin printf '%s bash %d\\n' ".to_vec();
    put(&mut tell, &[command.mark.as_bytes(), b" $? >", &first, b"\n"]);
    for (name, _) in command.env {
        restore_variable(&mut tell, command.state, name);
    }
    if command.cwd.is_some() {
        put(&mut tell, &[b"builtin cd -- ", &single(cwd), b"\n"]);
    }
    // Not part of what is told.
    tell.extend_from_slice(b"builtin trap - EXIT\n");
    bash::dump(&mut tell, &then, b"", b"");
    whole(&mut tell, command);
    put(&mut text, &[b"trap ", &single(&tell), b" EXIT\n"]);
    extras(&mut text, command);
    put(&mut text, &[status_of(command.state).as_bytes(), b"\n"]);
    // Sourced, so that `return` works and a syntax error stays inside.
    put(
        &mut text,
        &[b"\\builtin . /dev/fd/9 9<<'", command.mark.as_bytes(), b"'\n", command.text, b"\n"],
    );
    put(&mut text, &[command.mark.as_bytes(), b"\n"]);
    text
}

/// The script for any other shell.
#[must_use]
pub fn in_sh(command: &Command<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    clear_env(&mut text, command.state);
    let cwd = cwd_of(command.state);
    if !command.state.is_empty() {
        for (name, value) in command.state.env() {
            put(&mut text, &[b"export ", name, b"=", &single(value), b"\n"]);
        }
        text.extend_from_slice(&sh::restore(command.state, cwd, true));
    }
    let (first, then) = targets(command);
    let mut tell = b"printf '%s sh %d\\n' ".to_vec();
    put(&mut tell, &[command.mark.as_bytes(), b" $? >", &first, b"\n"]);
    for (name, _) in command.env {
        put(&mut tell, &[b"unset ", name, b"\n"]);
        if let Some((_, value)) = command.state.env().find(|(known, _)| known == name) {
            put(&mut tell, &[b"export ", name, b"=", &single(value), b"\n"]);
        }
    }
    if command.cwd.is_some() {
        put(&mut tell, &[b"command cd -- ", &single(cwd), b"\n"]);
    }
    tell.extend_from_slice(b"trap - EXIT\n");
    sh::dump(&mut tell, &then, &functions([command.state.get("functions"), command.text]));
    whole(&mut tell, command);
    put(&mut text, &[b"trap ", &single(&tell), b" EXIT\n"]);
    extras(&mut text, command);
    put(&mut text, &[status_of(command.state).as_bytes(), b"\n"]);
    put(&mut text, &[b"command eval ", &single(command.text), b"\n"]);
    text
}

/// Takes the variables away that the state does not have. What names a shell's own is left.
fn clear_env(text: &mut Vec<u8>, state: &State) {
    if state.has("env") {
        text.extend_from_slice(
            b"for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do\n",
        );
        text.extend_from_slice(b"case $name in PATH|PWD|SHLVL|_|IFS|name) ;; *) unset \"$name\";; esac\ndone\nunset name\n");
    }
}

fn extras(text: &mut Vec<u8>, command: &Command<'_>) {
    if let Some(cwd) = command.cwd {
        put(text, &[b"cd -- ", &single(cwd), b" || exit\n"]);
    }
    for (name, value) in command.env.iter().filter(|(name, _)| is_name(name)) {
        put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
    }
}

/// Makes a variable what it was before a command that had its own.
fn restore_variable(text: &mut Vec<u8>, state: &State, name: &[u8]) {
    put(text, &[b"builtin unset -v ", name, b"\n"]);
    for line in quote::lines(state.get("vars")) {
        let known = line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
        if known.split(|byte| *byte == b'=').next() == Some(name) {
            text.extend_from_slice(line);
        }
    }
}

fn cwd_of(state: &State) -> &[u8] {
    match state.get("cwd") {
        [] => b".",
        cwd => cwd,
    }
}

/// Hands the last exit code over.
fn status_of(state: &State) -> String {
    let status = std::str::from_utf8(state.get("status")).unwrap_or_default();
    format!("(\\exit {})", status.parse::<u8>().unwrap_or(0))
}

/// Takes apart what the script printed. `exit_code` is the script's own, for a command whose shell
/// ended before it could tell.
#[must_use]
pub fn read(stdout: &[u8], exit_code: i32, mark: &str) -> Ran {
    let told = stdout
        .windows(mark.len().max(1))
        .position(|window| window == mark.as_bytes())
        .and_then(|at| {
            let rest = &stdout[at + mark.len()..];
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let mut words = std::str::from_utf8(&rest[..end]).ok()?.split_ascii_whitespace();
            let (shell, status) = (words.next()?, words.next()?.parse().ok()?);
            Some((at, shell, status, &rest[end + 1..]))
        });
    let Some((at, shell, status, dump)) = told else {
        return Ran { stdout: stdout.to_vec(), exit_code, state: State::default() };
    };
    let mut state = match shell {
        "bash" => bash::parse(dump).state,
        _ => sh::parse(dump).state,
    };
    state.set("status", format!("{status}").into_bytes());
    Ran { stdout: stdout[..at].to_vec(), exit_code: status, state }
}
