//! `/api/sandboxes`: creation by name, lists, lifetimes, and the use that wakes a sandbox.

use serde_json::{Value, json};

use harness::{Client, Home, Server, wait_for};

fn create(client: &Client, body: Value) -> Value {
    client.post("/api/sandboxes", body).expect(201)
}

fn target(sandbox: &Value, verb: &str) -> String {
    format!("/api/sandboxes/{}{verb}", sandbox["sandbox_id"].as_str().unwrap())
}

fn exec(client: &Client, sandbox: &Value, command: &str) -> Value {
    let target = format!("/api/threads/{}/exec", sandbox["thread_id"].as_str().unwrap());
    client.post(&target, json!({"command": command})).expect(200)
}

fn wait_for_state(client: &Client, sandbox: &Value, state: &str) -> Value {
    wait_for(state, || {
        let sandbox = client.get(&target(sandbox, "")).expect(200);
        if sandbox["state"] == state { Ok(sandbox) } else { Err(sandbox.to_string()) }
    })
}

#[test]
fn a_sandbox_is_created_listed_changed_and_deleted() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let web = create(&client, json!({"name": "web", "labels": {"team": "web", "tier": "1"}}));
    let other = create(&client, json!({"env": {"COLOUR": "green"}}));
    assert_eq!((&web["state"], &web["origin"]), (&json!("running"), &json!("stead")));
    assert_eq!((&web["expires_at"], &web["on_timeout"]), (&Value::Null, &json!("suspend")));
    assert_eq!(exec(&client, &other, "echo $COLOUR")["stdout"], "green\n");
    let ids = |query: &str| -> Vec<String> {
        let page = client.get(&format!("/api/sandboxes{query}")).expect(200);
        let id = |item: &Value| item["sandbox_id"].as_str().unwrap().to_owned();
        page["items"].as_array().unwrap().iter().map(id).collect()
    };
    let id = |sandbox: &Value| sandbox["sandbox_id"].as_str().unwrap().to_owned();
    assert_eq!(ids(""), [id(&other), id(&web)]);
    assert_eq!(ids("?label=team=web,tier=1"), [id(&web)]);
    assert_eq!(ids("?label=team=db"), [""; 0]);
    assert_eq!(ids("?state=paused,suspended"), [""; 0]);
    assert_eq!(ids("?state=running&limit=1"), [id(&other)]);
    assert_eq!(client.get("/api/sandboxes?state=gone").problem(400), "invalid_query");
    assert_eq!(client.get("/api/sandboxes?label=team").problem(400), "invalid_query");

    let change = json!({"name": "db", "labels": {"team": "db"}, "timeout_s": 3600});
    let changed = client.patch(&target(&web, ""), change).expect(200);
    assert_eq!((&changed["name"], &changed["timeout_s"]), (&json!("db"), &json!(3600)));
    assert_eq!(ids("?label=team=db"), [id(&web)]);
    let at = |sandbox: &Value| sandbox["expires_at"].as_str().unwrap().to_owned();
    let longer = client.post(&target(&web, "/extend"), json!({"timeout_s": 7200})).expect(200);
    assert!(at(&longer) > at(&changed), "{longer}");
    let same = client.post(&target(&web, "/extend"), json!({"timeout_s": 60})).expect(200);
    assert_eq!(at(&same), at(&longer), "a lifetime is not shortened by an extension");

    client.delete(&target(&web, "")).expect_status(204);
    assert_eq!(client.get(&target(&web, "")).problem(404), "not_found");
    assert_eq!(ids(""), [id(&other)]);

    // No thread takes the place of a sandbox: it could run without isolation.
    let thread = format!("/api/threads/{}", id(&web));
    let command = json!({"command": "true"});
    assert_eq!(client.post(&format!("{thread}/exec"), command).problem(404), "not_found");
    assert_eq!(client.post(&format!("{thread}/terminals"), json!({})).problem(404), "not_found");
    assert_eq!(client.put(&thread, json!({})).problem(404), "not_found");
    assert_eq!(client.get(&thread).problem(404), "not_found");
}

