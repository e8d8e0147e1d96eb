//! Invalid input and exhaustion: precise errors, and no effect on anything else.

use serde_json::{Value, json};

use harness::{
    Home, Server,
    terminal::{open, screen, shows},
};

#[test]
fn invalid_input_is_named_and_never_a_server_error() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["cat"]}));
    let unknown = "term_00000000000000000000000000000000";
    let long = "x".repeat(9 << 20);
    let cases: Vec<(&str, String, Value, u16, &str)> = vec![
        ("POST", format!("/api/terminals/{unknown}/input"), json!({"data": "x"}), 404, "not_found"),
        ("POST", "/api/terminals/nonsense/input".into(), json!({"data": "x"}), 404, "not_found"),
        ("POST", format!("/session/other/pty/{id}/input"), json!({"data": "x"}), 404, "not_found"),
        (
            "POST",
            format!("/api/terminals/{id}/resize"),
            json!({"cols": 0, "rows": 5}),
            400,
            "/cols",
        ),
        (
            "POST",
            format!("/api/terminals/{id}/resize"),
            json!({"cols": 5, "rows": 5000}),
            400,
            "/rows",
        ),
        (
            "POST",
            format!("/api/terminals/{id}/resize"),
            json!({"cols": -1, "rows": 5}),
            400,
            "/cols",
        ),
        (
            "POST",
            format!("/api/terminals/{id}/resize"),
            json!({"cols": "x", "rows": 5}),
            400,
            "/cols",
        ),
        ("POST", format!("/api/terminals/{id}/resize"), json!({"cols": 5}), 400, "/rows"),
        (
            "POST",
            format!("/api/terminals/{id}/resize"),
            json!({"cols": 5, "rows": 5, "z": 1}),
            400,
            "/z",
        ),
        ("POST", format!("/api/terminals/{id}/input"), json!({}), 400, "/data"),
        (
            "POST",
            format!("/api/terminals/{id}/input"),
            json!({"data": long}),
            413,
            "body_too_large",
        ),
        (
            "POST",
            format!("/api/terminals/{id}/input"),
            json!({"data_base64": "!"}),
            400,
            "/data_base64",
        ),
        ("POST", format!("/api/terminals/{id}/signal"), json!({"signal": "NOPE"}), 400, "/signal"),
        ("GET", format!("/api/terminals/{id}/snapshot?format=gif"), Value::Null, 400, "/format"),
        ("GET", format!("/api/terminals/{id}/stream?mode=boss"), Value::Null, 400, "/mode"),
        ("POST", "/session/s/pty".into(), json!({"cols": 0}), 400, "/cols"),
        ("POST", "/session/s/pty".into(), json!({"cmd": []}), 400, "/cmd"),
        (
            "POST",
            "/session/s/pty".into(),
            json!({"cmd": ["/no/such/program"]}),
            422,
            "unprocessable",
        ),
        ("POST", "/session/s/pty".into(), json!({"env": {"A B": "x"}}), 400, "/env/A B"),
        (
            "POST",
            "/api/threads/s/exec".into(),
            json!({"command": "x", "timeout_ms": 0}),
            400,
            "/timeout_ms",
        ),
        ("POST", "/api/threads/s/exec".into(), json!({"cmd": "x"}), 400, "/cmd"),
        ("GET", format!("/api/commands/{unknown}"), Value::Null, 404, "not_found"),
        ("PUT", "/api/threads/s2".into(), json!({"provider": "moon"}), 400, "/provider"),
        ("GET", "/api/threads/none".into(), Value::Null, 404, "not_found"),
        ("GET", "/api/threads/none/terminals".into(), Value::Null, 404, "not_found"),
    ];
    for (method, target, body, status, named) in cases {
        let request = client.request(method, &target);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send();
        let text = answer.text();
        assert_eq!(answer.status, status, "{method} {target}: {text}");
        let problem = answer.json();
        let pointer = problem["errors"][0]["pointer"].as_str().unwrap_or_default();
        assert!(
            problem["code"] == named || pointer == named,
            "{method} {target} does not name {named}: {text}"
        );
    }
    let typed = client.request("POST", &format!("/api/terminals/{id}/input"));
    let answer = typed.header("content-type", "text/plain").body(b"x").send();
    assert_eq!(answer.status, 415);
    assert!(client.get("/api/threads/none").status == 404, "a GET never makes a thread");
}

#[test]
fn a_thread_with_too_many_terminals_gets_an_error_and_can_continue() {
    let home = Home::new();
    let server = Server::start_as(&home, &[], &[("STEAD_TERMINAL_MAX_PER_THREAD", "3")]);
    let client = server.client();
    // The default terminal is one of the three.
    let first = open(&client, "s", json!({"cmd": ["cat"]}));
    open(&client, "s", json!({"cmd": ["cat"]}));
    let refused = client.post("/session/s/pty", json!({"cmd": ["cat"]}));
    assert_eq!(refused.problem(429), "too_many_terminals");
    client.delete(&format!("/session/s/pty/{first}")).expect_status(204);
    open(&client, "s", json!({"cmd": ["cat"]}));
}

#[test]
fn input_with_an_id_is_typed_once() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["sh", "-c", "stty -echo; echo ready; cat"]}));
    shows(&client, &id, "ready");
    let target = format!("/api/terminals/{id}/input");
    for text in ["one\n", "one\n", "one\n"] {
        client.post(&target, json!({"data": text, "write_id": "w1"})).expect_status(204);
    }
    client.post(&target, json!({"data": "two\n", "write_id": "w2"})).expect_status(204);
    shows(&client, &id, "two");
    assert_eq!(screen(&client, &id).matches("one").count(), 1);
}
