//! The spool over a plain `sh -c`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

struct Sandbox {
    dir: PathBuf,
    number: u64,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.sh(&close(&self.terminal(), &self.id()));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Sandbox {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("stead spool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir, number: 0 }
    }

    fn terminal(&self) -> String {
        self.dir.join("t").display().to_string()
    }

    fn id(&self) -> String {
        let name = self.dir.file_name().unwrap().to_string_lossy().replace(' ', "-");
        format!("terminal-{name}")
    }

    fn sh(&self, text: &str) -> Vec<u8> {
        assert!(text.len() < 96 << 10, "{} bytes", text.len());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]).stdin(Stdio::null()).stderr(Stdio::inherit());
        command.output().unwrap().stdout
    }

    fn ask(&self, text: &str) -> StatusReport {
        let answer = self.sh(text);
        read(&answer).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&answer)))
    }

    fn command_dir(&mut self) -> CommandDir {
        self.number += 1;
        let id = format!("command-{}-{}", self.number, self.id());
        CommandDir { terminal: self.terminal(), number: self.number, id }
    }

    /// A script that needs no wrapper.
    fn plain(&self, command_dir: &CommandDir, text: &str) -> CommandFiles {
        let env = [
            ("PATH", "/usr/bin:/bin"),
            (COMMAND_MARK, &command_dir.id),
            (TERMINAL_MARK, &self.id()),
        ];
        let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
        let script = text.as_bytes().to_vec();
        let (bash, sh, stdin) = (script.clone(), script, StdinMode::Null);
        CommandFiles { bash, sh, env, cwd: b"/".to_vec(), stdin, given: Vec::new() }
    }

    /// Polls until a condition holds.
    fn wait(
        &self,
        command_dir: &CommandDir,
        until: WaitFor,
        fits: impl Fn(&StatusReport) -> bool,
    ) -> (StatusReport, Vec<u8>) {
        let deadline = Instant::now() + Duration::from_secs(120);
        let (mut known, mut out) = (StreamOffsets::default(), Vec::new());
        loop {
            let report = self.ask(&command_dir.status(known, until));
            for (source, offset, bytes) in &report.data {
                let end = offset + bytes.len() as u64;
                match source {
                    StreamName::Out => (known.out, _) = (end, out.extend_from_slice(bytes)),
                    StreamName::Err => known.err = end,
                    StreamName::State => known.state = end,
                }
            }
            if fits(&report) && known.out == report.out {
                return (report, out);
            }
            assert!(Instant::now() < deadline, "{report:?}");
        }
    }
}

#[test]
fn a_command_starts_once_although_its_script_is_repeated() {
    let mut sandbox = Sandbox::new("once");
    let command_dir = sandbox.command_dir();
    let mark = sandbox.dir.join("ran");
    let text = format!("echo x >>'{}'; echo out; echo err >&2; exit 3", mark.display());
    let start = sandbox.plain(&command_dir, &text);
    let asked = command_dir.start(&start, &[]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| sandbox.sh(&asked));
        }
    });
    let (report, out) =
        sandbox.wait(&command_dir, WaitFor::End, |report| report.status == SpoolStatus::Ended(3));
    assert_eq!((out.as_slice(), report.err, report.left), (&b"out\n"[..], 4, 0));
    assert_eq!(std::fs::read(&mark).unwrap(), b"x\n");
    // A late script, after the command was forgotten, does not start it.
    sandbox.ask(&command_dir.forget());
    assert_eq!(sandbox.ask(&asked).status, SpoolStatus::None);
    assert_eq!(
        sandbox.ask(&command_dir.status(StreamOffsets::default(), WaitFor::End)).status,
        SpoolStatus::None
    );
    assert_eq!(std::fs::read(&mark).unwrap(), b"x\n");
}

