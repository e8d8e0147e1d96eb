//! The guard in front of every route.

use serde_json::Value;

use harness::{Client, Home, Server};

/// Every operation of the document, with something in place of each parameter.
fn operations(client: &Client) -> Vec<(String, String, Value)> {
    let document = client.get("/openapi.json").expect(200);
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let mut target = path.clone();
            while let (Some(from), Some(to)) = (target.find('{'), target.find('}')) {
                target.replace_range(from..=to, "x");
            }
            found.push((method.to_ascii_uppercase(), target, operation.clone()));
        }
    }
    assert!(found.len() >= 8, "{found:?}");
    found
}

/// The routes of the older protocol, which are not in the document.
const OLDER_ROUTES: [(&str, &str); 11] = [
    ("GET", "/session/x/pty"),
    ("POST", "/session/x/pty"),
    ("GET", "/session/x/pty/x"),
    ("DELETE", "/session/x/pty/x"),
    ("POST", "/session/x/pty/x/input"),
    ("POST", "/session/x/pty/x/resize"),
    ("POST", "/session/x/pty/x/signal"),
    ("GET", "/session/x/pty/x/snapshot"),
    ("GET", "/session/x/pty/x/recording"),
    ("GET", "/session/x/pty/x/stream"),
    ("GET", "/session/x/pty/x/ws"),
];

/// The methods of the Model Context Protocol.
const MCP_ROUTES: [(&str, &str); 3] = [("GET", "/mcp"), ("POST", "/mcp"), ("DELETE", "/mcp")];

/// Every route, with the operation of those that are in the document.
fn routes(client: &Client) -> Vec<(String, String, Value)> {
    let others = OLDER_ROUTES.iter().chain(&MCP_ROUTES);
    let others = others.map(|(method, path)| ((*method).into(), (*path).into(), Value::Null));
    operations(client).into_iter().chain(others).collect()
}

/// The only operations that need no token.
const OPEN: [&str; 4] = ["POST /api/shares/open", "GET /healthz", "GET /login", "GET /readyz"];

#[test]
fn no_route_is_open_without_a_token() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut open = Vec::new();
    for (method, target, operation) in routes(&server.client()) {
        let name = format!("{method} {target}");
        let declared = operation["security"] == serde_json::json!([{}]);
        let wrong = Client::new(server.address, Some("wrong"));
        for client in [server.stranger(), wrong] {
            let answer = client.request(&method, &target).send();
            if answer.status != 401 && answer.status != 429 {
                open.push(name.clone());
            }
        }
        assert_eq!(declared, OPEN.contains(&name.as_str()), "security of {name} in the document");
    }
    open.dedup();
    // A wrong token is refused even where none is needed.
    assert_eq!(open, OPEN);
}

#[test]
fn every_route_refuses_a_foreign_host_and_a_foreign_origin() {
    let home = Home::new();
    let server = Server::start(&home);
    let port = server.address.port();
    for (method, target, _) in routes(&server.client()) {
        for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1:1", "10.0.0.1"] {
            let request = server.client().request(&method, &target).header("host", host);
            let answer = request.send();
            assert_eq!(answer.status, 403, "{method} {target} as {host}");
            if method != "HEAD" {
                assert_eq!(answer.problem(403), "host_not_allowed");
            }
        }
        for origin in ["http://evil.example", "null", &format!("http://localhost:{port}")] {
            let request = server.client().request(&method, &target).header("origin", origin);
            assert_eq!(request.send().problem(403), "origin_not_allowed", "{method} {target}");
        }
    }
}

#[test]
fn names_of_loopback_are_accepted() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "names=stead.example"]);
    let port = server.address.port();
    for host in [format!("localhost:{port}"), format!("[::1]:{port}"), "stead.example".into()] {
        server.client().request("GET", "/metrics").header("host", &host).send().expect_status(200);
    }
}

#[test]
fn a_request_needs_exactly_one_valid_host() {
    let home = Home::new();
    let server = Server::start(&home);
    let address = server.address;
    let check = |head: String, status| {
        let answer = server.client().raw(format!("{head}\r\n\r\n").as_bytes());
        assert_eq!(answer.status, status, "{head:?}: {}", answer.text());
    };
    check("GET /healthz HTTP/1.1".into(), 400);
    check("GET /healthz HTTP/1.0".into(), 400);
    check(format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nhost: evil.example"), 400);
    check(format!("GET /healthz HTTP/1.1\r\nhost: user@{address}"), 400);
    check(format!("GET http://evil.example/healthz HTTP/1.1\r\nhost: {address}"), 400);
    check(format!("GET http://{address}/healthz HTTP/1.1\r\nhost: {address}"), 200);
}

#[test]
fn every_response_has_the_security_headers() {
    let home = Home::new();
    let server = Server::start(&home);
    for target in ["/", "/healthz", "/docs/api", "/openapi.json", "/nothing/here", "/metrics"] {
        for client in [server.client(), server.stranger()] {
            let answer = client.get(target);
            let policy = answer.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}");
            assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{target}");
        }
    }
}

