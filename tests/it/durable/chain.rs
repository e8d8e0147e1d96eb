//! Thread, session, runtime, terminal, lease and instance over HTTP: what survives when a lower layer fails.

use serde_json::{Value, json};

use harness::terminal::{exec, open, shows};
use harness::{Client, Home, Server, wait_for};

fn session(client: &Client, thread: &str) -> Value {
    client.get(&format!("/api/threads/{thread}/session")).expect(200)
}

fn terminal(client: &Client, thread: &str) -> Value {
    client.get(&format!("/api/threads/{thread}/terminal")).expect(200)
}

fn lease(client: &Client, thread: &str) -> Value {
    client.get(&format!("/api/threads/{thread}/lease")).expect(200)
}

/// The shell of a thread has state of every kind…
fn furnish(client: &Client, thread: &str) -> Value {
    exec(
        client,
        thread,
        "cd /usr; export A='x y'; b=2; arr=(1 2); f() { echo f; }; alias l='echo l'",
    )
}

/// …and still has it.
#[track_caller]
fn is_furnished(client: &Client, thread: &str) -> Value {
    let ran = exec(client, thread, "pwd; echo \"$A $b ${arr[1]}\"; f; alias l");
    assert_eq!(ran["stdout"], "/usr\nx y 2 2\nf\nalias l='echo l'\n", "{ran}");
    ran
}

#[test]
fn all_layers_are_created_on_first_use_and_by_no_get() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    for path in ["", "/session", "/terminal", "/lease", "/terminals", "/messages"] {
        client.get(&format!("/api/threads/new{path}")).problem(404);
    }
    assert_eq!(client.get("/api/threads").expect(200)["items"], json!([]));
    let ran = exec(&client, "new", "true");
    let thread = client.get("/api/threads/new").expect(200);
    assert_eq!(thread["sandbox"]["status"], "running");
    assert_eq!(thread["sandbox"]["terminal_id"], ran["terminal_id"]);
    assert_eq!(session(&client, "new")["status"], "active");
    assert_eq!(terminal(&client, "new")["terminal_id"], ran["terminal_id"]);
    let lease = lease(&client, "new");
    assert_eq!(lease["instance"]["state"], "running");
    assert_eq!((&lease["generation"], &lease["shared_by"]), (&json!(1), &json!(["new"])));
}

#[test]
fn a_session_is_reused_until_it_is_closed_and_close_ends_the_runtime_alone() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    furnish(&client, "t");
    let first = session(&client, "t");
    is_furnished(&client, "t");
    assert_eq!(session(&client, "t")["session_id"], first["session_id"]);
    client.post("/api/threads/t/session/close", json!({})).expect_success();
    assert_eq!(session(&client, "t")["status"], "closed");
    assert_ne!(lease(&client, "t")["instance"]["state"], "running");
    let before = terminal(&client, "t");
    is_furnished(&client, "t");
    assert_ne!(session(&client, "t")["session_id"], first["session_id"]);
    assert_eq!(terminal(&client, "t")["terminal_id"], before["terminal_id"]);
}

#[test]
fn an_idle_session_expires_once_and_is_written_down_and_the_state_stays() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let mut events = client.request("GET", "/api/events").events();
    client.put("/api/threads/t", json!({"policy": {"idle_timeout_s": 1}})).expect_success();
    furnish(&client, "t");
    let first = session(&client, "t")["session_id"].clone();
    let expired = events.until("session_expired").json();
    assert_eq!(expired["session_id"], first);
    let entry = wait_for("the ledger", || {
        let ledger = client.get("/api/ledger").expect(200);
        let items = ledger["items"].as_array().unwrap();
        items.iter().find(|entry| entry["subject"] == first).cloned().ok_or(ledger)
    });
    assert_eq!(
        (&entry["kind"], &entry["detail"]["thread_id"]),
        (&json!("session_expired"), &json!("t"))
    );
    wait_for("the instance to be paused", || match &lease(&client, "t")["instance"]["state"] {
        state if state == "paused" => Ok(()),
        other => Err(other.clone()),
    });
    assert_eq!(session(&client, "t")["status"], "expired");
    let after = is_furnished(&client, "t");
    assert_eq!(after["shell_restarted"], false, "it was paused, not ended");
    assert_ne!(session(&client, "t")["session_id"], first);
    server.kill();
    let server = Server::start(&home);
    let ledger = server.client().get("/api/ledger").expect(200);
    let of_it = |entry: &&Value| entry["subject"] == first;
    assert_eq!(ledger["items"].as_array().unwrap().iter().filter(of_it).count(), 1, "{ledger}");
}

