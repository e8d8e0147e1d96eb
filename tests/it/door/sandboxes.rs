//! Authorization of the E2B and Daytona APIs: which key authorizes which sandbox.

use std::io::{BufReader, Write};

use serde_json::{Value, json};

use harness::{Answer, Client, Home, Server};

/// Every route of E2B's that is served.
const ROUTES: &[(&str, &str)] = &[
    ("GET", "/sandboxes"),
    ("POST", "/sandboxes"),
    ("GET", "/v2/sandboxes"),
    ("POST", "/v2/sandboxes"),
    ("GET", "/sandboxes/metrics"),
    ("GET", "/sandboxes/x"),
    ("DELETE", "/sandboxes/x"),
    ("POST", "/sandboxes/x/pause"),
    ("POST", "/sandboxes/x/resume"),
    ("POST", "/sandboxes/x/connect"),
    ("POST", "/v2/sandboxes/x/connect"),
    ("PUT", "/sandboxes/x/network"),
    ("POST", "/sandboxes/x/timeout"),
    ("POST", "/sandboxes/x/refreshes"),
    ("GET", "/sandboxes/x/metrics"),
    ("GET", "/sandboxes/x/logs"),
    ("GET", "/v2/sandboxes/x/logs"),
    ("POST", "/sandboxes/x/snapshots"),
    ("GET", "/volumes"),
    ("POST", "/volumes"),
    ("GET", "/volumes/x"),
    ("DELETE", "/volumes/x"),
    ("GET", "/volumecontent/x/dir?path=/"),
    ("POST", "/volumecontent/x/dir?path=/"),
    ("GET", "/volumecontent/x/path?path=/"),
    ("PATCH", "/volumecontent/x/path?path=/"),
    ("DELETE", "/volumecontent/x/path?path=/"),
    ("GET", "/volumecontent/x/file?path=/a"),
    ("PUT", "/volumecontent/x/file?path=/a"),
    ("GET", "/snapshots"),
    ("GET", "/templates"),
    ("GET", "/v2/templates"),
    ("POST", "/v2/templates"),
    ("POST", "/v3/templates"),
    ("GET", "/templates/x"),
    ("PATCH", "/templates/x"),
    ("DELETE", "/templates/x"),
    ("PATCH", "/v2/templates/x"),
    ("POST", "/templates/tags"),
    ("DELETE", "/templates/tags"),
    ("GET", "/templates/x/tags"),
    ("GET", "/templates/x/files/0123456789abcdef"),
    ("PUT", "/templates/x/files/0123456789abcdef"),
    ("PUT", "/templates/x/files/0123456789abcdef?until=9999999999&signature=0123"),
    ("POST", "/v2/templates/x/builds/y"),
    ("GET", "/templates/x/builds/y/status"),
    ("GET", "/templates/x/builds/y/logs"),
    ("GET", "/templates/aliases/x"),
    ("GET", "/health"),
    ("GET", "/envs"),
    ("GET", "/files?path=/etc/passwd"),
    ("POST", "/files?path=/tmp/x"),
    ("POST", "/process.Process/List"),
    ("POST", "/process.Process/Start"),
    ("POST", "/process.Process/Connect"),
    ("POST", "/process.Process/SendInput"),
    ("POST", "/process.Process/StreamInput"),
    ("POST", "/process.Process/CloseStdin"),
    ("POST", "/process.Process/SendSignal"),
    ("POST", "/process.Process/Update"),
    ("POST", "/filesystem.Filesystem/Stat"),
    ("POST", "/filesystem.Filesystem/MakeDir"),
    ("POST", "/filesystem.Filesystem/Move"),
    ("POST", "/filesystem.Filesystem/ListDir"),
    ("POST", "/filesystem.Filesystem/Remove"),
    ("POST", "/filesystem.Filesystem/WatchDir"),
    ("POST", "/filesystem.Filesystem/CreateWatcher"),
    ("POST", "/filesystem.Filesystem/GetWatcherEvents"),
    ("POST", "/filesystem.Filesystem/RemoveWatcher"),
];

