//! bash: how it is started, driven, read out and restored.
//!
//! Its rc file binds keys with `bind -x` to sourcing the drive file, in the current shell and in
//! every keymap. Nothing of ours stays in the shell: no variable, no function, no trap, no option.

use super::dialect::{Drive, Dump, Paths, put};
use super::quote::{self, single};
use super::state::State;

/// What the bound keys run, in the order they are tried: a command may have redefined any of these.
const SOURCES: [&str; 4] = [".", "builtin .", "command .", "source"];

/// How many keys there are to try.
pub const KEYS: usize = SOURCES.len();

/// One more key: what it runs keeps standard error as it is.
const PLAIN: usize = KEYS;

/// The bytes to type for a key.
pub fn key(which: usize) -> Vec<u8> {
    format!("\x1b[5477;{}~", which + 1).into_bytes()
}

/// Variables that bash makes itself, or that belong to the moment.
const OWN: [&str; 43] = [
    "BASH",
    "BASHOPTS",
    "BASHPID",
    "BASH_ALIASES",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_ARGV0",
    "BASH_CMDS",
    "BASH_COMMAND",
    "BASH_EXECUTION_STRING",
    "BASH_LINENO",
    "BASH_SOURCE",
    "BASH_SUBSHELL",
    "BASH_VERSINFO",
    "BASH_VERSION",
    "COLUMNS",
    "COMP_WORDBREAKS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "LINENO",
    "LINES",
    "OLDPWD",
    "PIPESTATUS",
    "PPID",
    "PWD",
    "RANDOM",
    "READLINE_ARGUMENT",
    "READLINE_LINE",
    "READLINE_MARK",
    "READLINE_POINT",
    "SECONDS",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "UID",
    "_",
    "STEAD_TERMINAL",
    "STEAD",
];

/// The rc file: the person's own for a first start, `restore` for a later one.
pub fn rc(paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
    let mut text = Vec::new();
    match restore {
        None => put(
            &mut text,
            &[
                b"if [[ -r /etc/bash.bashrc ]]; then . /etc/bash.bashrc; fi\n",
                b"if [[ -r ~/.bashrc ]]; then . ~/.bashrc; fi\n",
            ],
        ),
        Some(script) => text.extend_from_slice(script),
    }
    let drive = single(&paths.drive());
    for keymap in ["emacs", "vi-insert", "vi-command"] {
        for (which, source) in SOURCES.iter().enumerate() {
            // The group hides what `set -x` and an error in the drive file would print.
            let mut binding = format!("\"\\e[5477;{}~\": {{ {source} ", which + 1).into_bytes();
            put(&mut binding, &[&drive, b"; } 2>/dev/null"]);
            put(
                &mut text,
                &[b"builtin bind -m ", keymap.as_bytes(), b" -x ", &single(&binding), b"\n"],
            );
        }
    }
    for keymap in ["emacs", "vi-insert", "vi-command"] {
        let mut binding = format!("\"\\e[5477;{}~\": . ", PLAIN + 1).into_bytes();
        put(&mut binding, &[&drive]);
        let binding = single(&binding);
        put(&mut text, &[b"builtin bind -m ", keymap.as_bytes(), b" -x ", &binding, b"\n"]);
    }
    dump(&mut text, &single(&paths.state()), b"");
    put(&mut text, &[b">", &single(&paths.ctl(ready)), b"\n"]);
    text
}

