//! Commands that outlive the call that started them, where nothing but `sh -c` can be run to its end.
//!
//! ```text
//! TERMINAL/done        the number of the last command that is over and done with
//! TERMINAL/ticks       what its commands that are over took of processors
//! TERMINAL/NUMBER/     run · script · script.bash · in     what was sent
//!                      pid                                 a link to the number of who runs it: made once
//!                      o · e                               the pipes it writes to, copied into
//!                      out · err · state                   what it wrote, what its shell said of itself
//!                      code                                its exit code: it has ended by itself
//!                      ended                               we ended it
//!                      screen                              the script of a program that has a PTY
//! ```
//! Everything here may be asked any number of times, also late and at once: a command begins with the
//! making of one link, which only one can do, and never after it is done with. What is said comes back
//! as lines of plain text, the bytes in base64, so that any vendor can carry them. This module makes the
//! texts and reads the answers; it runs nothing.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use host::shell::quote::single;
use host::wire::StdinMode;

/// The functions every script begins with.
const SPOOL: &str = include_str!("spool.sh");
/// What runs a command.
const RUN: &str = include_str!("run.sh");
/// The variable by which processes are known as a command's. Never written behind a `=` in a text that is
/// itself in an environment.
pub(super) const BORN: &str = "STEAD_RUN";
/// The same for a terminal's.
pub(super) const TERMINAL: &str = "STEAD_TERMINAL";
/// What goes before each line that is meant for us.
const SAY: &str = "stead: ";
/// Bytes of a stream in one answer.
const PIECE: usize = 192 << 10;
/// Looks of one call at most: some seconds.
const LOOKS: u32 = 55;
/// Bytes of a stream that are kept from its start and its end once it is longer than `MOST`.
const HEAD: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };
const TAIL: u64 = HEAD / 8;
const MOST: u64 = HEAD + 2 * TAIL;
/// Bytes for a command to read that may wait.
const FED: u64 = 4 << 20;
/// A file longer than this is not sent within a command.
pub(super) const SMALL: usize = 16 << 10;
/// The longest state that is taken in.
pub(super) const LONGEST_STATE: u64 = 8 << 20;

/// Where a command is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The directory of its terminal.
    pub(super) terminal: String,
    /// Its number there, which rises.
    pub(super) number: u64,
    /// Its id.
    pub(super) id: String,
}

/// How far each stream of a command is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Known {
    pub(super) out: u64,
    pub(super) err: u64,
    pub(super) state: u64,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// More output, or its end.
    End,
    /// More output, or that nothing is left of it.
    Silence,
    /// The same, for a moment: that it has begun is to be known.
    Soon,
    /// Nothing.
    Now,
}

/// How a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was never started, or not here.
    None,
    /// It runs.
    Running,
    /// It has ended with this code.
    Ended(i32),
    /// We ended it.
    Killed,
    /// It did not say how it ended.
    Gone,
}

/// What a look tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) seen: Seen,
    /// The lengths of its streams.
    pub(super) out: u64,
    pub(super) err: u64,
    /// The length of its state, if that was told.
    pub(super) state: Option<u64>,
    /// Processes that are left of it.
    pub(super) left: u64,
    /// Pieces of streams: which, from where on.
    pub(super) data: Vec<(Source, u64, Vec<u8>)>,
}

/// What a piece is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Out,
    Err,
    State,
}

/// What it takes to start a command.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// The script for bash.
    pub(super) bash: Vec<u8>,
    /// The script for any other shell.
    pub(super) sh: Vec<u8>,
    /// The environment it is started with.
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where it is started.
    pub(super) cwd: Vec<u8>,
    /// What it reads.
    pub(super) stdin: StdinMode,
    /// The bytes given for it to read.
    pub(super) given: Vec<u8>,
}

impl Place {
    /// Its directory.
    fn dir(&self) -> String {
        format!("{}/{}", self.terminal, self.number)
    }

    /// Where its shell says its state.
    pub(super) fn state(&self) -> String {
        format!("{}/state", self.dir())
    }

    /// The variables and functions of our scripts.
    fn spool(&self) -> String {
        let (terminal, number) = (quoted(&self.terminal), self.number);
        format!("umask 077\nt={terminal} n={number} i={} m={BORN}\n{}", self.id, bare(SPOOL))
    }

