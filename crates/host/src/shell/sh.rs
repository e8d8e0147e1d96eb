//! dash, busybox sh and other POSIX shells: no key can be bound, so a line is typed that sources the
//! drive file, with the terminal's echo off. It is typed only at an empty prompt: what a person has
//! half typed makes a command wait.
//!
//! A POSIX shell cannot list its functions, so these are lost when the shell is replaced. A syntax
//! error takes the shell back to its prompt; its status is read from there.

use super::dialect::{Drive, Dump, Paths, put};
use super::quote::{self, single};
use super::state::State;

/// Variables of the shell's own, or of the moment.
const OWN: [&[u8]; 13] = [
    b"IFS",
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

/// The line to type.
pub fn key(paths: &Paths) -> Vec<u8> {
    let mut line = b" command . ".to_vec();
    put(&mut line, &[&single(&paths.drive()), b"\n"]);
    line
}

/// The file that `ENV` names: `restore` for a later start.
pub fn rc(paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
    let mut text = b"unset ENV\n".to_vec();
    text.extend_from_slice(restore.unwrap_or_default());
    dump(&mut text, &single(&paths.state()));
    put(&mut text, &[b": >", &single(&paths.ctl(ready)), b"\n"]);
    text
}

/// The drive file for a command.
pub fn drive(drive: &Drive) -> Vec<u8> {
    let paths = drive.paths;
    let mut text = Vec::with_capacity(1024);
    first(&mut text, drive);
    let started = paths.ctl(&format!("{}.s", drive.number));
    put(&mut text, &[b": >", &single(&started), b"\nset +m 2>/dev/null\n"]);
    if let Some(cwd) = drive.cwd {
        put(&mut text, &[b"command cd -- ", &single(cwd), b"\n"]);
    }
    for (name, value) in drive.env {
        put(&mut text, &[b"export ", name, b"=", &single(value), b"\n"]);
    }
    // A substitution costs a fork, but nothing else sets a status without a function or a file.
    put(&mut text, &[format!("$(exit {})\n", drive.status).as_bytes()]);
    put(
        &mut text,
        &[
            b"command . ",
            &single(&paths.command()),
            b" <",
            &single(&drive.stdin),
            b" >",
            &single(&drive.stdout),
            b" 2>",
            &single(&drive.stderr),
            b"\n",
        ],
    );
    record(&mut text, drive);
    for (name, _) in drive.env {
        put_back(&mut text, drive.state, name);
    }
    if drive.cwd.is_some() {
        put(&mut text, &[b"command cd -- ", &single(drive.state.get("cwd")), b"\n"]);
        put(&mut text, &[b"OLDPWD=", &single(drive.state.get("oldpwd")), b"\n"]);
    }
    text.extend_from_slice(b"set -m 2>/dev/null\n");
    dump(&mut text, &single(&paths.state()));
    text
}

/// The drive file that only reads the state out.
pub fn capture(drive: &Drive) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    record(&mut text, drive);
    first(&mut text, drive);
    if drive.interrupted {
        text.extend_from_slice(b"set -m 2>/dev/null\n");
    }
    dump(&mut text, &single(&drive.paths.state()));
    text
}

fn first(text: &mut Vec<u8>, drive: &Drive) {
    if drive.once {
        put(text, &[b": >", &single(&drive.paths.drive()), b"\n"]);
    }
}

fn record(text: &mut Vec<u8>, drive: &Drive) {
    let name = drive.paths.ctl(&format!("{}.", drive.number));
    put(text, &[b": >", &single(&name), b"\"$?\"\n"]);
}

/// Makes a variable what it was before a command that had its own.
fn put_back(text: &mut Vec<u8>, state: &State, name: &[u8]) {
    if let Some((_, value)) = state.env().find(|(known, _)| *known == name) {
        put(text, &[b"export ", name, b"=", &single(value), b"\n"]);
        return;
    }
    put(text, &[b"unset ", name, b"\n"]);
    let start = [name, b"="].concat();
    let vars = state.get("vars");
    let mut at = 0;
    while at < vars.len() {
        let end = quote::line_end(vars, at);
        if vars[at..end].starts_with(&start) {
            text.extend_from_slice(&vars[at..end]);
        }
        at = end;
    }
}

/// Prints everything with builtins alone, each section behind its name between zero bytes.
pub fn dump(text: &mut Vec<u8>, target: &[u8]) {
    text.extend_from_slice(b"{ ");
    for (name, print) in [
        ("cwd", "command printf %s \"$PWD\""),
        ("oldpwd", "command printf %s \"${OLDPWD-}\""),
        ("umask", "umask"),
        ("set", "set +o"),
        ("traps", "trap"),
        ("aliases", "alias"),
        ("vars", "set"),
        ("env", "export -p"),
        ("args", "command printf '%s\\000' \"$@\""),
    ] {
        // Two zero bytes, and the arguments last: those are ended by zero bytes themselves.
        let mark = format!("command printf '\\000\\000{name}\\000'; {print}; ");
        text.extend_from_slice(mark.as_bytes());
    }
    put(text, &[b"} >", target, b" 2>/dev/null\n"]);
}

/// Reads a dump.
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
            b"env" => exported = exports(bytes),
            b"vars" => vars = bytes.to_vec(),
            b"args" => {
                let mut line = Vec::new();
                let args = bytes.strip_suffix(b"\0").unwrap_or(bytes);
                // Without arguments the format is printed once all the same.
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
    let mut at = 0;
    while at < vars.len() {
        let end = quote::line_end(&vars, at);
        let line = &vars[at..end];
        at = end;
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

/// The names that `export -p` lists.
fn exports(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = quote::line_end(bytes, at);
        if let Some(rest) = bytes[at..end].strip_prefix(b"export ") {
            let stop = rest.iter().position(|byte| matches!(byte, b'=' | b'\n'));
            names.push(rest[..stop.unwrap_or(rest.len())].to_vec());
        }
        at = end;
    }
    names
}

/// The script that makes a fresh shell what `state` says.
pub fn restore(state: &State, cwd: &[u8], after_death: bool) -> Vec<u8> {
    let mut text = Vec::new();
    put(&mut text, &[state.get("vars"), b"\n"]);
    let aliases = state.get("aliases");
    let mut at = 0;
    while at < aliases.len() {
        let end = quote::line_end(aliases, at);
        let line = &aliases[at..end];
        put(&mut text, &[b"alias ", line.strip_prefix(b"alias ").unwrap_or(line)]);
        at = end;
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
            b"errexit" => !after_death,
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