#[test]
fn a_session_ends_at_its_maximum_and_a_touch_does_not_help() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let policy =
        json!({"policy": {"idle_timeout_s": 60, "max_duration_s": 1, "on_expiry": "stop"}});
    client.put("/api/threads/t", policy).expect_success();
    furnish(&client, "t");
    let first = session(&client, "t")["session_id"].clone();
    wait_for("the maximum", || {
        client.post("/api/threads/t/session/touch", json!({}));
        let now = session(&client, "t");
        if now["status"] == "expired" || now["session_id"] != first { Ok(()) } else { Err(now) }
    });
    wait_for("the instance to be stopped", || match &lease(&client, "t")["instance"] {
        Value::Null => Ok(()),
        other => Err(other.clone()),
    });
    // The next session would end in the middle of a slow command.
    client.put("/api/threads/t", json!({"policy": {"max_duration_s": 3600}})).expect_success();
    is_furnished(&client, "t");
}

#[test]
fn the_default_policy_is_half_an_hour_and_a_day_and_a_thread_may_have_its_own() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "a", "true");
    let policy = session(&client, "a")["policy"].clone();
    assert_eq!(
        (&policy["idle_timeout_s"], &policy["max_duration_s"]),
        (&json!(1800), &json!(86400))
    );
    client.put("/api/threads/b", json!({"policy": {"idle_timeout_s": 7}})).expect_success();
    exec(&client, "b", "true");
    assert_eq!(session(&client, "b")["policy"]["idle_timeout_s"], 7);
}

#[test]
fn a_running_command_and_an_attached_person_are_activity() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let policy = json!({"policy": {"idle_timeout_s": 1}});
    client.put("/api/threads/running", policy.clone()).expect_success();
    let ran = exec(&client, "running", "sleep 2.5; echo done");
    assert_eq!(ran["stdout"], "done\n", "{ran}");

    client.put("/api/threads/watched", policy).expect_success();
    let id = open(&client, "watched", json!({}));
    let first = session(&client, "watched")["session_id"].clone();
    let watcher = client.socket(&format!("/api/terminals/{id}/ws"), &[]).unwrap();
    // The other thread's session is gone by then, so this one would be.
    wait_for("the other session", || match &session(&client, "running")["status"] {
        status if status == "expired" => Ok(()),
        other => Err(other.clone()),
    });
    let now = session(&client, "watched");
    assert_eq!(now["session_id"], first);
    assert!(now["status"] == "active" || now["status"] == "idle", "{now}");
    drop(watcher);
}

#[test]
fn state_stays_across_a_pause_a_dead_shell_a_dead_host_and_a_destroyed_lease() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    furnish(&client, "t");
    let id = terminal(&client, "t")["terminal_id"].clone();
    let lease_id = lease(&client, "t")["lease_id"].as_str().unwrap().to_owned();

    client.post("/api/threads/t/pause", json!({})).expect_success();
    assert_eq!(lease(&client, "t")["instance"]["state"], "paused");
    let refused = json!({"command": "true", "resume": false});
    assert_eq!(client.post("/api/threads/t/exec", refused).problem(409), "lease_paused");
    assert_eq!(is_furnished(&client, "t")["shell_restarted"], false);

    exec(&client, "t", "kill -9 $$");
    is_furnished(&client, "t");

    home.end_hosts();
    is_furnished(&client, "t");
    assert_eq!(lease(&client, "t")["generation"], 2);
    shows(&client, id.as_str().unwrap(), "restored from its last state");

    client.post(&format!("/api/leases/{lease_id}/destroy"), json!({})).expect_success();
    is_furnished(&client, "t");
    assert_eq!(lease(&client, "t")["lease_id"], lease_id.as_str());
    assert_eq!(terminal(&client, "t")["terminal_id"], id);
}

