//! Commands with state on machines that can only run `sh -c`: each command is wrapped in a script that
//! restores the state in a new shell, runs the command, and prints the state after its output.
//!
//! ```text
//! stdout:  the command's output | MARK shell status newline | the state
//! ```
//! If the output goes to files, the state may have its own file ([`RemoteExec::state_file`]).
//!
//! The mark is random for each command and chosen by the caller, so that no output of a command can forge
//! it. Standard error contains the output of the command alone. bash is used if it exists, otherwise `sh`,
//! whose functions are known from the commands that define them. In bash an EXIT trap runs when a command
//! exits the shell, not at the end of each command; in any other shell it runs at the end of the command
//! that sets it, because each command has its own shell.
//!
//! This module runs nothing: [`wrap`] returns the script, [`read`] parses its output.

use super::defined::functions;
use super::drive::put;
use super::options::Errexit;
use super::quote::{self, is_name, single};
use super::state::State;
use super::{bash, sh};

/// A command and its context.
#[derive(Debug, Clone, Copy)]
pub struct RemoteExec<'a> {
    /// The shell text.
    pub text: &'a [u8],
    /// The state after the last command.
    pub state: &'a State,
    /// Variables for this command alone.
    pub env: &'a [(Vec<u8>, Vec<u8>)],
    /// The directory for this command alone.
    pub cwd: Option<&'a [u8]>,
    /// Random letters and digits, at least twenty, never used before.
    pub mark: &'a str,
    /// A file for the state, instead of standard output. When it is complete, a file exists whose name has
    /// [`COMPLETE_SUFFIX`] appended.
    pub state_file: Option<&'a [u8]>,
}

/// The suffix of the file that marks a complete state.
pub const COMPLETE_SUFFIX: &str = ".whole";

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteResult {
    /// The command's standard output.
    pub stdout: Vec<u8>,
    /// The command's exit code.
    pub exit_code: i32,
    /// The sections to absorb; empty if the shell exited before it could print them.
    pub state: State,
}

/// Returns the script to run with `sh -c`. A script longer than 128 KiB has to be run from a file.
#[must_use]
pub fn wrap(command: &RemoteExec<'_>) -> Vec<u8> {
    let mut text =
        b"if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc -c ".to_vec();
    put(&mut text, &[&single(&in_bash(command)), b" bash; fi\n"]);
    text.extend_from_slice(&in_sh(command));
    text
}

/// Returns the target of the redirections that print the state: of the first, and of the others.
fn targets(command: &RemoteExec<'_>) -> (Vec<u8>, Vec<u8>) {
    match command.state_file {
        // `|` overrides noclobber, which the command may have set.
        Some(path) => ([b"|", &single(path)[..]].concat(), [b">", &single(path)[..]].concat()),
        None => (b"&1".to_vec(), b"&1".to_vec()),
    }
}

/// Appends the command that marks the state file as complete.
fn mark_complete(text: &mut Vec<u8>, command: &RemoteExec<'_>) {
    if let Some(path) = command.state_file {
        put(text, &[b">|", &single(&[path, COMPLETE_SUFFIX.as_bytes()].concat()), b"\n"]);
    }
}

/// Returns the script for bash.
#[must_use]
pub fn in_bash(command: &RemoteExec<'_>) -> Vec<u8> {
    let state = command.state;
    let mut text = Vec::new();
    clear_env(&mut text, state);
    text.extend_from_slice(b"shopt -s expand_aliases\n");
    // The rest is one group, so that it is parsed before anything in it can change the parser.
    text.extend_from_slice(&match state.is_empty() {
        true => bash::NOTHING.to_vec(),
        false => bash::restore(&without_late(state), cwd_of(state), Errexit::Off),
    });
    let mentions = |word: &[u8]| bash::find(command.text, word).is_some();
    let set = |name: &[u8]| {
        bash::has_trap(state, name) || mentions(b"trap") && mentions(name.trim_ascii())
    };
    // A subshell does not run the DEBUG trap, but still lists it.
    let dumping = if set(b" DEBUG") { DumpingShell::InSubshell } else { DumpingShell::Own };
    let (first, rest) = report(command, dumping);
    let (open, close): (&[u8], &[u8]) = match dumping {
        DumpingShell::InSubshell => (b"(", b")\n"),
        DumpingShell::Own => (b"", b""),
    };
    match bash::trap(state, b" EXIT") {
        // The trap runs when the command exits its shell; then no state is printed.
        Some(line) => put(&mut text, &[b"\\builtin ", line, b"\n"]),
        None => {
            // If `errexit` has ended the shell, it is off in the next one.
            let on_exit = [open, &first, b"\\builtin set +e\n", &rest, close].concat();
            put(&mut text, &[b"\\builtin trap ", &single(&on_exit), b" EXIT\n"]);
        }
    }
    set_overrides(&mut text, command);
    restore_late(&mut text, state);
    put(&mut text, &[&status_of(state), b"\n"]);
    // The trap would also run for the sourcing; with `errexit` that cannot be avoided.
    let err = set(b" ERR") && !bash::option(state, "errexit");
    // Sourced, so that `return` works and a syntax error does not end the script.
    put(&mut text, &[if err { b"if " } else { b"" }, b"\\builtin . /dev/fd/9 9<<'"]);
    put(&mut text, &[command.mark.as_bytes(), b"'\n", &preamble(state), command.text, b"\n"]);
    put(&mut text, &[command.mark.as_bytes(), b"\n"]);
    if err {
        text.extend_from_slice(b"then (\\exit 0); else (\\exit $?) && ((1)); fi\n");
    }
    put(&mut text, &[open, &first, &rest, close]);
    text.extend_from_slice(b"{ \\builtin trap - DEBUG EXIT; } >/dev/null 2>&1\n}\n");
    text
}