/// The key for a command's drive file.
pub fn key_for(drive: &Drive) -> Vec<u8> {
    key(if redirects_all(drive) { PLAIN } else { drive.key })
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
    let paths = drive.paths;
    let mut text = Vec::with_capacity(1024);
    if drive.once {
        put(&mut text, &[b">|", &single(&paths.drive()), b"\n"]);
    }
    put(&mut text, &[b">|", &single(&paths.begun()), b"\n"]);
    // Interactive bash ignores SIGTERM; a command that sends it to the shell means it. Inside a
    // sourced file `trap -` gives back the disposition the shell was started with, when there was a
    // trap to take away.
    // Without job control a command is what it would be in a script: no notices of jobs in its
    // output, and one that stops itself is waited for.
    text.extend_from_slice(
        b"builtin unset -v READLINE_LINE READLINE_POINT READLINE_MARK\nbuiltin set +m\n",
    );
    if !has_trap(drive.state, b"SIGTERM") {
        text.extend_from_slice(b"builtin trap : TERM; builtin trap - TERM\n");
    }
    if let Some(cwd) = drive.cwd {
        put(&mut text, &[b"builtin cd -- ", &single(cwd), b"\n"]);
    }
    let all = redirects_all(drive);
    let mut outputs = Vec::new();
    put(&mut outputs, &[b" >", &single(&drive.stdout), b" 2>", &single(&drive.stderr)]);
    if all {
        put(&mut text, &[b"\\exec", &outputs, b"\n"]);
    }
    status(&mut text, drive);
    for (name, value) in drive.env {
        put(&mut text, &[name, b"=", &single(value), b" "]);
    }
    // A special builtin keeps the assignments before it in posix mode; `command` takes that away.
    if !drive.env.is_empty() && option(drive.state, "posix") {
        text.extend_from_slice(b"command ");
    }
    let source = SOURCES[drive.key].as_bytes();
    put(&mut text, &[source, b" ", &single(&paths.command()), b" <", &single(&drive.stdin)]);
    if !all {
        text.extend_from_slice(&outputs);
    }
    text.push(b'\n');
    record(&mut text, drive);
    if all {
        text.extend_from_slice(BACK);
    }
    if option(drive.state, "monitor") {
        text.extend_from_slice(b"builtin set -m || [[ 1 ]]\n");
    }
    if drive.cwd.is_some() {
        go_back(&mut text, drive.state);
    }
    dump(&mut text, &single(&paths.state()), b"");
    text
}

/// The drive file that only reads the state out: after a person's command, or to find out what an
/// interrupted one left.
pub fn capture(drive: &Drive) -> Vec<u8> {
    let mut text = Vec::with_capacity(768);
    if drive.once {
        put(&mut text, &[b">|", &single(&drive.paths.drive()), b"\n"]);
    }
    // First, while `$?` is still what the person's command left.
    record(&mut text, drive);
    if drive.interrupted && option(drive.state, "monitor") {
        // What was interrupted was so with job control off.
        text.extend_from_slice(b"builtin set -m || [[ 1 ]]\n");
    }
    if drive.interrupted && has_trap(drive.state, b" EXIT") {
        text.extend_from_slice(BACK);
    }
    dump(&mut text, &single(&drive.paths.state()), b"builtin history 1; ");
    text
}

fn record(text: &mut Vec<u8>, drive: &Drive) {
    let mut name = drive.paths.ctl(&format!("{}.", drive.number));
    name = single(&name);
    put(text, &[b">", &name, b"\"$?\"\n"]);
}

/// Takes the redirection of the whole shell back.
const BACK: &[u8] = b"\\exec >/dev/tty 2>/dev/tty\n";

/// Hands the last exit code over. `&&` keeps `errexit` and the ERR trap out of it.
fn status(text: &mut Vec<u8>, drive: &Drive) {
    match drive.status {
        0 => text.extend_from_slice(b"((1))\n"),
        1 => text.extend_from_slice(b"! ((1))\n"),
        _ => put(
            text,
            &[
                SOURCES[drive.key].as_bytes(),
                b" ",
                &single(&drive.paths.status()),
                b" && [[ 1 ]]\n",
            ],
        ),
    }
}

fn go_back(text: &mut Vec<u8>, state: &State) {
    put(text, &[b"builtin cd -- ", &single(state.get("cwd")), b" || [[ 1 ]]\n"]);
    match state.get("oldpwd") {
        [] => text.extend_from_slice(b"builtin unset -v OLDPWD || [[ 1 ]]\n"),
        line => put(text, &[line, b"\n"]),
    }
}

