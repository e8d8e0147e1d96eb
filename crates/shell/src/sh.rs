//! dash, busybox sh and other POSIX shells: no key can be bound, so a line is typed that sources the
//! drive file, with the terminal's echo off. It is typed only at an empty prompt: a half-typed line makes
//! a command wait.
//!
//! A POSIX shell cannot list its functions: their text is taken from the commands that defined them, and
//! the shell only lists which of them exist. A function that a sourced file or a person defined is lost
//! when the shell is replaced. A syntax error returns the shell to its prompt; its status is read there.

use super::defined::{Function, functions};
use super::drive::{Drive, Dump, Syntax, put};
use super::options::Errexit;
use super::paths::Paths;
use super::quote::{self, single};
use super::state::State;

/// Variables that the shell sets itself, or that are transient.
const OWN: [&[u8]; 12] = [
    b"LINENO",
    b"OPTIND",
    b"PPID",
    b"PS4",
    b"PWD",
    b"OLDPWD",
    b"SHLVL",
    b"_",
    b"STEAD",
    b"STEAD_TERMINAL",
    b"ENV",
    b"FUNCNAME",
];

/// Returns the line to type.
pub fn key(paths: &Paths) -> Vec<u8> {
    let mut line = b" command . ".to_vec();
    put(&mut line, &[&single(&paths.drive()), b"\n"]);
    line
}

/// Returns the file that the variable `ENV` names. It runs `restore` at a later start.
pub fn rc(paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
    let mut text = b"unset ENV\n".to_vec();
    let restore = restore.unwrap_or_default();
    text.extend_from_slice(restore);
    dump(&mut text, &single(&paths.state()), &functions([restore]));
    put(&mut text, &[b": >", &single(&paths.ctl(ready)), b"\n"]);
    text
}

/// The syntax of a POSIX shell.
const SYNTAX: Syntax = Syntax { call: b"command ", to: b">", cd: b"command cd -- " };

/// Returns the drive file for a command.
pub fn drive(drive: &Drive) -> Vec<u8> {
    let paths = drive.paths;
    let mut text = Vec::with_capacity(1024);
    SYNTAX.once(&mut text, drive);
    SYNTAX.mark(&mut text, &paths.ctl(&format!("{}.s", drive.number)), b"");
    text.extend_from_slice(b"set +m 2>/dev/null\n");
    drive.enter_cwd(&mut text, SYNTAX.call, SYNTAX.cd);
    SYNTAX.set_env(&mut text, drive);
    // A substitution needs a fork, but every other way to set `$?` needs a function or a file.
    put(&mut text, &[format!("$(exit {})\n", drive.status).as_bytes()]);
    SYNTAX.source(&mut text, drive);
    SYNTAX.record(&mut text, drive);
    SYNTAX.restore_env(&mut text, drive, |line, name| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="))
    });
    SYNTAX.restore_cwd(&mut text, drive);
    text.extend_from_slice(b"set -m 2>/dev/null\n");
    let known = functions([drive.state.get("functions"), drive.text]);
    dump(&mut text, &single(&paths.state()), &known);
    text
}

/// Returns the drive file that only dumps the state.
pub fn capture(drive: &Drive) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    SYNTAX.record(&mut text, drive);
    SYNTAX.once(&mut text, drive);
    if drive.interrupted {
        text.extend_from_slice(b"set -m 2>/dev/null\n");
    }
    let known = functions([drive.state.get("functions")]);
    dump(&mut text, &single(&drive.paths.state()), &known);
    text
}

/// Appends the commands that dump the state, with builtins alone. Each section follows its name between
/// zero bytes. A function consists of the output of `command -V` for its name, and of its known text.
pub fn dump(text: &mut Vec<u8>, target: &[u8], known: &[Function]) {
    text.extend_from_slice(b"{ command printf '\\000\\000functions\\000'; ");
    for function in known {
        put(text, &[b"command printf '\\001'; command -V ", &function.name, b"; "]);
        put(text, &[b"command printf '\\002%s' ", &single(&function.source), b"; "]);
    }
    for (name, print) in [
        ("cwd", "command printf %s \"$PWD\""),
        ("oldpwd", "command printf %s \"${OLDPWD-}\""),
        ("umask", "umask"),
        ("set", "set +o"),
        ("readonly", "readonly -p"),
        ("traps", "trap"),
        ("aliases", "alias"),
        ("vars", "set"),
        ("env", "export -p"),
        ("args", "command printf '%s\\000' \"$@\""),
    ] {
        // Two zero bytes, and the arguments last, because each argument ends with a zero byte.
        let mark = format!("command printf '\\000\\000{name}\\000'; {print}; ");
        text.extend_from_slice(mark.as_bytes());
    }
    put(text, &[b"} >", target, b" 2>/dev/null\n"]);
}