/// The shell that prints the state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DumpingShell {
    /// The command's own shell.
    Own,
    /// A subshell, which does not run a DEBUG trap.
    InSubshell,
}

/// Returns the commands that print the status, and the commands that print the state.
fn report(command: &RemoteExec<'_>, dumping: DumpingShell) -> (Vec<u8>, Vec<u8>) {
    let (first, then) = targets(command);
    let mut status = b"\\builtin printf '%s bash %d\\n' ".to_vec();
    put(&mut status, &[command.mark.as_bytes(), b" $? >", &first, b"\n"]);
    let mut rest = Vec::new();
    let disabled = !command.state.get("enable").is_empty();
    if disabled || bash::find(command.text, b"enable").is_some() {
        // The commands below need the disabled builtins.
        put(&mut rest, &[b"\\builtin enable -n >", &then, b"\n"]);
        rest.extend_from_slice(b"\\builtin eval \"$(\\builtin enable -n | sed 's/ -n / /')\"\n");
    }
    for (name, _) in command.env {
        restore_variable(&mut rest, command.state, name);
    }
    if command.cwd.is_some() {
        put(&mut rest, &[b"\\builtin cd -- ", &single(cwd_of(command.state)), b" || ((1))\n"]);
    }
    // Our own trap is not part of the state. A subshell that removed it would list no other trap.
    if dumping == DumpingShell::Own {
        put(&mut rest, &[b"case $(\\builtin trap -p EXIT) in *", command.mark.as_bytes()]);
        rest.extend_from_slice(b"*) \\builtin trap - EXIT;; esac\n");
    }
    bash::dump(&mut rest, &then, b"", &print_limits(command.state));
    mark_complete(&mut rest, command);
    (status, rest)
}

/// Returns the commands that print the limits and the start time, which a new shell would lose. The rest of
/// the dump needs disk space, so the file size limit is printed first, and raised.
fn print_limits(state: &State) -> Vec<u8> {
    let began = std::str::from_utf8(state.get("began")).ok().and_then(|text| text.parse().ok());
    let began: i64 = began.unwrap_or(i64::MAX / 2);
    format!(
        "\\builtin printf 'limit '; \\builtin ulimit -S -f; \\builtin ulimit -S -f hard; \\builtin ulimit -S -a; \\builtin printf 'began %d\\n' \
         $((SECONDS - ${{EPOCHSECONDS-0}} - {began} >= -1 && SECONDS - ${{EPOCHSECONDS-0}} - {began} <= 1 \
         ? {began} : SECONDS - ${{EPOCHSECONDS-0}})); "
    )
    .into_bytes()
}

/// Returns the state without the parts that [`restore_late`] and [`preamble`] restore.
fn without_late(state: &State) -> State {
    let mut early = state.clone();
    let mut keep = |section: &str, kept: &dyn Fn(&[u8]) -> bool| {
        let lines = quote::lines(state.get(section)).filter(|line| kept(line.trim_ascii_end()));
        early.set(section, lines.collect::<Vec<_>>().concat());
    };
    keep("enable", &|_| false);
    keep("traps", &|line| ![&b" ERR"[..], b" EXIT", b" DEBUG"].iter().any(|it| line.ends_with(it)));
    keep("set", &|line| line != b"set -o keyword");
    early
}

/// Appends the commands that restore the rest of the state, which would affect the commands before.
fn restore_late(text: &mut Vec<u8>, state: &State) {
    let limits = state.get("limits");
    if !limits.is_empty() {
        put(text, &[b"{\n", limits, b"\n} 2>/dev/null\n"]);
    }
    if state.has("began") {
        put(text, &[b"SECONDS=$((${EPOCHSECONDS-0} + ", state.get("began"), b"))\n"]);
    }
    for (option, line) in
        [("keyword", &b"\\builtin set -k\n"[..]), ("errexit", b"\\builtin set -e\n")]
    {
        if bash::option(state, option) {
            text.extend_from_slice(line);
        }
    }
}