/// Prints everything with builtins alone. Functions come last: their text has no shape to rely on.
/// The `||` keeps `errexit` and the ERR trap out of it.
pub fn dump(text: &mut Vec<u8>, target: &[u8], first: &[u8]) {
    put(
        text,
        &[
            b"{ ",
            first,
            b"builtin set +o; builtin shopt -p; builtin umask -p; builtin enable -n; \
              builtin printf args; builtin printf ' %q' \"$@\"; \
              builtin printf '\\ndir %q' \"${DIRSTACK[@]-}\"; builtin printf '\\n'; \
              builtin complete -p; builtin trap -p; builtin alias -p; \
              builtin declare -p; builtin declare -fp; } >",
            target,
            b" 2>/dev/null || [[ 1 ]]\n",
        ],
    );
}

/// Reads a dump.
pub fn parse(raw: &[u8]) -> Dump {
    let mut state = State::default();
    let mut at = 0;
    let mut history = None;
    if !raw.starts_with(b"set ") {
        let start = find(raw, b"\nset -o allexport\n")
            .or_else(|| find(raw, b"\nset +o allexport\n"))
            .map_or(0, |found| found + 1);
        history = Some(raw[..start].trim_ascii().to_vec()).filter(|text| !text.is_empty());
        at = start;
    }
    let mut seen = Seen::default();
    while at < raw.len() {
        let end = quote::line_end(raw, at);
        let line = raw[at..end].strip_suffix(b"\n").unwrap_or(&raw[at..end]);
        if !seen.take(line) {
            break;
        }
        at = end;
    }
    seen.into_state(&mut state);
    if state.has("vars") {
        state.set("functions", raw[at..].to_vec());
    }
    Dump { state, history }
}

/// The sections as they come together, line by line.
#[derive(Default)]
struct Seen {
    sections: Vec<(&'static str, Vec<u8>)>,
    dirs: Vec<Vec<u8>>,
    vars: Option<(Vec<u8>, Vec<u8>)>,
    oldpwd: Vec<u8>,
}

impl Seen {
    /// Takes a line in; false when it is where the functions begin.
    fn take(&mut self, line: &[u8]) -> bool {
        if line.starts_with(b"declare -") {
            self.variable(line);
            return true;
        }
        if self.vars.is_some() {
            return false;
        }
        let section = match line.split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"set" => "set",
            b"shopt" => "shopt",
            b"umask" => "umask",
            b"enable" => "enable",
            b"args" => "args",
            b"complete" => "complete",
            b"trap" => "traps",
            b"alias" => "aliases",
            b"dir" => {
                self.dirs.push(quote::word(&line[4..]).0);
                return true;
            }
            _ => return true,
        };
        match self.sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, bytes)) => put(bytes, &[b"\n", line]),
            None => self.sections.push((section, line.to_vec())),
        }
        true
    }

    fn variable(&mut self, line: &[u8]) {
        let (vars, env) = self.vars.get_or_insert_default();
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (_, flags, rest) = (parts.next(), parts.next(), parts.next());
        let (Some(flags), Some(rest)) = (flags, rest) else {
            return;
        };
        let equals = rest.iter().position(|byte| *byte == b'=');
        let name = &rest[..equals.unwrap_or(rest.len())];
        if name == b"OLDPWD" {
            self.oldpwd = line.to_vec();
        }
        let own = OWN.iter().any(|own| own.as_bytes() == name);
        if !own {
            put(vars, &[line, b"\n"]);
        }
        // Arrays are never in the environment, whatever their attributes say.
        let exported = flags.contains(&b'x') && !flags.contains(&b'a') && !flags.contains(&b'A');
        if exported
            && !own
            && let Some(equals) = equals
        {
            let (value, _) = quote::word(&rest[equals + 1..]);
            put(env, &[name, b"=", &value, b"\0"]);
        }
    }

    fn into_state(self, state: &mut State) {
        // An empty section is a fact only where the dump is whole.
        let whole = self.vars.is_some();
        for section in ["enable", "complete", "traps", "aliases"] {
            if whole {
                state.set(section, Vec::new());
            }
        }
        for (name, bytes) in self.sections {
            state.set(name, bytes);
        }
        if let Some(cwd) = self.dirs.first().filter(|cwd| cwd.starts_with(b"/")) {
            state.set("cwd", cwd.clone());
            let mut dirs = Vec::new();
            for dir in &self.dirs[1..] {
                put(&mut dirs, &[&single(dir), b"\n"]);
            }
            state.set("dirs", dirs);
        }
        if let Some((vars, env)) = self.vars {
            state.set("vars", vars);
            state.set("env", env);
            state.set("oldpwd", self.oldpwd);
        }
    }
}