#[test]
fn only_the_processes_of_a_command_are_killed() {
    let mut sandbox = Sandbox::new("end");
    let older = sandbox.command_dir();
    let start = sandbox.plain(&older, "sleep 1000 & echo up");
    sandbox.ask(&older.start(&start, &[]));
    let command_dir = sandbox.command_dir();
    // One of the processes has no mark.
    let bare = sandbox.dir.join("bare");
    let text = format!(
        "trap '' TERM; setsid sh -c 'sleep 1000' & (sleep 1000 &) ; \
         env -i setsid sh -c 'echo $$ >\"$0\"; sleep 1000' '{0}' & \
         until [ -s '{0}' ]; do sleep 0.02; done; echo up; sleep 1000; echo no",
        bare.display()
    );
    sandbox.ask(&command_dir.start(&sandbox.plain(&command_dir, &text), &[]));
    sandbox.wait(&command_dir, WaitFor::End, |report| report.out == 3);
    let bare = std::fs::read_to_string(bare).unwrap();
    let stat = format!("/proc/{}/stat", bare.trim());
    let born = |text: String| text.rsplit(' ').nth(30).map(str::to_owned);
    let before = std::fs::read_to_string(&stat).ok().and_then(born);
    assert!(before.is_some());
    let report = sandbox.ask(&command_dir.end(StreamOffsets::default()));
    assert_eq!((report.status, report.out, report.left), (SpoolStatus::Killed, 3, 0));
    // It may be a zombie, and its pid may have been reused.
    let ended = (0..60_000).any(|_| {
        let now = std::fs::read_to_string(&stat).ok().filter(|text| !text.contains(") Z "));
        std::thread::sleep(Duration::from_millis(1));
        now.and_then(born) != before
    });
    assert!(ended, "a process without a mark still runs");
    let report = sandbox.ask(&older.status(StreamOffsets::default(), WaitFor::Now));
    assert_eq!((report.status, report.left), (SpoolStatus::Ended(0), 1));
    // A command that was killed before its start never starts.
    let never = sandbox.command_dir();
    assert_eq!(sandbox.ask(&never.end(StreamOffsets::default())).status, SpoolStatus::None);
    let report = sandbox.ask(&never.start(&sandbox.plain(&never, "echo no"), &[]));
    assert_eq!((report.status, report.out), (SpoolStatus::Gone, 0));
}

#[test]
fn a_killed_runner_and_late_output_are_reported() {
    let mut sandbox = Sandbox::new("late");
    let command_dir = sandbox.command_dir();
    let gate = sandbox.dir.join("gate");
    let text =
        format!("(until [ -e '{}' ]; do sleep 0.05; done; echo late) & echo now", gate.display());
    let report = sandbox.ask(&command_dir.start(&sandbox.plain(&command_dir, &text), &[]));
    assert!(report.out >= 4 || report.status == SpoolStatus::Running, "{report:?}");
    sandbox.wait(&command_dir, WaitFor::End, |report| {
        report.status == SpoolStatus::Ended(0) && report.left > 0
    });
    std::fs::write(&gate, "").unwrap();
    let all_ended = |report: &StatusReport| report.left == 0 && report.out == 9;
    let (_, out) = sandbox.wait(&command_dir, WaitFor::AllProcesses, all_ended);
    assert_eq!(out, b"now\nlate\n");
    let command_dir = sandbox.command_dir();
    sandbox.ask(
        &command_dir.start(&sandbox.plain(&command_dir, "echo up; kill -9 $PPID; sleep 1000"), &[]),
    );
    let (report, _) =
        sandbox.wait(&command_dir, WaitFor::End, |report| report.status != SpoolStatus::Running);
    assert_eq!(report.status, SpoolStatus::Gone);
}

