//! What the keys, links and ports of E2B and Daytona authorize, and what they do not.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::symlink,
    thread::JoinHandle,
};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use harness::{Answer, Home, Server, wait_for};

/// A sandbox of E2B on the provider `local`.
struct Sandbox {
    id: String,
    access: String,
    traffic: String,
}

fn create(server: &Server, more: Value) -> Sandbox {
    let mut asked = json!({"templateID": "local", "timeout": 600});
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = server.client().post("/v2/sandboxes", asked).expect(201);
    let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
    let (id, access) = (text("sandboxID"), text("envdAccessToken"));
    Sandbox { id, access, traffic: text("trafficAccessToken") }
}

fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The signature that clients make for a link to a file.
fn signature(token: &str, path: &str, operation: &str, user: &str) -> String {
    let digest = Sha256::digest(format!("{path}:{operation}:{user}:{token}"));
    escaped(&format!("v1_{}", STANDARD_NO_PAD.encode(digest)))
}

/// A server of one connection: its port, and the request that it was sent, byte for byte.
fn program() -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "cut off after {head:?}");
        }
        let answer = "HTTP/1.1 200 OK\r\nX-Answer-Name: seen\r\nConnection: x-hop\r\nX-Hop: 1\r\n\
            Content-Length: 2\r\n\r\nok";
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        head
    });
    (port, served)
}

/// The host of a port of a sandbox.
fn host(server: &Server, port: u16, sandbox: &str) -> String {
    format!("{port}-{sandbox}.localhost:{}", server.address.port())
}

#[test]
fn a_signed_link_authorizes_its_file_and_no_other() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let file = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (open, secret) = (file("open.txt"), file("secret.txt"));
    std::fs::write(&open, "for all").unwrap();
    std::fs::write(&secret, "for one").unwrap();
    let get = |query: &str| {
        let request = server.stranger().request("GET", &format!("/files?{query}"));
        request.header("e2b-sandbox-id", &sandbox.id).send()
    };
    let sign = signature(&sandbox.access, &open, "read", "");
    let (open, secret) = (escaped(&open), escaped(&secret));
    assert_eq!(get(&format!("path={open}&signature={sign}")).text(), "for all");
    for (query, status) in [
        (format!("path={secret}&signature={sign}"), 401),
        (format!("path={secret}&path={open}&signature={sign}"), 400),
        (format!("path={open}&path={secret}&signature={sign}"), 400),
        (format!("path={open}&path={open}&signature={sign}"), 400),
        (format!("path={open}&username=&username=root&signature={sign}"), 400),
        (format!("path={open}&signature={sign}&signature={sign}"), 400),
        (format!("path={open}&signature={sign}&signature_expiration=x"), 401),
    ] {
        let answer = get(&query);
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
    }
    // Repeated parameters are no better with a key: which of them is meant?
    let target = format!("/files?path={secret}&path={open}");
    let request = server.stranger().request("GET", &target).header("e2b-sandbox-id", &sandbox.id);
    request.header("x-access-token", &sandbox.access).send().expect(400);
    // A link is only valid for the user it was signed for.
    let sign = signature(&sandbox.access, "open.txt", "read", "");
    let target = format!("/files?path=open.txt&signature={sign}");
    let request = server.stranger().request("GET", &target).header("e2b-sandbox-id", &sandbox.id);
    // Another user name with a colon, in base64.
    let answer = request.header("authorization", "Basic bm9ib2R5Og==").send();
    assert_eq!(answer.status, 404, "{}", answer.text());
}

