//! Replacing the executable in place.

use std::os::unix::fs::PermissionsExt;

use wire::{ReplyCode, Request};

use crate::support::{EXE, Host, Session, text, wait_until};

/// Reconnects after the host closed its connections.
fn upgraded(host: &Host, session: Session) -> Session {
    let boot_id = session.boot_id.clone();
    drop(session);
    let session = host.connect();
    assert_eq!(session.boot_id, boot_id, "another host answered");
    assert_eq!(session.pid, host.pid());
    session
}

#[test]
fn a_hundred_upgrades_keep_shells_output_and_exit_codes() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("shell", &["sh"]));
    session.open(host.opening("counter", &["sh", "-c", "i=0; while :; do echo $((i+=1)); done"]));
    session.open(host.opening("gone", &["sh", "-c", "exit 5"]));
    let shell = session.info("shell").pid;
    wait_until("the program exits", || session.info("gone").exited.then_some(()));
    for round in 0..100 {
        let id = format!("ends-{round}");
        session.open(host.opening(&id, &["sh", "-c", &format!("read x; exit {}", round % 7)]));
        session.ok(|seq| Request::Upgrade { seq, path: EXE.into() });
        session = upgraded(&host, session);
        session.input(&id, b"\n");
        session.attach(&id, 0);
        let (_, code, signal) = session.exited(&id);
        assert_eq!((code, signal), (round % 7, 0));
        session.ok(|seq| Request::AckExit { seq, terminal: id.clone() });
    }
    let gone = session.info("gone");
    assert_eq!((gone.exited, gone.code), (true, 5));
    assert_eq!(session.info("shell").pid, shell);
    session.output.clear();
    session.attach("shell", 0);
    session.input("shell", b"echo same $$\n");
    session.see(&format!("same {shell}"));

    // The output contains every number once, in order, across all upgrades.
    let mut other = host.connect();
    other.ok(|seq| Request::Signal { seq, terminal: "counter".into(), signal: 9 });
    other.attach("counter", 0);
    other.exited("counter");
    let output = String::from_utf8(std::mem::take(&mut other.output)).unwrap();
    let gap = other.events.iter().find(|event| matches!(event, wire::Event::Gap { .. }));
    assert_eq!(gap, None);
    let lines: Vec<&str> = output.split("\r\n").collect();
    for (number, line) in lines[..lines.len() - 1].iter().enumerate() {
        assert_eq!(*line, (number + 1).to_string());
    }
    assert!(lines.len() > 100);
}

#[test]
fn write_ids_and_pending_input_survive_an_upgrade() {
    let host = Host::start();
    let mut session = host.connect();
    let script = "stty raw -echo; sleep 1000000 & trap 'head -c 60000 | cksum; exit' USR1; \
                  echo ready; while :; do wait; done";
    session.open(host.opening("t", &["sh", "-c", script]));
    session.attach("t", 0);
    session.see("ready");
    let write = |session: &mut Session, id: u32| {
        session
            .code(|seq| Request::Input {
                seq,
                terminal: "t".into(),
                write_id: id.to_string(),
                data: vec![b'x'; 10_000],
            })
            .0
    };
    for id in 0..6 {
        assert_eq!(write(&mut session, id), ReplyCode::Ok);
    }
    session.ok(|seq| Request::Upgrade { seq, path: EXE.into() });
    let mut session = upgraded(&host, session);
    for id in 0..6 {
        assert_eq!(write(&mut session, id), ReplyCode::AlreadyApplied);
    }
    let pid = rustix::process::Pid::from_raw(session.info("t").pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    session.attach("t", 0);
    session.exited("t");
    assert!(text(&session.output).contains(" 60000"), "{}", text(&session.output));
}

#[test]
fn an_executable_that_fails_its_check_is_refused() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("t", &["sh"]));
    session.attach("t", 0);
    let script = |name: &str, body: &str| {
        let path = host.dir.0.join(name);
        std::fs::write(&path, body).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().as_bytes().to_vec()
    };
    for path in [
        b"/no/such/file".to_vec(),
        b"/etc/passwd".to_vec(),
        script("fails", "#!/bin/sh\nexit 1\n"),
        script("no-program", "\0\0\0"),
    ] {
        let name = text(&path);
        let (code, message) = session.code(|seq| Request::Upgrade { seq, path });
        assert_eq!(code, ReplyCode::BadExecutable, "{name}: {message}");
    }
    session.input("t", b"echo still $((40+2))\n");
    session.see("still 42");
}
