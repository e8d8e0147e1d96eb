//! Invalid input on every documented route: refused with the name of the field, never a 5xx.

use serde_json::{Value, json};

use harness::{Answer, Home, Server};

/// A server with one of each noun, and its document.
struct World {
    server: Server,
    document: Value,
    terminal: String,
    command: String,
    lease: String,
    _home: Home,
}

impl World {
    fn new() -> World {
        let home = Home::new();
        let server = Server::start_with(&home, &["--set", "limits.body_bytes=100000"]);
        let client = server.client();
        client.put("/api/threads/t", json!({"provider": "local"})).expect_success();
        let ran = client.post("/api/threads/t/exec", json!({"command": "true"})).expect(200);
        let lease = client.get("/api/threads/t/lease").expect(200);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        World {
            document: client.get("/openapi.json").expect(200),
            terminal: text(&ran["terminal_id"]),
            command: text(&ran["command_id"]),
            lease: text(&lease["lease_id"]),
            server,
            _home: home,
        }
    }

    /// Replaces the parameters of a path by existing ids.
    fn target(&self, path: &str) -> String {
        let id = if path.contains("/projects/") {
            // The default project.
            "default-00000000"
        } else if path.contains("/commands/") {
            &self.command
        } else if path.contains("/leases/") {
            &self.lease
        } else {
            &self.terminal
        };
        let path = path.replace("{tid}", "t").replace("{sid}", "t").replace("{id}", id);
        path.replace("{v}", "1").replace("{port}", "80")
    }

    /// Method, path and operation of every route.
    fn operations(&self) -> Vec<(String, String, Value)> {
        let paths = self.document["paths"].as_object().unwrap();
        let all = paths.iter().flat_map(|(path, item)| {
            let item = item.as_object().unwrap();
            item.iter().map(|(method, operation)| {
                (method.to_ascii_uppercase(), path.clone(), operation.clone())
            })
        });
        all.collect()
    }

    /// The operations with a JSON body, and the properties of the body.
    fn bodies(&self) -> Vec<(String, String, Vec<String>)> {
        let with_body = self.operations().into_iter().filter_map(|(method, path, operation)| {
            let mut schema =
                operation.pointer("/requestBody/content/application~1json/schema")?.clone();
            if let Some(one) = schema.get("oneOf").and_then(Value::as_array) {
                schema = one.iter().find(|one| one.get("$ref").is_some())?.clone();
            }
            let name = schema["$ref"].as_str().map(|name| name.trim_start_matches('#').to_owned());
            let schema = match name {
                Some(name) => self.document.pointer(&name)?.clone(),
                None => schema,
            };
            let properties = schema["properties"].as_object()?.keys().cloned().collect();
            Some((method, path, properties))
        });
        let found: Vec<_> = with_body.collect();
        assert!(found.len() >= 10, "{found:?}");
        found
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.server.client().request(method, &self.target(path)).json(body).send()
    }
}

#[test]
fn an_unknown_field_is_a_400_that_names_it() {
    let world = World::new();
    for (method, path, _) in world.bodies() {
        let answer = world.send(&method, &path, &json!({"no_such_field": 1}));
        // The unknown field is reported even if required fields are missing.
        let code = answer.problem(400);
        assert_eq!(code, "invalid_body", "{method} {path}: {}", answer.text());
        assert_eq!(answer.json()["errors"][0]["pointer"], "/no_such_field", "{method} {path}");
    }
}

#[test]
fn a_body_that_is_not_json_or_too_large_is_refused_everywhere() {
    let world = World::new();
    for (method, path, _) in world.bodies() {
        let request = || world.server.client().request(&method, &world.target(&path));
        let name = format!("{method} {path}");
        let plain = request().header("content-type", "text/plain").body(b"{}").send();
        assert_eq!(plain.problem(415), "unsupported_media_type", "{name}");
        for broken in ["{", "nonsense", "{}}", "{\"a\":1,}", "\u{feff}{}"] {
            let typed = request().header("content-type", "application/json");
            let answer = typed.body(broken.as_bytes()).send();
            assert!(matches!(answer.status, 400), "{name} {broken}: {}", answer.text());
            answer.problem(400);
        }
        let typed = request().header("content-type", "application/json; charset=utf-8");
        assert_eq!(typed.body(b"\xff\xfe").send().problem(400), "invalid_json", "{name}");
        let large = request().json(&json!({"x": "y".repeat(100_000)})).send();
        assert_eq!(large.problem(413), "body_too_large", "{name}");
    }
}

