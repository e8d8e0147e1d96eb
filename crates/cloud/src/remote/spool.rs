//! Commands that outlive the call that started them, for instances that can only run `sh -c` to its end.
//!
//! ```text
//! TERMINAL/done        the highest number of a forgotten command
//! TERMINAL/ticks       CPU time of its ended commands
//! TERMINAL/NUMBER/     run · script · script.bash · in     what was sent
//!                      pid                                 a symbolic link to the runner's pid: created once
//!                      o · e                               the FIFOs that it writes to, copied into
//!                      out · err · state                   its output, and the state that its shell saved
//!                      code                                its exit code, unless it was killed
//!                      ended                               present if we killed it
//!                      screen                              the script of a program on a PTY
//! ```
//! Every script may run any number of times, late or concurrently: a command starts by creating one link,
//! which succeeds once, and never after it was forgotten. Answers are lines of plain text with the bytes in
//! base64, so that any vendor can carry them. This module writes the scripts and parses their answers; it
//! runs nothing.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use shell::quote::single;
use wire::StdinMode;

/// The functions that every script begins with.
const SPOOL: &str = include_str!("spool.sh");
/// The script that runs a command.
const RUN: &str = include_str!("run.sh");
/// The environment variable that marks the processes of a command. Never written before a `=` in a script
/// that is itself part of an environment.
pub(super) const COMMAND_MARK: &str = "STEAD_RUN";
/// The environment variable that marks the processes of a terminal.
pub(super) const TERMINAL_MARK: &str = "STEAD_TERMINAL";
/// The prefix of every line of an answer.
const ANSWER_PREFIX: &str = "stead: ";
/// The maximum number of bytes of a stream per answer.
const MAX_CHUNK_BYTES: usize = 192 << 10;
/// The number of polls per call, which takes some seconds.
const MAX_POLLS: u32 = 55;
/// How much of the start and the end of a stream is saved once it exceeds `MAX_STREAM_BYTES`.
const HEAD_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };
const TAIL_BYTES: u64 = HEAD_BYTES / 8;
const MAX_STREAM_BYTES: u64 = HEAD_BYTES + 2 * TAIL_BYTES;
/// How much unread standard input may be queued.
const MAX_QUEUED_INPUT_BYTES: u64 = 4 << 20;
/// A larger file is uploaded, not embedded in the script.
pub(super) const MAX_INLINE_BYTES: usize = 16 << 10;
pub(super) const MAX_STATE_BYTES: u64 = 8 << 20;

/// The directory of a command inside an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandDir {
    /// The directory of the terminal.
    pub(super) terminal: String,
    /// The number of the command, which rises.
    pub(super) number: u64,
    pub(super) id: String,
}

/// How much of each stream of a command has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StreamOffsets {
    pub(super) out: u64,
    pub(super) err: u64,
    pub(super) state: u64,
}

/// What a status call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// More output, or the end of the command.
    End,
    /// More output, or the end of all its processes.
    AllProcesses,
    /// As `End`, but only for a moment: long enough to confirm the start.
    Soon,
    Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpoolStatus {
    /// It never started, or not here.
    None,
    Running,
    Ended(i32),
    /// The command was killed by us.
    Killed,
    /// It disappeared without an exit code.
    Gone,
}

/// The answer to a status call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatusReport {
    pub(super) status: SpoolStatus,
    /// The lengths of its streams.
    pub(super) out: u64,
    pub(super) err: u64,
    /// The length of its saved state.
    pub(super) state: Option<u64>,
    /// How many of its processes are left.
    pub(super) left: u64,
    /// Chunks of streams, with their offsets.
    pub(super) data: Vec<(StreamName, u64, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamName {
    Out,
    Err,
    State,
}

/// The files and settings that start a command.
#[derive(Debug, Clone)]
pub(super) struct CommandFiles {
    pub(super) bash: Vec<u8>,
    /// The script for every other shell.
    pub(super) sh: Vec<u8>,
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) cwd: Vec<u8>,
    pub(super) stdin: StdinMode,
    /// The content of standard input.
    pub(super) given: Vec<u8>,
}