    /// The files of a command, of which the large ones are to be sent by themselves.
    pub(super) fn files(&self, start: &Start) -> Vec<(String, Vec<u8>)> {
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

    fn runner(&self, start: &Start) -> Vec<u8> {
        let mut text = self.spool();
        let _ = writeln!(text, "head={HEAD} tail={TAIL} most={MOST}\n{}", bare(RUN));
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
        // Sourced by what has the name that shells have, which it says in front of its complaints.
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

    /// Starts a command whose large files are there, and looks how it is.
    pub(super) fn start(&self, start: &Start, done: &[u64]) -> String {
        let mut text = self.spool();
        let _ = writeln!(text, "{}mkdir -p \"$d\" || exit", forgetting(done));
        if start.stdin == StdinMode::Open {
            text.push_str("[ -p \"$d/in\" ] || mkfifo \"$d/in\"\n");
        }
        for (path, bytes) in self.files(start) {
            if bytes.len() <= SMALL {
                let _ = writeln!(text, "put {} <<'.'", quoted(&path));
                for line in STANDARD.encode(bytes).as_bytes().chunks(4096) {
                    let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
                }
                text.push_str(".\n");
            }
        }
        let _ = writeln!(text, "start && {}", looked(Known::default(), Until::Soon));
        text
    }

    /// Makes the script be there that runs a program on the terminal it is typed into, behind `mark`.
    pub(super) fn stage(&self, start: &Start, done: &[u64], mark: &str) -> String {
        let mut script = self.spool().into_bytes();
        let (one, two) = mark.split_at(mark.len() / 2);
        // The keys of a terminal are for the program; what is typed does not show the mark.
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

    /// Waits a while whether a command begins: `running` if it has, else `none`.
    pub(super) fn begins(&self) -> String {
        format!("{}if begun; then say running; else say none; fi\n", self.spool())
    }

    /// The script that is typed, and what it is known by.
    pub(super) fn staged(&self) -> String {
        format!("{} {}", quoted(&format!("{}/screen", self.dir())), self.id)
    }

    /// Looks how a command is.
    pub(super) fn look(&self, known: Known, until: Until) -> String {
        format!("{}{}", self.spool(), looked(known, until))
    }

    /// Ends a command and every process born in it, and looks how it is then.
    pub(super) fn end(&self, known: Known) -> String {
        format!("{}end && {}", self.spool(), looked(known, Until::Now))
    }

    /// Signals the processes of a command; answers `none` where there are none, `later` if it has yet to
    /// begin.
    pub(super) fn signal(&self, signal: i32) -> String {
        // One that has just begun has no process of its own yet.
        let act = format!(
            "begun || {{ say later; exit; }}\n\
             k=0; while l=$(born); [ -z \"$l\" ] && [ ! -e \"$d/code\" ] && [ $k -lt 40 ] && runs; \
             do k=$((k + 1)); nap 0.05; done\n\
             if [ -e \"$d/code\" ]; then say none; elif [ -n \"$l\" ]; then kill -{signal} $l; say running; \
             elif runs; then say later; else say none; fi\n"
        );
        self.spool() + &act
    }

    /// Gives a command more to read, once for each `write`. Answers `none` if it does not read, `known` if
    /// it has this, `full` if it has too much, `later` if it has yet to begin.
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
             [ $w -le {FED} ] || {{ say full; exit; }}\n\
             put \"$d/in.$q.{write}{end}\" <<'.' && say running\n{}\n.",
            STANDARD.encode(bytes)
        );
        text
    }

    /// Makes what is kept of a command be gone.
    pub(super) fn forget(&self) -> String {
        format!("{}forget {}\nsay none\n", self.spool(), self.number)
    }
}

/// Makes a terminal be gone with every process born in it.
pub(super) fn close(dir: &str, terminal: &str) -> String {
    format!(
        "t={} i={terminal} m={TERMINAL} n=0\n{}\
         k=0; while [ $k -lt 200 ]; do l=$(born); [ -n \"$l\" ] || break; kin; kill -9 $l 2>/dev/null; \
         k=$((k + 1)); nap 0.02; done; \
         [ ! -e \"$t/ticks\" ] || cat \"$t/ticks\" >>\"${{t%/*/*}}/ticks\"; rm -rf \"${{t:?}}\"; say none\n",
        quoted(dir),
        bare(SPOOL)
    )
}

/// Makes a directory for all of this be there; answers `none`, or which programs are missing.
pub(super) fn prepare(dir: &str) -> String {
    format!(
        "umask 077; l=; for p in mkdir mv cat rm ln ls readlink mkfifo wc tail head tr cut grep sed sleep env base64; do \
         command -v $p >/dev/null 2>&1 || l=\"$l $p\"; done\n\
         if [ -n \"$l\" ]; then echo \"{SAY}missing$l\"; else mkdir -p {0} && chmod 700 {0} && echo '{SAY}none'; fi\n",
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

fn looked(known: Known, until: Until) -> String {
    let Known { out, err, state } = known;
    let (looks, late) = match until {
        Until::End => (LOOKS, "end"),
        Until::Silence => (LOOKS, "late"),
        Until::Soon => (12, "end"),
        Until::Now => (1, "end"),
    };
    format!("look {out} {err} {state} {looks} {late} {PIECE}\n")
}

/// A script without what is only for those who read it.
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

/// The last word of an answer, and what stands behind it; `None` if it was cut off.
pub(super) fn word(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(SAY));
    lines.next_back().map(|line| line.trim().to_owned())
}

/// What a look says; `None` if the answer is not whole.
pub(super) fn read(answer: &[u8]) -> Option<Report> {
    let mut report =
        Report { seen: Seen::None, out: 0, err: 0, state: None, left: 0, data: Vec::new() };
    let mut whole = false;
    for line in answer.split(|byte| *byte == b'\n') {
        let Some(line) = line.strip_prefix(SAY.as_bytes()) else { continue };
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().ok();
        let mut seen = None;
        match words.as_slice() {
            ["out", length] => report.out = number(length)?,
            ["err", length] => report.err = number(length)?,
            ["left", count] => report.left = number(count)?,
            ["state", length] => report.state = Some(number(length)?),
            ["data", source, offset, bytes] => {
                let source = match *source {
                    "out" => Source::Out,
                    "err" => Source::Err,
                    "state" => Source::State,
                    _ => return None,
                };
                report.data.push((source, number(offset)?, STANDARD.decode(bytes).ok()?));
            }
            ["none" | "forgotten"] => seen = Some(Seen::None),
            ["running"] => seen = Some(Seen::Running),
            ["ended"] => seen = Some(Seen::Killed),
            ["gone"] => seen = Some(Seen::Gone),
            ["code", code] => seen = Some(Seen::Ended(code.parse().ok()?)),
            _ => return None,
        }
        if let Some(seen) = seen {
            (report.seen, whole) = (seen, true);
        }
    }
    whole.then_some(report)
}

#[cfg(test)]
mod tests;
