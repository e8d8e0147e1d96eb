//! Share links: read-only access to one terminal, for a limited time.

use serde_json::{Value, json};

use harness::{Answer, Client, Frame, Home, Server, run, wait_for};

/// A server with a terminal, and another in the same thread.
struct World {
    server: Server,
    home: Home,
    terminal: String,
    other: String,
}

/// A share link that was created.
struct Link {
    id: String,
    secret: String,
}

impl World {
    fn new() -> World {
        let home = Home::new();
        let server = Server::start(&home);
        let client = server.client();
        client.put("/api/threads/t", json!({"provider": "local"})).expect_success();
        let id = |answer: Value| answer["terminal_id"].as_str().unwrap().to_owned();
        let terminal = id(client.get("/api/threads/t/terminal").expect(200));
        let other = id(client.post("/api/threads/t/terminals", json!({})).expect(201));
        client.post("/api/threads/t/exec", json!({"command": "echo shown"})).expect(200);
        World { server, home, terminal, other }
    }

    fn at(&self, end: &str) -> String {
        format!("/api/terminals/{}{end}", self.terminal)
    }

    fn share(&self, body: Value) -> Link {
        link(&self.server.client().post(&self.at("/shares"), body))
    }

    fn guest(&self, link: &Link) -> Client {
        Client::new(self.server.address, Some(&link.secret))
    }
}

fn link(answer: &Answer) -> Link {
    let made = answer.expect(201);
    let url = made["url"].as_str().unwrap();
    let (page, secret) = url.split_once('#').unwrap();
    assert!(page.ends_with("/ui/share"), "{url}");
    Link { id: made["share_id"].as_str().unwrap().to_owned(), secret: secret.to_owned() }
}