#[test]
fn a_lease_is_shared_by_threads_and_ends_with_the_last() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "a", "A=1; echo $$ >/dev/null");
    let shared = lease(&client, "a");
    let id = shared["lease_id"].as_str().unwrap();
    client.put("/api/threads/b", json!({"lease_id": id})).expect_success();
    assert_eq!(exec(&client, "b", "echo ${A-none}")["stdout"], "none\n");
    let now = lease(&client, "b");
    assert_eq!(now["instance"]["instance_id"], shared["instance"]["instance_id"]);
    assert_eq!(now["shared_by"], json!(["a", "b"]));
    client.delete("/api/threads/a").expect_status(204);
    assert_eq!(exec(&client, "b", "echo still")["stdout"], "still\n");
    assert_eq!(lease(&client, "b")["instance"]["instance_id"], shared["instance"]["instance_id"]);
    client.delete("/api/threads/b").expect_status(204);
    wait_for("the instance to go", || {
        let left = std::fs::read_dir(home.path().join("run")).unwrap().count();
        if left == 0 { Ok(()) } else { Err(left) }
    });
}

#[test]
fn state_is_isolated_between_threads_that_are_used_in_turn() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    for round in 0..3 {
        for thread in ["a", "b", "c"] {
            let ran = exec(&client, thread, &format!("echo ${{N-none}}; N={thread}{round}"));
            let expected =
                if round == 0 { "none\n".to_owned() } else { format!("{thread}{}\n", round - 1) };
            assert_eq!(ran["stdout"], expected);
        }
    }
}

#[test]
fn versions_rise_by_one_persist_and_differ_as_the_state_does() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let first = exec(&client, "t", "export A=1 B=1")["version"].as_u64().unwrap();
    assert_eq!(exec(&client, "t", "export A=2; unset B; cd /usr")["version"], first + 1);
    assert_eq!(exec(&client, "t", "true")["version"], first + 2);
    let id = terminal(&client, "t")["terminal_id"].as_str().unwrap().to_owned();
    server.kill();
    let server = Server::start(&home);
    let client = server.client();
    assert_eq!(terminal(&client, "t")["version"], first + 2);
    let old = client.get(&format!("/api/terminals/{id}/versions/{first}")).expect(200);
    assert_eq!(old["env"]["A"], "1", "{old}");
    let diff = client.get(&format!("/api/terminals/{id}/versions/{}?since={first}", first + 2));
    let diff = diff.expect(200);
    assert_eq!((&diff["cwd"], &diff["env"]["A"]), (&json!("/usr"), &json!("2")), "{diff}");
    assert_eq!((&diff["unset"], &diff["env"]["HOME"]), (&json!(["B"]), &Value::Null), "{diff}");
}

#[test]
fn many_threads_at_once_each_have_a_chain_of_their_own() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    std::thread::scope(|scope| {
        for number in 0..20 {
            let client = client.clone();
            scope.spawn(move || {
                let ran = exec(&client, &format!("t{number}"), &format!("echo {number}"));
                assert_eq!(ran["stdout"], format!("{number}\n"));
            });
        }
    });
    let leases = client.get("/api/leases?provider=local").expect(200);
    assert_eq!(leases["items"].as_array().unwrap().len(), 20);
    assert_eq!(client.get("/api/leases?provider=none").expect(200)["items"], json!([]));
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/api/threads?limit=7{cursor}")).expect(200);
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|thread| thread["thread_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
}

#[test]
fn many_callers_on_a_cold_thread_get_one_instance() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    std::thread::scope(|scope| {
        for number in 0..50 {
            let client = client.clone();
            scope.spawn(move || {
                assert_eq!(exec(&client, "cold", &format!("echo {number}"))["exit_code"], 0);
            });
        }
    });
    assert_eq!(lease(&client, "cold")["generation"], 1);
    let instances: Vec<_> = std::fs::read_dir(home.path().join("run")).unwrap().collect();
    assert_eq!(instances.len(), 1, "{instances:?}");
}