#[test]
fn a_key_authorizes_one_purpose() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({"network": {"allowPublicTraffic": false}}));
    let listed = server.client().post(
        "/daytona/sandbox",
        json!({"name": "preview", "public": false, "autoStopInterval": 0}),
    );
    let daytona = listed.expect_success().json()["id"].as_str().unwrap().to_owned();
    let target = format!("/daytona/sandbox/{daytona}/ports/80/preview-url");
    let preview = server.client().get(&target).expect(200)["token"].as_str().unwrap().to_owned();
    let list = |id: &str, key: &str| {
        let request = server.stranger().request("POST", "/process.Process/List");
        request.header("e2b-sandbox-id", id).header("x-access-token", key).json(&json!({})).send()
    };
    list(&sandbox.id, &sandbox.access).expect(200);
    // The key of a port cannot run commands or read files.
    for (id, key) in [(&sandbox.id, &sandbox.traffic), (&daytona, &preview)] {
        assert!(!key.is_empty());
        assert_eq!(list(id, key).status, 401);
        let sign = signature(key, "/etc/passwd", "read", "");
        let target = format!("/files?path=/etc/passwd&signature={sign}");
        let link = server.stranger().request("GET", &target).header("e2b-sandbox-id", id);
        assert_eq!(link.send().status, 401);
        let toolbox = format!("/daytona/toolbox/{id}/process/execute");
        let run = server.stranger().request("POST", &toolbox).header("x-access-token", key);
        assert_eq!(run.json(&json!({"command": "true"})).send().status, 401);
        let run = server.stranger().request("POST", "/execute");
        let run = run.header("host", &host(&server, 49_999, id)).header("x-access-token", key);
        let run = run.header("e2b-traffic-access-token", key);
        let status = run.json(&json!({"code": "1"})).send().status;
        assert!(status == 401 || status == 502, "{id}: {status}");
    }
    // The key of commands cannot access ports; E2B responds with 403 where Daytona responds with 401.
    let show = |id: &str, port: u16, header: &str, key: &str| {
        let request = server.stranger().request("GET", "/");
        request.header("host", &host(&server, port, id)).header(header, key).send()
    };
    let (e2b, of_daytona) = ("e2b-traffic-access-token", "x-daytona-preview-token");
    for key in [&sandbox.access, &preview, "wrong"] {
        assert_eq!(show(&sandbox.id, 1, e2b, key).status, 403, "{key}");
    }
    for key in [&sandbox.access, &sandbox.traffic, "wrong"] {
        assert_eq!(show(&daytona, 1, of_daytona, key).status, 401, "{key}");
    }
    for (id, header, key) in
        [(&sandbox.id, e2b, &sandbox.traffic), (&daytona, of_daytona, &preview)]
    {
        let (port, served) = program();
        assert_eq!(show(id, port, header, key).text(), "ok");
        served.join().unwrap();
    }
}

/// Uploads a form to `/files`.
fn upload(server: &Server, sandbox: &Sandbox, target: &str, parts: &[(&str, &str)]) -> Answer {
    let mut body = String::new();
    for (head, content) in parts {
        body.push_str(&format!("--XX\r\nContent-Disposition: {head}\r\n\r\n{content}\r\n"));
    }
    body.push_str("--XX--\r\n");
    let request = server.stranger().request("POST", target);
    let request = request.header("x-access-token", &sandbox.access);
    let request = request.header("content-type", "multipart/form-data; boundary=XX");
    request.body(body.as_bytes()).send()
}

#[test]
fn an_upload_is_written_or_refused() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let path = home.path().join("uploaded").to_str().unwrap().to_owned();
    let target = format!("/files?path={}", escaped(&path));
    let quoted = format!("form-data; name=\"file\"; filename=\"{path}\"");
    let unquoted = format!("form-data; name=file; filename={path}");
    for (target, head) in [
        (target.as_str(), "form-data; name=\"file\""),
        (target.as_str(), "form-data; name=file"),
        ("/files", quoted.as_str()),
        ("/files", unquoted.as_str()),
    ] {
        let _ = std::fs::remove_file(&path);
        let written = upload(&server, &sandbox, target, &[(head, "hi")]).expect(200);
        assert_eq!(written, json!([{"name": "uploaded", "path": path, "type": "file"}]), "{head}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "hi", "{head}");
    }
    // An upload without a path, without a file, or with two files for one path is refused.
    let named = "form-data; name=\"file\"";
    upload(&server, &sandbox, "/files", &[(named, "lost")]).expect(400);
    upload(&server, &sandbox, &target, &[]).expect(400);
    upload(&server, &sandbox, &target, &[("form-data; name=\"other\"", "lost")]).expect(400);
    upload(&server, &sandbox, &target, &[(named, "one"), (named, "two")]).expect(400);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
}