impl CommandDir {
    fn dir(&self) -> String {
        format!("{}/{}", self.terminal, self.number)
    }

    /// The file where its shell saves the state.
    pub(super) fn state(&self) -> String {
        format!("{}/state", self.dir())
    }

    /// The variables and functions that every script begins with.
    fn spool(&self) -> String {
        let (terminal, number) = (quoted(&self.terminal), self.number);
        format!(
            "umask 077\nt={terminal} n={number} i={} m={COMMAND_MARK}\n{}",
            self.id,
            bare(SPOOL)
        )
    }

    /// The files of a command; large ones are uploaded separately.
    pub(super) fn files(&self, start: &CommandFiles) -> Vec<(String, Vec<u8>)> {
        let dir = self.dir();
        let mut files = vec![
            (format!("{dir}/run"), self.runner(start)),
            (format!("{dir}/script.bash"), start.bash.clone()),
            (format!("{dir}/script"), start.sh.clone()),
        ];
        if start.stdin == StdinMode::Given {
            files.push((format!("{dir}/in"), start.given.clone()));
        } else if !start.given.is_empty() {
            files.push((format!("{dir}/in.0.given"), start.given.clone()));
        }
        files
    }

    fn runner(&self, start: &CommandFiles) -> Vec<u8> {
        let mut text = self.spool();
        let _ = writeln!(
            text,
            "head={HEAD_BYTES} tail={TAIL_BYTES} most={MAX_STREAM_BYTES}\n{}",
            bare(RUN)
        );
        let mut text = text.into_bytes();
        put(&mut text, &[b"cd -- ", &single(&start.cwd), b" 2>/dev/null || cd / \nset --"]);
        for (name, value) in &start.env {
            put(&mut text, &[b" ", &single(&[name, &b"="[..], value].concat())]);
        }
        let stdin = match start.stdin {
            StdinMode::Given | StdinMode::Open => "\"$d/in\"",
            StdinMode::Null | StdinMode::Other(_) => "/dev/null",
        };
        let dir = self.dir();
        // `$0` is the name of the shell, which it prints before its error messages.
        let source = |file: &str| quoted(&format!(". {}", quoted(&format!("{dir}/{file}"))));
        let (bash, sh) = (source("script.bash"), source("script"));
        let rest = format!(
            "\nif command -v bash >/dev/null 2>&1; then set -- \"$@\" bash --noprofile --norc -c {bash} bash\n\
             else set -- \"$@\" sh -c {sh} sh; fi\n\
             $s env -i \"$@\" <{stdin} >\"$d/o\" 2>\"$d/e\"\n\
             b=$?; settled; spent; echo $b >\"$d/code.new\"; mv \"$d/code.new\" \"$d/code\"\n"
        );
        text.extend_from_slice(rest.as_bytes());
        text
    }

    /// A script that starts a command whose large files have been uploaded, and reports its status.
    pub(super) fn start(&self, start: &CommandFiles, done: &[u64]) -> String {
        let mut text = self.spool();
        let _ = writeln!(text, "{}mkdir -p \"$d\" || exit", forgetting(done));
        if start.stdin == StdinMode::Open {
            text.push_str("[ -p \"$d/in\" ] || mkfifo \"$d/in\"\n");
        }
        for (path, bytes) in self.files(start) {
            if bytes.len() <= MAX_INLINE_BYTES {
                let _ = writeln!(text, "put {} <<'.'", quoted(&path));
                for line in STANDARD.encode(bytes).as_bytes().chunks(4096) {
                    let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
                }
                text.push_str(".\n");
            }
        }
        let _ = writeln!(text, "start && {}", status_call(StreamOffsets::default(), WaitFor::Soon));
        text
    }

