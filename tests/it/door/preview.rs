//! Preview links: which port a link opens, for how long, and what the program behind it receives.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
};

use serde_json::{Value, json};

use harness::{Answer, Home, Request, Server, run, wait_for};

/// A program that answers each request with its head and the length of its body. Returns its port.
fn program() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap() == 0 {
                    break;
                }
            }
            let lower = head.to_lowercase();
            let length = lower.split("content-length: ").nth(1).map_or("0", |rest| rest);
            let length = length.lines().next().unwrap_or("0").parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let sum: usize = body.iter().map(|byte| usize::from(*byte)).sum();
            let text = format!("{head}{length} bytes, sum {sum}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nSet-Cookie: program=1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
            // A client may close its connection early.
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    port
}

fn link(server: &Server, thread: &str, port: u16, more: Value) -> Value {
    let path = format!("/api/threads/{thread}/ports/{port}/links");
    server.client().post(&path, more).expect(201)
}

/// The DNS label of a link.
fn label(link: &Value) -> String {
    let url = link["url"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().split('.').next().unwrap().to_owned()
}

fn host(server: &Server, label: &str) -> String {
    format!("{label}.localhost:{}", server.address.port())
}

fn request(server: &Server, label: &str, method: &str, target: &str) -> Request {
    server.stranger().request(method, target).header("host", &host(server, label))
}

fn open(server: &Server, label: &str) -> Answer {
    request(server, label, "GET", "/").send()
}

/// Creates threads whose instances run.
fn start_threads(server: &Server, threads: &[&str]) {
    for thread in threads {
        let path = format!("/api/threads/{thread}/exec");
        server.client().post(&path, json!({"command": "true"})).expect(200);
    }
}

/// Replaces the character at an index of a label by another digit.
fn altered(label: &str, at: usize) -> String {
    let other = if label[at..].starts_with('a') { "b" } else { "a" };
    format!("{}{other}{}", &label[..at], &label[at + 1..])
}

#[test]
fn a_link_opens_its_port_without_a_token_and_nothing_else() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["one", "two"]);
    let (port, other) = (program(), program());
    let made = link(&server, "one", port, json!({"expires_in_ms": 60_000}));
    let (url, label) = (made["url"].as_str().unwrap(), label(&made));
    assert_eq!(url, format!("http://{}/", host(&server, &label)));
    assert_eq!(label.len(), 63);
    // Absolute paths belong to the program, also those of this server.
    for target in ["/", "/api/threads", "/healthz", "/files?path=/etc/passwd", "/mcp"] {
        let answer = request(&server, &label, "GET", target).send();
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert!(
            answer.text().starts_with(&format!("GET {target} HTTP/1.1\r\n")),
            "{}",
            answer.text()
        );
        assert_eq!(answer.header("set-cookie"), Some("program=1"));
        assert_eq!(answer.header("content-security-policy"), None);
    }
    assert_eq!(open(&server, &label.to_uppercase()).status, 200);
    // A label is valid for the thread, port and expiry it was signed with.
    let label_of = |thread: &str, port| {
        self::label(&link(&server, thread, port, json!({"expires_in_ms": 60_000})))
    };
    let (on_other, of_two) = (label_of("one", other), label_of("two", port));
    assert_ne!(label, on_other);
    // "p-", then 26 digits of the lease, 3 to 4 of the port, 7 of the expiry, 10 of the thread, 16 of the signature.
    for (from, to) in [(2, 28), (28, 31), (31, 38), (38, 47), (2, 47)] {
        for donor in [&on_other, &of_two] {
            let mixed = format!("{}{}{}", &label[..from], &donor[from..to], &label[to..]);
            if mixed != label && mixed != *donor {
                assert_eq!(open(&server, &mixed).problem(404), "not_found", "{mixed}");
            }
        }
    }
    for at in 2..label.len() {
        assert_eq!(open(&server, &altered(&label, at)).problem(404), "not_found", "{at}");
    }
    for wrong in ["p-", "p-1", &label[..62], "p-localhost"] {
        assert_eq!(open(&server, wrong).problem(404), "not_found", "{wrong}");
    }
    // A link is no token, and its domain must be one of this server's.
    let elsewhere =
        server.stranger().request("GET", "/").header("host", &format!("{label}.evil.example"));
    assert_eq!(elsewhere.send().problem(403), "host_not_allowed");
    let bearer = server.stranger().request("GET", "/api/threads");
    assert_eq!(bearer.header("authorization", &format!("Bearer {label}")).send().status, 401);
}