#[test]
fn contexts_of_the_interpreter_need_a_key() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let host = host(&server, 49_999, &sandbox.id);
    let ask = |method: &str, target: &str, header: &str, key: &str| {
        let request = server.stranger().request(method, target).header("host", &host);
        request.header("origin", "http://evil.example").header(header, key).send()
    };
    for (method, target) in [
        ("GET", "/contexts"),
        ("POST", "/contexts"),
        ("DELETE", "/contexts/default-python"),
        ("POST", "/contexts/default-python/restart"),
        ("POST", "/execute"),
    ] {
        for (header, key) in [("x-other", "x"), ("x-access-token", "wrong"), ("x-api-key", "x")] {
            let answer = ask(method, target, header, key);
            assert_eq!(answer.status, 401, "{method} {target}: {}", answer.text());
        }
    }
    // Clients send one or the other with contexts.
    for (header, key) in
        [("x-access-token", &sandbox.access), ("e2b-traffic-access-token", &sandbox.traffic)]
    {
        let listed = ask("GET", "/contexts", header, key).expect(200);
        let languages: Vec<_> =
            listed.as_array().unwrap().iter().map(|it| it["language"].as_str().unwrap()).collect();
        // There before the first code runs.
        assert_eq!(languages, ["python", "javascript"]);
    }
}

#[test]
fn a_program_behind_a_port_is_sent_what_is_its_own_and_as_it_was_written() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let (port, served) = program();
    let cookie = format!("stead_{}", server.address.port());
    let request = server
        .client()
        .request("GET", "/a?x=1&DAYTONA_SANDBOX_AUTH_KEY=secret&y=%20b+c")
        .without("host")
        .header("Host", &host(&server, port, &sandbox.id))
        .header("X-Own-Header", "kept")
        .header("X-Secret-Hop", "secret")
        .header("Connection", "x-secret-hop, keep-alive")
        .header("Cookie", &format!("own=kept; {cookie}=secret; {cookie}_share=secret"))
        .header("X-API-Key", "secret")
        .header("E2B-Traffic-Access-Token", "secret")
        .header("X-Daytona-Preview-Token", "secret");
    let mut stream = request.start();
    let mut head = [0; 4096];
    let mut answer = String::new();
    while !answer.ends_with("ok") {
        let count = stream.read(&mut head).unwrap();
        assert_ne!(count, 0, "cut off after {answer:?}");
        answer.push_str(&String::from_utf8_lossy(&head[..count]));
    }
    let seen = served.join().unwrap();
    assert!(!seen.contains("secret") && !seen.contains(&server.token), "{seen}");
    assert!(seen.starts_with("GET /a?x=1&y=%20b+c HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("\r\nX-Own-Header: kept\r\n"), "{seen}");
    assert!(seen.contains("\r\nCookie: own=kept\r\n"), "{seen}");
    assert!(answer.contains("\r\nX-Answer-Name: seen\r\n"), "{answer}");
    assert!(!answer.to_lowercase().contains("x-hop"), "{answer}");
}

#[test]
fn the_control_plane_has_the_name_that_clients_make_of_a_domain() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "names=stead.example"]);
    let list = |host: &str| {
        let request = server.client().request("GET", "/v2/sandboxes").header("host", host);
        request.send().status
    };
    assert_eq!(list("api.stead.example"), 200);
    assert_eq!(list("api.evil.example"), 403);
    assert_eq!(list("other.stead.example"), 403);
}