pub fn parse(raw: &[u8]) -> Dump {
    let mut dump = Dump::default();
    let mut at = find(raw, b"\0\0").map_or(raw.len(), |start| start + 2);
    let (mut exported, mut vars) = (Vec::new(), Vec::new());
    while at < raw.len() {
        let Some(name_end) = raw[at..].iter().position(|byte| *byte == 0) else { break };
        let name = &raw[at..at + name_end];
        let start = at + name_end + 1;
        let length = match name {
            b"args" => raw.len() - start,
            _ => find(&raw[start..], b"\0\0").unwrap_or(raw.len() - start),
        };
        let bytes = &raw[start..start + length];
        at = start + length + 2;
        match name {
            b"functions" => dump.state.set("functions", defined(bytes)),
            b"readonly" => dump.state.set("readonly", constants(bytes)),
            b"env" => exported = exports(bytes),
            b"vars" => vars = bytes.to_vec(),
            b"args" => {
                let mut line = Vec::new();
                let args = bytes.strip_suffix(b"\0").unwrap_or(bytes);
                // Without arguments the format is still printed once.
                if bytes.len() > 1 {
                    for arg in args.split(|byte| *byte == 0) {
                        put(&mut line, &[b" ", &single(arg)]);
                    }
                }
                dump.state.set("args", line);
            }
            _ => {
                if let Ok(name) = std::str::from_utf8(name) {
                    dump.state.set(name, bytes.to_vec());
                }
            }
        }
    }
    let (mut kept, mut env) = (Vec::new(), Vec::new());
    for line in quote::lines(&vars) {
        let Some(equals) = line.iter().position(|byte| *byte == b'=') else { continue };
        let name = &line[..equals];
        if !quote::is_name(name) || OWN.contains(&name) {
            continue;
        }
        if exported.iter().any(|known| known == name) {
            let (value, _) = quote::word(&line[equals + 1..]);
            put(&mut env, &[name, b"=", &value, b"\0"]);
        } else {
            kept.extend_from_slice(line);
        }
    }
    if !vars.is_empty() {
        dump.state.set("vars", kept);
        dump.state.set("env", env);
    }
    dump
}

/// Returns the texts of the functions that exist.
fn defined(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in bytes.split(|byte| *byte == 1) {
        let Some(behind) = entry.iter().position(|byte| *byte == 2) else { continue };
        if find(&entry[..behind], b"function").is_some() {
            put(&mut text, &[&entry[behind + 1..], b"\n"]);
        }
    }
    text
}

/// Returns commands that make the variables of `readonly -p` read-only, without the shell's own.
fn constants(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for name in listed(bytes, b"readonly ").filter(|name| !OWN.contains(name)) {
        put(&mut text, &[b"readonly ", name, b"\n"]);
    }
    text
}

/// Returns the names that `export -p` lists.
fn exports(bytes: &[u8]) -> Vec<Vec<u8>> {
    listed(bytes, b"export ").map(<[u8]>::to_vec).collect()
}

/// Returns the names after a word at the start of a line.
fn listed<'a>(bytes: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    quote::lines(bytes).filter_map(move |line| {
        let rest = line.strip_prefix(word)?;
        let stop = rest.iter().position(|byte| matches!(byte, b'=' | b'\n'));
        Some(&rest[..stop.unwrap_or(rest.len())])
    })
}

/// Returns the script that restores `state` in a new shell.
pub fn restore(state: &State, cwd: &[u8], errexit: Errexit) -> Vec<u8> {
    let mut text = Vec::new();
    put(&mut text, &[state.get("functions"), state.get("vars"), b"\n", state.get("readonly")]);
    for line in quote::lines(state.get("aliases")) {
        put(&mut text, &[b"alias ", line.strip_prefix(b"alias ").unwrap_or(line)]);
    }
    put(&mut text, &[b"\ncommand cd -- ", &single(cwd), b" 2>/dev/null\n"]);
    put(&mut text, &[b"OLDPWD=", &single(state.get("oldpwd")), b"\n"]);
    put(&mut text, &[b"umask ", state.get("umask"), b"\n", state.get("traps"), b"\n"]);
    if !state.get("args").is_empty() {
        put(&mut text, &[b"set --", state.get("args"), b"\n"]);
    }
    for line in state.lines("set") {
        let name = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let kept = match name {
            b"noexec" | b"interactive" | b"stdin" | b"monitor" | b"vi" | b"emacs" => false,
            b"errexit" => errexit == Errexit::Restore,
            _ => true,
        };
        if kept && line.starts_with(b"set ") {
            put(&mut text, &[line, b" 2>/dev/null\n"]);
        }
    }
    text
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