#[test]
fn the_program_behind_a_link_receives_no_credential_of_the_owner() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let made = link(&server, "main", program(), json!({}));
    let cookie = format!("stead_{}", server.address.port());
    let answer = request(&server, &label(&made), "GET", "/a?x=1")
        .header("Authorization", &format!("Bearer {}", server.token))
        .header("X-API-Key", &server.token)
        .header("Cookie", &format!("own=kept; {cookie}=secret; {cookie}_share=secret"))
        .send();
    let seen = answer.expect_status(200).text();
    assert!(!seen.contains("secret") && !seen.contains(&server.token), "{seen}");
    assert!(seen.contains("Cookie: own=kept\r\n"), "{seen}");
    // The program's own credentials are its own.
    let answer = request(&server, &label(&made), "GET", "/")
        .header("Authorization", "Bearer mine")
        .header("X-API-Key", "mine");
    let seen = answer.send().text();
    assert!(
        seen.contains("Authorization: Bearer mine\r\n") && seen.contains("X-API-Key: mine\r\n"),
        "{seen}"
    );
}

#[test]
fn a_link_to_the_port_of_the_server_opens_nothing() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let made = link(&server, "main", server.address.port(), json!({}));
    assert_eq!(open(&server, &label(&made)).problem(502), "port_closed");
}

#[test]
fn a_large_body_passes_through_a_link() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let made = link(&server, "main", program(), json!({}));
    let body = vec![1; 1 << 20];
    let answer = request(&server, &label(&made), "POST", "/upload").body(&body).send();
    assert!(answer.text().ends_with("1048576 bytes, sum 1048576"), "{}", answer.text());
}

#[test]
fn a_websocket_passes_through_a_link_until_it_expires() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = std::thread::spawn(move || {
        let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        while let Ok(message) = socket.read() {
            socket.send(message).unwrap();
        }
    });
    let made = link(&server, "main", port, json!({"expires_in_ms": 3000}));
    let host = host(&server, &label(&made));
    let mut socket = server.stranger().socket("/socket", &[("host", &host)]).unwrap();
    socket.send(&json!({"text": "through"}));
    assert_eq!(socket.next_text(), r#"{"text":"through"}"#);
    // The program's connection ends when the link expires.
    echo.join().unwrap();
    assert_eq!(open(&server, &label(&made)).problem(410), "gone");
}

#[test]
fn an_expired_link_and_a_wrong_one_say_so_on_a_page() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let port = program();
    let brief = label(&link(&server, "main", port, json!({"expires_in_ms": 1000})));
    let page =
        |label: &str| request(&server, label, "GET", "/").header("accept", "text/html").send();
    let expired = wait_for("the link to expire", || match page(&brief) {
        answer if answer.status == 410 => Ok(answer),
        answer => Err(answer.status),
    });
    assert!(expired.text().contains("This preview link has expired."), "{}", expired.text());
    assert_eq!(expired.header("content-type"), Some("text/html; charset=utf-8"));
    let wrong = page(&altered(&brief, 40));
    assert_eq!(wrong.status, 404);
    assert!(wrong.text().contains("This preview link is not valid."), "{}", wrong.text());
    // An expired link with another expiry is wrong, not expired.
    assert_eq!(open(&server, &altered(&brief, 33)).problem(404), "not_found");
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let closed = page(&label(&link(&server, "main", closed, json!({}))));
    assert_eq!(closed.status, 502);
    assert!(closed.text().contains("No program listens on port"), "{}", closed.text());
}