/// Every route of Daytona's that is served.
const OF_DAYTONA: &[(&str, &str)] = &[
    ("GET", "/config"),
    ("GET", "/sandbox"),
    ("POST", "/sandbox"),
    ("GET", "/sandbox/paginated"),
    ("GET", "/sandbox/x"),
    ("DELETE", "/sandbox/x"),
    ("POST", "/sandbox/x/start"),
    ("POST", "/sandbox/x/stop"),
    ("POST", "/sandbox/x/archive"),
    ("POST", "/sandbox/x/recover"),
    ("POST", "/sandbox/x/last-activity"),
    ("PUT", "/sandbox/x/labels"),
    ("POST", "/sandbox/x/network-settings"),
    ("POST", "/sandbox/x/autostop/1"),
    ("POST", "/sandbox/x/autoarchive/1"),
    ("POST", "/sandbox/x/autodelete/1"),
    ("POST", "/sandbox/x/ttl/1"),
    ("POST", "/sandbox/x/public/true"),
    ("GET", "/sandbox/x/ports/80/preview-url"),
    ("GET", "/sandbox/x/ports/80/signed-preview-url"),
    ("POST", "/sandbox/x/pause"),
    ("GET", "/sandbox/x/build-logs"),
    ("GET", "/sandbox/x/build-logs-url"),
    ("GET", "/snapshots"),
    ("POST", "/snapshots"),
    ("GET", "/snapshots/x"),
    ("DELETE", "/snapshots/x"),
    ("POST", "/snapshots/x/activate"),
    ("GET", "/snapshots/x/build-logs"),
    ("GET", "/snapshots/x/build-logs-url"),
    ("GET", "/object-storage/push-access"),
    ("GET", "/sandbox/x/toolbox-proxy-url"),
    ("POST", "/sandbox/x/resize"),
    ("GET", "/sandbox/x/telemetry/metrics"),
    ("GET", "/sandbox/x/signing-key"),
    ("POST", "/sandbox/x/signing-key/rotate"),
    ("POST", "/sandbox/x/ports/80/signed-preview-url/t/expire"),
    ("GET", "/volumes"),
    ("POST", "/volumes"),
    ("GET", "/volumes/x"),
    ("GET", "/volumes/by-name/x"),
    ("DELETE", "/volumes/x"),
    ("GET", "/toolbox/x/files/download?path=/etc/passwd&expires=0&signature=v1_x"),
    ("POST", "/toolbox/x/files/upload-v2"),
    ("POST", "/toolbox/x/files/upload-v2?path=/tmp/x&expires=0&signature=v1_x"),
    ("GET", "/toolbox/x/process/session/entrypoint"),
    ("GET", "/toolbox/x/process/session/entrypoint/logs"),
    ("GET", "/toolbox/x/system/metrics"),
    ("GET", "/toolbox/x/version"),
    ("GET", "/toolbox/x/work-dir"),
    ("GET", "/toolbox/x/user-home-dir"),
    ("GET", "/toolbox/x/project-dir"),
    ("POST", "/toolbox/x/process/execute"),
    ("POST", "/toolbox/x/process/code-run"),
    ("GET", "/toolbox/x/process/session"),
    ("POST", "/toolbox/x/process/session"),
    ("GET", "/toolbox/x/process/session/s"),
    ("DELETE", "/toolbox/x/process/session/s"),
    ("POST", "/toolbox/x/process/session/s/exec"),
    ("GET", "/toolbox/x/process/session/s/command/c"),
    ("GET", "/toolbox/x/process/session/s/command/c/logs"),
    ("POST", "/toolbox/x/process/session/s/command/c/input"),
    ("GET", "/toolbox/x/process/pty"),
    ("POST", "/toolbox/x/process/pty"),
    ("GET", "/toolbox/x/process/pty/create-connect"),
    ("GET", "/toolbox/x/process/pty/p"),
    ("DELETE", "/toolbox/x/process/pty/p"),
    ("POST", "/toolbox/x/process/pty/p/resize"),
    ("GET", "/toolbox/x/process/pty/p/connect"),
    ("GET", "/toolbox/x/process/interpreter/execute"),
    ("GET", "/toolbox/x/process/interpreter/context"),
    ("POST", "/toolbox/x/process/interpreter/context"),
    ("DELETE", "/toolbox/x/process/interpreter/context/c"),
    ("GET", "/toolbox/x/port"),
    ("GET", "/toolbox/x/port/80/in-use"),
    ("POST", "/toolbox/x/git/clone"),
    ("POST", "/toolbox/x/git/init"),
    ("GET", "/toolbox/x/git/status"),
    ("GET", "/toolbox/x/git/branches"),
    ("POST", "/toolbox/x/git/branches"),
    ("DELETE", "/toolbox/x/git/branches"),
    ("POST", "/toolbox/x/git/checkout"),
    ("POST", "/toolbox/x/git/add"),
    ("POST", "/toolbox/x/git/commit"),
    ("GET", "/toolbox/x/git/history"),
    ("POST", "/toolbox/x/git/pull"),
    ("POST", "/toolbox/x/git/push"),
    ("POST", "/toolbox/x/git/reset"),
    ("POST", "/toolbox/x/git/restore"),
    ("GET", "/toolbox/x/git/remotes"),
    ("POST", "/toolbox/x/git/remotes"),
    ("GET", "/toolbox/x/git/config"),
    ("POST", "/toolbox/x/git/config"),
    ("POST", "/toolbox/x/git/config/user"),
    ("POST", "/toolbox/x/git/credentials"),
    ("GET", "/toolbox/x/files"),
    ("DELETE", "/toolbox/x/files"),
    ("GET", "/toolbox/x/files/info"),
    ("POST", "/toolbox/x/files/folder"),
    ("GET", "/toolbox/x/files/download"),
    ("POST", "/toolbox/x/files/upload"),
    ("POST", "/toolbox/x/files/bulk-upload"),
    ("POST", "/toolbox/x/files/bulk-download"),
    ("POST", "/toolbox/x/files/move"),
    ("GET", "/toolbox/x/files/find"),
    ("GET", "/toolbox/x/files/search"),
    ("POST", "/toolbox/x/files/replace"),
    ("POST", "/toolbox/x/files/permissions"),
];