#[test]
fn directories_links_and_events_are_reported_as_by_the_daemon() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let call = |method: &str, body: Value| {
        let target = format!("/filesystem.Filesystem/{method}");
        let request = server.stranger().request("POST", &target);
        request.header("x-access-token", &sandbox.access).json(&body).send().expect(200)
    };
    let root = home.path().canonicalize().unwrap().join("watched");
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(root.join("below")).unwrap();
    std::fs::write(root.join("below/file"), "x").unwrap();
    symlink("below", root.join("link")).unwrap();
    symlink("link/file", root.join("twice")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let place = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let stat = |name: &str| call("Stat", json!({"path": place(name)}))["entry"].clone();
    let size = std::fs::metadata(root.join("below")).unwrap().len();
    assert_eq!(stat("below")["size"], size.to_string());
    assert_eq!(stat("link")["symlinkTarget"], place("below"));
    assert_eq!(stat("twice")["symlinkTarget"], place("below/file"));
    // One that leads nowhere is its own target.
    assert_eq!(stat("dangling")["symlinkTarget"], place("dangling"));

    let watcher = call("CreateWatcher", json!({"path": root}));
    let target = format!("/files?path={}", escaped(&place("new")));
    upload(&server, &sandbox, &target, &[("form-data; name=\"file\"", "hi")]).expect(200);
    let mut seen = Vec::new();
    wait_for("three events", || {
        let events = call("GetWatcherEvents", watcher.clone());
        seen.extend(events["events"].as_array().into_iter().flatten().map(|event| {
            format!("{} {}", event["name"].as_str().unwrap(), event["type"].as_str().unwrap())
        }));
        if seen.len() >= 3 { Ok(()) } else { Err(seen.clone()) }
    });
    assert_eq!(seen, ["new EVENT_TYPE_CREATE", "new EVENT_TYPE_CHMOD", "new EVENT_TYPE_WRITE"]);
}

/// Runs a program of a sandbox to its end: standard output, standard error and how it ended.
fn run(server: &Server, sandbox: &Sandbox, cmd: &str, args: &[&str]) -> (String, String, Value) {
    let message = json!({"process": {"cmd": cmd, "args": args}, "stdin": false}).to_string();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message.as_bytes());
    let request = server.stranger().request("POST", "/process.Process/Start");
    let request = request.header("x-access-token", &sandbox.access);
    let answer = request.header("content-type", "application/connect+json").body(&body).send();
    let (mut rest, mut end) = (answer.expect_status(200).body.as_slice(), Value::Null);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let [_, a, b, c, d, behind @ ..] = rest {
        let (message, behind) = behind.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        rest = behind;
        let event = serde_json::from_slice::<Value>(message).unwrap()["event"].take();
        for (name, all) in [("stdout", &mut stdout), ("stderr", &mut stderr)] {
            let bytes = event["data"][name].as_str().unwrap_or_default();
            all.extend(base64::engine::general_purpose::STANDARD.decode(bytes).unwrap());
        }
        if !event["end"].is_null() {
            end = event["end"].clone();
        }
    }
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), end)
}

#[test]
fn an_unknown_user_is_refused_as_by_the_daemon() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    // The clients raise their error of authentication for these.
    let user = base64::engine::general_purpose::STANDARD.encode("missing-user:");
    let ask = |method: &str, target: &str| {
        let request = server.stranger().request(method, target);
        let request = request.header("x-access-token", &sandbox.access);
        request
            .header("e2b-sandbox-id", &sandbox.id)
            .header("authorization", &format!("Basic {user}"))
    };
    let refused = json!({"code": "unauthenticated", "message": "invalid username: 'missing-user'"});
    let stat = ask("POST", "/filesystem.Filesystem/Stat").json(&json!({"path": "x"})).send();
    assert_eq!(stat.expect(401), refused);
    let message = json!({"process": {"cmd": "true"}}).to_string();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message.as_bytes());
    let start =
        ask("POST", "/process.Process/Start").header("content-type", "application/connect+json");
    let start = start.body(&body).send();
    let [2, _, _, _, _, end @ ..] = start.expect_status(200).body.as_slice() else {
        panic!("no end of the stream: {}", start.text());
    };
    assert_eq!(serde_json::from_slice::<Value>(end).unwrap()["error"], refused);
    let read = ask("GET", "/files?path=/etc/hostname&username=missing-user").send().expect(401);
    let unknown = "error looking up user 'missing-user': user: unknown user missing-user";
    assert_eq!(read["message"], unknown);
}