#[test]
fn a_link_ends_with_its_thread() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["one"]);
    let client = server.client();
    let lease = client.get("/api/threads/one/lease").expect(200)["lease_id"].clone();
    client.put("/api/threads/two", json!({"lease_id": lease})).expect_success();
    let port = program();
    let (one, two) = (link(&server, "one", port, json!({})), link(&server, "two", port, json!({})));
    assert_eq!(open(&server, &label(&one)).status, 200);
    // The lease lives on with the other thread; the link does not.
    client.delete("/api/threads/one").expect_status(204);
    assert_eq!(open(&server, &label(&one)).problem(404), "not_found");
    assert_eq!(open(&server, &label(&two)).status, 200);
    // A thread of the same name is another thread.
    start_threads(&server, &["one"]);
    assert_eq!(open(&server, &label(&one)).problem(404), "not_found");
}

#[test]
fn a_request_through_a_link_wakes_a_sandbox() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let sandbox = client.post("/api/sandboxes", json!({"timeout_s": 3600})).expect(201);
    let target = format!("/api/sandboxes/{}", sandbox["sandbox_id"].as_str().unwrap());
    let label = label(&link(&server, sandbox["thread_id"].as_str().unwrap(), program(), json!({})));
    for verb in ["pause", "suspend"] {
        let at_rest = client.post(&format!("{target}/{verb}"), json!({})).expect(200);
        assert_ne!(at_rest["state"], "running", "{at_rest}");
        assert_eq!(open(&server, &label).status, 200, "{verb}");
        wait_for("the sandbox to run", || match client.get(&target).expect(200) {
            sandbox if sandbox["state"] == "running" => Ok(()),
            sandbox => Err(sandbox.to_string()),
        });
    }
}

#[test]
fn a_link_outlives_the_server() {
    let home = Home::new();
    let mut server = Server::start(&home);
    start_threads(&server, &["main"]);
    let label = label(&link(&server, "main", program(), json!({})));
    let keyed = |server: &Server| {
        let request = server.client().request("POST", "/api/threads/main/ports/80/links");
        let made = request.header("idempotency-key", "k").json(&json!({})).send().expect(201);
        (self::label(&made), made["expires_at"].clone())
    };
    let first = keyed(&server);
    server.kill_and_start(&home);
    assert_eq!(open(&server, &label).status, 200);
    assert_eq!(keyed(&server), first);
}

#[test]
fn a_link_needs_a_thread_a_port_and_a_lifetime_in_range() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let ask = |path: &str, body| server.client().post(&format!("/api/threads/{path}/links"), body);
    assert_eq!(ask("missing/ports/80", json!({})).problem(404), "not_found");
    assert_eq!(ask("main/ports/0", json!({})).problem(400), "invalid_path");
    assert_eq!(ask("main/ports/65536", json!({})).problem(400), "invalid_path");
    for lifetime in [0, 999, 2_592_000_001_u64] {
        assert_eq!(
            ask("main/ports/80", json!({"expires_in_ms": lifetime})).problem(400),
            "invalid_body"
        );
    }
    assert_eq!(ask("main/ports/80", json!({"expires": 1})).problem(400), "invalid_body");
    let stranger = server.stranger().request("POST", "/api/threads/main/ports/80/links");
    assert_eq!(stranger.send().status, 401);
}

#[test]
fn the_command_line_prints_a_link() {
    let home = Home::new();
    let server = Server::start(&home);
    start_threads(&server, &["main"]);
    let port = program();
    let environment = [("STEAD_HOME", home.path().to_str().unwrap())];
    let shown = run(&["ports", "main", "--link", &port.to_string(), "--for", "1h"], &environment);
    let (shown, error) = (String::from_utf8(shown.stdout), String::from_utf8(shown.stderr));
    let (shown, error) = (shown.unwrap(), error.unwrap());
    let label = shown.strip_prefix("http://").and_then(|url| url.split('.').next());
    let label = label.unwrap_or_else(|| panic!("{shown:?} {error:?}")).to_owned();
    assert_eq!(open(&server, &label).status, 200);
}

#[test]
fn a_link_is_below_the_name_of_the_server() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "names=stead.example"]);
    start_threads(&server, &["main"]);
    let made = link(&server, "main", program(), json!({}));
    let url = made["url"].as_str().unwrap();
    assert!(url.starts_with("https://p-") && url.ends_with(".stead.example/"), "{url}");
    let host = url.strip_prefix("https://").unwrap().trim_end_matches('/');
    let answer = server.stranger().request("GET", "/").header("host", host).send();
    assert_eq!(answer.status, 200);
}
