//! Opening, using, resizing and closing terminals.

use std::time::Instant;

use wire::{Event, ReplyCode, Request};

use crate::support::{Host, Session, TIMEOUT, contains, is_alive, text, wait_until};

#[test]
fn typed_input_is_run_and_its_output_is_sent() {
    let host = Host::start();
    let mut session = host.connect();
    assert_eq!(session.pid, host.pid());
    session.open(host.opening("t", &["sh"]));
    session.attach("t", 0);
    session.input("t", b"echo a$((1+1))b; tty; echo $TERM $STEAD_TERMINAL $STEAD\n");
    session.see("a2b");
    session.see("/dev/pts/");
    session.see("xterm-256color t 1");
    let info = session.info("t");
    assert!(!info.exited && info.pid > 0 && info.end_offset >= session.output.len() as u64);
    session.input("t", b"exit 7\n");
    let (offset, code, signal) = session.exited("t");
    assert_eq!((code, signal), (7, 0), "{}", text(&session.output));
    assert_eq!(offset, session.output.len() as u64, "all output comes before the exit");
}

#[test]
fn a_notice_is_in_the_same_stream_as_output() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["cat"]));
    session.attach("t", 0);
    let show = |terminal: &str, data: &[u8]| {
        let (terminal, data) = (terminal.to_owned(), data.to_vec());
        move |seq| Request::Show { seq, terminal, data }
    };
    session.ok(show("t", b"a notice"));
    session.see("a notice");
    assert_eq!(session.info("t").end_offset, session.output.len() as u64);
    assert_eq!(session.code(show("other", b"x")).0, ReplyCode::NoSuchTerminal);
    assert_eq!(session.code(show("t", &[b'x'; wire::MAX_DATA + 1])).0, ReplyCode::BadRequest);
}

#[test]
fn an_unused_host_exits_when_its_server_disconnects() {
    let greet = |session: &mut Session| {
        let hello = Request::Hello { version: wire::VERSION, features: 0 };
        session.client.send(&hello).unwrap();
        // The answer shows that the host has received the greeting.
        session.ok(|seq| Request::Ping { seq });
    };
    let used = Host::start_with(&["--leave-unused"], |_| ());
    let mut session = used.connect();
    greet(&mut session);
    session.open(used.opening("t", &["cat"]));
    drop(session);
    used.connect().ok(|seq| Request::Ping { seq });

    let unused = Host::start_with(&["--leave-unused"], |_| ());
    // A client that sends no greeting is not a server.
    unused.connect().ok(|seq| Request::Ping { seq });
    let (mut one, mut other) = (unused.connect(), unused.connect());
    greet(&mut one);
    greet(&mut other);
    drop(one);
    other.ok(|seq| Request::Ping { seq });
    assert!(is_alive(unused.pid()));
    drop(other);
    wait_until("the host exits", || (!is_alive(unused.pid())).then_some(()));
}

#[test]
fn an_unused_host_exits_when_its_server_is_gone_before_it_reads_the_greeting() {
    let host = Host::start_with(&["--leave-unused"], |_| ());
    let pid = rustix::process::Pid::from_raw(host.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut server = ::host::client::Client::connect(&host.run).unwrap();
    server.send(&Request::Hello { version: wire::VERSION, features: 0 }).unwrap();
    drop(server);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    wait_until("the host exits", || (!is_alive(host.pid())).then_some(()));
}

#[test]
fn exit_status_is_kept_until_it_is_acknowledged() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh", "-c", "echo bye; kill -9 $$"]));
    wait_until("the program ends", || session.info("t").exited.then_some(()));
    drop(session);
    let mut later = host.connect();
    let info = later.info("t");
    assert_eq!((info.exited, info.code, info.signal), (true, -1, 9));
    later.attach("t", 0);
    assert_eq!(later.exited("t"), (5, -1, 9));
    assert_eq!(later.output, b"bye\r\n");
    let (code, _) = later.code(|seq| Request::Input {
        seq,
        terminal: "t".into(),
        write_id: String::new(),
        data: b"x".to_vec(),
    });
    assert_eq!(code, ReplyCode::Exited);
    later.ok(|seq| Request::AckExit { seq, terminal: "t".into() });
    assert!(later.list().is_empty());
}

