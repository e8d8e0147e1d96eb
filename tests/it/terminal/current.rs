//! What a thread does now: its current command, and the events about it.

use model::Timestamp;
use serde_json::{Value, json};

use harness::{Events, Home, Server, wait_for};

/// Reads events until one about a command has this name.
fn next(events: &mut Events, name: &str, command: &str) -> Value {
    loop {
        let event = events.until(name).json();
        if event["command_id"] == command {
            return event;
        }
    }
}

/// Times are compared as such, because their texts have as many digits as they need.
fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn a_thread_shows_its_current_command_and_whether_it_waits_for_input() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let mut events = client.request("GET", "/api/events").events();
    let created = client.put("/api/threads/t", json!({})).expect_success().json();
    let show = || client.get("/api/threads/t").expect(200);
    let listed = || client.get("/api/threads").expect(200)["items"][0].clone();
    assert_eq!(show()["last_command"], Value::Null);

    let body = json!({"command": "head -n 1 </dev/tty", "yield_ms": 1});
    let exec = client.post("/api/threads/t/exec", body).expect(200);
    let id = exec["command_id"].as_str().unwrap();
    assert_eq!(next(&mut events, "command_waiting", id)["waiting"], true);
    for shown in [show(), listed()] {
        let last = &shown["last_command"];
        assert_eq!(last["command_id"], id, "{shown}");
        assert_eq!((&last["status"], &last["running"]), (&json!("running"), &json!(true)));
        assert_eq!(last["waiting_for_input"], true, "{shown}");
        assert!(time(&last["started_at"]) <= time(&shown["updated_at"]), "{shown}");
        assert!(time(&shown["updated_at"]) > time(&created["updated_at"]), "{shown}");
    }
    let during = show()["updated_at"].clone();

    let terminal = exec["terminal_id"].as_str().unwrap();
    let input = json!({"data": "typed\r"});
    client.post(&format!("/api/terminals/{terminal}/input"), input).expect_status(204);
    assert_eq!(next(&mut events, "command_waiting", id)["waiting"], false);
    next(&mut events, "command_ended", id);
    let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
    assert_eq!(receipt["stdout"], "typed\n", "{receipt}");
    wait_for("the thread to show the end", || {
        let shown = show();
        let last = &shown["last_command"];
        let ended = last["status"] == "finished"
            && last["running"] == false
            && last["waiting_for_input"] == false
            && last["finished_at"].is_string()
            && time(&shown["updated_at"]) > time(&during);
        if ended { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn a_thread_shows_what_runs_in_any_of_its_terminals() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let mut events = client.request("GET", "/api/events").events();
    let first = client.put("/api/threads/t", json!({})).expect_success().json();
    let first = first["sandbox"]["terminal_id"].clone();
    let made = client.post("/api/threads/t/terminals", json!({})).expect(201);
    let second = made["terminal_id"].as_str().unwrap();
    let exec = |path: &str, command: &str| {
        client.post(path, json!({"command": command, "yield_ms": 1})).expect(200)
    };
    let of_second = format!("/api/terminals/{second}/exec");
    let asks = exec(&of_second, "head -n 1 </dev/tty; sleep 600");
    let id = asks["command_id"].as_str().unwrap();
    let event = next(&mut events, "command_waiting", id);
    assert_eq!((&event["thread_id"], &event["terminal_id"]), (&json!("t"), &json!(second)));
    let runs = exec("/api/threads/t/exec", "sleep 600");

    let shown = || client.get("/api/threads/t").expect(200);
    let listed = || client.get("/api/threads").expect(200)["items"][0].clone();
    for thread in [shown(), listed()] {
        // What waits for a person is more urgent than what only runs.
        assert_eq!(thread["last_command"]["command_id"], id, "{thread}");
        assert_eq!(thread["last_command"]["terminal_id"], second, "{thread}");
        let current = thread["current_commands"].as_array().unwrap();
        let terminals: Vec<_> = current.iter().map(|one| &one["terminal_id"]).collect();
        assert_eq!(terminals, [&json!(second), &first], "{thread}");
    }
    for command in [&asks, &runs] {
        let cancel = format!("/api/commands/{}/cancel", command["command_id"].as_str().unwrap());
        client.post(&cancel, json!({})).expect_success();
        next(&mut events, "command_ended", command["command_id"].as_str().unwrap());
    }
    exec(&of_second, "true");
    wait_for("the thread to show the latest command", || {
        let shown = shown();
        let last = &shown["last_command"];
        let is_latest = last["command"] == "true" && last["terminal_id"] == second;
        let rests = shown["current_commands"] == json!([]) && last["running"] == false;
        if is_latest && rests { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn a_thread_shows_what_waits_for_input_after_a_kill() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    client.put("/api/threads/t", json!({})).expect_success();
    let mut events = client.request("GET", "/api/events").events();
    let body = json!({"command": "head -n 1 </dev/tty", "yield_ms": 1});
    let exec = client.post("/api/threads/t/exec", body).expect(200);
    let id = exec["command_id"].as_str().unwrap();
    next(&mut events, "command_waiting", id);
    server.kill_and_start(&home);
    let client = server.client();
    wait_for("the thread to show what waits", || {
        let shown = client.get("/api/threads/t").expect(200);
        let last = &shown["last_command"];
        let waits = last["command_id"] == id && last["waiting_for_input"] == true;
        if waits { Ok(()) } else { Err(shown) }
    });
}