#[test]
fn a_link_permits_the_routes_of_its_terminal_and_no_other() {
    let world = World::new();
    let guest = world.guest(&world.share(json!({"name": "review"})));
    assert!(guest.get(&world.at("/snapshot?format=text")).text().contains("shown"));
    assert_eq!(guest.get(&world.at("/share")).expect(200)["name"], "review");
    guest.get(&world.at("/recording")).expect_status(200);
    guest.request("GET", &world.at("/stream")).events().until("snapshot");

    let shown = ["/stream", "/ws", "/snapshot", "/recording", "/share"].map(|end| world.at(end));
    // These need no authentication.
    let open = ["GET /healthz", "GET /readyz", "GET /login", "POST /api/shares/open"];
    let document = world.server.client().get("/openapi.json").expect(200);
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method = method.to_ascii_uppercase();
            for terminal in [&world.terminal, &world.other] {
                let mut target = path.replace("{tid}", "t").replace("{sid}", "t");
                target = target.replace("{id}", terminal).replace("{v}", "1");
                while let (Some(from), Some(to)) = (target.find('{'), target.find('}')) {
                    target.replace_range(from..=to, "x");
                }
                let name = format!("{method} {target}");
                if (method == "GET" && shown.contains(&target)) || open.contains(&&*name) {
                    continue;
                }
                let answer = guest.request(&method, &target).json(&json!({})).send();
                assert_eq!(answer.problem(403), "forbidden", "{name}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused} routes were tried");
    for target in ["/docs/api", "/openapi.json", "/metrics", "/nothing/here"] {
        assert_eq!(guest.get(target).problem(403), "forbidden", "{target}");
    }
}

#[test]
fn a_guest_sees_the_output_and_cannot_act() {
    let world = World::new();
    let owner = world.server.client();
    let guest = world.guest(&world.share(json!({"name": "mum"})));
    let mut socket = guest.socket(&world.at("/ws?mode=driver&name=root"), &[]).unwrap();
    let Frame::Control(hello) = socket.next() else { panic!("no hello") };
    assert_eq!((&hello["mode"], &hello["driver"]), (&json!("viewer"), &Value::Null), "{hello}");
    socket.type_bytes(b"touch /tmp/never\r");
    for message in [
        json!({"type": "input", "data": "x"}),
        json!({"type": "take_over"}),
        json!({"type": "hand_back"}),
        json!({"type": "resize", "cols": 20, "rows": 5}),
        json!({"type": "signal", "signal": "INT"}),
    ] {
        socket.send(&message);
    }
    let mut refusals = 0;
    while refusals < 6 {
        match socket.next() {
            Frame::Control(message) if message["type"] == "error" => {
                assert_eq!(message["code"], "forbidden", "{message}");
                refusals += 1;
            }
            Frame::Closed => panic!("closed after {refusals} refusals"),
            Frame::Control(_) | Frame::Bytes(_) => {}
        }
    }
    let before = owner.get(&world.at("")).expect(200);
    assert_eq!((&before["cols"], &before["driver"]), (&json!(80), &Value::Null), "{before}");
    assert_eq!(before["clients"], 1, "the owner sees the viewer: {before}");
    owner.post("/api/threads/t/exec", json!({"command": "echo li''ve"})).expect(200);
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("live") {
        match socket.next() {
            Frame::Bytes(bytes) => seen.extend(bytes),
            Frame::Control(_) => {}
            Frame::Closed => panic!("closed after {}", String::from_utf8_lossy(&seen)),
        }
    }
}

#[test]
fn watching_by_a_link_starts_and_resumes_nothing() {
    let world = World::new();
    let owner = world.server.client();
    let guest = world.guest(&world.share(json!({})));
    owner.post("/api/threads/t/session/close", json!({})).expect_success();
    owner.post("/api/threads/t/pause", json!({})).expect_success();
    let mut socket = guest.socket(&world.at("/ws"), &[]).unwrap();
    let Frame::Control(hello) = socket.next() else { panic!("no hello") };
    assert_eq!(hello["mode"], "viewer", "{hello}");
    guest.get(&world.at("/snapshot")).expect_status(200);
    let lease = owner.get("/api/threads/t/lease").expect(200);
    assert_eq!(lease["instance"]["state"], "paused", "{lease}");
    let session = owner.get("/api/threads/t/session").expect(200);
    assert_eq!(session["status"], "closed", "{session}");
}

#[test]
fn a_guest_keeps_no_session_open() {
    let world = World::new();
    let owner = world.server.client();
    let policy = json!({"idle_timeout_s": 2, "max_duration_s": 600, "on_expiry": "keep"});
    owner
        .put("/api/threads/brief", json!({"provider": "local", "policy": policy}))
        .expect_success();
    let ran = owner.post("/api/threads/brief/exec", json!({"command": "true"})).expect(200);
    let at = format!("/api/terminals/{}", ran["terminal_id"].as_str().unwrap());
    let guest = world.guest(&link(&owner.post(&format!("{at}/shares"), json!({}))));
    let mut socket = guest.socket(&format!("{at}/ws"), &[]).unwrap();
    wait_for("the session's end", || {
        let session = owner.get("/api/threads/brief/session").expect(200);
        if session["status"] == "expired" { Ok(()) } else { Err(session) }
    });
    socket.send(&json!({"type": "ping"}));
    assert!(
        std::iter::from_fn(|| Some(socket.next()))
            .take(20)
            .any(|frame| { frame == Frame::Control(json!({"type": "pong"})) }),
        "the guest is still connected"
    );
}

#[test]
fn revoking_a_link_disconnects_its_viewers() {
    let world = World::new();
    let (owner, link) = (world.server.client(), world.share(json!({})));
    let kept = world.share(json!({}));
    let guest = world.guest(&link);
    let mut socket = guest.socket(&world.at("/ws"), &[]).unwrap();
    let mut events = guest.request("GET", &world.at("/stream")).events();
    events.until("snapshot");
    let mut other = world.guest(&kept).socket(&world.at("/ws"), &[]).unwrap();
    let revoke = format!("/api/shares/{}", link.id);
    owner.delete(&revoke).expect_status(204);
    while socket.next() != Frame::Closed {}
    assert!(std::iter::from_fn(|| events.next()).all(|event| event.name != "exit"));
    assert_eq!(guest.get(&world.at("/snapshot")).problem(401), "unauthorized");
    owner.delete(&revoke).expect_status(204);
    other.send(&json!({"type": "ping"}));
    let pong = std::iter::from_fn(|| Some(other.next()));
    let pong = pong.take_while(|frame| *frame != Frame::Closed);
    assert!(pong.into_iter().any(|frame| frame == Frame::Control(json!({"type": "pong"}))));

    let list = owner.get(&world.at("/shares")).expect(200);
    let status = |id: &str| {
        let items = list["items"].as_array().unwrap();
        items.iter().find(|one| one["share_id"] == id).unwrap()["status"].clone()
    };
    assert_eq!((status(&link.id), status(&kept.id)), (json!("revoked"), json!("active")));
    assert_eq!(owner.get("/api/shares").expect(200)["items"], list["items"]);
}

#[test]
fn a_link_expires() {
    let world = World::new();
    let guest = world.guest(&world.share(json!({"expires_in_s": 2})));
    let mut socket = guest.socket(&world.at("/ws"), &[]).unwrap();
    let mut events = guest.request("GET", &world.at("/stream")).events();
    while socket.next() != Frame::Closed {}
    while events.next().is_some() {}
    assert_eq!(guest.get(&world.at("/snapshot")).problem(401), "unauthorized");
    let list = world.server.client().get(&world.at("/shares")).expect(200);
    assert_eq!(list["items"][0]["status"], "expired", "{list}");
    for wrong in [json!(0), json!(30 * 24 * 3600 + 1)] {
        let body = json!({"expires_in_s": wrong});
        world.server.client().post(&world.at("/shares"), body).problem(400);
    }
}

#[test]
fn the_secret_is_only_in_the_link_and_survives_a_restart() {
    let world = World::new();
    let (kept, gone) = (world.share(json!({})), world.share(json!({})));
    world.server.client().delete(&format!("/api/shares/{}", gone.id)).expect_status(204);
    // Responses to requests with a key are recorded, except this one.
    let keyed = || {
        let client = world.server.client();
        let request = client.request("POST", &world.at("/shares")).json(&json!({}));
        link(&request.header("idempotency-key", "k").send())
    };
    let (first, second) = (keyed(), keyed());
    assert_eq!(first.id, second.id);
    assert_eq!(world.guest(&first).get(&world.at("/share")).problem(401), "unauthorized");
    world.guest(&second).get(&world.at("/share")).expect_status(200);
    for file in ["stead.db", "stead.db-wal"] {
        let bytes = std::fs::read(world.home.path().join(file)).unwrap_or_default();
        for secret in [&kept.secret, &second.secret] {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "a secret is in {file}");
        }
    }
    assert!(!world.server.log().contains(&kept.secret), "a secret is in the log");

    let World { server, home, terminal, .. } = world;
    server.kill();
    let server = Server::start(&home);
    let ask = |link: &Link| {
        let target = format!("/api/terminals/{terminal}/share");
        Client::new(server.address, Some(&link.secret)).get(&target).status
    };
    assert_eq!((ask(&kept), ask(&gone)), (200, 401));
    let target = format!("/api/terminals/{terminal}");
    server.client().delete(&target).expect_success();
    assert_eq!(ask(&kept), 404);
}

