//! The state of a bash: how it is dumped, parsed, and restored in the next bash.

use super::text::{OR_ELSE, find, old_directory};
use crate::drive::{Dump, put};
use crate::options::{self, Errexit};
use crate::quote::{self, single};
use crate::state::State;

/// Variables that bash sets itself, or that are transient.
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

/// Appends the commands that dump the state, with builtins alone. The shell writes each line with a system
/// call, so the options are printed in two lines. Functions come last, because their text is free-form.
/// `first` precedes the dump, `more` follows the options of `set`.
pub fn dump(text: &mut Vec<u8>, target: &[u8], first: &[u8], more: &[u8]) {
    put(
        text,
        &[
            b"{ ",
            first,
            b"\\builtin printf '\\1set %s\\nshopt %s\\n' \"$SHELLOPTS\" \"$BASHOPTS\"; ",
            more,
            b"\\builtin umask -p; \\builtin enable -n; \
              \\builtin printf args; \\builtin printf ' %q' \"$@\"; \
              \\builtin printf '\\ndir %q' \"${DIRSTACK[@]-}\"; \\builtin printf '\\n'; \
              \\builtin complete -p; \\builtin trap -p; \\builtin alias -p; \
              \\builtin declare -p; \\builtin declare -fp; } >",
            target,
            b" 2>/dev/null",
            OR_ELSE,
        ],
    );
}

/// The first bytes of a dump.
const BEGIN: &[u8] = b"\x01set ";

pub fn parse(raw: &[u8]) -> Dump {
    let mut state = State::default();
    let mut at = 0;
    let (mut history, mut typed) = (None, None);
    if !raw.starts_with(BEGIN) {
        let start = find(raw, &[b"\n", BEGIN].concat()).map_or(0, |found| found + 1);
        let mut before = &raw[..start];
        if let Some(rest) = before.strip_prefix(b"typed ") {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            typed = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse().ok());
            before = &rest[digits..];
        }
        history = Some(before.trim_ascii().to_vec()).filter(|text| !text.is_empty());
        at = start;
    }
    let mut seen = Sections::default();
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
    Dump { state, history, typed }
}

/// The sections, collected line by line.
#[derive(Default)]
struct Sections {
    sections: Vec<(&'static str, Vec<u8>)>,
    dirs: Vec<Vec<u8>>,
    vars: Option<(Vec<u8>, Vec<u8>)>,
    oldpwd: Vec<u8>,
}

impl Sections {
    /// Adds a line. Returns `false` if the functions begin here.
    fn take(&mut self, line: &[u8]) -> bool {
        if line.starts_with(b"declare -") {
            self.variable(line);
            return true;
        }
        if self.vars.is_some() {
            return false;
        }
        let space = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (word, rest) = (&line[..space], line[space..].trim_ascii_start());
        let section = match word {
            b"\x01set" => {
                self.sections.push(("set", options::set(rest)));
                return true;
            }
            b"shopt" => {
                self.sections.push(("shopt", options::shopt(rest)));
                return true;
            }
            b"umask" => "umask",
            b"enable" => "enable",
            b"args" => "args",
            b"complete" => "complete",
            b"trap" => "traps",
            b"alias" => "aliases",
            b"monitor" => {
                self.monitored();
                return true;
            }
            b"began" => {
                self.sections.push(("began", rest.to_vec()));
                return true;
            }
            b"dir" => {
                self.dirs.push(quote::word(&line[4..]).0);
                return true;
            }
            _ => match limit(line) {
                Some(limit) => return self.add("limits", &limit),
                None => return true,
            },
        };
        self.add(section, line)
    }

