//! bash: how it is started, driven, dumped and restored.
//!
//! The rc file binds keys with `bind -x` in every keymap, so that a key sources the drive file in the
//! current shell. The driver leaves no variable, function, trap or option in the shell.

mod dump;
mod keys;
mod text;

pub use dump::{dump, parse, restore};
pub use keys::{KEYS, REDRAW, STASHED, UNSTASH, key, unstash};
pub use text::find;

use super::drive::{Drive, put};
use super::paths::Paths;
use super::quote::{self, single};
use super::state::State;
use super::unclosed;
use keys::{PLAIN_KEY, SOURCES, bind};
use text::{OR_ELSE, old_directory};

/// Returns the rc file: it sources the person's own rc file at the first start, and runs `restore` at a
/// later one.
pub fn rc(paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
    let mut text = Vec::new();
    if restore.is_none() {
        put(
            &mut text,
            &[
                b"if [[ -r /etc/bash.bashrc ]]; then . /etc/bash.bashrc; fi\n",
                b"if [[ -r ~/.bashrc ]]; then . ~/.bashrc; fi\n",
            ],
        );
    }
    bind(&mut text, paths);
    // The last part is one group, so that it is parsed before anything in it can change the parser.
    let restore = restore.unwrap_or(NOTHING);
    text.extend_from_slice(restore);
    // A subshell does not run the DEBUG trap, but has no job control.
    let debug = find(restore, b" DEBUG\n").is_some();
    let monitored = debug && find(restore, b"set -o monitor\n").is_some();
    text.extend_from_slice(if debug { b"(" } else { b"" });
    dump(&mut text, &single(&paths.state()), b"", if monitored { MONITORED } else { b"" });
    put(&mut text, &[b">", &single(&paths.ctl(ready)), if debug { b")\n}\n" } else { b"\n}\n" }]);
    text
}

/// The beginning of the last group of the rc file if no state is restored.
pub const NOTHING: &[u8] = b"{\n";

/// Reports that job control is on, which a subshell cannot see.
const MONITORED: &[u8] = b"\\builtin printf 'monitor\\n'; ";

/// Returns whether the prompt may show the output of a program, besides the state.
pub fn shows_program_output(state: &State) -> bool {
    let vars = state.get("vars");
    find(vars, b" PROMPT_COMMAND=").is_some()
        || quote::lines(vars)
            .any(|line| find(line, b" PS1=").is_some() && find(line, b"\\$(").is_some())
}

/// Returns whether the half-typed line can be saved safely.
pub fn can_redraw(state: &State) -> bool {
    let overridden =
        state.lines("functions").any(|line| line == b"printf () " || line == b"builtin () ");
    !overridden && !has_trap(state, b" DEBUG") && state.get("enable").is_empty()
}

/// Returns the bytes to type for a command's drive file.
pub fn key_for(drive: &Drive) -> Vec<u8> {
    key(if drive.harmless || redirects_all(drive) { PLAIN_KEY } else { drive.key })
}

/// Returns whether the whole shell is redirected for this command. A shell that exits undoes its
/// redirections before it runs its EXIT trap, so the trap's output would be lost otherwise. An ERR trap
/// also runs for the sourcing itself, and that output must not be visible.
pub fn redirects_all(drive: &Drive) -> bool {
    let sets = |word: &[u8]| find(drive.text, word).is_some();
    // `builtin exec` cannot be used, because it undoes its redirections.
    let overridden = drive.state.lines("functions").any(|line| line == b"exec () ");
    drive.key == 0
        && !overridden
        && !has_trap(drive.state, b" ERR")
        && (has_trap(drive.state, b" EXIT") || sets(b"trap") && (sets(b"EXIT") || sets(b" 0")))
}