struct Sandbox {
    id: String,
    key: String,
}

fn make(server: &Server) -> Sandbox {
    let asked = json!({"templateID": "local", "timeout": 600});
    let made = server.client().post("/v2/sandboxes", asked).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    Sandbox { id: text("sandboxID"), key: text("envdAccessToken") }
}

/// A call to the daemon of a sandbox, with a key.
fn list(server: &Server, id: Option<&str>, key: &str) -> Answer {
    let stranger = server.stranger();
    let mut request = stranger
        .request("POST", "/filesystem.Filesystem/ListDir")
        .header("x-access-token", key)
        .json(&json!({"path": "/etc"}));
    if let Some(id) = id {
        request = request.header("e2b-sandbox-id", id);
    }
    request.send()
}

#[test]
fn no_route_is_open_without_a_key() {
    let home = Home::new();
    let server = Server::start(&home);
    let wrong = Client::new(server.address, Some("wrong"));
    for (method, target) in ROUTES {
        for client in [server.stranger(), wrong.clone()] {
            let status = client.request(method, target).send().status;
            assert!(status == 401 || status == 429, "{method} {target}: {status}");
        }
        for (name, value) in [
            ("x-api-key", "wrong"),
            ("x-access-token", "ea_x_0123456789012345678901234567890123456789"),
            ("e2b-sandbox-id", "x"),
            ("authorization", "Basic dXNlcjo="),
        ] {
            let answer = server.stranger().request(method, target).header(name, value).send();
            assert!(answer.status == 401 || answer.status == 429, "{method} {target} with {name}");
            let body = answer.json();
            assert!(body["message"].is_string() && body["code"].is_number(), "{body}");
        }
    }
}

#[test]
fn the_header_that_names_a_sandbox_is_accepted_once() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut stream = server.client().connect();
    let head = format!(
        "GET /api/sandboxes HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         e2b-sandbox-id: x\r\ne2b-sandbox-id: y\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut BufReader::new(stream)).problem(400), "invalid_header");
}

#[test]
fn no_route_of_daytona_is_open_without_the_token() {
    let home = Home::new();
    let server = Server::start(&home);
    let key = make(&server).key;
    for (method, target) in OF_DAYTONA {
        let target = format!("/daytona{target}");
        let wrong = Client::new(server.address, Some("wrong"));
        for client in [server.stranger(), wrong, Client::new(server.address, Some(&key))] {
            let answer = client.request(method, &target).header("x-access-token", &key).send();
            assert!(answer.status == 401 || answer.status == 429, "{method} {target}");
            assert!(answer.json()["statusCode"].is_number(), "{method} {target}");
        }
        // With the token every route exists, whatever it responds.
        let answer = server.client().request(method, &target).send();
        assert!(!answer.text().contains("no_such_route"), "{method} {target}: {}", answer.text());
        assert!(answer.status < 500, "{method} {target}: {}", answer.text());
    }
}

