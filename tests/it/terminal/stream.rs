//! Streams: a snapshot first, then exactly the output after it, for any number of clients.

use std::io::Read;

use serde_json::{Value, json};

use harness::{
    Frame, Home, Server,
    terminal::{data, open, shows},
    wait_for,
};

#[test]
fn every_byte_value_reaches_every_kind_of_client_as_it_is() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let script = "stty raw -echo; read x; i=0; while [ $i -lt 256 ]; do \
        printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done; printf 'é日'; sleep 60";
    let id = open(&client, "s", json!({"cmd": ["sh", "-c", script]}));
    let mut events = client.request("GET", &format!("/api/terminals/{id}/stream")).events();
    let start = events.until("snapshot").json()["offset"].as_u64().unwrap();
    let mut socket = client.socket(&format!("/api/terminals/{id}/ws?mode=driver"), &[]).unwrap();
    socket.type_bytes(b"go\n");
    let expected: Vec<u8> = (0..=255).chain("é日".bytes()).collect();

    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let (offset, bytes) = data(&events.until("data"));
        assert_eq!(offset, start + seen.len() as u64);
        seen.extend(bytes);
    }
    assert_eq!(seen, expected);
    let mut seen = Vec::new();
    let mut picture = false;
    while seen.len() < expected.len() {
        match socket.next() {
            Frame::Bytes(_) if std::mem::take(&mut picture) => {}
            Frame::Bytes(bytes) => seen.extend(bytes),
            Frame::Control(message) => picture = message["type"] == "snapshot",
            Frame::Closed => panic!("closed after {seen:?}"),
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn a_client_resumes_by_offset_over_websocket_and_events() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["sh", "-c", "printf 0123456789; sleep 60"]}));
    shows(&client, &id, "0123456789");
    let mut socket = client.socket(&format!("/api/terminals/{id}/ws?from=4"), &[]).unwrap();
    let Frame::Control(hello) = socket.next() else { panic!("no hello") };
    assert_eq!(
        (&hello["type"], &hello["resumed"], &hello["offset"]),
        (&json!("hello"), &json!(true), &json!(4))
    );
    assert_eq!(socket.next(), Frame::Bytes(b"456789".to_vec()));
    let target = format!("/session/s/pty/{id}/stream?from=7");
    let mut events = client.request("GET", &target).events();
    assert_eq!(data(&events.until("data")), (7, b"789".to_vec()));
    let beyond = format!("/api/terminals/{id}/stream?from=999");
    let mut events = client.request("GET", &beyond).events();
    assert_eq!(events.next().unwrap().name, "snapshot");
}

#[test]
fn one_client_drives_and_another_takes_over() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["cat"]}));
    let control = |socket: &mut harness::Socket, kind: &str| loop {
        match socket.next() {
            Frame::Control(message) if message["type"] == kind => return message,
            Frame::Control(_) | Frame::Bytes(_) => {}
            Frame::Closed => panic!("closed before {kind}"),
        }
    };
    let target = |name: &str| format!("/api/terminals/{id}/ws?name={name}");
    let mut agent = client.socket(&target("agent"), &[]).unwrap();
    assert_eq!(control(&mut agent, "hello")["mode"], "driver");
    let mut person = client.socket(&target("person"), &[]).unwrap();
    assert_eq!(control(&mut person, "hello")["driver"], "agent");
    person.type_bytes(b"not yet\n");
    assert_eq!(control(&mut person, "error")["code"], "not_driver");
    person.send(&json!({"type": "resize", "cols": 100, "rows": 30}));
    person.send(&json!({"type": "take_over"}));
    assert_eq!(control(&mut agent, "driver")["mode"], "viewer");
    assert_eq!(control(&mut person, "driver")["mode"], "driver");
    assert_eq!(control(&mut agent, "resize"), json!({"type": "resize", "cols": 100, "rows": 30}));
    person.type_bytes(b"my turn\n");
    shows(&client, &id, "my turn");
    person.send(&json!({"type": "hand_back"}));
    assert_eq!(control(&mut agent, "driver")["driver"], "agent");
    let shown = client.get(&format!("/api/terminals/{id}")).expect(200);
    assert_eq!((&shown["clients"], &shown["cols"]), (&json!(2), &json!(100)));
    drop(person);
    wait_for("the person to be gone", || {
        let shown = client.get(&format!("/api/terminals/{id}")).expect(200);
        if shown["clients"] == 1 { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn clients_that_never_read_do_not_affect_others() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["seq", "inf"]}));
    let before = memory(server.pid());
    let target = format!("/api/terminals/{id}/ws?mode=viewer");
    let never_reads = server.client().with_little_room();
    let stuck: Vec<_> = (0..100).map(|_| never_reads.socket(&target, &[]).unwrap()).collect();
    let mut healthy = client.socket(&target, &[]).unwrap();
    let mut seen = 0;
    while seen < 4 << 20 {
        match healthy.next() {
            Frame::Bytes(bytes) => seen += bytes.len(),
            Frame::Control(_) => {}
            Frame::Closed => panic!("the healthy client was cut off after {seen} bytes"),
        }
    }
    let offset = |client: &harness::Client| {
        client.get(&format!("/api/terminals/{id}")).expect(200)["offset"].as_u64().unwrap()
    };
    let first = offset(&client);
    wait_for("the program to continue", || match offset(&client) {
        now if now > first => Ok(()),
        now => Err(now),
    });
    let grown = memory(server.pid()).saturating_sub(before);
    assert!(grown < 100 << 20, "100 stuck clients cost {grown} bytes");
    drop(stuck);
}

