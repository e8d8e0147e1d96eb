//! Clients that are slow, broken or greedy.

use std::{
    io::{BufReader, Read, Write},
    time::{Duration, Instant},
};

use serde_json::json;

use harness::{Answer, Home, Server, database, wait_for};

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

#[test]
fn an_invalid_frame_is_answered_with_its_close_code() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.post("/api/threads/t/exec", json!({"command": "true"})).expect(200);
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    let target = format!("/api/terminals/{}/ws", terminal["terminal_id"].as_str().unwrap());
    let cases: [(&str, &[u8], u16); 5] = [
        ("reserved bits", &[0xf2, 0x80, 0, 0, 0, 0], 1002),
        ("no mask", &[0x82, 0x01, b'x'], 1002),
        ("an unknown opcode", &[0x83, 0x80, 0, 0, 0, 0], 1002),
        ("text that is not UTF-8", &[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        ("a large frame", &[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0], 1009),
    ];
    for (what, frame, code) in cases {
        let mut socket = client.socket(&target, &[]).unwrap();
        socket.send_raw(frame);
        assert_eq!(socket.close_code(), Some(code), "{what}");
    }
}

#[test]
fn a_head_with_a_bare_line_feed_is_refused() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let host = format!("host: {}", client.address);
    for head in [
        format!("GET /healthz HTTP/1.1\n{host}\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\n{host}\nx: y\r\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\n{host}\r\n\n"),
        format!("GET /healthz HTTP/1.1\n{host}\n\n"),
    ] {
        assert_eq!(client.raw(head.as_bytes()).problem(400), "invalid_request", "{head:?}");
    }
    // Also behind another request of the connection, with a body that contains line feeds.
    let first = format!(
        "POST /api/shares/open HTTP/1.1\r\n{host}\r\ncontent-type: application/json\r\n\
         content-length: 4\r\n\r\n\n\n{{}}"
    );
    let second = format!("GET /healthz HTTP/1.1\r\n{host}\n\r\n");
    let mut stream = client.connect();
    stream.write_all(first.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(Answer::read(&mut reader).status, 400);
    stream.write_all(second.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut reader).problem(400), "invalid_request");
    let whole = format!("GET /healthz HTTP/1.1\r\n{host}\r\n\r\n");
    assert_eq!(client.raw(whole.as_bytes()).status, 200);
}

#[test]
fn requests_for_the_readiness_share_one_write() {
    let home = Home::new();
    let server = Server::start(&home);
    let writes = || -> i64 {
        let database = database(home.path());
        let sql = "SELECT coalesce(sum(value), 0) FROM meta WHERE key = 'probe'";
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let (before, started) = (writes(), Instant::now());
    for _ in 0..200 {
        server.stranger().get("/readyz").expect_status(200);
    }
    let seconds = i64::try_from(started.elapsed().as_secs()).unwrap();
    let written = writes() - before;
    assert!((1..=seconds + 2).contains(&written), "{written} writes in {seconds} s");
}

#[test]
fn a_thread_is_not_created_with_a_space_in_its_id() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let command = json!({"command": "echo here"});
    for id in ["a%20b", "%20", "a%C2%A0b", "a%09b", "a%0Ab"] {
        for answer in [
            client.post(&format!("/api/threads/{id}/exec"), command.clone()),
            client.put(&format!("/api/threads/{id}"), json!({})),
            client.post(&format!("/api/threads/{id}/terminals"), json!({})),
            client.post(&format!("/session/{id}/pty"), json!({})),
        ] {
            assert_eq!(answer.problem(400), "invalid_path", "{id}");
            assert!(answer.text().contains("not a thread id"), "{}", answer.text());
        }
    }
    // One of an earlier version remains usable.
    client.post("/api/threads/old-one/exec", command.clone()).expect(200);
    server.kill();
    let database = database(home.path());
    database.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    for table in ["threads", "terminals", "sessions", "session_records"] {
        let sql = format!("UPDATE {table} SET thread_id = 'old one' WHERE thread_id = 'old-one'");
        database.execute_batch(&sql).unwrap();
    }
    drop(database);
    let server = Server::start(&home);
    let ran = server.client().post("/api/threads/old%20one/exec", command).expect(200);
    assert_eq!(ran["stdout"], "here\n");
}