/// Returns the drive file for a command.
pub fn drive(drive: &Drive) -> Vec<u8> {
    if drive.harmless {
        return brief(drive);
    }
    let paths = drive.paths;
    let mut text = Vec::with_capacity(1024);
    if drive.once {
        put(&mut text, &[b">|", &single(&paths.drive()), b"\n"]);
    }
    put(&mut text, &[b">|", &single(&paths.begun()), b"\n"]);
    // Without job control a command runs as in a script: no job notices in its output, and a process that
    // stops itself is waited for.
    text.extend_from_slice(
        b"\\builtin unset -v READLINE_LINE READLINE_POINT READLINE_MARK\n\\builtin set +m\n",
    );
    if !has_trap(drive.state, b"SIGTERM") {
        text.extend_from_slice(RESET_TERM);
    }
    if quote::lines(drive.state.get("traps")).any(|line| line.trim_ascii_end() == NO_DEBUG) {
        text.extend_from_slice(b"\\builtin trap - DEBUG\n");
    }
    // With TMOUT the prompt sets an alarm, which would end the shell during the command.
    let alarmed = drive.state.lines("vars").any(is_tmout)
        && !has_trap(drive.state, b"SIGALRM")
        && find(drive.text, b"trap").is_none();
    if alarmed {
        text.extend_from_slice(b"\\builtin trap : ALRM\n");
    }
    let traps = Traps::of(drive);
    if traps.err {
        // The preamble of the command's text sets the trap again.
        text.extend_from_slice(b"\\builtin trap - ERR\n");
    }
    drive.enter_cwd(&mut text, b"\\builtin ", b"\\builtin cd -- ");
    let all = redirects_all(drive);
    let mut outputs = Vec::new();
    put(&mut outputs, &[b" >", &single(&drive.stdout), b" 2>", &single(&drive.stderr)]);
    if all {
        put(&mut text, &[b"\\exec", &outputs, b"\n"]);
    }
    status(&mut text, drive);
    if traps.err {
        text.extend_from_slice(b"if ");
    }
    let command = single(&paths.command());
    // An unclosed substitution can end the shell that parses it, so another shell parses it first.
    let doubtful = unclosed::may_be(drive.text);
    if doubtful {
        put(&mut text, &[b"{ /proc/$$/exe -O extglob -n ", &command, b" && "]);
    }
    for (name, value) in drive.env {
        put(&mut text, &[name, b"=", &single(value), b" "]);
    }
    // In posix mode assignments before a special builtin persist; `command` prevents that.
    if !drive.env.is_empty() && option(drive.state, "posix") {
        text.extend_from_slice(b"command ");
    }
    put(&mut text, &[SOURCES[drive.key].as_bytes(), b" ", &command]);
    put(&mut text, &[if doubtful { b"; } <" } else { b" <" }, &single(&drive.stdin)]);
    if !all {
        text.extend_from_slice(&outputs);
    }
    let record = record(drive);
    match traps {
        Traps { err: true, .. } => {
            put(&mut text, &[b"; then ", &record, b"; else ", &record, b"; fi\n"]);
        }
        Traps { debug: true, .. } => put(&mut text, &[b"\n(", &record, b")\n"]),
        Traps { .. } => put(&mut text, &[b"\n", &record, b"\n"]),
    }
    if all {
        text.extend_from_slice(UNDO_REDIRECTION);
    }
    let mut after = Vec::new();
    if alarmed {
        put(&mut after, &[b"\\builtin trap - ALRM", OR_ELSE]);
    }
    if option(drive.state, "monitor") {
        put(&mut after, &[b"\\builtin set -m", OR_ELSE]);
    }
    if drive.cwd.is_some() {
        restore_cwd(&mut after, drive.state);
    }
    if traps.debug && !after.is_empty() {
        // The trap also runs for the commands of the drive file, and that output must not be visible.
        after = [b"{ ", after.as_slice(), b"} >/dev/null 2>&1\n"].concat();
    }
    text.append(&mut after);
    if has_trap(drive.state, b" DEBUG") {
        // `source` restores the DEBUG trap if none is set at the end of the file; a trap that the command
        // removed must stay removed.
        text.extend_from_slice(
            b"( [[ -n $(\\builtin trap -p DEBUG) ]] ) || \\builtin trap -- '' DEBUG\n",
        );
    }
    dump_state(&mut text, drive, b"");
    text
}

