//! Unauthenticated callers cannot keep the owner, the health check or the web app from being served.

use std::{
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use serde_json::json;

use harness::terminal::exec;
use harness::{Answer, Client, Home, Server, WAIT_TIMEOUT, let_pass, wait_for};

/// More than the requests (1,024) and the unauthenticated connections (1,024) a server allows.
const MANY: usize = 1_100;

/// A sandbox of E2B's on the provider `local`: its ports are those of this machine.
struct Sandbox {
    id: String,
    key: String,
}

fn sandbox(server: &Server) -> Sandbox {
    let asked = json!({"templateID": "local", "timeout": 600});
    let made = server.client().post("/v2/sandboxes", asked).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    Sandbox { id: text("sandboxID"), key: text("envdAccessToken") }
}

/// A program that accepts connections and never answers on them.
fn silent_program() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<TcpStream>>());
    port
}

/// A program that answers every request with 204.
fn answering_program() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        }
    });
    port
}

fn host_of(server: &Server, port: u16, sandbox: &Sandbox) -> String {
    format!("{port}-{}.localhost:{}", sandbox.id, server.address.port())
}

/// The answer to a request over a connection, unless the server closes it before it answers.
fn answer_if_any(stream: TcpStream) -> Option<Answer> {
    let mut reader = BufReader::new(stream);
    match std::io::BufRead::fill_buf(&mut reader) {
        Ok(bytes) if !bytes.is_empty() => Some(Answer::read(&mut reader)),
        _ => None,
    }
}

fn serves_the_owner(server: &Server) {
    server.stranger().get("/healthz").expect_status(200);
    server.stranger().get("/readyz").expect_status(200);
    server.stranger().get("/").expect_status(200);
    assert_eq!(exec(&server.client(), "owner", "echo served")["stdout"], "served\n");
}

#[test]
fn unfinished_bodies_without_a_token_cost_the_owner_nothing() {
    let home = Home::new();
    let server = Server::start(&home);
    exec(&server.client(), "owner", "true");
    let unfinished = server.stranger().request("POST", "/api/shares/open");
    let unfinished = unfinished.header("content-type", "application/json");
    let unfinished = unfinished.header("content-length", "100").body(b"{");
    let held: Vec<_> = (0..MANY).map(|_| unfinished.start()).collect();
    serves_the_owner(&server);
    // A sign-in link works, too.
    let terminal = server.client().get("/api/threads/owner/terminal").expect(200);
    let target = format!("/api/terminals/{}/shares", terminal["terminal_id"].as_str().unwrap());
    let link = server.client().post(&target, json!({})).expect(201);
    let (_, secret) = link["url"].as_str().unwrap().split_once('#').unwrap();
    server.stranger().post("/api/shares/open", json!({"secret": secret})).expect(200);
    drop(held);
}

#[test]
fn connections_that_send_nothing_cost_the_owner_nothing() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.connections=64"]);
    let held: Vec<_> = (0..500).map(|_| server.stranger().connect()).collect();
    serves_the_owner(&server);
    drop(held);
}

#[test]
fn a_program_that_never_answers_costs_neither_the_owner_nor_other_sandboxes() {
    let home = Home::new();
    let server = Server::start(&home);
    exec(&server.client(), "owner", "true");
    let (one, other) = (sandbox(&server), sandbox(&server));
    let silent = host_of(&server, silent_program(), &one);
    let ask = server.stranger().request("GET", "/").header("host", &silent);
    let held: Vec<_> = (0..MANY).map(|_| ask.start()).collect();
    serves_the_owner(&server);
    let host = host_of(&server, answering_program(), &other);
    server.stranger().request("GET", "/").header("host", &host).send().expect_status(204);
    drop(held);
}

#[test]
fn a_program_that_never_answers_is_a_504_after_a_time() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.proxy_time=300ms"]);
    let sandbox = sandbox(&server);
    let host = host_of(&server, silent_program(), &sandbox);
    let answer = server.stranger().request("GET", "/").header("host", &host).send();
    assert_eq!(answer.expect(504)["sandboxId"], sandbox.id.as_str());
}

#[test]
fn an_upload_below_the_minimum_rate_is_cut() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.body_time=1s"]);
    exec(&server.client(), "t", "true");
    let request = server.client().request("PUT", "/api/threads/t/fs/write?path=/workspace/slow");
    let mut stream = request.header("content-length", "100000").body(b"x").start();
    // Never silent for a second, and far below the minimum.
    let reader = stream.try_clone().unwrap();
    let answered = std::thread::spawn(move || answer_if_any(reader));
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !answered.is_finished() {
        assert!(Instant::now() < deadline, "a trickling upload was not cut");
        let _ = stream.write_all(b"x");
        let_pass(Duration::from_millis(20));
    }
    // A reset may overtake the answer.
    if let Some(answer) = answered.join().unwrap() {
        assert_eq!(answer.problem(408), "body_timeout");
    }
    server.client().get("/api/threads/t/fs/stat?path=/workspace/slow").expect_status(404);
}

