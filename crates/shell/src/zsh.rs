//! zsh: a ZLE widget bound to a key sources the drive file.
//!
//! A widget is a function, and `typeset` and positional parameters are local to a function. So the widget
//! only schedules the drive file: the line editor runs scheduled commands as soon as it waits for the next
//! key, outside of any function. Only without `zsh/sched` does the widget source the file itself.

use super::drive::{Drive, Dump, Syntax, put};
use super::options::Errexit;
use super::paths::Paths;
use super::quote::{self, single};
use super::state::State;

/// The key to type.
pub const KEY: &[u8] = b"\x1b[5477;1~";

/// Special variables of zsh that are part of the state, because a person may set them.
const SETTABLE: [&[u8]; 12] = [
    b"PS1",
    b"PS2",
    b"RPS1",
    b"PROMPT",
    b"RPROMPT",
    b"IFS",
    b"HISTFILE",
    b"HISTSIZE",
    b"SAVEHIST",
    b"WORDCHARS",
    b"KEYTIMEOUT",
    b"NULLCMD",
];

/// Returns the files in `ZDOTDIR`, by name.
pub fn dot_files(paths: &Paths) -> [(&'static str, Vec<u8>); 2] {
    let mut rc = b". ".to_vec();
    put(&mut rc, &[&single(paths.rc().as_os_str().as_encoded_bytes()), b"\n"]);
    [(".zshenv", b"if [[ -r ~/.zshenv ]]; then . ~/.zshenv; fi\n".to_vec()), (".zshrc", rc)]
}

/// Returns the rc file: it sources the person's own rc file at the first start, and runs `restore` at a
/// later one.
pub fn rc(paths: &Paths, restore: Option<&[u8]>, ready: &str) -> Vec<u8> {
    let mut text = b"unset ZDOTDIR\n".to_vec();
    // Variables that exist before the person's files run are the shell's own.
    put(
        &mut text,
        &[
            b"{ builtin print -rn -- $'\\0own\\0'; builtin print -rl -- ${(k)parameters}; } >|",
            &single(&own(paths)),
            b"\n",
        ],
    );
    match restore {
        None => text.extend_from_slice(b"if [[ -r ~/.zshrc ]]; then . ~/.zshrc; fi\n"),
        Some(script) => text.extend_from_slice(script),
    }
    // Jobs must survive the replacement of the shell.
    text.extend_from_slice(b"builtin setopt no_hup no_check_jobs\n");
    let mut source = b"{ builtin . ".to_vec();
    put(&mut source, &[&single(&paths.drive()), b"; } >/dev/null 2>&1; zle .reset-prompt"]);
    put(
        &mut text,
        &[
            b"if builtin zmodload zsh/sched 2>/dev/null; then stead-drive() { builtin sched +0 ",
            &single(&source),
            b"; }; else stead-drive() { ",
            &source,
            b"; }; fi\nzle -N stead-drive\n",
        ],
    );
    for keymap in ["emacs", "viins", "vicmd"] {
        put(&mut text, &[b"bindkey -M ", keymap.as_bytes(), b" '\\e[5477;1~' stead-drive\n"]);
    }
    dump(&mut text, paths, b"");
    put(&mut text, &[b"builtin : >|", &single(&paths.ctl(ready)), b"\n"]);
    text
}

fn own(paths: &Paths) -> Vec<u8> {
    paths.run.join("own").into_os_string().into_encoded_bytes()
}

/// The syntax of zsh.
const SYNTAX: Syntax = Syntax { call: b"builtin ", to: b">|", cd: b"builtin cd -q -- " };

/// Returns the drive file for a command.
pub fn drive(drive: &Drive) -> Vec<u8> {
    let paths = drive.paths;
    let mut text = Vec::with_capacity(1024);
    SYNTAX.once(&mut text, drive);
    SYNTAX.mark(&mut text, &paths.begun(), b"");
    text.extend_from_slice(b"builtin setopt no_monitor\n");
    drive.enter_cwd(&mut text, SYNTAX.call, SYNTAX.cd);
    SYNTAX.set_env(&mut text, drive);
    status(&mut text, drive);
    SYNTAX.source(&mut text, drive);
    SYNTAX.record(&mut text, drive);
    SYNTAX.restore_env(&mut text, drive, |line, name| {
        variable(line.trim_ascii_end()).is_some_and(|(found, _)| found == name)
    });
    SYNTAX.restore_cwd(&mut text, drive);
    text.extend_from_slice(b"builtin setopt monitor\n");
    dump(&mut text, paths, b"");
    text
}

/// Sets `$?` to the last exit code, without triggering `errexit` or a trap.
fn status(text: &mut Vec<u8>, drive: &Drive) {
    match drive.status {
        0 => text.extend_from_slice(b"builtin true\n"),
        1 => text.extend_from_slice(b"! builtin true\n"),
        _ => put(text, &[b"builtin . ", &single(&drive.paths.status()), b" && builtin true\n"]),
    }
}

/// Returns the drive file that only dumps the state.
pub fn capture(drive: &Drive) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    SYNTAX.record(&mut text, drive);
    SYNTAX.once(&mut text, drive);
    if drive.interrupted {
        text.extend_from_slice(b"builtin setopt monitor\n");
    }
    let history = b"builtin print -rn -- $'\\0history\\0'; builtin fc -l -1; ";
    dump(&mut text, drive.paths, history);
    text
}