    /// A script that writes the script which runs a program on a PTY and prints `mark` first.
    pub(super) fn stage(&self, start: &CommandFiles, done: &[u64], mark: &str) -> String {
        let mut script = self.spool().into_bytes();
        let (one, two) = mark.split_at(mark.len() / 2);
        // Keys such as Ctrl-C are for the program. The mark is split, so that the echo of the typed line does not
        // contain it.
        let begin = format!(
            "[ \"$(last)\" -lt \"$n\" ] || exit 0\nln -s $$ \"$d/pid\" 2>/dev/null || exit 0\n\
             trap : HUP INT QUIT TERM TSTP\nprintf %s%s {one} {two}\n"
        );
        put(&mut script, &[begin.as_bytes(), b"cd -- ", &single(&start.cwd)]);
        script.extend_from_slice(b" 2>/dev/null || cd /\nset --");
        for (name, value) in &start.env {
            put(&mut script, &[b" ", &single(&[name, &b"="[..], value].concat())]);
        }
        put(&mut script, &[b"\nenv -i \"$@\" sh -c ", &single(&start.sh), b" sh\n"]);
        script.extend_from_slice(
            b"b=$?; echo $b >\"$d/code.new\"; mv \"$d/code.new\" \"$d/code\"; exit $b\n",
        );
        let mut text = self.spool();
        let _ = writeln!(text, "{}mkdir -p \"$d\" || exit", forgetting(done));
        let _ = writeln!(text, "put \"$d/screen\" <<'.' && say none");
        for line in STANDARD.encode(script).as_bytes().chunks(4096) {
            let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
        }
        text.push_str(".\n");
        text
    }

    /// A script that waits briefly for a command to start; it answers `running` or `none`.
    pub(super) fn begins(&self) -> String {
        format!("{}if begun; then say running; else say none; fi\n", self.spool())
    }

    /// The arguments of `sh` that are typed into a PTY.
    pub(super) fn staged(&self) -> String {
        format!("{} {}", quoted(&format!("{}/screen", self.dir())), self.id)
    }

    /// A script that reports the status of a command.
    pub(super) fn status(&self, known: StreamOffsets, until: WaitFor) -> String {
        format!("{}{}", self.spool(), status_call(known, until))
    }

    /// A script that kills all processes of a command and reports its status.
    pub(super) fn end(&self, known: StreamOffsets) -> String {
        format!("{}end && {}", self.spool(), status_call(known, WaitFor::Now))
    }

    /// A script that signals the processes of a command. It answers `none` if there are none, and `later` if the
    /// command has not started yet.
    pub(super) fn signal(&self, signal: i32) -> String {
        // A command that has just started has no process yet.
        let act = format!(
            "begun || {{ say later; exit; }}\n\
             k=0; while l=$(born); [ -z \"$l\" ] && [ ! -e \"$d/code\" ] && [ $k -lt 40 ] && runs; \
             do k=$((k + 1)); nap 0.05; done\n\
             if [ -e \"$d/code\" ]; then say none; elif [ -n \"$l\" ]; then signal {signal}; say running; \
             elif runs; then say later; else say none; fi\n"
        );
        self.spool() + &act
    }

    /// A script that writes to the standard input of a command, once for each `write`. It answers `none` if the
    /// command does not read, `known` for a repeated write, `full` if too much is queued, and `later` if the
    /// command has not started yet.
    pub(super) fn feed(&self, write: &str, bytes: &[u8], end: bool) -> String {
        let end = if end { ".end" } else { "" };
        let mut text = self.spool();
        let _ = writeln!(
            text,
            "begun || {{ say later; exit; }}\n\
             [ -p \"$d/in\" ] && [ ! -e \"$d/code\" ] && runs || {{ say none; exit; }}\n\
             ls -d \"$d/in.\"*\".{write}\"* >/dev/null 2>&1 && {{ say known; exit; }}\n\
             ls -d \"$d/in.\"*.end >/dev/null 2>&1 && {{ say none; exit; }}\n\
             q=0; w=0; for f in \"$d/in.\"*; do [ -f \"$f\" ] || continue; \
             w=$((w + $(size \"$f\"))); q=$((q + 1)); done\n\
             [ $w -le {MAX_QUEUED_INPUT_BYTES} ] || {{ say full; exit; }}\n\
             put \"$d/in.$q.{write}{end}\" <<'.' && say running\n{}\n.",
            STANDARD.encode(bytes)
        );
        text
    }

    /// A script that removes the files of a command.
    pub(super) fn forget(&self) -> String {
        format!("{}forget {}\nsay none\n", self.spool(), self.number)
    }
}