#[test]
fn one_sandbox_has_a_name_however_often_it_is_requested() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = || client.post("/api/sandboxes", json!({"name": "build"}));
        let askers: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        askers.into_iter().map(|asker| asker.join().unwrap()).collect()
    });
    let created = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(created, 1, "{answers:?}");
    let mut ids: Vec<_> =
        answers.iter().map(|answer| answer.json()["sandbox_id"].clone()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(client.get("/api/sandboxes").expect(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_bad_field_is_named_and_creates_nothing() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let detail = |body: Value| {
        let refused = client.post("/api/sandboxes", body);
        assert!((400..500).contains(&refused.status), "{refused:?}");
        refused.json()["detail"].as_str().unwrap().to_owned()
    };
    assert!(detail(json!({"name": ""})).starts_with("/name: "));
    assert!(detail(json!({"provider": "moon"})).starts_with("/provider: must be one of "));
    assert!(detail(json!({"timeout_s": 0})).starts_with("/timeout_s: "));
    assert!(detail(json!({"on_timeout": "explode"})).starts_with("/on_timeout: "));
    assert!(detail(json!({"labels": {"a=b": "c"}})).starts_with("/labels: "));
    assert!(detail(json!({"memory": "512m", "provider": "local"})).starts_with("/memory: "));
    assert!(detail(json!({"image": "a", "snapshot": "b"})).starts_with("/snapshot: "));
    assert!(detail(json!({"project_id": "none-00000000"})).contains("none-00000000"));
    assert_eq!(client.get("/api/sandboxes").expect(200)["items"], json!([]));
    assert_eq!(client.get("/api/threads").expect(200)["items"], json!([]));
}

#[test]
fn a_use_wakes_a_sandbox_and_starts_a_new_lifetime() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let sandbox = create(&client, json!({"name": "nap", "timeout_s": 3600}));
    exec(&client, &sandbox, "cd /tmp; KEPT=yes; export KEPT");
    for verb in ["/pause", "/suspend"] {
        let at_rest = client.post(&target(&sandbox, verb), json!({})).expect(200);
        assert_ne!(at_rest["state"], "running", "{at_rest}");
        assert_eq!(exec(&client, &sandbox, "echo $KEPT $PWD")["stdout"], "yes /tmp\n");
        wait_for_state(&client, &sandbox, "running");
        // The workspace is the project's; every other file is one of the sandbox.
        let at_rest = client.post(&target(&sandbox, verb), json!({})).expect(200);
        let thread = sandbox["thread_id"].as_str().unwrap();
        let list = |path: &str| format!("/api/threads/{thread}/fs/list?path={path}&limit=1");
        client.get(&list("/workspace")).expect(200);
        assert_eq!(client.get(&target(&sandbox, "")).expect(200)["state"], at_rest["state"]);
        client.get(&list("/etc")).expect(200);
        wait_for_state(&client, &sandbox, "running");
    }
    let refused = client.post(&target(&sandbox, "/suspend"), json!({"memory": true}));
    assert_eq!(refused.problem(409), "not_supported");
    // Its lifetime ends, and a use after that starts the next one.
    let short = client.patch(&target(&sandbox, ""), json!({"timeout_s": 1})).expect(200);
    wait_for("the end of the lifetime", || {
        let sandbox = client.get(&target(&sandbox, "")).expect(200);
        if sandbox["state"] == "running" { Err(sandbox.to_string()) } else { Ok(()) }
    });
    exec(&client, &sandbox, "true");
    wait_for("the next lifetime", || {
        let sandbox = client.get(&target(&sandbox, "")).expect(200);
        let is_later = sandbox["expires_at"].as_str() > short["expires_at"].as_str();
        if is_later { Ok(()) } else { Err(sandbox.to_string()) }
    });
    client.patch(&target(&sandbox, ""), json!({"timeout_s": 3600})).expect(200);
    client.post(&target(&sandbox, "/suspend"), json!({})).expect(200);
    drop(server);
    let server = Server::start(&home);
    let client = server.client();
    assert_eq!(exec(&client, &sandbox, "echo $KEPT $PWD")["stdout"], "yes /tmp\n");
    wait_for_state(&client, &sandbox, "running");
}