/// Returns the text before the command's own, on its first line: settings that would prevent it from being
/// sourced, or traps that would run for the sourcing.
fn preamble(state: &State) -> Vec<u8> {
    let mut text = Vec::new();
    let traps = [&b" ERR"[..], b" DEBUG"].into_iter().filter_map(|name| bash::trap(state, name));
    for line in state.lines("enable").chain(traps) {
        put(&mut text, &[b"\\builtin ", line.trim_ascii_end(), b"; "]);
    }
    let status = state.get("status");
    if !text.is_empty() && !status.is_empty() && status != b"0" {
        // These commands left `$?` at zero.
        put(&mut text, &[&status_of(state), b"; "]);
    }
    text
}

/// Returns the script for any other shell.
#[must_use]
pub fn in_sh(command: &RemoteExec<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    clear_env(&mut text, command.state);
    let cwd = cwd_of(command.state);
    if !command.state.is_empty() {
        for (name, value) in command.state.env() {
            put(&mut text, &[b"export ", name, b"=", &single(value), b"\n"]);
        }
        text.extend_from_slice(&sh::restore(command.state, cwd, Errexit::Off));
    }
    let (first, then) = targets(command);
    let mut report = b"printf '%s sh %d\\n' ".to_vec();
    put(&mut report, &[command.mark.as_bytes(), b" $? >", &first, b"\n"]);
    for (name, _) in command.env {
        put(&mut report, &[b"unset ", name, b"\n"]);
        if let Some((_, value)) = command.state.env().find(|(known, _)| known == name) {
            put(&mut report, &[b"export ", name, b"=", &single(value), b"\n"]);
        }
    }
    if command.cwd.is_some() {
        put(&mut report, &[b"command cd -- ", &single(cwd), b"\n"]);
    }
    report.extend_from_slice(b"trap - EXIT\n");
    sh::dump(&mut report, &then, &functions([command.state.get("functions"), command.text]));
    mark_complete(&mut report, command);
    put(&mut text, &[b"trap ", &single(&report), b" EXIT\n"]);
    set_overrides(&mut text, command);
    let status = std::str::from_utf8(command.state.get("status")).unwrap_or_default();
    let status = format!("(\\exit {})\n", status.parse::<u8>().unwrap_or(0));
    text.extend_from_slice(status.as_bytes());
    put(&mut text, &[b"command eval ", &single(command.text), b"\n"]);
    text
}

/// Unsets the variables that the state does not have, except the shell's own.
fn clear_env(text: &mut Vec<u8>, state: &State) {
    if state.has("env") {
        text.extend_from_slice(
            b"for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do\n",
        );
        text.extend_from_slice(b"case $name in PATH|PWD|SHLVL|_|IFS|name) ;; *) unset \"$name\";; esac\ndone\nunset name\n");
    }
}

/// Sets the directory and the variables of this command alone.
fn set_overrides(text: &mut Vec<u8>, command: &RemoteExec<'_>) {
    if let Some(cwd) = command.cwd {
        put(text, &[b"cd -- ", &single(cwd), b" || exit\n"]);
    }
    for (name, value) in command.env.iter().filter(|(name, _)| is_name(name)) {
        put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
    }
}

/// Restores a variable after a command that had its own value for it.
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

/// Sets `$?` to the last exit code; `&&` disables `errexit` and an ERR trap for it.
fn status_of(state: &State) -> Vec<u8> {
    let status = std::str::from_utf8(state.get("status")).unwrap_or_default();
    format!("(\\exit {}) && ((1))", status.parse::<u8>().unwrap_or(0)).into_bytes()
}

/// Parses the output of the script. `exit_code` is the script's own, for a command whose shell exited
/// before it could print the status.
#[must_use]
pub fn read(stdout: &[u8], exit_code: i32, mark: &str) -> RemoteResult {
    let parsed = stdout
        .windows(mark.len().max(1))
        .position(|window| window == mark.as_bytes())
        .and_then(|at| {
            let rest = &stdout[at + mark.len()..];
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let mut words = std::str::from_utf8(&rest[..end]).ok()?.split_ascii_whitespace();
            let (shell, status) = (words.next()?, words.next()?.parse().ok()?);
            Some((at, shell, status, &rest[end + 1..]))
        });
    let Some((at, shell, status, dump)) = parsed else {
        return RemoteResult { stdout: stdout.to_vec(), exit_code, state: State::default() };
    };
    // Disabled builtins are listed before the dump.
    let disabled: Vec<&[u8]> =
        quote::lines(dump).take_while(|line| line.starts_with(b"enable -n ")).collect();
    let disabled = disabled.concat();
    let dump = &dump[disabled.len()..];
    let mut state = match shell {
        "bash" => bash::parse(dump).state,
        _ => sh::parse(dump).state,
    };
    if bash::find(state.get("traps"), mark.as_bytes()).is_some() {
        let traps = quote::lines(state.get("traps"));
        let traps: Vec<&[u8]> =
            traps.filter(|line| bash::find(line, mark.as_bytes()).is_none()).collect();
        let traps = traps.concat().trim_ascii_end().to_vec();
        state.set("traps", traps);
    }
    if !disabled.is_empty() {
        state.set("enable", disabled.trim_ascii_end().to_vec());
    }
    state.set("status", format!("{status}").into_bytes());
    RemoteResult { stdout: stdout[..at].to_vec(), exit_code: status, state }
}