#[test]
fn a_command_may_be_longer_than_an_argument() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let long = "x".repeat(200 << 10);
    let command = format!("long='{long}'; echo ${{#long}}; cat; exit 3");
    let (stdout, stderr, end) = run(&server, &sandbox, "/bin/bash", &["-l", "-c", &command]);
    assert_eq!((stdout.as_str(), stderr.as_str()), ("204800\n", ""));
    assert_eq!(end["exitCode"], 3);
}

#[test]
fn a_program_that_cannot_be_executed_is_reported_by_its_error_alone() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let long = "x".repeat(200 << 10);
    for (cmd, args, code, reason) in [
        ("/bin/true", &[long.as_str()][..], 126, "Argument list too long"),
        ("/nonexistent", &[], 127, "No such file or directory"),
    ] {
        let (stdout, stderr, end) = run(&server, &sandbox, cmd, args);
        assert_eq!((stdout.as_str(), &end["exitCode"]), ("", &json!(code)), "{stderr}");
        assert!(stderr.starts_with(&format!("bash: {cmd}: {reason}\n")), "{stderr:?}");
        assert!(!stderr.contains('\x1b'), "{stderr:?}");
    }
}

#[test]
fn a_new_server_lists_the_snapshot_that_sandboxes_start_from() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let listed = client.get("/daytona/snapshots").expect(200);
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, [&json!("default")]);
    assert_eq!(client.get("/daytona/snapshots/default").expect(200)["state"], "active");
    let created = client.post("/daytona/sandbox", json!({"snapshot": "default"})).expect(200);
    assert_eq!(created["snapshot"], "default");
}

/// The lines of JSON that come of a piece of Python.
fn execute(server: &Server, sandbox: &Sandbox, code: &str) -> Vec<Value> {
    let request = server.stranger().request("POST", "/execute");
    let request = request.header("host", &host(server, 49_999, &sandbox.id));
    let answer =
        request.header("x-access-token", &sandbox.access).json(&json!({"code": code})).send();
    let text = answer.expect_status(200).text();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn code_is_read_and_shown_as_a_notebook_does() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let result = |code: &str| {
        let events = execute(&server, &sandbox, code);
        let found = events.iter().find(|event| event["type"] == "result");
        found.unwrap_or_else(|| panic!("{code:?}: {events:?}"))["text"].clone()
    };
    assert_eq!(result("\n    x = 1\n    if x:\n        x = 2\n    x"), "2");
    assert_eq!(result("'a string'"), "a string");
    assert_eq!(result("['a']"), "['a']");
}

#[test]
fn code_that_runs_while_its_sandbox_is_killed_is_cut_off() {
    let home = Home::new();
    let server = Server::start(&home);
    let sandbox = create(&server, json!({}));
    let request = server.stranger().request("POST", "/execute");
    let request = request.header("host", &host(&server, 49_999, &sandbox.id));
    let request = request.header("x-access-token", &sandbox.access);
    let code = "import time; print('ready'); time.sleep(600)";
    let mut stream = request.json(&json!({"code": code})).start();
    let (mut answer, mut buffer) = (String::new(), [0; 4096]);
    while !answer.contains("ready") {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "cut off after {answer:?}");
        answer.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    server.client().delete(&format!("/sandboxes/{}", sandbox.id)).expect_status(204);
    let mut rest = Vec::new();
    // A connection that is reset is cut off, too.
    let _ = stream.read_to_end(&mut rest);
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.ends_with("0\r\n\r\n") && !rest.contains("ContextEnded"), "{rest:?}");
    let request = server.stranger().request("POST", "/execute");
    let request = request.header("host", &host(&server, 49_999, &sandbox.id));
    let answer = request.header("x-access-token", &sandbox.access).json(&json!({})).send();
    assert_eq!(answer.status, 502, "{}", answer.text());
}
