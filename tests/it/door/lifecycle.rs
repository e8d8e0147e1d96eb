//! Starting, stopping, and starting again.

use std::{
    io::{BufReader, Write},
    os::unix::fs::PermissionsExt,
    time::Duration,
};

use harness::{Answer, Home, Server, has_sandboxes, wait_for};

#[test]
fn the_first_start_generates_a_private_token_and_the_next_keeps_it() {
    let home = Home::new();
    let server = Server::start(&home);
    let token = server.token.clone();
    for (file, mode) in [("token", 0o600), ("lock", 0o600), (".", 0o700)] {
        let found = std::fs::metadata(home.path().join(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    server.kill();
    let server = Server::start(&home);
    assert_eq!(server.token, token);
    assert_eq!(server.client().get("/readyz").expect(200)["status"], "ready");
    assert_eq!(server.client().get("/healthz").expect(200)["status"], "ok");
    let kept = std::fs::read_dir(home.path()).unwrap().flatten();
    for file in kept.filter(|file| file.file_name() != "token" && file.path().is_file()) {
        let content = String::from_utf8_lossy(&std::fs::read(file.path()).unwrap()).into_owned();
        assert!(!content.contains(&token), "the token is in {:?}", file.path());
    }
    assert!(!server.log().contains(&token));
}

#[test]
fn readiness_consists_of_named_checks() {
    let home = Home::new();
    let server = Server::start(&home);
    let ready = server.stranger().get("/readyz").expect(200);
    let checks = ["shutdown", "store", "disk", "hosts", "providers"];
    let names: Vec<_> = ready["checks"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, checks, "{ready}");
    for name in ["shutdown", "store", "hosts", "providers"] {
        let passed = serde_json::json!({"name": name, "ok": true});
        assert!(ready["checks"].as_array().unwrap().contains(&passed), "{name}: {ready}");
    }
    let document = server.client().get("/openapi.json").expect(200);
    let unready = &document["paths"]["/readyz"]["get"]["responses"]["503"];
    let schema = &unready["content"]["application/problem+json"]["schema"]["$ref"];
    assert_eq!(schema, "#/components/schemas/Problem", "{unready}");
}

#[test]
fn the_start_says_where_the_server_is_what_isolates_commands_and_where_the_data_is() {
    let home = Home::new();
    let mut server = Server::start_with(&home, &["--provider", "local"]);
    let link = server.link.clone().unwrap();
    assert!(link.starts_with(&format!("http://{}/login?code=", server.address)), "{link}");
    let remedy = match rustix::process::geteuid().is_root() {
        true => "run with --provider namespace",
        false => "run as root or with --provider namespace",
    };
    let expected = format!(
        "isolation: WARNING: commands run as you, without isolation; {remedy} \
         (stead doctor tells what is missing)\ndata: {}\n",
        home.path().display()
    );
    assert_eq!(server.facts, expected);
    server.terminate();
    server.wait();
    let log = server.log();
    let others: Vec<_> = log.lines().filter(|line| !line.contains("stop")).collect();
    assert!(others.is_empty(), "the start also says: {others:#?}");

    if has_sandboxes() {
        let server = Server::start_with(&home, &["--provider", "namespace"]);
        let facts = &server.facts;
        assert!(facts.starts_with("isolation: sandboxes (namespace)"), "{facts}");
    }
}

#[test]
fn sigterm_waits_for_the_response_in_progress() {
    let home = Home::new();
    let mut server = Server::start(&home);
    // Half a body: the request is in progress until the rest arrives.
    let body = br#"{"a":1}"#;
    let mut stream = server.client().connect();
    let head = format!(
        "POST /api/login-links HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         idempotency-key: one\r\ncontent-length: {}\r\n\r\n",
        server.address,
        server.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body[..3]).unwrap();
    let mut idle = server.client().connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").unwrap();
    wait_for("both connections", || {
        let metrics = server.client().get("/metrics").text();
        let line = metrics.lines().find(|line| line.starts_with("stead_http_connections "));
        if line == Some("stead_http_connections 3") { Ok(()) } else { Err(line.map(str::to_owned)) }
    });
    server.terminate();
    wait_for("the log line", || {
        let log = server.log();
        if log.contains("SIGTERM") { Ok(()) } else { Err(log) }
    });
    stream.write_all(&body[3..]).unwrap();
    let answer = Answer::read(&mut BufReader::new(stream));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let started = std::time::Instant::now();
    assert!(server.wait().success());
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn sigterm_ends_an_idle_server_immediately() {
    let home = Home::new();
    let server = Server::start(&home);
    server.client().get("/healthz").expect_status(200);
    let (status, took) = server.stop();
    assert!(status.success());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_browser_that_is_not_signed_in_gets_a_page_that_says_how() {
    let home = Home::new();
    let server = Server::start(&home);
    let link = server.link.clone().unwrap();
    let target = &link[link.find("/login").unwrap()..];
    let visit = |target: &str| {
        let accept = "text/html,application/xhtml+xml,*/*;q=0.8";
        server.stranger().request("GET", target).header("accept", accept).send()
    };
    assert_eq!(visit(target).status, 303);
    let pages = ["/docs/api", "/metrics", "/openapi.json", "/no/such/page"];
    let pages = pages.map(|page| (page, "No valid token"));
    for (target, reason) in [(target, "This sign-in link was used")].into_iter().chain(pages) {
        let page = visit(target);
        assert_eq!(page.status, 401, "{target}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        let text = page.text();
        for part in ["<h1>Sign in to Stead</h1>", reason, "<code>stead login</code>", "href=\"/\""]
        {
            assert!(text.contains(part), "{target}: {text}");
        }
        // Programs get a problem.
        assert_eq!(server.stranger().get(target).problem(401), "unauthorized");
    }
    // Only pages of the server respond in HTML: the API always responds in JSON.
    for target in ["/api/threads", "/session/main", "/mcp"] {
        assert_eq!(visit(target).problem(401), "unauthorized", "{target}");
    }
}