#[test]
fn the_last_output_before_the_last_exit_is_reported() {
    let mut sandbox = Sandbox::new("last");
    let command_dir = sandbox.command_dir();
    sandbox.ask(&command_dir.start(&sandbox.plain(&command_dir, "echo now"), &[]));
    sandbox.wait(&command_dir, WaitFor::End, |report| report.status == SpoolStatus::Ended(0));
    // The last background process writes and ends while the processes are counted.
    let known = StreamOffsets { out: 4, ..StreamOffsets::default() };
    let text = command_dir.status(known, WaitFor::AllProcesses);
    let ends = "born() { echo late >>\"$d/out\"; }\nlook ";
    let report = sandbox.ask(&text.replace("\nlook ", &format!("\n{ends}")));
    assert_eq!(report.left, 0);
    assert!(report.out > 4, "{report:?}");
    assert_eq!(report.data.first(), Some(&(StreamName::Out, 4, b"late\nlate\n".to_vec())));
}

#[test]
fn a_command_reads_each_write_once() {
    let mut sandbox = Sandbox::new("feed");
    let command_dir = sandbox.command_dir();
    let mut start = sandbox.plain(&command_dir, "cat; echo end");
    start.stdin = StdinMode::Open;
    start.given = b"first\n".to_vec();
    sandbox.ask(&command_dir.start(&start, &[]));
    let feed = |write: &str, bytes: &[u8], end| {
        word(&sandbox.sh(&command_dir.feed(write, bytes, end))).unwrap()
    };
    assert_eq!(feed("aa", b"second\n", false), "running");
    assert_eq!(feed("aa", b"second\n", false), "known");
    let large = vec![b'x'; 60_000];
    assert_eq!(feed("bb", &large, true), "running");
    let (_, out) =
        sandbox.wait(&command_dir, WaitFor::End, |report| report.status == SpoolStatus::Ended(0));
    let expected = [b"first\nsecond\n", large.as_slice(), b"end\n"].concat();
    assert_eq!(out, expected);
    assert_eq!(feed("cc", b"more", false), "none");
    let command_dir = sandbox.command_dir();
    sandbox.ask(&command_dir.start(
        &sandbox.plain(&command_dir, "trap 'echo got; exit 4' USR1; while :; do sleep 0.05; done"),
        &[],
    ));
    let deadline = Instant::now() + Duration::from_secs(60);
    while word(&sandbox.sh(&command_dir.signal(10))).unwrap() != "running" {
        assert!(Instant::now() < deadline);
    }
    sandbox
        .wait(&command_dir, WaitFor::End, |report| matches!(report.status, SpoolStatus::Ended(_)));
    assert_eq!(word(&sandbox.sh(&command_dir.signal(10))).unwrap(), "none");
}

#[test]
fn a_signal_reaches_a_process_that_was_created_meanwhile() {
    let mut sandbox = Sandbox::new("group");
    let command_dir = sandbox.command_dir();
    let text = "sleep 1000; echo not interrupted";
    sandbox.ask(&command_dir.start(&sandbox.plain(&command_dir, text), &[]));
    // The processes are listed before the shell creates the one it waits for.
    let shells = "pgrep() { for e in $(grep -lsF -- \"$m=$i\" /proc/[0-9]*/environ); do \
        e=${e%/environ}; echo \"${e#/proc/}\"; done; }\n\
        born() { for p in $(pgrep); do read -r g <\"/proc/$p/comm\" && [ \"$g\" != sleep ] && echo \"$p\"; done; }";
    let text = command_dir.signal(2).replace("begun ||", &format!("{shells}\nbegun ||"));
    let is_running = |report: &StatusReport| report.status == SpoolStatus::Running;
    let sleeps = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let environs = entries.filter(|entry| {
            std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name == "sleep\n")
        });
        let mark = format!("{COMMAND_MARK}={}", command_dir.id);
        environs
            .filter_map(|entry| std::fs::read(entry.path().join("environ")).ok())
            .any(|environ| String::from_utf8_lossy(&environ).contains(&mark))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !sleeps() {
        assert!(Instant::now() < deadline, "the shell does not start `sleep`");
    }
    assert_eq!(word(&sandbox.sh(&text)).unwrap(), "running");
    let (report, out) = sandbox.wait(&command_dir, WaitFor::End, |report| !is_running(report));
    assert_eq!((report.status, out.as_slice()), (SpoolStatus::Ended(130), &b""[..]));
}