/// A script that kills all processes of a terminal and removes its files.
pub(super) fn close(dir: &str, terminal: &str) -> String {
    format!(
        "t={} i={terminal} m={TERMINAL_MARK} n=0\n{}\
         k=0; while [ $k -lt 200 ]; do l=$(born); [ -n \"$l\" ] || break; kin; kill -9 $l 2>/dev/null; \
         k=$((k + 1)); nap 0.02; done; \
         [ ! -e \"$t/ticks\" ] || cat \"$t/ticks\" >>\"${{t%/*/*}}/ticks\"; rm -rf \"${{t:?}}\"; say none\n",
        quoted(dir),
        bare(SPOOL)
    )
}

/// A script that creates the directory; it answers `none`, or the missing programs.
pub(super) fn prepare(dir: &str) -> String {
    format!(
        "umask 077; l=; for p in mkdir mv cat rm ln ls readlink mkfifo wc tail head tr cut grep sed sleep env base64; do \
         command -v $p >/dev/null 2>&1 || l=\"$l $p\"; done\n\
         if [ -n \"$l\" ]; then echo \"{ANSWER_PREFIX}missing$l\"; else mkdir -p {0} && chmod 700 {0} && echo '{ANSWER_PREFIX}none'; fi\n",
        quoted(dir)
    )
}

fn forgetting(done: &[u64]) -> String {
    match done {
        [] => String::new(),
        done => {
            let numbers: Vec<String> = done.iter().map(u64::to_string).collect();
            format!("forget {}\n", numbers.join(" "))
        }
    }
}

fn status_call(known: StreamOffsets, until: WaitFor) -> String {
    let StreamOffsets { out, err, state } = known;
    let (looks, late) = match until {
        WaitFor::End => (MAX_POLLS, "end"),
        WaitFor::AllProcesses => (MAX_POLLS, "late"),
        WaitFor::Soon => (12, "end"),
        WaitFor::Now => (1, "end"),
    };
    format!("look {out} {err} {state} {looks} {late} {MAX_CHUNK_BYTES}\n")
}

/// Removes indentation and comments from a script.
pub(super) fn bare(script: &str) -> String {
    let lines = script.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    lines.flat_map(|line| [line, "\n"]).collect()
}

pub(super) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&single(text.as_bytes())).into_owned()
}

fn put(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.extend_from_slice(part);
    }
}

/// Returns the last line of an answer; `None` if the answer was cut off.
pub(super) fn word(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(ANSWER_PREFIX));
    lines.next_back().map(|line| line.trim().to_owned())
}

/// Parses the answer to a status call; `None` if it is incomplete.
pub(super) fn read(answer: &[u8]) -> Option<StatusReport> {
    let mut report = StatusReport {
        status: SpoolStatus::None,
        out: 0,
        err: 0,
        state: None,
        left: 0,
        data: Vec::new(),
    };
    let mut whole = false;
    for line in answer.split(|byte| *byte == b'\n') {
        let Some(line) = line.strip_prefix(ANSWER_PREFIX.as_bytes()) else { continue };
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().ok();
        let mut status = None;
        match words.as_slice() {
            ["out", length] => report.out = number(length)?,
            ["err", length] => report.err = number(length)?,
            ["left", count] => report.left = number(count)?,
            ["state", length] => report.state = Some(number(length)?),
            ["data", source, offset, bytes] => {
                let source = match *source {
                    "out" => StreamName::Out,
                    "err" => StreamName::Err,
                    "state" => StreamName::State,
                    _ => return None,
                };
                report.data.push((source, number(offset)?, STANDARD.decode(bytes).ok()?));
            }
            ["none" | "forgotten"] => status = Some(SpoolStatus::None),
            ["running"] => status = Some(SpoolStatus::Running),
            ["ended"] => status = Some(SpoolStatus::Killed),
            ["gone"] => status = Some(SpoolStatus::Gone),
            ["code", code] => status = Some(SpoolStatus::Ended(code.parse().ok()?)),
            _ => return None,
        }
        if let Some(found) = status {
            (report.status, whole) = (found, true);
        }
    }
    whole.then_some(report)
}

#[cfg(test)]
mod tests;