#[test]
fn the_last_output_of_a_killed_program_is_read() {
    let host = Host::start();
    let mut session = host.connect();
    // Raw mode, so that the count is exact; more than a page of the kernel's buffer.
    let script = "stty raw -echo; head -c 15000 /dev/zero | tr '\\0' x; kill -9 $$";
    session.open(host.opening("t", &["sh", "-c", script]));
    session.attach("t", 0);
    let (offset, code, signal) = session.exited("t");
    assert_eq!((offset, code, signal), (15000, -1, 9));
    assert_eq!(session.output.len(), 15000);
}

#[test]
fn a_background_process_does_not_delay_the_exit_report() {
    let host = Host::start();
    let mut session = host.connect();
    let script = "(trap '' HUP; while :; do echo more; done) & echo first; exit 3";
    session.open(host.opening("t", &["sh", "-c", script]));
    session.attach("t", 0);
    let (_, code, _) = session.exited("t");
    assert_eq!(code, 3);
    session.ok(|seq| Request::Close { seq, terminal: "t".into() });
}

#[test]
fn a_write_id_is_applied_once() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh"]));
    session.attach("t", 0);
    let mut write = |id: &str| {
        let (write_id, data) = (id.to_owned(), b"echo on''ce\n".to_vec());
        session.code(|seq| Request::Input { seq, terminal: "t".into(), write_id, data }).0
    };
    assert_eq!(write("w1"), ReplyCode::Ok);
    assert_eq!(write("w1"), ReplyCode::AlreadyApplied);
    assert_eq!(write("w2"), ReplyCode::Ok);
    session.input("t", b"echo the''end\n");
    session.see("theend");
    let output = text(&session.output);
    assert_eq!(output.matches("once").count(), 2, "{output}");
}

#[test]
fn a_secret_is_typed_once_and_only_where_it_is_not_shown() {
    let host = Host::start();
    let mut session = host.connect();
    let script = "echo shown; read a; stty -echo; echo hidden; read b; echo $a ${#b}; read c; echo ${#c}; \
                  stty raw; echo keys; head -c 1; stty cooked; echo still; exec sleep 1000000";
    session.open(host.opening("t", &["sh", "-c", script]));
    session.attach("t", 0);
    // Until the program has come to its read, the answer is the one for what it did before.
    let expect = |session: &mut Session, id: &str, expected: ReplyCode| {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (terminal, write_id, data) = ("t".into(), id.to_owned(), b"hunter2\n".to_vec());
            let (code, _) =
                session.code(|seq| Request::TypeSecret { seq, terminal, write_id, data });
            if code == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{code:?}: {}", text(&session.output));
        }
    };
    session.see("shown");
    expect(&mut session, "w0", ReplyCode::Visible);
    session.input("t", b"seen\n");
    session.see("hidden");
    expect(&mut session, "w1", ReplyCode::Ok);
    expect(&mut session, "w1", ReplyCode::AlreadyApplied);
    session.see("seen 7");
    session.input("t", b"twice\n");
    session.see("5\r\n");
    session.see("keys");
    expect(&mut session, "w2", ReplyCode::Visible);
    session.input("t", b"x");
    session.see("still");
    expect(&mut session, "w3", ReplyCode::NotReading);
    assert!(!text(&session.output).contains("hunter2"), "{}", text(&session.output));
}