    fn add(&mut self, section: &'static str, line: &[u8]) -> bool {
        match self.sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, bytes)) => put(bytes, &[b"\n", line]),
            None => self.sections.push((section, line.to_vec())),
        }
        true
    }

    /// Corrects a dump by a subshell, which lists job control as off.
    fn monitored(&mut self) {
        if let Some((_, lines)) = self.sections.iter_mut().find(|(name, _)| *name == "set")
            && let Some(at) = find(lines, b"set +o monitor")
        {
            lines[at + 4] = b'-';
        }
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
        // A missing section is empty only if the dump is complete.
        let complete = self.vars.is_some();
        for section in ["enable", "complete", "traps", "aliases"] {
            if complete {
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

/// Returns the command that sets the limit in a line of `ulimit -a`. The file size has a line of its own.
fn limit(line: &[u8]) -> Option<Vec<u8>> {
    let line = std::str::from_utf8(line).ok()?;
    let (flag, value) = match line.strip_prefix("limit ") {
        Some(value) => ('f', value),
        None => {
            let (name, value) = line.rsplit_once(") ")?;
            let flag = name.chars().last().filter(|flag| "cdlmnstuvx".contains(*flag))?;
            name.ends_with(&format!("-{flag}")).then_some((flag, value))?
        }
    };
    let known = value == "unlimited" || value.bytes().all(|byte| byte.is_ascii_digit());
    known.then(|| format!("\\builtin ulimit -S -{flag} {value}").into_bytes())
}

/// Returns the script that restores `state` in a new bash, to be run from its rc file. It leaves a group
/// open, which the caller closes.
///
/// Functions follow the variables, because a function may have the name of a builtin that sets variables;
/// after the functions, builtins are called explicitly. A group is parsed as a whole, and the parsing of
/// functions depends on `extglob`, so every part is a group of its own.
pub fn restore(state: &State, cwd: &[u8], errexit: Errexit) -> Vec<u8> {
    let mut text = b"{\n".to_vec();
    let shopt: Vec<&[u8]> = state.lines("shopt").filter(|line| restorable(line)).collect();
    if !shopt.is_empty() {
        // The state lists only the options that are on.
        text.extend_from_slice(b"\\builtin shopt -u ${BASHOPTS//:/ }\n");
    }
    builtins(&mut text, shopt.iter().copied());
    text.extend_from_slice(b"} >/dev/null 2>&1\n");
    put(&mut text, &[state.get("vars"), state.get("functions"), b"\n{\n{\n"]);
    builtins(&mut text, shopt.iter().copied());
    for section in ["aliases", "complete"] {
        builtins(&mut text, quote::lines(state.get(section)));
    }
    let mut dirs: Vec<Vec<u8>> = state.lines("dirs").map(<[u8]>::to_vec).collect();
    dirs.reverse();
    dirs.push(single(cwd));
    for (nth, dir) in dirs.iter().enumerate() {
        let verb: &[u8] = if nth == 0 { b"cd" } else { b"pushd" };
        put(&mut text, &[b"\\builtin ", verb, b" -- ", dir, b"\n"]);
    }
    old_directory(&mut text, state);
    builtins(&mut text, state.lines("umask"));
    if let Some(args) = state.get("args").strip_prefix(b"args ")
        && args != b"''"
    {
        put(&mut text, &[b"\\builtin set -- ", args, b"\n"]);
    }
    builtins(&mut text, state.lines("set").filter(|line| kept(line, errexit)));
    builtins(&mut text, quote::lines(state.get("traps")));
    builtins(&mut text, state.lines("enable"));
    text.extend_from_slice(b"} >/dev/null 2>&1\n");
    text
}

/// Returns whether a line of `shopt -ps` may be run again. Turning the compatibility with an old version off
/// would set a variable.
fn restorable(line: &[u8]) -> bool {
    let name = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let compatible = name.starts_with(b"compat") && line.starts_with(b"shopt -u");
    !compatible && !matches!(name, b"restricted_shell" | b"login_shell")
}

/// Returns whether a line of `set +o` is run again. A shell with a line editor enables its history after
/// the rc file; enabled earlier, the history would contain the rc file.
fn kept(line: &[u8], errexit: Errexit) -> bool {
    match line.strip_prefix(b"set -o ") {
        Some(b"noexec" | b"onecmd" | b"privileged" | b"history") => false,
        Some(b"errexit") => errexit == Errexit::Restore,
        Some(_) => true,
        None => !line.ends_with(b" onecmd") && !line.ends_with(b" privileged"),
    }
}

/// Turns each line into an explicit call of a builtin.
fn builtins<'a>(text: &mut Vec<u8>, lines: impl Iterator<Item = &'a [u8]>) {
    for line in lines {
        put(text, &[b"\\builtin ", line.trim_ascii_end(), b"\n"]);
    }
}
