//! Watching output: cursors, floods, and watchers that do not read.

use std::time::{Duration, Instant};

use host::log::{Entry, Reader};
use wire::{Event, RecordKind, Request, Shell};

use crate::support::{Host, Session, wait_until};

fn rss_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const COUNT: &str = "i=0; while :; do echo line $((i+=1)); done";

#[test]
fn a_quiet_terminal_is_not_delayed_by_floods() {
    let host = Host::start();
    let mut session = host.connect();
    for number in 0..4 {
        let id = format!("flood-{number}");
        session.open(host.opening(&id, &["sh", "-c", "exec yes flooding"]));
    }
    session.open(host.opening("quiet", &["sh", "-c", "stty raw -echo; exec cat"]));
    // One of the floods is watched.
    let mut watcher = host.connect();
    watcher.attach("flood-0", 0);
    session.attach("quiet", 0);
    let mut times = Vec::new();
    for number in 0..100 {
        let start = Instant::now();
        let mark = format!("<{number}>");
        session.input("quiet", mark.as_bytes());
        session.see(&mark);
        times.push(start.elapsed());
    }
    times.sort();
    assert!(times[50] < Duration::from_millis(250), "median {:?}", times[50]);
    assert!(times[99] < Duration::from_secs(10), "worst {:?}", times[99]);
    for number in 0..4 {
        let id = format!("flood-{number}");
        wait_until("the floods continue", || {
            (session.info(&id).end_offset > 1 << 20).then_some(())
        });
    }
}

/// A key that signals discards output that was not read yet. Linux does not tell a program that waits for room.
#[test]
fn no_program_is_left_waiting_after_a_key_has_discarded_its_output() {
    let host = Host::start();
    let mut session = host.connect();
    // More than the kernel buffers, many times, and no signal interrupts it.
    let script = "trap '' QUIT; stty -echo; text=$(printf %70000s x); i=0
        while [ $((i+=1)) -le 400 ]; do printf %s \"$text\"; done";
    session.open(host.opening("t", &["bash", "-c", script]));
    wait_until("the program writes", || (session.info("t").end_offset > 70_000).then_some(()));
    session.input("t", &b"\x1c".repeat(8000));
    wait_until("the program has written all", || session.info("t").exited.then_some(()));
}

#[test]
fn a_watcher_that_does_not_read_delays_no_other_and_catches_up() {
    let host = Host::start();
    let mut session = host.connect();
    let mut opening = host.opening("t", &["sh", "-c", "exec yes 0123456789abcde"]);
    if let Request::Open { log_limit, .. } = &mut opening {
        *log_limit = 4 << 20;
    }
    session.open(opening);
    let before = rss_kib(host.pid());
    let mut stuck: Vec<Session> = (0..6).map(|_| host.connect()).collect();
    for watcher in &mut stuck {
        watcher.attach("t", 0);
    }
    wait_until("the program continues to write", || {
        (session.info("t").end_offset > 64 << 20).then_some(())
    });
    let grown = rss_kib(host.pid()).saturating_sub(before);
    assert!(grown < 6 * 2048 + 2048, "grown by {grown} KiB");
    session.ok(|seq| Request::Signal { seq, terminal: "t".into(), signal: 9 });
    wait_until("the program ends", || session.info("t").exited.then_some(()));
    for mut watcher in stuck {
        let mut next = 0;
        let mut gaps = 0;
        loop {
            match watcher.client.receive(Duration::from_secs(20)).unwrap() {
                Event::Output { offset, bytes, .. } => {
                    assert_eq!(offset, next);
                    for (at, byte) in bytes.iter().enumerate() {
                        let pattern = b"0123456789abcde\r\n";
                        assert_eq!(*byte, pattern[(offset as usize + at) % pattern.len()]);
                    }
                    next += bytes.len() as u64;
                }
                Event::Gap { from, to, .. } => {
                    assert_eq!(from, next);
                    next = to;
                    gaps += 1;
                }
                Event::Exited { offset, signal, .. } => {
                    assert_eq!((offset, signal), (next, 9));
                    break;
                }
                _ => {}
            }
        }
        assert!(gaps > 0, "the log is far smaller than the output");
    }
}

