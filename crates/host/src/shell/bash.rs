//! bash: how it is started, driven, read out and restored.
//!
//! Its rc file binds keys with `bind -x` to sourcing the drive file, in the current shell and in
//! every keymap. Nothing of ours stays in the shell: no variable, no function, no trap, no option.

mod told;

pub use told::{dump, parse, restore};

use super::drive::{Drive, put};
use super::paths::Paths;
use super::quote::{self, single};
use super::state::State;
use super::unclosed;

/// What the bound keys run, in the order they are tried: a command may have redefined any of these.
/// A backslash keeps aliases out.
const SOURCES: [&str; 4] = ["\\.", "\\builtin .", "\\command .", "\\source"];

/// Succeeds whatever is redefined, so that `errexit` and the ERR trap keep out of what it follows.
const OR_ELSE: &[u8] = b" || ((1))\n";

/// How many keys there are to try.
pub const KEYS: usize = SOURCES.len();

/// One more key: what it runs keeps standard error as it is.
const PLAIN: usize = KEYS;

/// The bytes to type for a key.
pub fn key(which: usize) -> Vec<u8> {
    format!("\x1b[5477;{}~", which + 1).into_bytes()
}

/// Puts away what is half typed and ends the empty line, so that the prompt is drawn.
pub const REFRESH: &[u8] = b"\x1b[5477;8~";

/// Gives back what was put away.
pub const UNSTASH: &[u8] = b"\x1b[5477;9~";

/// The record that says it is put away.
pub const STASHED: &str = "p";

/// The rc file: the person's own for a first start, `restore` for a later one.
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
    // The last part is one group, so that it is read before anything in it can change how.
    let restore = restore.unwrap_or(NOTHING);
    text.extend_from_slice(restore);
    // A subshell keeps a DEBUG trap out, but has no job control.
    let debug = find(restore, b" DEBUG\n").is_some();
    let monitored = debug && find(restore, b"set -o monitor\n").is_some();
    text.extend_from_slice(if debug { b"(" } else { b"" });
    dump(&mut text, &single(&paths.state()), b"", if monitored { MONITORED } else { b"" });
    put(&mut text, &[b">", &single(&paths.ctl(ready)), if debug { b")\n}\n" } else { b"\n}\n" }]);
    text
}

/// The beginning of that group, where nothing is restored.
pub const NOTHING: &[u8] = b"{\n";

/// Tells what a subshell cannot: that job control is on.
const MONITORED: &[u8] = b"\\builtin printf 'monitor\\n'; ";

/// Binds the keys in every keymap.
fn bind(text: &mut Vec<u8>, paths: &Paths) {
    let drive = single(&paths.drive());
    let mut keys = Vec::new();
    for (which, source) in SOURCES.iter().enumerate() {
        // The group hides what `set -x` and an error in the drive file would print.
        let mut binding = format!("\"\\e[5477;{}~\": {{ {source} ", which + 1).into_bytes();
        put(&mut binding, &[&drive, b"; } 2>/dev/null"]);
        keys.push((&b"-x "[..], binding));
    }
    let plain = format!("\"\\e[5477;{}~\": {} ", PLAIN + 1, SOURCES[0]);
    keys.push((b"-x ", [plain.as_bytes(), &drive].concat()));
    let mut stash =
        b"\"\\e[5477;6~\": \\builtin printf '%s\\n' $READLINE_POINT \"$READLINE_LINE\" >|".to_vec();
    put(&mut stash, &[&single(&paths.at("stash")), b" && READLINE_LINE= READLINE_POINT=0; >|"]);
    put(&mut stash, &[&single(&paths.ctl(STASHED))]);
    keys.push((b"-x ", stash));
    keys.push((b"", b"\"\\e[5477;7~\": accept-line".to_vec()));
    keys.push((b"", b"\"\\e[5477;8~\": \"\\e[5477;6~\\e[5477;7~\"".to_vec()));
    let unstash = format!("\"\\e[5477;9~\": {} ", SOURCES[0]);
    keys.push((b"-x ", [unstash.as_bytes(), &single(&paths.at("unstash"))].concat()));
    for keymap in [&b"emacs"[..], b"vi-insert", b"vi-command"] {
        for (flag, key) in &keys {
            put(text, &[b"builtin bind -m ", keymap, b" ", flag, &single(key), b"\n"]);
        }
    }
}