#[test]
fn the_cookie_of_a_link_is_limited_to_its_terminal_and_origin() {
    let world = World::new();
    let link = world.share(json!({"expires_in_s": 600}));
    let stranger = world.server.stranger();
    let open = |secret: &str| stranger.post("/api/shares/open", json!({"secret": secret}));
    assert_eq!(open("wrong").problem(401), "unauthorized");
    let answer = open(&link.secret);
    let shown = answer.expect(200);
    assert_eq!((&shown["terminal_id"], &shown["url"]), (&json!(world.terminal), &Value::Null));
    let set = answer.header("set-cookie").unwrap();
    let path = format!("Path=/api/terminals/{};", world.terminal);
    for part in ["HttpOnly", "SameSite=Strict", &*path, "Max-Age="] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().unwrap();
    let origin = format!("http://{}", world.server.address);
    let with = |headers: &[(&str, &str)]| {
        let headers: Vec<_> = [("cookie", cookie)].iter().chain(headers).copied().collect();
        stranger.socket(&world.at("/ws"), &headers).map(|_| ())
    };
    assert_eq!(with(&[("origin", &origin)]), Ok(()));
    assert_eq!(with(&[("origin", "http://evil.example")]), Err(403));
    assert_eq!(with(&[]), Err(403));
    let input = stranger.request("POST", &world.at("/input")).header("cookie", cookie);
    let input = input.header("origin", &origin).json(&json!({"data": "x"})).send();
    assert_eq!(input.problem(403), "forbidden");
}

#[test]
fn the_command_line_creates_lists_and_revokes_links() {
    let world = World::new();
    let home = world.home.path().to_str().unwrap();
    let stead = |arguments: &[&str]| {
        let output = run(arguments, &[("STEAD_HOME", home)]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let url = stead(&["share", "create", "t", "--for", "2h", "--name", "review"]);
    let secret = url.trim().split_once("/ui/share#").unwrap().1.to_owned();
    let list: Value = serde_json::from_str(&stead(&["share", "ls", "t", "--json"])).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["status"]), (&json!("review"), &json!("active")));
    let id = list[0]["share_id"].as_str().unwrap();
    assert!(stead(&["share", "ls"]).contains(id));
    let guest = Client::new(world.server.address, Some(&secret));
    guest.get(&world.at("/share")).expect_status(200);
    stead(&["share", "revoke", id]);
    assert_eq!(guest.get(&world.at("/share")).problem(401), "unauthorized");
}

#[test]
fn resource_usage_is_reported_while_a_client_watches_and_listens() {
    let world = World::new();
    let owner = world.server.client();
    let mut events = owner.request("GET", "/api/events").events();
    let _socket = owner.socket(&world.at("/ws"), &[]).unwrap();
    let measured = wait_for("a measurement", || {
        let event = events.until("instance_measured");
        // Without an id, so that a reconnecting client does not get old ones.
        if event.id.is_none() { Ok(event.json()) } else { Err(event) }
    });
    let lease = owner.get("/api/threads/t/lease").expect(200);
    assert_eq!(measured["lease_id"], lease["lease_id"]);
    assert_eq!(measured["instance_id"], lease["instance"]["instance_id"]);
    assert!(measured["processes"].as_u64().unwrap() >= 2, "{measured}");
}
