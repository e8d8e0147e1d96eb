//! Terminals that outlive the server, watched while it is killed.

mod budgets;
mod chain;
mod clock;
mod damage;
mod exhaustion;
mod orphans;
mod points;
mod sync;
mod unreachable;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use harness::{Client, Frame, Home, Server, Socket, wait_for};

/// Counts the kills of the long form; the short one runs everywhere.
fn cycles() -> usize {
    if std::env::var_os("STEAD_SOAK").is_some() { 1000 } else { 50 }
}

/// One check in a response of `/readyz`.
fn readiness_check(response: &Value, name: &str) -> Value {
    let mut checks = response["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{response}")).clone()
}

/// The numbers of all whole marks `<n>` in the bytes, in order.
fn marks(bytes: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(bytes);
    let pieces = text.split('<').skip(1);
    pieces.filter_map(|piece| piece.split_once('>')?.0.parse().ok()).collect()
}

/// A terminal of its own in a thread of its own, running a plain shell.
fn open(client: &Client) -> String {
    client.put("/api/threads/t", json!({"provider": "local"})).expect_success();
    let made = client.post("/api/threads/t/terminals", json!({"cmd": ["sh"]})).expect(201);
    made["terminal_id"].as_str().unwrap().to_owned()
}

fn type_line(client: &Client, terminal: &str, line: &str) {
    let body = json!({"data": format!("{line}\r")});
    client.post(&format!("/api/terminals/{terminal}/input"), body).expect_success();
}

/// Returns the pid of a shell.
fn shell_pid(client: &Client, terminal: &str) -> u64 {
    type_line(client, terminal, "echo \"pid<$$>\"");
    wait_for("the shell's pid", || {
        let path = format!("/api/terminals/{terminal}/snapshot?format=text");
        let text = client.get(&path).text();
        let found = text.rsplit("pid<").find_map(|rest| rest.split_once('>')?.0.parse().ok());
        found.ok_or(text)
    })
}