/// Whether the prompt may show what no state tells: what a program of the prompt's finds.
pub fn asks_others(state: &State) -> bool {
    let vars = state.get("vars");
    find(vars, b" PROMPT_COMMAND=").is_some()
        || quote::lines(vars)
            .any(|line| find(line, b" PS1=").is_some() && find(line, b"\\$(").is_some())
}

/// Whether the line can be put away unnoticed and safely.
pub fn may_refresh(state: &State) -> bool {
    let overridden =
        state.lines("functions").any(|line| line == b"printf () " || line == b"builtin () ");
    !overridden && !has_trap(state, b" DEBUG") && state.get("enable").is_empty()
}

/// The script that gives back what was put away; `None` when that was nothing.
pub fn unstash(stashed: &[u8]) -> Option<Vec<u8>> {
    let newline = stashed.iter().position(|byte| *byte == b'\n')?;
    let point: u32 = std::str::from_utf8(&stashed[..newline]).ok()?.parse().ok()?;
    let line = stashed[newline + 1..].strip_suffix(b"\n")?;
    let mut script = b"READLINE_LINE=".to_vec();
    put(&mut script, &[&single(line), b"$READLINE_LINE READLINE_POINT="]);
    put(&mut script, &[point.to_string().as_bytes(), b"\n"]);
    (!line.is_empty()).then_some(script)
}

/// The key for a command's drive file.
pub fn key_for(drive: &Drive) -> Vec<u8> {
    key(if drive.harmless || redirects_all(drive) { PLAIN } else { drive.key })
}

/// Whether the shell as a whole is redirected for this command. A shell that ends takes its
/// redirections back before it runs its EXIT trap, so the trap's output would be lost otherwise. An
/// ERR trap runs for the sourcing itself once more, and that must not be seen.
pub fn redirects_all(drive: &Drive) -> bool {
    let sets = |word: &[u8]| find(drive.text, word).is_some();
    // Not by `builtin exec`: that takes its redirections back.
    let overridden = drive.state.lines("functions").any(|line| line == b"exec () ");
    drive.key == 0
        && !overridden
        && !has_trap(drive.state, b" ERR")
        && (has_trap(drive.state, b" EXIT") || sets(b"trap") && (sets(b"EXIT") || sets(b" 0")))
}