#[test]
fn no_value_of_any_field_causes_a_server_error() {
    let world = World::new();
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}"),
        json!("x".repeat(20_000)),
        json!("../../etc/passwd"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"a": null}),
        json!({"": "\u{0}", "=": "=", "A=B": "c"}),
    ];
    for (method, path, properties) in world.bodies() {
        // These would delete what other routes are tested on, or block.
        if path.ends_with("/destroy") || path.ends_with("/close") {
            continue;
        }
        for property in properties {
            for value in &values {
                let mut body = json!({});
                if path.ends_with("/exec") {
                    body = json!({"command": "true", "timeout_ms": 5000});
                }
                body[&property] = value.clone();
                let answer = world.send(&method, &path, &body);
                let body_text = answer.text();
                assert!(answer.status < 500, "{method} {path} {property}={value}: {body_text}");
                if answer.status >= 400 {
                    answer.problem(answer.status);
                }
            }
        }
    }
}

#[test]
fn invalid_names_and_queries_are_refused_with_a_detail() {
    let world = World::new();
    let client = world.server.client();
    let long = "x".repeat(5000);
    let names = ["%00", "%ff%fe", "..%2f..", "%2e%2e", "a%0ab", "term_0", "%F0%9F%90%9A", &long];
    for (method, path, _) in world.operations() {
        if !path.contains('{') || method == "PUT" {
            continue;
        }
        for name in names {
            // A thread may have almost any name; these two are valid.
            let thread = path.contains("{tid}") || path.contains("{sid}");
            if thread && matches!(name, "term_0" | "%F0%9F%90%9A") {
                continue;
            }
            let mut target = path.clone();
            while let (Some(from), Some(to)) = (target.find('{'), target.find('}')) {
                target.replace_range(from..=to, name);
            }
            let answer = client.request(&method, &target).send();
            let body_text = answer.text();
            assert!((400..500).contains(&answer.status), "{method} {target}: {body_text}");
            answer.problem(answer.status);
        }
    }
    for (method, path, _) in world.operations() {
        let endless = ["/stream", "/events", "/ws"].iter().any(|end| path.ends_with(end));
        if method != "GET" || endless {
            continue;
        }
        let target = world.target(&path);
        for query in ["limit=0", "limit=x", "cursor=!", "from=-1", "from=99999999999999999999"] {
            let answer = client.get(&format!("{target}?{query}"));
            let body_text = answer.text();
            assert!(answer.status < 500, "{target}?{query}: {body_text}");
            if answer.status >= 400 {
                answer.problem(answer.status);
            }
        }
    }
}

#[test]
fn what_does_not_exist_is_a_404_that_says_what() {
    let world = World::new();
    let client = world.server.client();
    let unknown = format!("term_{}", "0".repeat(32));
    for target in [format!("/api/terminals/{unknown}"), format!("/session/t/pty/{unknown}")] {
        let answer = client.get(&target);
        assert_eq!(answer.problem(404), "not_found", "{target}");
        assert!(answer.text().contains(&unknown), "{}", answer.text());
    }
    assert_eq!(client.get("/api/threads/unknown").problem(404), "not_found");
    assert_eq!(client.get("/api/threads").expect(200)["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_bad_size_names_its_field() {
    let world = World::new();
    let client = world.server.client();
    let resize = format!("/api/terminals/{}/resize", world.terminal);
    for (body, pointer) in [
        (json!({"cols": 0, "rows": 24}), "/cols"),
        (json!({"cols": 80, "rows": 0}), "/rows"),
        (json!({"cols": 80, "rows": 100_000}), "/rows"),
        (json!({"cols": 80}), "/rows"),
        (json!({"cols": "80", "rows": 24}), "/cols"),
        (json!({"cols": 1.5, "rows": 24}), "/cols"),
    ] {
        for target in [&*resize, "/session/t/pty", "/api/threads/t/terminals"] {
            if target != resize && body.get("rows").is_none() {
                continue;
            }
            let answer = client.post(target, body.clone());
            answer.problem(400);
            assert_eq!(answer.json()["errors"][0]["pointer"], *pointer, "{target} {body}");
        }
    }
}