#[test]
fn input_for_a_program_that_does_not_read_is_bounded() {
    let host = Host::start();
    let mut session = host.connect();
    let script = "stty raw -echo; sleep 1000000 & trap 'head -c 60000 | cksum; exit' USR1; \
                  echo ready; while :; do wait; done";
    session.open(host.opening("t", &["sh", "-c", script]));
    session.attach("t", 0);
    session.see("ready");
    let mut taken = 0;
    let refused = loop {
        let (code, _) = session.code(|seq| Request::Input {
            seq,
            terminal: "t".into(),
            write_id: format!("w{taken}"),
            data: vec![b'x'; 4096],
        });
        match code {
            ReplyCode::Ok => taken += 4096,
            code => break code,
        }
    };
    assert_eq!(refused, ReplyCode::InputFull);
    assert!((60_000..100_000).contains(&taken), "{taken}");
    let pid = session.info("t").pid;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid as i32).unwrap(),
        rustix::process::Signal::USR1,
    )
    .unwrap();
    session.exited("t");
    assert!(text(&session.output).contains("60000"), "{}", text(&session.output));
}

#[test]
fn a_resize_reaches_the_program_the_log_and_the_watchers() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening(
        "t",
        &[
            "bash",
            "--norc",
            "-c",
            "trap 'stty size' WINCH; echo up; \
        while :; do read -t 0.05; done",
        ],
    ));
    session.attach("t", 0);
    session.see("up");
    session.ok(|seq| Request::Resize { seq, terminal: "t".into(), cols: 101, rows: 33 });
    session.see("33 101");
    let resized = session.events.iter().any(
        |event| matches!(event, Event::Resized { cols: 101, rows: 33, offset, .. } if *offset > 0),
    );
    assert!(resized, "{:?}", session.events);
    let mut other = host.connect();
    other.attach("t", 0);
    other.see("33 101");
    let sizes: Vec<(u16, u16)> = other
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Resized { cols, rows, .. } => Some((*cols, *rows)),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [(80, 24), (101, 33)]);
    let (code, _) =
        session.code(|seq| Request::Resize { seq, terminal: "t".into(), cols: 0, rows: 1 });
    assert_eq!(code, ReplyCode::BadRequest);
}

#[test]
fn a_signal_goes_to_the_foreground_group() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["bash", "--norc", "-i"]));
    session.attach("t", 0);
    session.input("t", b"sh -c 'echo in''ner; exec sleep 1000000'; echo status $?\n");
    session.see("inner");
    wait_until("the inner program is in the foreground", || session.info("t").busy.then_some(()));
    session.ok(|seq| Request::Signal { seq, terminal: "t".into(), signal: 15 });
    session.see("status 143");
    let (code, _) =
        session.code(|seq| Request::Signal { seq, terminal: "t".into(), signal: 12345 });
    assert_eq!(code, ReplyCode::BadRequest);
}

#[test]
fn closing_kills_every_process_even_a_daemonized_one() {
    for with_cgroup in [true, false] {
        let host = Host::start_with(if with_cgroup { &[] } else { &["--no-cgroup"] }, |_| ());
        let mut session = host.connect();
        session.open(host.opening("t", &["bash", "--norc", "-i"]));
        session.attach("t", 0);
        session.input(
            "t",
            b"setsid -f sleep 1111; (trap '' HUP TERM INT; sleep 2222 & wait) & \
              (setsid sh -c 'sleep 3333 & echo pids $! done' &) ; kill -STOP $! ; echo rea''dy\n",
        );
        session.see("ready");
        session.see(" done");
        let cgroup = session.info("t").cgroup;
        let alive = || {
            std::fs::read_dir("/proc")
                .unwrap()
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
                .filter(|pid| {
                    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                    let stead = host.pid().to_string();
                    is_alive(*pid)
                        && contains(&environ, b"STEAD_TERMINAL=t\0")
                        && ancestors(*pid).contains(&stead)
                })
                .count()
        };
        // The shell and three sleeping processes.
        wait_until("all processes have started", || (alive() >= 4).then_some(()));
        session.ok(|seq| Request::Close { seq, terminal: "t".into() });
        assert_eq!(alive(), 0, "with_cgroup {with_cgroup}");
        assert!(session.list().is_empty());
        if !cgroup.is_empty() {
            use std::os::unix::ffi::OsStrExt;
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&cgroup));
            assert!(with_cgroup && !path.exists());
        }
        session.open(host.opening("t", &["true"]));
    }
}