/// The drive file for a command.
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
    // Without job control a command is what it would be in a script: no notices of jobs in its
    // output, and one that stops itself is waited for.
    text.extend_from_slice(
        b"\\builtin unset -v READLINE_LINE READLINE_POINT READLINE_MARK\n\\builtin set +m\n",
    );
    if !has_trap(drive.state, b"SIGTERM") {
        text.extend_from_slice(HEED_TERM);
    }
    if quote::lines(drive.state.get("traps")).any(|line| line.trim_ascii_end() == NO_DEBUG) {
        text.extend_from_slice(b"\\builtin trap - DEBUG\n");
    }
    // At a prompt under TMOUT an alarm is set, which would end the shell within the command.
    let alarmed = drive.state.lines("vars").any(is_tmout)
        && !has_trap(drive.state, b"SIGALRM")
        && find(drive.text, b"trap").is_none();
    if alarmed {
        text.extend_from_slice(b"\\builtin trap : ALRM\n");
    }
    let traps = Traps::of(drive);
    if traps.err {
        // The command's text sets it again.
        text.extend_from_slice(b"\\builtin trap - ERR\n");
    }
    if let Some(cwd) = drive.cwd {
        put(&mut text, &[b"\\builtin cd -- ", &single(cwd), b"\n"]);
    }
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
    // A substitution that is not closed can end the shell that reads it; another one reads it first.
    let doubtful = unclosed::may_be(drive.text);
    if doubtful {
        put(&mut text, &[b"{ /proc/$$/exe -O extglob -n ", &command, b" && "]);
    }
    for (name, value) in drive.env {
        put(&mut text, &[name, b"=", &single(value), b" "]);
    }
    // A special builtin keeps the assignments before it in posix mode; `command` takes that away.
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
        text.extend_from_slice(BACK);
    }
    let mut after = Vec::new();
    if alarmed {
        put(&mut after, &[b"\\builtin trap - ALRM", OR_ELSE]);
    }
    if option(drive.state, "monitor") {
        put(&mut after, &[b"\\builtin set -m", OR_ELSE]);
    }
    if drive.cwd.is_some() {
        go_back(&mut after, drive.state);
    }
    if traps.debug && !after.is_empty() {
        // What the trap prints for our own sake is not to be seen.
        after = [b"{ ", after.as_slice(), b"} >/dev/null 2>&1\n"].concat();
    }
    text.append(&mut after);
    if has_trap(drive.state, b" DEBUG") {
        // Whoever sourced this file gives a trap back that is not set at its end; one that the
        // command took away must stay away.
        text.extend_from_slice(
            b"( [[ -n $(\\builtin trap -p DEBUG) ]] ) || \\builtin trap -- '' DEBUG\n",
        );
    }
    tell(&mut text, drive, b"");
    text
}

/// The drive file for a command that leaves the shell alone. Its text was understood whole, so it can
/// stand in the file; the end of job control's leave is one with the record, for nothing comes behind.
fn brief(drive: &Drive) -> Vec<u8> {
    let paths = drive.paths;
    let mut text = Vec::with_capacity(768 + drive.text.len());
    put(&mut text, &[b"\\builtin unset -v READLINE_LINE READLINE_POINT READLINE_MARK >|"]);
    put(&mut text, &[&single(&paths.begun()), b"\n\\builtin set +m\n", HEED_TERM]);
    put(&mut text, &[b"{ ", drive.text, b"\n} <", &single(&drive.stdin)]);
    put(&mut text, &[b" >", &single(&drive.stdout), b" 2>", &single(&drive.stderr), b"\n"]);
    let monitor: &[u8] = if option(drive.state, "monitor") { b"\\builtin set -m " } else { b"" };
    put(&mut text, &[monitor, &record(drive), b"\n"]);
    text
}

/// Whether this line of `declare -p` is of the time after which bash leaves an idle prompt.
fn is_tmout(line: &[u8]) -> bool {
    line.starts_with(b"declare -")
        && line
            .splitn(3, |byte| *byte == b' ')
            .nth(2)
            .is_some_and(|rest| rest.starts_with(b"TMOUT="))
}

/// The shell left its prompt by itself: the next one does not wait for that again.
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

/// What comes before the command's own text, on its first line: traps that sourcing a file takes
/// away, or that had to be taken away, are the command's all the same.
pub fn preamble(drive: &Drive) -> Vec<u8> {
    let traps = Traps::of(drive);
    let mut text = Vec::new();
    for (wanted, name) in [(traps.debug, &b" DEBUG"[..]), (traps.err, b" ERR")] {
        if let (true, Some(line)) = (wanted, trap(drive.state, name)) {
            put(&mut text, &[b"\\builtin ", line, b"; "]);
        }
    }
    if !text.is_empty() && drive.status != 0 {
        // They left `$?` at zero.
        put(&mut text, &[b"(exit ", drive.status.to_string().as_bytes(), b") && ((1)); "]);
    }
    text
}