/// The script that makes a fresh bash what `state` says, to be run from its rc file.
pub fn restore(state: &State, cwd: &[u8], after_death: bool) -> Vec<u8> {
    let mut text = b"{\n".to_vec();
    let shopt: Vec<&[u8]> = state
        .lines("shopt")
        .filter(|line| !line.ends_with(b" restricted_shell") && !line.ends_with(b" login_shell"))
        .collect();
    lines(&mut text, &shopt);
    // A group is parsed as a whole, and how a function's text is parsed depends on `extglob`: so
    // every part is a group of its own.
    text.extend_from_slice(b"} >/dev/null 2>&1\n");
    put(&mut text, &[state.get("functions"), b"\n", state.get("vars"), b"{\n"]);
    lines(&mut text, &shopt);
    for section in ["aliases", "complete"] {
        put(&mut text, &[state.get(section), b"\n"]);
    }
    let mut dirs: Vec<Vec<u8>> = state.lines("dirs").map(<[u8]>::to_vec).collect();
    dirs.reverse();
    dirs.push(single(cwd));
    for (nth, dir) in dirs.iter().enumerate() {
        let verb: &[u8] = if nth == 0 { b"cd" } else { b"pushd" };
        put(&mut text, &[b"builtin ", verb, b" -- ", dir, b"\n"]);
    }
    match state.get("oldpwd") {
        [] => text.extend_from_slice(b"builtin unset -v OLDPWD\n"),
        line => put(&mut text, &[line, b"\n"]),
    }
    put(&mut text, &[state.get("umask"), b"\n"]);
    if let Some(args) = state.get("args").strip_prefix(b"args ")
        && args != b"''"
    {
        put(&mut text, &[b"builtin set -- ", args, b"\n"]);
    }
    put(&mut text, &[state.get("traps"), b"\n", state.get("enable"), b"\n"]);
    for line in state.lines("set") {
        let name = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let kept = match name {
            b"noexec" | b"onecmd" | b"privileged" => false,
            b"errexit" => !after_death,
            _ => true,
        };
        if kept {
            put(&mut text, &[b"builtin ", line, b"\n"]);
        }
    }
    text.extend_from_slice(b"} >/dev/null 2>&1\n");
    text
}

/// Whether a trap is set for a signal, by the name `trap -p` prints.
fn has_trap(state: &State, signal: &[u8]) -> bool {
    let traps = state.get("traps");
    let mut at = 0;
    while at < traps.len() {
        let end = quote::line_end(traps, at);
        if traps[at..end].trim_ascii_end().ends_with(signal) {
            return true;
        }
        at = end;
    }
    false
}

/// Whether a `set -o` option is on.
fn option(state: &State, name: &str) -> bool {
    let wanted = format!("set -o {name}");
    state.lines("set").any(|line| line == wanted.as_bytes())
}

fn lines(text: &mut Vec<u8>, lines: &[&[u8]]) {
    for line in lines {
        put(text, &[b"builtin ", line, b"\n"]);
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