fn ancestors(pid: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut pid = pid.to_string();
    while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        let tail = stat.rsplit(')').next().unwrap();
        pid = tail.split_whitespace().nth(1).unwrap().to_owned();
        found.push(pid.clone());
    }
    found
}

#[test]
fn a_terminal_that_cannot_be_opened_is_refused_with_the_reason() {
    let host = Host::start_with(&["--max-terminals", "2"], |_| ());
    let mut session = host.connect();
    session.open(host.opening("t", &["cat"]));
    let mut code = |opening: Request| session.try_open(opening).0;
    assert_eq!(code(host.opening("t", &["cat"])), ReplyCode::Exists);
    assert_eq!(code(host.opening("../x", &["cat"])), ReplyCode::BadRequest);
    assert_eq!(code(host.opening("x", &["no-such-program"])), ReplyCode::NotExecutable);
    assert_eq!(code(host.opening("x", &["/etc/passwd"])), ReplyCode::NotExecutable);
    assert_eq!(code(host.opening("x", &[])), ReplyCode::BadRequest);
    let mut elsewhere = host.opening("x", &["cat"]);
    if let Request::Open { dir, .. } = &mut elsewhere {
        *dir = b"/proc/nowhere".to_vec();
    }
    assert_eq!(code(elsewhere), ReplyCode::Storage);
    assert_eq!(code(host.opening("u", &["cat"])), ReplyCode::Ok);
    assert_eq!(code(host.opening("v", &["cat"])), ReplyCode::TooManyTerminals);
    let unknown = |seq| Request::Close { seq, terminal: "w".into() };
    assert_eq!(session.code(unknown).0, ReplyCode::NoSuchTerminal);
}

#[test]
fn a_program_starts_even_if_its_directory_does_not_exist() {
    let host = Host::start();
    let mut session = host.connect();
    let mut opening = host.opening("t", &["sh", "-c", "pwd; exec sleep 1000000"]);
    if let Request::Open { cwd, env, notice, .. } = &mut opening {
        *cwd = b"/no/such/directory".to_vec();
        env.push((b"HOME".to_vec(), b"/tmp".to_vec()));
        *notice = b"before it\r\n".to_vec();
    }
    session.open(opening);
    session.attach("t", 0);
    session.see("/tmp\r\n");
    assert!(session.output.starts_with(b"before it\r\n"), "{}", text(&session.output));
}

#[test]
fn another_host_continues_a_terminal_at_the_end_of_its_log() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh", "-c", "echo one"]));
    session.attach("t", 0);
    let (end, _, _) = session.exited("t");
    session.ok(|seq| Request::AckExit { seq, terminal: "t".into() });
    let other = Host::start();
    let mut there = other.connect();
    let mut opening = other.opening("t", &["sh", "-c", "echo two"]);
    if let Request::Open { dir, .. } = &mut opening {
        use std::os::unix::ffi::OsStrExt;
        *dir = host.terminal("t").as_os_str().as_bytes().to_vec();
    }
    there.open(opening);
    there.attach("t", 0);
    assert_eq!(there.exited("t").0, end + 5);
    assert_eq!(there.output, b"one\r\ntwo\r\n");
    let mut beyond = Session::connect(&other.run);
    let (code, _) = beyond.code(|seq| Request::Attach { seq, terminal: "t".into(), from: end + 6 });
    assert_eq!(code, ReplyCode::BadOffset);
}

#[test]
fn clients_that_disconnect_leave_no_connection_behind() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh"]));
    for _ in 0..50 {
        let mut other = host.connect();
        other.attach("t", 0);
        other.client.send(&Request::List { seq: 9 }).unwrap();
    }
    session.attach("t", 0);
    session.input("t", b"echo still $((40+2))\n");
    session.see("still 42");
    let connections = |session: &mut Session| match session.ask(|seq| Request::Metrics { seq }) {
        Event::MetricsReply { values, .. } => {
            values.into_iter().find(|(name, _)| name == "connections").unwrap().1
        }
        other => panic!("{other:?}"),
    };
    wait_until("only this connection is left", || (connections(&mut session) == 1).then_some(()));
}
