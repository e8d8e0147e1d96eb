//! Traces by OTLP, ids of requests, and the metrics that the dashboard shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::mpsc,
};

use serde_json::{Value, json};

use harness::{Home, Server, WAIT_TIMEOUT, flip_bit};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A receiver of OTLP over HTTP. Hands each body on.
fn receiver() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut line) = (Vec::new(), String::new());
            while reader.read_line(&mut line).unwrap() > 2 {
                head.push(line.trim_end().to_ascii_lowercase());
                line.clear();
            }
            assert_eq!(head[0], "post /v1/traces http/1.1");
            assert!(head.contains(&"content-type: application/json".to_owned()), "{head:?}");
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.unwrap().parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.write_all(answer).unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

/// The spans of an export request. Checks what is common to all.
fn spans(body: &Value) -> Vec<Value> {
    let resource = &body["resourceSpans"][0];
    assert_eq!(attributes(&resource["resource"])["service.name"], json!("stead"));
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    for span in spans {
        let time = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        for (id, digits) in [("traceId", 32), ("spanId", 16)] {
            let id = span[id].as_str().unwrap();
            assert!(
                id.len() == digits && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{span}"
            );
        }
    }
    spans.clone()
}

fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let list = of["attributes"].as_array().unwrap().iter();
    list.map(|one| {
        let value = one["value"].as_object().unwrap().values().next().unwrap().clone();
        (one["key"].as_str().unwrap().to_owned(), value)
    })
    .collect()
}

#[test]
fn a_command_is_one_trace_from_the_client_to_the_store() {
    let home = Home::new();
    let (url, bodies) = receiver();
    let server = Server::start_as(&home, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    let exec = |flags: &str, command: &str| {
        let answer = server
            .client()
            .request("POST", "/api/threads/traced/exec")
            .header("traceparent", &format!("00-{TRACE}-{CALLER}-{flags}"))
            .header("x-request-id", "from-the-client")
            .json(&json!({"command": command}))
            .send();
        answer.expect_status(200);
        answer
    };
    // The caller of this one chose not to record it.
    exec("00", "echo secret-word");
    let answer = exec("01", "echo secret-word");
    assert_eq!(answer.header("x-request-id"), Some("from-the-client"));
    let command = answer.json()["command_id"].clone();

    let mut found = Vec::new();
    while found.len() < 4 {
        let body = bodies.recv_timeout(WAIT_TIMEOUT).expect("no further spans");
        assert!(!body.to_string().contains("secret-word"), "{body}");
        found.extend(spans(&body).into_iter().filter(|span| span["traceId"] == TRACE));
    }
    let named = |name: &str| {
        let mut spans = found.iter().filter(|span| span["name"] == name);
        let span = spans.next().unwrap_or_else(|| panic!("no span {name}: {found:#?}"));
        assert!(spans.next().is_none(), "two spans {name}: {found:#?}");
        span
    };
    let request = named("POST /api/threads/{tid}/exec");
    assert_eq!((&request["parentSpanId"], &request["kind"]), (&json!(CALLER), &json!(2)));
    let about = attributes(request);
    assert_eq!(about["http.response.status_code"], json!("200"));
    assert_eq!(about["request_id"], json!("from-the-client"));
    let exec = named("exec");
    assert_eq!(exec["parentSpanId"], request["spanId"]);
    assert_eq!(attributes(exec)["command"], command);
    for (name, kind) in [("host", 3), ("store", 1)] {
        let span = named(name);
        assert_eq!(
            (&span["parentSpanId"], &span["kind"]),
            (&exec["spanId"], &json!(kind)),
            "{name}"
        );
    }
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn a_receiver_that_never_answers_delays_nothing() {
    let home = Home::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let setting = format!("telemetry.otlp_endpoint={url}");
    let server = Server::start_with(&home, &["--set", &setting]);
    let client = server.client();
    // More requests than the queue has room for.
    for _ in 0..5000 {
        client.get("/healthz").expect_status(200);
    }
    client.post("/api/threads/quick/exec", json!({"command": "echo ok"})).expect_status(200);
    drop(silent);
}

#[test]
fn log_lines_of_a_request_have_its_id() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--log-format", "json", "--log-level", "debug"]);
    let answer =
        server.client().request("GET", "/api/threads").header("x-request-id", "abc.1").send();
    assert_eq!(answer.header("x-request-id"), Some("abc.1"));
    let given = server.client().get("/healthz");
    let given = given.header("x-request-id").unwrap();
    assert!(given.starts_with("req_"), "{given}");
    let refused = server.client().request("GET", "/healthz").header("x-request-id", "a b").send();
    assert_ne!(refused.header("x-request-id"), Some("a b"));
    let log = harness::wait_for("the line of the request", || {
        let log = server.log();
        if log.contains(r#""request_id":"abc.1""#) { Ok(log) } else { Err(log) }
    });
    let line = log.lines().find(|line| line.contains("abc.1")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["span"]["request_id"], "abc.1", "{line}");
    assert_eq!(line["fields"]["route"], "/api/threads", "{line}");
}

#[test]
fn errors_have_the_id_of_their_request_at_every_log_level() {
    let home = Home::new();
    let server = Server::start(&home);
    let answer =
        server.client().post("/api/threads/t/exec", json!({"command": "echo to-be-damaged"}));
    let path = format!("/api/commands/{}", answer.expect(200)["command_id"].as_str().unwrap());
    assert!(server.stop().0.success());
    flip_bit(home.path(), "echo to-be-damaged");
    for level in ["warn", "error"] {
        let arguments = ["--log-format", "json", "--log-level", level];
        let server = Server::start_with(&home, &arguments);
        let read = server.client().request("GET", &path).header("x-request-id", level).send();
        assert_eq!(read.problem(500), "store_damaged");
        let line = harness::wait_for("the line of the request", || {
            let log = server.log();
            let line = log.lines().find(|line| line.contains("the store is damaged"));
            line.map(str::to_owned).ok_or(log)
        });
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["span"]["request_id"], level, "{line}");
    }
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.post("/api/threads/metrics/exec", json!({"command": "true"})).expect_status(200);
    let metrics = client.get("/metrics").expect_status(200).text();
    let mut names = BTreeSet::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        names.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/grafana/stead.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let words =
                query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            shown.extend(words.filter(|word| word.starts_with("stead_")).map(str::to_owned));
        }
    }
    assert!(shown.len() > 15, "{shown:?}");
    let missing: Vec<_> = shown.difference(&names).collect();
    assert!(missing.is_empty(), "not in /metrics: {missing:?}\n{names:?}");
}
