//! Connections and bytes that a host must refuse.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use host::client;
use wire::{Event, ReplyCode, Request};

use crate::support::{Host, TIMEOUT, wait_until};

#[test]
fn only_the_hosts_own_user_can_connect() {
    let host = Host::start();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&host.run), 0o700);
    assert_eq!(mode(&host.run.join("host.sock")), 0o600);
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can connect as another user");
        return;
    }
    // Another user is refused even if the permissions of the socket allow the connection.
    for path in [&host.dir.0, &host.run, &host.run.join("host.sock")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let path = host.run.join("host.sock");
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  print(len(s.recv(100)))";
    let read = |uid: u32| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("python3");
        command.arg("-c").arg(script).arg(&path).uid(uid);
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    if read(0).is_empty() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    assert_ne!(read(0), "0");
    assert_eq!(read(65534), "0");
    // Other processes of the user cannot inspect the host.
    let status = std::fs::metadata(format!("/proc/{}/environ", host.pid())).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&status), 0);
}

#[test]
fn unknown_and_malformed_requests_are_refused_one_by_one() {
    let host = Host::start();
    let mut stream = client::connect(&host.run).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut bytes = Vec::new();
    // An unknown type, a truncated request, a frame without a sequence number, an event, a hello.
    for frame in [
        [vec![99], 7u32.to_le_bytes().to_vec(), vec![1, 2, 3]].concat(),
        [vec![4], 8u32.to_le_bytes().to_vec(), vec![200]].concat(),
        vec![4, 1],
        vec![200],
    ] {
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(frame);
    }
    Request::Hello { version: 99, features: u64::MAX }.encode(&mut bytes).unwrap();
    Request::Ping { seq: 9 }.encode(&mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut decoder = wire::Decoder::default();
    let mut seen = Vec::new();
    let mut buffer = [0; 1000];
    while seen.len() < 4 {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {seen:?}");
        decoder.feed(&buffer[..count]);
        while let Some(frame) = decoder.next_frame().unwrap() {
            seen.push(Event::decode(&frame).unwrap().unwrap());
        }
    }
    let replies: Vec<(u32, ReplyCode)> = seen[1..]
        .iter()
        .map(|event| match event {
            Event::Reply { seq, code, .. } => (*seq, *code),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        replies,
        [(7, ReplyCode::Unsupported), (8, ReplyCode::BadRequest), (9, ReplyCode::Ok)]
    );
}

#[test]
fn a_connection_that_sends_no_frames_is_closed() {
    let host = Host::start();
    for junk in [&[0u8; 64][..], &[0xff; 64], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut stream = client::connect(&host.run).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(junk).unwrap();
        let mut rest = Vec::new();
        // The host may also reset the connection.
        let _ = stream.read_to_end(&mut rest);
    }
    let mut session = host.connect();
    session.ok(|seq| Request::Ping { seq });
}

#[test]
fn a_client_that_does_not_read_answers_uses_bounded_memory() {
    let host = Host::start();
    let mut session = host.connect();
    for number in 0..50 {
        session.open(host.opening(&format!("t{number}"), &["cat"]));
    }
    let mut greedy = client::connect(&host.run).unwrap();
    greedy.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut list = Vec::new();
    Request::List { seq: 1 }.encode(&mut list).unwrap();
    let many = list.repeat(10_000);
    // The write fails eventually: the host reads no requests while the answers are not read.
    while greedy.write_all(&many).is_ok() {}
    session.ok(|seq| Request::Ping { seq });
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let rss: u64 = rss.split_whitespace().next().unwrap().parse().unwrap();
    assert!(rss < 16 << 10, "{rss} KiB");
}

#[test]
fn connections_are_bounded() {
    let host = Host::start();
    let mut kept: Vec<_> = (0..8).map(|_| host.connect()).collect();
    let mut refused = client::connect(&host.run).unwrap();
    refused.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(refused.read(&mut [0; 10]).unwrap(), 0);
    kept.pop();
    wait_until("another connection is accepted", || {
        let mut stream = client::connect(&host.run).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        (stream.read(&mut [0; 10]).ok()? > 0).then_some(())
    });
}