/// Appends the commands that dump the state, with builtins alone. Each section follows its name between
/// zero bytes, which zsh never prints in quoted text.
fn dump(text: &mut Vec<u8>, paths: &Paths, first: &[u8]) {
    text.extend_from_slice(b"{ ");
    text.extend_from_slice(first);
    for (name, print) in [
        ("cwd", "builtin print -rn -- \"$PWD\""),
        ("oldpwd", "builtin print -rn -- \"$OLDPWD\""),
        ("dirs", "builtin print -rl -- ${(q)dirstack[@]}"),
        ("umask", "builtin umask"),
        ("set", "builtin set +o"),
        ("traps", "builtin trap"),
        ("aliases", "builtin alias -L"),
        ("vars", "builtin typeset -p"),
        ("functions", "builtin typeset -f"),
        ("args", "builtin print -r -- \"${(@qq)argv[@]}\""),
    ] {
        put(
            text,
            &[b"builtin print -rn -- $'\\0", name.as_bytes(), b"\\0'; ", print.as_bytes(), b"; "],
        );
    }
    put(text, &[b"} >|", &single(&paths.state()), b" 2>/dev/null\n"]);
}

/// Parses a dump. `paths` contains the list of variables that existed from the start.
pub fn parse(raw: &[u8], paths: &Paths) -> Dump {
    let mut dump = Dump::default();
    let own = std::fs::read(paths.run.join("own")).unwrap_or_default();
    let mut parts = raw.split(|byte| *byte == 0);
    parts.next();
    while let (Some(name), Some(bytes)) = (parts.next(), parts.next()) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        match name {
            "history" => {
                dump.history = Some(bytes.trim_ascii().to_vec()).filter(|text| !text.is_empty());
            }
            "vars" => variables(bytes, &own, &mut dump.state),
            "functions" => dump.state.set(name, without_widget(bytes)),
            _ => dump.state.set(name, bytes.to_vec()),
        }
    }
    dump
}

