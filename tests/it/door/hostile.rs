//! Clients that are slow, broken or greedy.

use std::{
    io::{BufReader, Read, Write},
    time::{Duration, Instant},
};

use crate::harness::{Answer, Home, Server, wait_for};

/// Reads until the server closes; how long that took.
fn closed(stream: &mut std::net::TcpStream) -> (Vec<u8>, Duration) {
    let started = Instant::now();
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut rest);
    (rest, started.elapsed())
}

#[test]
fn an_incomplete_head_ends_the_connection() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.header_time=300ms"]);
    for start in ["", "GET", "GET /healthz HTTP/1.1\r\nhost: x\r\nx: "] {
        let mut stream = server.client().connect();
        stream.write_all(start.as_bytes()).unwrap();
        let (_, took) = closed(&mut stream);
        assert!(took < Duration::from_secs(5), "{start:?} took {took:?}");
    }
    // Idle after an answer, too.
    let mut stream = server.client().connect();
    let head = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    stream.write_all(head.as_bytes()).unwrap();
    let (answer, took) = closed(&mut stream);
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_body_that_does_not_come_is_a_408() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.body_time=300ms"]);
    let request = server.client().request("POST", "/api/login-links");
    let request = request.header("idempotency-key", "a").header("content-length", "10");
    let stream = request.body(b"{").start();
    let answer = Answer::read(&mut BufReader::new(stream));
    assert_eq!(answer.problem(408), "body_timeout");
}

#[test]
fn a_body_past_the_limit_is_a_413_declared_or_not() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.body_bytes=1000"]);
    let request = || {
        let request = server.client().request("POST", "/api/login-links");
        request.header("idempotency-key", "a")
    };
    let declared = request().header("content-length", "1001").body(b"x");
    assert_eq!(Answer::read(&mut BufReader::new(declared.start())).problem(413), "body_too_large");
    let chunk = format!("3e9\r\n{}\r\n0\r\n\r\n", "x".repeat(1001));
    let mut stream = server.client().connect();
    let head = format!(
        "POST /api/login-links HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         idempotency-key: b\r\ntransfer-encoding: chunked\r\n\r\n{chunk}",
        server.address, server.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut BufReader::new(stream)).problem(413), "body_too_large");
    request().body("x".repeat(1000).as_bytes()).send().expect_status(201);
}

#[test]
fn broken_requests_are_refused_and_do_not_affect_others() {
    let home = Home::new();
    let server = Server::start(&home);
    let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5000));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let cases: [&[u8]; 8] = [
        b"\0\0\0\0\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        many.as_bytes(),
        long.as_bytes(),
    ];
    for case in cases {
        let mut stream = server.client().connect();
        let _ = stream.write_all(case);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let (answer, _) = closed(&mut stream);
        let head = String::from_utf8_lossy(&answer);
        let status = head.split(' ').nth(1).unwrap_or("closed").to_owned();
        assert!(status == "closed" || status.starts_with('4'), "{status} for {case:?}");
        server.client().get("/healthz").expect_status(200);
    }
}

#[test]
fn more_connections_than_allowed_make_room_for_later_ones() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.connections=4"]);
    let held: Vec<_> = (0..4).map(|_| server.client().connect()).collect();
    let mut late = server.client().connect();
    let head = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    late.write_all(head.as_bytes()).unwrap();
    drop(held);
    assert_eq!(Answer::read(&mut BufReader::new(late)).status, 200);
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_others_do_not_notice() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "limits.stall_time=300ms"]);
    let ask = format!(
        "GET /openapi.json HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    let stuck: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = server.client().connect();
            stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            // More answers than all buffers on the way hold; the write itself gets stuck.
            let _ = stream.write_all(ask.repeat(2000).as_bytes());
            stream
        })
        .collect();
    let started = Instant::now();
    server.client().get("/healthz").expect_status(200);
    assert!(started.elapsed() < Duration::from_secs(2));
    wait_for("the stuck connections to go", || {
        let metrics = server.client().get("/metrics").text();
        let line = metrics.lines().find(|line| line.starts_with("stead_http_connections "));
        if line == Some("stead_http_connections 1") { Ok(()) } else { Err(line.map(str::to_owned)) }
    });
    drop(stuck);
}