/// Resident memory of a process.
fn memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn a_recording_is_complete() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(
        &client,
        "s",
        json!({"cmd": ["sh", "-c", "printf 'a\\377é'; sleep 60"], "cols": 50, "rows": 10}),
    );
    shows(&client, &id, "é");
    client
        .post(&format!("/api/terminals/{id}/resize"), json!({"cols": 60, "rows": 12}))
        .expect(200);
    wait_for("the resize to be recorded", || {
        let text = client.get(&format!("/session/s/pty/{id}/recording")).text();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["version"], &lines[0]["width"]), (&json!(2), &json!(50)));
        let text: String = lines[1..]
            .iter()
            .filter(|line| line[1] == "o")
            .map(|line| line[2].as_str().unwrap())
            .collect();
        assert_eq!(text, "a\u{fffd}é");
        match lines.last() {
            Some(line) if line[1] == "r" && line[2] == "60x12" => Ok(()),
            other => Err(other.cloned()),
        }
    });
    // Four bytes were written, one of them not UTF-8; the offset counts bytes.
    let recording = client.get(&format!("/api/terminals/{id}/recording?offsets=true")).text();
    let ends = recording.lines().skip(1).filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line[3].as_u64()
    });
    assert_eq!(ends.last(), Some(4), "{recording}");
}

#[test]
fn a_large_snapshot_is_compressed_for_a_client_that_asks() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let print = "for i in $(seq 2000); do printf '\\033[3%dmline %d\\033[0m\\n' $((i%8)) $i; done; \
        echo all; read x";
    let id = open(&client, "t", json!({"cmd": ["sh", "-c", print]}));
    shows(&client, &id, "all");

    let target = format!("/api/terminals/{id}/ws?mode=viewer&compress=gzip");
    let mut socket = client.socket(&target, &[]).unwrap();
    let head = loop {
        match socket.next() {
            Frame::Control(head) if head["type"] == "snapshot" => break head,
            Frame::Control(_) => {}
            other => panic!("{other:?} where a picture is announced"),
        }
    };
    assert_eq!(head["encoding"], "gzip");
    let Frame::Bytes(small) = socket.next() else { panic!("no picture after {head}") };
    let path = format!("/api/terminals/{id}/snapshot");
    let whole = client.get(&path).expect(200)["data"].as_str().unwrap().to_owned();
    assert_eq!(unzip(&small), whole.as_bytes());
    assert_eq!(head["bytes"], whole.len());
    assert!(small.len() * 2 < whole.len(), "{} of {} bytes", small.len(), whole.len());

    let asked = client.request("GET", &path).header("accept-encoding", "gzip").send();
    assert_eq!(asked.header("content-encoding"), Some("gzip"));
    let shown: Value = serde_json::from_slice(&unzip(&asked.body)).unwrap();
    assert_eq!(shown["data"], whole);

    let wrong = client.socket(&format!("/api/terminals/{id}/ws?compress=brotli"), &[]);
    assert_eq!(wrong.err(), Some(400));
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut whole).unwrap();
    whole
}