#[test]
fn the_key_of_a_sandbox_authorizes_that_one_and_nothing_else() {
    let home = Home::new();
    let server = Server::start(&home);
    let (one, other) = (make(&server), make(&server));
    list(&server, Some(&one.id), &one.key).expect_status(200);
    list(&server, None, &one.key).expect_status(200);
    list(&server, Some(&other.id), &one.key).expect_status(401);
    list(&server, Some(&one.id), &format!("{}0", one.key)).expect_status(401);
    // The owner's token authorizes each.
    list(&server, Some(&other.id), &home.token()).expect_status(200);
    let key = |target: &str| {
        server.stranger().request("GET", target).header("x-access-token", &one.key).send().status
    };
    assert_eq!(key("/health"), 204);
    assert_eq!(key("/metrics"), 200);
    for target in ["/api/threads", "/sandboxes", "/api/terminals/x", "/openapi.json"] {
        assert_eq!(key(target), 401, "{target}");
    }
    // A sandbox is a thread, and goes with it.
    server.client().delete(&format!("/api/threads/{}", one.id)).expect_status(204);
    assert_eq!(list(&server, Some(&one.id), &one.key).status, 502);
    server.client().get(&format!("/sandboxes/{}", one.id)).expect_status(404);
    server.client().delete(&format!("/sandboxes/{}", other.id)).expect_status(204);
    server.client().get(&format!("/api/threads/{}", other.id)).expect_status(404);
}

#[test]
fn a_sandbox_is_found_by_the_name_of_its_host() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--set", "names=stead.example"]);
    let port = server.address.port();
    let sandbox = make(&server);
    let health = |host: &str| {
        let request = server.stranger().request("GET", "/health").header("host", host);
        request.header("x-access-token", &sandbox.key).send().status
    };
    assert_eq!(health(&format!("49983-{}.localhost:{port}", sandbox.id)), 204);
    assert_eq!(health(&format!("49983-{}.stead.example", sandbox.id)), 204);
    // A port without a listener: no route of the server responds there.
    let inside = format!("1-{}.stead.example", sandbox.id);
    assert_eq!(health(&inside), 502);
    for target in ["/api/threads", "/", "/sandboxes"] {
        let answer = server.client().request("GET", target).header("host", &inside).send();
        assert_eq!(answer.status, 502, "{target}");
        assert_eq!(answer.json()["port"], 1, "{target}");
    }
    assert_eq!(health(&format!("49983-other.localhost:{port}")), 401);
    assert_eq!(health(&format!("49983-{}.evil.example", sandbox.id)), 403);
    assert_eq!(health(&format!("49983-{}.127.0.0.1:{port}", sandbox.id)), 403);
}

#[test]
fn an_unsupported_option_is_refused_and_not_ignored() {
    let home = Home::new();
    let server = Server::start(&home);
    let create = |more: Value| {
        let mut asked = json!({"templateID": "local", "timeout": 60});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.client().post("/v2/sandboxes", asked).status
    };
    assert_eq!(create(json!({"allow_internet_access": false})), 400);
    assert_eq!(create(json!({"network": {"denyOut": ["0.0.0.0/0"]}})), 400);
    // Neither is one that is not there, nor one where nothing can be mounted.
    assert_eq!(create(json!({"volumeMounts": [{"name": "v", "path": "/v"}]})), 400);
    server.client().post("/volumes", json!({"name": "v"})).expect(201);
    assert_eq!(create(json!({"volumeMounts": [{"name": "v", "path": "/v"}]})), 400);
    assert_eq!(create(json!({"timeout": 10_000_000})), 400);
    assert_eq!(create(json!({"envVars": {"A=B": "1"}})), 400);
    assert_eq!(server.client().get("/v2/sandboxes").expect(200), json!([]));
    assert_eq!(create(json!({"allow_internet_access": true, "unknown": 1})), 201);
    let made = server.client().get("/v2/sandboxes").expect(200);
    let id = made[0]["sandboxID"].as_str().unwrap();
    let target = format!("/sandboxes/{id}/network");
    let change = |rules: Value| server.client().request("PUT", &target).json(&rules).send();
    for rules in [json!({"denyOut": ["8.8.8.8"]}), json!({"allowInternetAccess": false})] {
        let answer = change(rules);
        answer.expect_status(400);
        assert!(answer.text().contains("provider local has no settings"), "{}", answer.text());
    }
    // It reaches what it did.
    change(json!({})).expect_status(204);
    let shown = server.client().get(&format!("/sandboxes/{id}")).expect(200);
    assert_eq!((&shown["network"], &shown["allowInternetAccess"]), (&Value::Null, &Value::Null));
}