fn lives(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A client that counts bytes and comes back for those it has not seen.
struct Watcher {
    offset: Option<u64>,
    bytes: Vec<u8>,
}

impl Watcher {
    fn connect(&self, client: &Client, terminal: &str) -> Socket {
        let from = self.offset.map(|offset| format!("&from={offset}")).unwrap_or_default();
        let target = format!("/api/terminals/{terminal}/ws?mode=viewer{from}");
        client.socket(&target, &[]).unwrap_or_else(|status| panic!("refused with {status}"))
    }

    /// Takes one frame; false when the connection ended.
    fn take(&mut self, socket: &mut Socket) -> bool {
        match socket.next() {
            Frame::Bytes(bytes) => {
                *self.offset.as_mut().expect("the offset comes first") += bytes.len() as u64;
                self.bytes.extend_from_slice(&bytes);
            }
            Frame::Control(control) => self.control(socket, &control),
            Frame::Closed => return false,
        }
        true
    }

    fn control(&mut self, socket: &mut Socket, control: &Value) {
        match control["type"].as_str().unwrap() {
            "hello" if self.offset.is_none() => self.offset = control["offset"].as_u64(),
            "snapshot" => {
                assert!(self.bytes.is_empty(), "a picture in place of the bytes that were missed");
                self.offset = control["offset"].as_u64();
                assert!(matches!(socket.next(), Frame::Bytes(_)), "a picture follows its head");
            }
            "gap" => panic!("bytes were dropped: {control}"),
            _ => {}
        }
    }
}

#[test]
fn fifty_kills_of_the_server_cost_no_byte_no_shell_and_leave_nothing_behind() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let address = server.address;
    let terminal = open(&server.client());
    let pid = shell_pid(&server.client(), &terminal);
    let mut watcher = Watcher { offset: None, bytes: Vec::new() };
    let mut socket = watcher.connect(&server.client(), &terminal);
    while watcher.offset.is_none() {
        assert!(watcher.take(&mut socket));
    }
    type_line(
        &server.client(),
        &terminal,
        "n=0; while :; do n=$((n+1)); echo \"<$n>\"; [ $((n%20)) = 0 ] && sleep 0.01; done",
    );
    for cycle in 0..cycles() {
        let goal = watcher.bytes.len() + 1000;
        while watcher.bytes.len() < goal {
            assert!(watcher.take(&mut socket), "the server hung up in cycle {cycle}");
        }
        server.kill();
        while watcher.take(&mut socket) {}
        server = Server::start_at(&home, address);
        socket = watcher.connect(&server.client(), &terminal);
    }
    let seen = marks(&watcher.bytes);
    let expected: Vec<u64> = (1..=seen.len() as u64).collect();
    let wrong = seen.iter().zip(&expected).position(|(seen, expected)| seen != expected);
    if let Some(at) = wrong {
        panic!("lost or doubled near {:?}", &seen[at.saturating_sub(3)..(at + 3).min(seen.len())]);
    }
    assert!(seen.len() > cycles() * 50, "only {} lines", seen.len());
    assert!(lives(pid), "the shell died");

    // One instance with its socket; nothing left of the servers that were killed.
    let instances: Vec<_> = fs::read_dir(home.path().join("run")).unwrap().flatten().collect();
    assert_eq!(instances.len(), 1, "{instances:?}");
    let entries = fs::read_dir(home.path()).unwrap().flatten();
    let left: Vec<_> =
        entries.filter(|file| file.file_name().to_string_lossy().contains("tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
    server.client().delete("/api/threads/t").expect_success();
    wait_for("the shell to end", || if lives(pid) { Err("it lives") } else { Ok(()) });
}

#[test]
fn sigterm_notifies_streams_and_keeps_the_shells() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let address = server.address;
    let terminal = open(&server.client());
    let pid = shell_pid(&server.client(), &terminal);
    let stream = format!("/api/terminals/{terminal}/stream");
    let mut stream = server.client().request("GET", &stream).events();
    let mut events = server.client().request("GET", "/api/events").events();
    let mut socket =
        server.client().socket(&format!("/api/terminals/{terminal}/ws"), &[]).ok().unwrap();
    stream.until("snapshot");
    let started = std::time::Instant::now();
    server.terminate();
    for events in [&mut stream, &mut events] {
        assert_eq!(events.until("notice").json()["code"], "stopping");
        // The end of the prompt and events about other clients may come first; then the stream ends.
        while let Some(event) = events.next() {
            let name = event.name.as_str();
            assert!(["data", "driver", "terminal_watched"].contains(&name), "{event:?}");
        }
    }
    let mut notified = false;
    loop {
        match socket.next() {
            Frame::Control(control) => notified |= control["code"] == "stopping",
            Frame::Bytes(_) => {}
            Frame::Closed => break,
        }
    }
    assert!(notified, "the WebSocket got no notice");
    assert!(server.wait().success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(lives(pid));
    let server = Server::start_at(&home, address);
    assert_eq!(shell_pid(&server.client(), &terminal), pid);
}

/// Kilobytes of memory a process has in use.
fn resident_kb(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_hundred_clients_that_never_read_do_not_affect_others() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.stall_time=10m"]);
    let client = server.client();
    let flooded = open(&client);
    let quiet = client.post("/api/threads/t/terminals", json!({"cmd": ["sh"]})).expect(201);
    let quiet = quiet["terminal_id"].as_str().unwrap();
    let flood_pid = shell_pid(&client, &flooded);
    type_line(&client, &flooded, "seq inf");
    let before = resident_kb(server.pid());
    let target = format!("/api/terminals/{flooded}/ws?mode=viewer");
    // With little room, or the server would first send each of them megabytes.
    let never_reads = server.client().with_little_room();
    let stuck: Vec<_> = (0..50).map(|_| never_reads.socket(&target, &[]).ok().unwrap()).collect();
    let stream = format!("/api/terminals/{flooded}/stream?mode=viewer");
    let events: Vec<_> = (0..50).map(|_| never_reads.request("GET", &stream).start()).collect();

    // A client that reads still receives the output.
    let mut watcher = Watcher { offset: None, bytes: Vec::new() };
    let mut socket = watcher.connect(&client, &flooded);
    let offset = || client.get(&format!("/api/terminals/{flooded}/snapshot")).expect(200);
    let start = offset()["offset"].as_u64().unwrap();
    while watcher.offset.is_none_or(|offset| offset < start + (1 << 20)) {
        match socket.next() {
            Frame::Bytes(bytes) => {
                watcher.offset = watcher.offset.map(|offset| offset + bytes.len() as u64);
            }
            Frame::Control(control) => {
                if let Some(offset) = control["offset"].as_u64() {
                    watcher.offset = Some(offset);
                }
                if control["type"] == "snapshot" {
                    assert!(matches!(socket.next(), Frame::Bytes(_)));
                }
            }
            Frame::Closed => panic!("the reader was cut off"),
        }
    }
    // The other terminal responds, and the program was not stopped.
    type_line(&client, quiet, "echo \"<$((6*7))>\"");
    wait_for("the quiet terminal", || {
        let path = format!("/api/terminals/{quiet}/snapshot?format=text");
        let text = client.get(&path).text();
        if text.contains("<42>") { Ok(()) } else { Err(text) }
    });
    assert!(lives(flood_pid));
    let end = offset()["offset"].as_u64().unwrap();
    wait_for("more of the flood", || {
        let offset = offset()["offset"].as_u64().unwrap();
        if offset > end { Ok(()) } else { Err(offset) }
    });
    let grown = resident_kb(server.pid()).saturating_sub(before);
    assert!(grown < 100 * 1024, "the server grew by {grown} kB");
    drop((stuck, events));
}