#[test]
fn a_stream_beyond_its_limit_keeps_its_start_and_end() {
    let mut sandbox = Sandbox::new("cut");
    let command_dir = sandbox.command_dir();
    let gate = sandbox.dir.join("gate");
    let lines = 300_000;
    let text =
        format!("seq {lines}; until [ -e '{}' ]; do sleep 0.05; done; echo end", gate.display());
    sandbox.ask(&command_dir.start(&sandbox.plain(&command_dir, &text), &[]));
    let base = sandbox.dir.join("t/1/out.base");
    let deadline = Instant::now() + Duration::from_secs(300);
    while !base.exists() {
        assert!(Instant::now() < deadline, "the stream is not cut");
        std::thread::yield_now();
    }
    std::fs::write(&gate, "").unwrap();
    let total: u64 = (1..=lines).map(|n: u64| n.to_string().len() as u64 + 1).sum::<u64>() + 4;
    let deadline = Instant::now() + Duration::from_secs(300);
    let report = loop {
        let known = StreamOffsets { out: total - 4, ..StreamOffsets::default() };
        let report = sandbox.ask(&command_dir.status(known, WaitFor::End));
        if report.status == SpoolStatus::Ended(0) {
            break report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
    };
    assert_eq!(report.out, total);
    assert_eq!(report.data, [(StreamName::Out, total - 4, b"end\n".to_vec())]);
    let from = |out: u64| {
        let report = sandbox.ask(
            &command_dir.status(StreamOffsets { out, ..StreamOffsets::default() }, WaitFor::Now),
        );
        report.data.into_iter().next().unwrap()
    };
    assert!(from(0).2.starts_with(b"1\n2\n3\n"));
    let (_, offset, bytes) = from(HEAD_BYTES + 1);
    assert!(
        offset > HEAD_BYTES + 1 && bytes.len() as u64 == TAIL_BYTES,
        "{offset}: {} bytes",
        bytes.len()
    );
}

#[test]
fn a_stream_that_is_shortened_while_it_is_read_is_read_again() {
    let mut sandbox = Sandbox::new("reread");
    let command_dir = sandbox.command_dir();
    let start = command_dir.start(&sandbox.plain(&command_dir, "printf 0123456789"), &[]);
    sandbox.ask(&start);
    sandbox.wait(&command_dir, WaitFor::End, |report| report.status == SpoolStatus::Ended(0));
    // Shortened between the reading of its lengths and that of its bytes.
    let shorten = r#"tail() { [ -e "$d/hit" ] || { : >"$d/hit"; printf 01 >"$d/out.head"; printf 789 >"$d/out.tail"
        echo 10 >"$d/out.base"; : >"$d/out"; }; command tail "$@"; }"#;
    let status = command_dir.status(StreamOffsets::default(), WaitFor::Now);
    let report = sandbox.ask(&format!("{shorten}\n{status}"));
    assert_eq!(report.data, [(StreamName::Out, 0, b"01".to_vec())]);
}

#[test]
fn a_truncated_answer_is_not_parsed() {
    assert_eq!(read(b"stead: out 3\nstead: err 0\n"), None);
    assert_eq!(read(b""), None);
    assert_eq!(word(b"noise\n"), None);
    let whole = b"noise\nstead: out 3\nstead: err 0\nstead: data out 0 YWJj\nstead: running\n";
    let report = read(whole).unwrap();
    assert_eq!((report.out, report.status), (3, SpoolStatus::Running));
    assert_eq!(report.data, [(StreamName::Out, 0, b"abc".to_vec())]);
}