/// Returns the drive file for a harmless command. Its text was parsed completely, so it can be part of
/// the file. Job control is restored in the same command as the record, because nothing follows.
fn brief(drive: &Drive) -> Vec<u8> {
    let paths = drive.paths;
    let mut text = Vec::with_capacity(768 + drive.text.len());
    put(&mut text, &[b"\\builtin unset -v READLINE_LINE READLINE_POINT READLINE_MARK >|"]);
    put(&mut text, &[&single(&paths.begun()), b"\n\\builtin set +m\n", RESET_TERM]);
    put(&mut text, &[b"{ ", drive.text, b"\n} <", &single(&drive.stdin)]);
    put(&mut text, &[b" >", &single(&drive.stdout), b" 2>", &single(&drive.stderr), b"\n"]);
    let monitor: &[u8] = if option(drive.state, "monitor") { b"\\builtin set -m " } else { b"" };
    put(&mut text, &[monitor, &record(drive), b"\n"]);
    text
}

/// Returns whether this line of `declare -p` declares TMOUT, after which bash exits at an idle prompt.
fn is_tmout(line: &[u8]) -> bool {
    line.starts_with(b"declare -")
        && line
            .splitn(3, |byte| *byte == b' ')
            .nth(2)
            .is_some_and(|rest| rest.starts_with(b"TMOUT="))
}

/// Removes TMOUT from the state, because it made the shell exit at its prompt.
pub fn forget_tmout(state: &mut State) {
    if state.lines("vars").any(is_tmout) {
        let vars: Vec<&[u8]> =
            quote::lines(state.get("vars")).filter(|line| !is_tmout(line)).collect();
        let vars = vars.concat();
        let env = state.env().filter(|(name, _)| *name != b"TMOUT");
        let env = env.flat_map(|(name, value)| [name, b"=", value, b"\0"].concat()).collect();
        state.set("vars", vars);
        state.set("env", env);
    }
}

/// Returns the text before the command's own, on its first line: it sets the traps that `source` or the
/// drive file removed.
pub fn preamble(drive: &Drive) -> Vec<u8> {
    let traps = Traps::of(drive);
    let mut text = Vec::new();
    for (wanted, name) in [(traps.debug, &b" DEBUG"[..]), (traps.err, b" ERR")] {
        if let (true, Some(line)) = (wanted, trap(drive.state, name)) {
            put(&mut text, &[b"\\builtin ", line, b"; "]);
        }
    }
    if !text.is_empty() && drive.status != 0 {
        // These commands left `$?` at zero.
        put(&mut text, &[b"(exit ", drive.status.to_string().as_bytes(), b") && ((1)); "]);
    }
    text
}

/// The traps that sourcing the command's text would run at the wrong time.
struct Traps {
    /// The DEBUG trap is not run for commands in a sourced file, but would be for those of the drive file.
    debug: bool,
    /// The ERR trap would also run for a sourced file that fails. With `errexit` that cannot be avoided: a
    /// context that disables the trap disables `errexit`, too.
    err: bool,
}

impl Traps {
    fn of(drive: &Drive) -> Self {
        let mentions = |word: &[u8]| find(drive.text, word).is_some();
        let set = |name: &[u8]| {
            has_trap(drive.state, name) || mentions(b"trap") && mentions(name.trim_ascii())
        };
        let errexit = option(drive.state, "errexit")
            || mentions(b"errexit")
            || mentions_flag(drive.text, b'e');
        Self { debug: set(b" DEBUG"), err: set(b" ERR") && !errexit }
    }
}

/// Returns whether the text contains `set -…` with this flag.
fn mentions_flag(text: &[u8], flag: u8) -> bool {
    let start = b"set -";
    text.windows(start.len()).enumerate().any(|(at, window)| {
        let flags = text[at + start.len()..].iter().take_while(|byte| byte.is_ascii_alphabetic());
        window == start && flags.into_iter().any(|byte| *byte == flag)
    })
}