#[test]
fn unknown_routes_and_methods_are_problems() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    assert_eq!(client.get("/nothing").problem(404), "no_such_route");
    assert_eq!(client.get("/api/%2e%2e/%2e%2e/etc/passwd").problem(404), "no_such_route");
    assert_eq!(client.request("PUT", "/nothing").send().problem(404), "no_such_route");
    let answer = client.request("DELETE", "/metrics").send();
    assert_eq!(answer.problem(405), "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    // Without a token a client does not learn which routes exist.
    assert_eq!(server.stranger().get("/nothing").problem(401), "unauthorized");
    assert_eq!(server.stranger().request("PUT", "/").send().problem(401), "unauthorized");
}

#[test]
fn a_link_signs_a_browser_in_once_and_its_cookie_needs_our_origin() {
    let home = Home::new();
    let server = Server::start(&home);
    let link = server.link.clone().unwrap();
    let target = link.strip_prefix(&format!("http://{}", server.address)).unwrap();
    let stranger = server.stranger();
    // A prefetch does not use the link up.
    let ahead = stranger.request("GET", target).header("sec-purpose", "prefetch").send();
    assert_eq!(ahead.problem(403), "forbidden");
    let answer = stranger.get(target);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(stranger.get(target).problem(401), "unauthorized");
    assert!(!server.log().contains(target), "the code is in the log");

    let cookie = cookie.split(';').next().unwrap();
    let own = format!("http://{}", server.address);
    let with =
        |method: &str, target: &str| stranger.request(method, target).header("cookie", cookie);
    with("GET", "/metrics").header("origin", &own).send().expect_status(200);
    with("GET", "/metrics").header("sec-fetch-site", "same-origin").send().expect_status(200);
    with("GET", "/docs/api").header("sec-fetch-site", "none").send().expect_status(200);
    assert_eq!(with("GET", "/metrics").send().problem(403), "origin_not_allowed");
    for site in ["cross-site", "same-site"] {
        let answer = with("GET", "/metrics").header("sec-fetch-site", site).send();
        assert_eq!(answer.problem(403), "origin_not_allowed");
    }
    let post = || with("POST", "/api/login-links");
    assert_eq!(post().send().problem(403), "origin_not_allowed");
    let same_site = post().header("sec-fetch-site", "same-origin").send();
    assert_eq!(same_site.problem(403), "origin_not_allowed");
    post().header("origin", &own).send().expect_status(201);
    with("POST", "/api/logout").header("origin", &own).send().expect_status(204);
    assert_eq!(with("GET", "/metrics").header("origin", &own).send().problem(401), "unauthorized");
}

#[test]
fn without_auth_other_origins_are_still_refused() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--no-auth"]);
    let stranger = server.stranger();
    stranger.get("/metrics").expect_status(200);
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        let answer = stranger.request("GET", "/metrics").header(name, value).send();
        assert_eq!(answer.problem(403), "origin_not_allowed");
    }
    let answer = stranger.request("GET", "/metrics").header("host", "evil.example").send();
    assert_eq!(answer.problem(403), "host_not_allowed");
}

#[test]
fn wrong_tokens_are_rate_limited_and_do_not_lock_the_owner_out() {
    let home = Home::new();
    let server = Server::start(&home);
    let wrong = Client::new(server.address, Some("guess"));
    let statuses: Vec<u16> = (0..80).map(|_| wrong.get("/metrics").status).collect();
    assert!(statuses.starts_with(&[401; 50]), "{statuses:?}");
    let refused = statuses.iter().position(|status| *status == 429);
    assert!(refused.is_some(), "{statuses:?}");
    assert!(wrong.get("/metrics").header("retry-after").is_some());
    server.client().get("/metrics").expect_status(200);
}

#[test]
fn the_document_describes_every_response() {
    let home = Home::new();
    let server = Server::start(&home);
    let document = server.client().get("/openapi.json").expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{document}");
    for (method, target, operation) in operations(&server.client()) {
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("default"), "{method} {target}");
        for (status, response) in responses {
            let described = response["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(described, "{method} {target} {status} has no description");
        }
        let summary = operation["summary"].as_str().or(operation["description"].as_str());
        assert!(summary.is_some(), "{method} {target} has no summary");
    }
}

#[test]
fn the_pages_need_no_external_resources() {
    let home = Home::new();
    let server = Server::start(&home);
    let docs = server.client().get("/docs/api");
    let mut files = vec![server.stranger().get("/").text(), docs.text()];
    for part in docs.text().split('"').filter(|part| part.starts_with("/docs/api/")) {
        files.push(server.client().get(part).expect_status(200).text());
    }
    assert_eq!(files.len(), 4);
    for file in files {
        assert!(!file.contains("http://") && !file.contains("https://"), "{file}");
        assert!(!file.contains("<style") && !file.contains("onclick"), "{file}");
    }
}