#[test]
fn watchers_that_reconnect_during_output_get_each_byte_once() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh", "-c", COUNT]));
    let mut bytes = Vec::new();
    for round in 0..200u64 {
        let mut watcher = host.connect();
        watcher.attach("t", bytes.len() as u64);
        for _ in 0..round % 7 + 1 {
            watcher.step();
        }
        bytes.append(&mut watcher.output);
    }
    let output = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = output.split("\r\n").collect();
    assert!(lines.len() > 50);
    for (number, line) in lines[..lines.len() - 1].iter().enumerate() {
        assert_eq!(*line, format!("line {}", number + 1));
    }
}

#[test]
fn the_log_on_disk_equals_the_log_that_the_host_sends() {
    let host = Host::start();
    let mut session = host.connect();
    let mut opening = host.opening("t", &["sh", "-c", "seq 1 60000; exec sleep 1000000"]);
    if let Request::Open { notice, .. } = &mut opening {
        *notice = b"notice\r\n".to_vec();
    }
    session.open(opening);
    session.attach("t", 0);
    session.see("\n60000\r\n");
    let mut reader = Reader::open(host.terminal("t").join("log"), 0);
    let mut on_disk = Vec::new();
    loop {
        let entries = reader.read(1 << 20).unwrap();
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            match entry {
                Entry::Record(record) if record.kind != RecordKind::Resize => {
                    on_disk.extend(record.data);
                }
                Entry::Record(_) => {}
                Entry::Gap { from, to } => panic!("a gap from {from} to {to}"),
            }
        }
    }
    assert!(on_disk == session.output);
    let mut sent = Vec::new();
    loop {
        let from = sent.len() as u64;
        let (terminal, limit) = ("t".to_owned(), 50_000);
        match session.ask(|seq| Request::ReadLog { seq, terminal, from, limit }) {
            Event::LogChunk { next, end, records, .. } => {
                for record in records {
                    if record.kind != RecordKind::Resize {
                        assert_eq!(record.offset, sent.len() as u64);
                        sent.extend(record.data);
                    }
                }
                assert_eq!(next, sent.len() as u64);
                if next == end {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(sent == session.output);
    // Trimming removes whole segments only.
    session.ok(|seq| Request::Trim { seq, terminal: "t".into(), upto: 300_000 });
    assert!(session.info("t").first_offset <= 300_000);
}

#[test]
fn output_is_synced_without_a_request() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh", "-c", "echo hello; exec sleep 1000000"]));
    session.attach("t", 0);
    session.see("hello");
    wait_until("the output is synced", || {
        let info = session.info("t");
        (info.durable_offset == info.end_offset && info.end_offset == 7).then_some(())
    });
}

#[test]
fn an_idle_terminal_uses_little_memory_of_the_host() {
    const COUNT: u64 = 60;
    for kind in [Shell::Plain, Shell::Bash] {
        let host = Host::start();
        let mut session = host.connect();
        let mut open = |number: u64| {
            let id = format!("t{number}");
            let mut opening = host.opening(&id, &["bash"]);
            if let Request::Open { shell, .. } = &mut opening {
                *shell = kind;
            }
            session.open(opening);
            wait_until("the shell shows its prompt", || {
                (session.info(&id).end_offset > 0).then_some(())
            });
        };
        // Memory that is allocated once for all terminals is not counted.
        (0..5).for_each(&mut open);
        let before = rss_kib(host.pid());
        (5..5 + COUNT).for_each(&mut open);
        let each = rss_kib(host.pid()).saturating_sub(before) / COUNT;
        eprintln!("{kind:?}: {each} KiB");
        assert!(each <= 40, "{kind:?}: {each} KiB");
    }
}