/// The traps that sourcing the command's text would run at the wrong time.
struct Traps {
    /// It is not run for commands in a sourced file, but would be for those of the drive file.
    debug: bool,
    /// It would be run once more for a sourced file that fails. Where `errexit` counts, nothing can
    /// be done about it: what keeps the one out keeps out the other.
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

/// Whether `set -…` with this flag is in the text.
fn mentions_flag(text: &[u8], flag: u8) -> bool {
    let start = b"set -";
    text.windows(start.len()).enumerate().any(|(at, window)| {
        let flags = text[at + start.len()..].iter().take_while(|byte| byte.is_ascii_alphabetic());
        window == start && flags.into_iter().any(|byte| *byte == flag)
    })
}

/// The drive file that only reads the state out: after a person's command, or to find out what an
/// interrupted one left.
pub fn capture(drive: &Drive) -> Vec<u8> {
    let mut text = Vec::with_capacity(768);
    if drive.once {
        put(&mut text, &[b">|", &single(&drive.paths.drive()), b"\n"]);
    }
    // First, while `$?` is still what the person's command left.
    put(&mut text, &[&record(drive), b"\n"]);
    if drive.interrupted && option(drive.state, "monitor") {
        // What was interrupted was so with job control off.
        put(&mut text, &[b"\\builtin set -m", OR_ELSE]);
    }
    if drive.interrupted && has_trap(drive.state, b" EXIT") {
        text.extend_from_slice(BACK);
    }
    // The history need not have what was typed again; the number of commands has it.
    let typed =
        b"\\builtin : '\\#'; \\builtin printf 'typed %s\\n' \"${_@P}\"; \\builtin history 1; ";
    tell(&mut text, drive, typed);
    text
}

/// A redirection whose file name carries the status.
fn record(drive: &Drive) -> Vec<u8> {
    let name = single(&drive.paths.ctl(&format!("{}.", drive.number)));
    [b">", name.as_slice(), b"\"$?\""].concat()
}

/// Interactive bash ignores SIGTERM; a command that sends it to the shell means it. Inside a sourced
/// file `trap -` gives back the disposition the shell was started with, when there was a trap to take
/// away.
const HEED_TERM: &[u8] = b"\\builtin trap : TERM; \\builtin trap - TERM\n";

/// Takes the redirection of the whole shell back.
const BACK: &[u8] = b"\\exec >/dev/tty 2>/dev/tty\n";

/// Hands the last exit code over, and an empty `$_`. `&&` keeps `errexit` and the ERR trap out of it.
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

fn go_back(text: &mut Vec<u8>, state: &State) {
    put(text, &[b"\\builtin cd -- ", &single(state.get("cwd")), OR_ELSE]);
    old_directory(text, state);
}

/// `OLDPWD` as it was: exported without a value, too.
fn old_directory(text: &mut Vec<u8>, state: &State) {
    put(text, &[b"\\builtin unset -v OLDPWD", OR_ELSE]);
    if !state.get("oldpwd").is_empty() {
        put(text, &[b"\\builtin ", state.get("oldpwd"), b"\n"]);
    }
}

/// Prints the state into the FIFO. Where a DEBUG trap would run for each of our commands a subshell
/// does it, which has no such trap but still tells of it; job control is off there.
fn tell(text: &mut Vec<u8>, drive: &Drive, first: &[u8]) {
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

/// Whether a trap is set for a signal, by the name `trap -p` prints.
pub fn has_trap(state: &State, signal: &[u8]) -> bool {
    trap(state, signal).is_some()
}

/// The line that sets the trap for a signal.
pub fn trap<'a>(state: &'a State, signal: &[u8]) -> Option<&'a [u8]> {
    quote::lines(state.get("traps"))
        .map(<[u8]>::trim_ascii_end)
        .find(|line| line.ends_with(signal) && *line != NO_DEBUG)
}

/// How a DEBUG trap that a command took away is kept away until the next.
const NO_DEBUG: &[u8] = b"trap -- '' DEBUG";

/// Whether a `set -o` option is on.
pub fn option(state: &State, name: &str) -> bool {
    let wanted = format!("set -o {name}");
    state.lines("set").any(|line| line == wanted.as_bytes())
}

pub fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