#[test]
fn an_unauthenticated_socket_does_not_block_other_callers() {
    let home = Home::new();
    let server = Server::start(&home);
    let target = "/daytona/socket.io/?EIO=4&transport=websocket";
    let held: Vec<_> = (0..1_000)
        .map(|at| {
            server.stranger().socket(target, &[]).unwrap_or_else(|status| panic!("{at}: {status}"))
        })
        .collect();
    let mut socket = server.stranger().socket(target, &[]).expect("the owner's");
    assert!(socket.next_text().starts_with('0'));
    socket.send_text(&format!("40{}", json!({"token": server.token})));
    assert!(socket.next_text().starts_with("40"));
    drop(held);
}

#[test]
fn a_key_of_an_unauthenticated_caller_is_not_stored() {
    let home = Home::new();
    let server = Server::start(&home);
    let open = |client: &Client| {
        let request = client.request("POST", "/api/shares/open").header("idempotency-key", "k");
        request.json(&json!({"secret": "wrong"})).send()
    };
    assert_eq!(open(&server.stranger()).problem(401), "unauthorized");
    let link = server.client().request("POST", "/api/login-links");
    link.header("idempotency-key", "k").send().expect_status(201);
}

#[test]
fn a_key_belongs_to_its_caller_and_its_target() {
    let home = Home::new();
    let server = Server::start(&home);
    let (one, other) = (sandbox(&server), sandbox(&server));
    let folder = home.path().join("made");
    let path = folder.to_str().unwrap();
    let make = |sandbox: &Sandbox| {
        let request = server.stranger().request("POST", "/filesystem.Filesystem/MakeDir");
        let request = request.header("idempotency-key", "k").header("x-access-token", &sandbox.key);
        let request = request.header("host", &host_of(&server, 49_983, sandbox));
        request.json(&json!({"path": path})).send()
    };
    // Whether a request was executed, instead of getting the response of another.
    let works = |sandbox: &Sandbox| {
        let _ = std::fs::remove_dir(&folder);
        assert_eq!(make(sandbox).status, 200);
        folder.exists()
    };
    assert!(works(&one));
    assert!(!works(&one), "its own answer again");
    assert!(works(&other), "the answer of another holder");
}

#[test]
fn a_parameter_given_twice_is_refused_and_named() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = sandbox(&server);
    let client = server.client();
    for (target, name) in [
        ("/api/threads?limit=1&limit=2", "limit"),
        ("/api/threads?l%69mit=1&limit=2", "limit"),
        ("/healthz?x=1&y=2&x=1", "x"),
        ("/login?code=a&code=b", "code"),
    ] {
        let answer = client.get(target);
        assert_eq!(answer.problem(400), "invalid_query", "{target}");
        assert_eq!(answer.json()["errors"][0]["pointer"], format!("/{name}"), "{target}");
    }
    let read = client.request("GET", "/files?path=/etc/passwd&path=/etc/hosts");
    let refused = read.header("e2b-sandbox-id", &sandbox.id).send();
    let message = refused.expect(400)["message"].to_string();
    assert!(message.contains("path"), "{message}");
    client.get("/daytona/snapshots?page=1&page=2").expect_status(400);
    // These are lists, and their clients repeat them.
    client.get("/v2/sandboxes?state=running&state=paused").expect_status(200);
    client.get("/sandboxes/metrics?sandbox_ids=a&sandbox_ids=b").expect_status(200);
    client.get("/daytona/sandbox?states=started&states=stopped").expect_status(200);
}

#[test]
fn running_out_of_descriptors_is_logged_at_intervals_and_service_returns() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let home = Home::new();
    let server = Server::start(&home);
    let pid = Pid::from_raw(server.pid()).unwrap();
    let used = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    let limit = |current| Rlimit { current: Some(current), maximum: Some(20_000) };
    prlimit(Some(pid), Resource::Nofile, limit(used)).unwrap();
    // Some kernels drop a connection for lack of a descriptor, so each attempt needs a new one.
    for _ in 0..100 {
        drop(TcpStream::connect(server.address));
    }
    wait_for("a line in the log", || {
        let log = server.log();
        if log.contains("cannot accept a connection") { Ok(()) } else { Err(log) }
    });
    prlimit(Some(pid), Resource::Nofile, limit(20_000)).unwrap();
    wait_for("service to return", || match server.client().request("GET", "/healthz").attempt() {
        Some(answer) if answer.status == 200 => Ok(()),
        answer => Err(answer.map(|answer| answer.status)),
    });
    let lines = server.log().matches("cannot accept a connection").count();
    assert!(lines <= 2, "{lines} lines for a hundred attempts");
}