fn variables(bytes: &[u8], own: &[u8], state: &mut State) {
    let is_own = |name: &[u8]| {
        own.split(|byte| *byte == b'\n' || *byte == 0).any(|known| known == name)
            && !SETTABLE.contains(&name)
    };
    let (mut vars, mut env) = (Vec::new(), Vec::new());
    for line in quote::lines(bytes).map(<[u8]>::trim_ascii_end) {
        let Some((verb, rest)) = split_word(line) else { continue };
        let exported = verb == b"export" || rest.starts_with(b"-") && flags(rest).contains(&b'x');
        let tied = rest.starts_with(b"-") && flags(rest).contains(&b'T');
        if tied {
            // `NAME name=( a b )`: the environment contains the joined value.
            if let Some((name, list)) = split_word(without_flags(rest))
                && exported
            {
                let skip =
                    list.iter().position(|byte| *byte == b'=').map_or(0, |equals| equals + 1);
                put(&mut env, &[name, b"=", &quote::words(&list[skip..]).join(&b':'), b"\0"]);
            }
            continue;
        }
        let Some((name, value)) = variable(line) else { continue };
        if exported
            && !matches!(name, b"_" | b"SHLVL" | b"PWD" | b"OLDPWD" | b"STEAD" | b"STEAD_TERMINAL")
        {
            put(&mut env, &[name, b"=", &quote::word(value).0, b"\0"]);
        }
        // Variables that are only exported are part of the environment.
        if !is_own(name) && (!exported || rest.starts_with(b"-")) {
            put(&mut vars, &[line, b"\n"]);
        }
    }
    state.set("vars", vars);
    state.set("env", env);
}

/// Returns the name and the value in a line of `typeset -p`.
fn variable(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = without_flags(split_word(line)?.1);
    let equals = rest.iter().position(|byte| *byte == b'=')?;
    quote::is_name(&rest[..equals]).then_some((&rest[..equals], &rest[equals + 1..]))
}

/// Returns a line of `typeset -p` from the name on.
fn without_flags(mut rest: &[u8]) -> &[u8] {
    while rest.starts_with(b"-") {
        rest = split_word(rest).map_or(&b""[..], |(_, behind)| behind);
    }
    rest
}

fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..blank], line[blank + 1..].trim_ascii_start()))
}

fn flags(rest: &[u8]) -> &[u8] {
    split_word(rest).map_or(rest, |(flags, _)| flags)
}

/// Returns the functions without the driver's widget. zsh prints a comment in a function that is not
/// loaded yet; the comment is removed.
fn without_widget(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let bytes = lines.filter(|line| *line != b"\t# undefined\n").collect::<Vec<_>>().concat();
    let start = b"stead-drive () {\n";
    let Some(at) = bytes.windows(start.len()).position(|window| window == start) else {
        return bytes;
    };
    let end = bytes[at..].windows(3).position(|window| window == b"\n}\n");
    let end = end.map_or(bytes.len(), |end| at + end + 3);
    [&bytes[..at], &bytes[end..]].concat()
}

/// Returns the script that restores `state` in a new zsh, to be run from its rc file.
pub fn restore(state: &State, cwd: &[u8], errexit: Errexit) -> Vec<u8> {
    let mut text = Vec::new();
    put(&mut text, &[state.get("functions"), b"\n", state.get("vars"), b"\n"]);
    put(&mut text, &[state.get("aliases"), b"\n{\n"]);
    let mut dirs: Vec<Vec<u8>> = state.lines("dirs").map(<[u8]>::to_vec).collect();
    dirs.reverse();
    dirs.push(single(cwd));
    for (nth, dir) in dirs.iter().enumerate() {
        let verb: &[u8] = if nth == 0 { b"cd -q" } else { b"pushd -q" };
        put(&mut text, &[b"builtin ", verb, b" ", dir, b"\n"]);
    }
    put(&mut text, &[b"OLDPWD=", &single(state.get("oldpwd")), b"\n"]);
    put(&mut text, &[b"builtin umask ", state.get("umask"), b"\n"]);
    put(&mut text, &[state.get("traps"), b"\n"]);
    if !state.get("args").trim_ascii().is_empty() {
        put(&mut text, &[b"builtin set -- ", state.get("args"), b"\n"]);
    }
    for line in state.lines("set") {
        let name = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let kept = match name {
            // These depend on the terminal, or on how the shell was started.
            b"exec" | b"noexec" | b"interactive" | b"login" | b"privileged" | b"restricted"
            | b"shinstdin" | b"singlecommand" | b"zle" | b"monitor" => false,
            b"errexit" | b"errreturn" => errexit == Errexit::Restore,
            _ => true,
        };
        if kept {
            put(&mut text, &[b"builtin ", line, b"\n"]);
        }
    }
    text.extend_from_slice(b"} >/dev/null 2>&1\n");
    text
}