/// Returns the drive file that only dumps the state, after a person's command or an interrupted one.
pub fn capture(drive: &Drive) -> Vec<u8> {
    let mut text = Vec::with_capacity(768);
    if drive.once {
        put(&mut text, &[b">|", &single(&drive.paths.drive()), b"\n"]);
    }
    // The record comes first, while `$?` is that of the person's command.
    put(&mut text, &[&record(drive), b"\n"]);
    if drive.interrupted && option(drive.state, "monitor") {
        // The command was interrupted while job control was off.
        put(&mut text, &[b"\\builtin set -m", OR_ELSE]);
    }
    if drive.interrupted && has_trap(drive.state, b" EXIT") {
        text.extend_from_slice(UNDO_REDIRECTION);
    }
    // The history may lack a repeated command; the number of commands includes it.
    let typed =
        b"\\builtin : '\\#'; \\builtin printf 'typed %s\\n' \"${_@P}\"; \\builtin history 1; ";
    dump_state(&mut text, drive, typed);
    text
}

/// Returns a redirection whose file name contains the status.
fn record(drive: &Drive) -> Vec<u8> {
    let name = single(&drive.paths.ctl(&format!("{}.", drive.number)));
    [b">", name.as_slice(), b"\"$?\""].concat()
}

/// Interactive bash ignores SIGTERM, but a command that sends it to the shell expects an effect. Inside a
/// sourced file `trap -` restores the disposition that the shell was started with, if a trap was set.
const RESET_TERM: &[u8] = b"\\builtin trap : TERM; \\builtin trap - TERM\n";

/// Undoes the redirection of the whole shell.
const UNDO_REDIRECTION: &[u8] = b"\\exec >/dev/tty 2>/dev/tty\n";

/// Sets `$?` to the last exit code, and `$_` to the empty string. `&&` disables `errexit` and the ERR
/// trap for it.
fn status(text: &mut Vec<u8>, drive: &Drive) {
    match drive.status {
        0 => text.extend_from_slice(b"\\builtin : ''; ((1))\n"),
        1 => text.extend_from_slice(b"\\builtin : ''; ! ((1))\n"),
        _ => put(
            text,
            &[
                SOURCES[drive.key].as_bytes(),
                b" ",
                &single(&drive.paths.status()),
                b" '' && ((1))\n",
            ],
        ),
    }
}

fn restore_cwd(text: &mut Vec<u8>, state: &State) {
    put(text, &[b"\\builtin cd -- ", &single(state.get("cwd")), OR_ELSE]);
    old_directory(text, state);
}

/// Dumps the state into the FIFO. If a DEBUG trap would run for each command of the dump, a subshell dumps
/// the state: it does not run the trap but still lists it. Job control is off there.
fn dump_state(text: &mut Vec<u8>, drive: &Drive, first: &[u8]) {
    let target = single(&drive.paths.state());
    if !Traps::of(drive).debug {
        dump(text, &target, first, b"");
        return;
    }
    let monitored = option(drive.state, "monitor");
    text.extend_from_slice(b"(");
    dump(text, &target, first, if monitored { MONITORED } else { b"" });
    text.extend_from_slice(b")\n");
}

/// Returns whether a trap is set for a signal, by the name that `trap -p` prints.
pub fn has_trap(state: &State, signal: &[u8]) -> bool {
    trap(state, signal).is_some()
}

/// Returns the line that sets the trap for a signal.
pub fn trap<'a>(state: &'a State, signal: &[u8]) -> Option<&'a [u8]> {
    quote::lines(state.get("traps"))
        .map(<[u8]>::trim_ascii_end)
        .find(|line| line.ends_with(signal) && *line != NO_DEBUG)
}

/// The line that keeps a removed DEBUG trap removed until the next command.
const NO_DEBUG: &[u8] = b"trap -- '' DEBUG";

/// Returns whether a `set -o` option is on.
pub fn option(state: &State, name: &str) -> bool {
    let wanted = format!("set -o {name}");
    state.lines("set").any(|line| line == wanted.as_bytes())
}
