//! Every tool, and the resources.

use serde_json::{Value, json};

use super::client::{ask, call, data, failure, messages, request};
use harness::{Client, Events, Home, Server, wait_for};

#[test]
fn a_shell_keeps_its_state_between_calls() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let first =
        data(&client, "exec", json!({"command": "cd /tmp && export A=1; echo out; echo err >&2"}));
    assert_eq!((&first["stdout"], &first["stderr"]), (&"out\n".into(), &"err\n".into()));
    assert_eq!((&first["status"], &first["exit_code"]), (&"finished".into(), &0.into()));
    assert_eq!(first["cwd"], "/tmp");
    let second = data(
        &client,
        "exec",
        json!({"command": "echo $A $PWD; exit_with() { return 3; }; exit_with"}),
    );
    assert_eq!((&second["stdout"], &second["exit_code"]), (&"1 /tmp\n".into(), &3.into()));
    let own = data(&client, "exec", json!({"command": "echo \"[$A]\"", "thread": "other"}));
    assert_eq!(own["stdout"], "[]\n");
    let input = data(&client, "exec", json!({"command": "cat", "stdin": "given"}));
    assert_eq!(input["stdout"], "given");
    let empty = data(&client, "exec", json!({"command": "cat; echo end"}));
    assert_eq!(empty["stdout"], "end\n", "standard input is empty by default");
    let version = &second["version"];
    data(&client, "exec", json!({"command": "cd /; A=2"}));
    let restored = data(&client, "rollback", json!({"version": version}));
    assert_eq!(restored["cwd"], "/tmp");
    let forked = data(&client, "fork", json!({"terminal_id": first["terminal_id"]}));
    let arguments = json!({"command": "echo $A $PWD", "terminal_id": forked["terminal_id"]});
    assert_eq!(data(&client, "exec", arguments)["stdout"], "1 /tmp\n");
    let refused = failure(&client, "exec", json!({"command": "x", "colour": "red"}));
    assert!(refused.contains("colour"), "{refused}");
}

#[test]
fn large_output_is_bounded_and_read_by_offset() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let result = data(&client, "exec", json!({"command": "seq 1 20000"}));
    let (stdout, total) =
        (result["stdout"].as_str().unwrap(), result["stdout_bytes"].as_u64().unwrap());
    assert_eq!(total, 108_894);
    assert!(stdout.len() < 34 << 10, "{}", stdout.len());
    assert!(stdout.starts_with("1\n2\n") && stdout.ends_with("\n19999\n20000\n"));
    let range = &result["stdout_omitted"];
    let (from, to) = (range["from"].as_u64().unwrap(), range["to"].as_u64().unwrap());
    let mut rest = String::new();
    while from + (rest.len() as u64) < to {
        let next = from + rest.len() as u64;
        let arguments =
            json!({"command_id": result["command_id"], "from": next, "limit": to - next});
        let part = data(&client, "command_output", arguments);
        assert_eq!(part["offset"], next);
        rest.push_str(part["data"].as_str().unwrap());
    }
    let (head, tail) = (&stdout[..from as usize], &stdout[stdout.len() - (total - to) as usize..]);
    let expected: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(format!("{head}{rest}{tail}"), expected);
}

#[test]
fn a_running_command_takes_input_and_is_cancelled() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let arguments =
        json!({"command": "read a; echo got $a; read b", "keep_stdin_open": true, "yield_ms": 100});
    let running = data(&client, "exec", arguments);
    assert_eq!(running["status"], "running");
    let id = &running["command_id"];
    data(&client, "command_input", json!({"command_id": id, "data": "x\n"}));
    let output = wait_for("the output", || {
        let output = data(&client, "command_output", json!({"command_id": id, "wait_ms": 1000}));
        if output["data"] == "got x\n" { Ok(output) } else { Err(output) }
    });
    assert_eq!(output["status"], "running");
    call(&client, "command_cancel", json!({"command_id": id}));
    wait_for("the cancellation", || {
        let output = data(&client, "command_output", json!({"command_id": id}));
        if output["status"] == "cancelled" { Ok(()) } else { Err(output) }
    });
}

#[test]
fn a_client_that_disconnects_cancels_its_command() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let marker = home.path().join("marker");
    let command = format!("touch {}; sleep 1000", marker.display());
    let params = json!({"name": "exec", "arguments": {"command": command}});
    let connection = request(&client, "tools/call", params, &json!({})).start();
    wait_for("the command to start", || if marker.exists() { Ok(()) } else { Err("no marker") });
    drop(connection);
    let terminal = client.get("/api/threads/main/terminal").expect(200);
    let history = format!("/api/terminals/{}/commands", terminal["terminal_id"].as_str().unwrap());
    wait_for("the cancellation", || {
        let command = client.get(&history).expect(200)["items"][0].clone();
        if command["status"] == "cancelled" { Ok(()) } else { Err(command) }
    });
}

#[test]
fn progress_shows_the_last_output() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let command = "echo first; echo second; until [ -e stop ]; do sleep 0.1; done";
    let params = json!({
        "name": "exec",
        "arguments": {"command": command, "cwd": home.path()},
        "_meta": {"progressToken": "p"},
    });
    let stop = home.path().join("stop");
    let mut events = request(&client, "tools/call", params, &json!({})).stream();
    let note: Value = serde_json::from_str(&events.next_data()).unwrap();
    assert_eq!(note["method"], "notifications/progress", "{note}");
    assert_eq!(note["params"]["progressToken"], "p");
    assert_eq!(note["params"]["message"], "second");
    std::fs::write(stop, "").unwrap();
    let result = loop {
        let message: Value = serde_json::from_str(&events.next_data()).unwrap();
        if message["method"].is_null() {
            break message;
        }
    };
    assert_eq!(result["result"]["structuredContent"]["exit_code"], 0, "{result}");
}

/// Sends a call of a tool with a progress token, and returns the message of its first notification.
fn first_progress(client: &Client, tool: &str, arguments: Value) -> (Events, String) {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}});
    let mut events = request(client, "tools/call", params, &json!({})).stream();
    let note: Value = serde_json::from_str(&events.next_data()).unwrap();
    assert_eq!(note["method"], "notifications/progress", "{note}");
    let message = note["params"]["message"].as_str().unwrap_or_default().to_owned();
    (events, message)
}

#[test]
fn a_call_that_waits_reports_progress_and_can_be_cancelled() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let running = data(
        &client,
        "exec",
        json!({"command": "read a; echo got $a",
        "keep_stdin_open": true, "yield_ms": 100}),
    );
    let id = &running["command_id"];
    let wait = json!({"command_id": id, "wait_ms": 50_000});
    let (mut output, _) = first_progress(&client, "command_output", wait);
    data(&client, "command_input", json!({"command_id": id, "data": "x\n"}));
    let result = loop {
        let message: Value = serde_json::from_str(&output.next_data()).unwrap();
        if message["method"].is_null() {
            break message;
        }
    };
    assert_eq!(result["result"]["structuredContent"]["data"], "got x\n", "{result}");

    let question = |arguments| first_progress(&client, "ask_person", arguments);
    let (asking, message) = question(json!({"reason": "Which branch?"}));
    assert_eq!(message, "waiting for a person");
    let handoffs = || client.get("/api/handoffs").expect(200)["items"][0].clone();
    let asked = handoffs();
    assert_eq!(asked["status"], "open", "{asked}");
    // A call that only waits again leaves the question open.
    drop(question(json!({"handoff_id": asked["handoff_id"]})));
    assert_eq!(handoffs()["status"], "open");
    drop(asking);
    wait_for("the question to be withdrawn", || {
        let asked = handoffs();
        if asked["status"] == "declined" { Ok(()) } else { Err(asked) }
    });
}

#[test]
fn a_person_and_an_agent_share_the_screen() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    data(&client, "type", json!({"text": "cat", "keys": ["Enter"]}));
    let shown = wait_for("the echo", || {
        let screen = data(&client, "type", json!({"text": "hello\r", "wait_ms": 100}));
        let text = screen["screen"].as_str().unwrap_or_default().to_owned();
        if text.matches("hello").count() >= 2 { Ok(screen) } else { Err(text) }
    });
    data(&client, "type", json!({"keys": ["C-c"]}));
    let screen = data(&client, "screen", json!({}));
    assert_eq!(screen["terminal_id"], shown["terminal_id"]);
    let uri = format!("stead://terminals/{}/screen", screen["terminal_id"].as_str().unwrap());
    let listed = ask(&client, "resources/list", json!({}), &json!({}));
    assert_eq!(listed["resources"][0]["uri"], uri.as_str());
    let read = ask(&client, "resources/read", json!({"uri": uri}), &json!({}));
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("hello"), "{read}");
    let refused = failure(&client, "type", json!({"keys": ["Hyper"]}));
    assert!(refused.contains("Hyper"), "{refused}");
    assert!(failure(&client, "screen", json!({"thread": "none"})).contains("none"));
}

#[test]
fn files_and_memories_are_read_and_written() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let path = "/workspace/src/a.txt";
    let written = data(&client, "write_file", json!({"path": path, "content": "one\ntwo\ntwo\n"}));
    assert_eq!(written["size"], 12);
    assert_eq!(data(&client, "read_file", json!({"path": path}))["content"], "one\ntwo\ntwo\n");
    let part = data(&client, "read_file", json!({"path": path, "offset": 4, "limit": 3}));
    assert_eq!((&part["content"], &part["end"]), (&"two".into(), &false.into()));
    let edit = |old: &str, all: bool| json!({"path": path, "old_text": old, "new_text": "2", "replace_all": all});
    assert!(failure(&client, "edit_file", edit("three", false)).contains("does not occur"));
    assert!(failure(&client, "edit_file", edit("two", false)).contains("2 times"));
    assert_eq!(data(&client, "edit_file", edit("two", true))["replaced"], 2);
    let matches = data(&client, "search_files", json!({"pattern": "^2$"}));
    assert_eq!(matches["items"][1], json!({"path": path, "line": 3, "text": "2"}));
    let listed = data(&client, "list_files", json!({"depth": 2}));
    let paths: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|item| &item["path"]).collect();
    assert_eq!(paths, ["/workspace/src", path]);
    let uri = "stead://threads/main/files/workspace/src/a.txt";
    let read = ask(&client, "resources/read", json!({"uri": uri}), &json!({}));
    assert_eq!(read["contents"][0]["text"], "one\n2\n2\n");
    for store in ["hot", "persistent"] {
        data(&client, "memory_write", json!({"path": "notes/a", "content": store, "store": store}));
        let memory = data(&client, "memory_read", json!({"path": "notes/a", "store": store}));
        assert_eq!(memory["content"], store);
    }
    assert!(failure(&client, "read_file", json!({"path": "/workspace/none"})).contains("none"));
}

#[test]
fn a_model_reads_in_the_text_how_to_continue() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let text = |tool: &str, arguments: Value| {
        call(&client, tool, arguments)["content"][0]["text"].as_str().unwrap().to_owned()
    };
    // One byte more than a resource may have, which cuts the last character.
    let large = format!("{}é", "a".repeat((4 << 20) - 1));
    let path = "/workspace/large.txt";
    data(&client, "exec", json!({"command": "true"}));
    let written = client.request("PUT", &format!("/api/threads/main/fs/write?path={path}"));
    written.body(large.as_bytes()).send().expect_success();
    let uri = "stead://threads/main/files/workspace/large.txt";
    let read = ask(&client, "resources/read", json!({"uri": uri}), &json!({}));
    assert_eq!(read["contents"][0]["text"].as_str().unwrap().len(), (4 << 20) - 1);
    let notice = read["contents"][1]["text"].as_str().unwrap();
    assert!(notice.contains("4194305 bytes in all; continue with offset=4194303"), "{notice}");

    let memory = format!("{}é", "b".repeat((1 << 20) - 1));
    data(&client, "memory_write", json!({"path": "long", "content": memory}));
    let first = text("memory_read", json!({"path": "long"}));
    assert!(first.ends_with("[1048577 bytes in all; continue with offset=1048575]"));
    let rest = data(&client, "memory_read", json!({"path": "long", "offset": 1_048_575}));
    assert_eq!((&rest["content"], &rest["end"]), (&"é".into(), &true.into()));

    data(&client, "write_file", json!({"path": "/workspace/a.txt", "content": "x\nx\nx\n"}));
    let found = text("search_files", json!({"pattern": "^x$", "limit": 2}));
    assert!(
        found.contains("[there may be more matches: the limit of matches is reached"),
        "{found}"
    );
    for name in ["one", "two"] {
        data(&client, "sandbox_create", json!({"name": name}));
    }
    let page = text("sandbox_list", json!({"limit": 1}));
    let (_, cursor) = page.split_once("cursor=").unwrap();
    let next = json!({"limit": 1, "cursor": cursor.trim_end_matches(']')});
    assert_eq!(data(&client, "sandbox_list", next)["items"][0]["name"], "one", "{page}");
}

#[test]
fn sandboxes_are_created_listed_and_forked() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let made = data(&client, "sandbox_create", json!({"name": "build", "labels": {"team": "web"}}));
    let again = data(&client, "sandbox_create", json!({"name": "build"}));
    assert_eq!(made["sandbox_id"], again["sandbox_id"]);
    let inside = json!({"command": "echo inside", "thread": made["thread_id"]});
    assert_eq!(data(&client, "exec", inside)["stdout"], "inside\n");
    let listed = data(&client, "sandbox_list", json!({"label": "team=web"}));
    assert_eq!(listed["items"][0]["name"], "build");
    assert_eq!(data(&client, "sandbox_list", json!({"label": "team=db"}))["items"], json!([]));
    let refused = failure(&client, "sandbox_create", json!({"provider": "moon"}));
    assert!(refused.contains("must be one of"), "{refused}");
}

#[test]
fn a_person_is_asked_and_the_answer_is_awaited_again() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let reason = json!({"reason": "Which branch?", "options": ["main", "dev"], "wait_ms": 0});
    let asked = data(&client, "ask_person", reason);
    assert_eq!((&asked["status"], &asked["option"]), (&"open".into(), &Value::Null), "{asked}");
    let id = asked["handoff_id"].as_str().unwrap();
    let open = client.get("/api/handoffs?status=open").expect(200);
    assert_eq!(open["items"][0]["handoff_id"], id);
    assert_eq!(open["items"][0]["kind"], "input");
    let waiting = std::thread::spawn({
        let (client, id) = (client.clone(), id.to_owned());
        move || call(&client, "ask_person", json!({"handoff_id": id}))
    });
    let answer = json!({"option": "dev", "text": "until Friday"});
    client.post(&format!("/api/handoffs/{id}/answer"), answer).expect(200);
    let answered = waiting.join().unwrap();
    assert_eq!(answered["content"][0]["text"], "answered: dev; until Friday");
    assert_eq!(answered["structuredContent"]["option"], "dev");
    let approval = json!({"kind": "approval", "reason": "Deploy?", "wait_ms": 0});
    let approval = data(&client, "ask_person", approval);
    let route = format!("/api/handoffs/{}", approval["handoff_id"].as_str().unwrap());
    client.post(&format!("{route}/decline"), json!({})).expect(200);
    let declined = data(&client, "ask_person", json!({"handoff_id": approval["handoff_id"]}));
    assert_eq!(declined["status"], "declined");
    let both = failure(&client, "ask_person", json!({"reason": "x", "handoff_id": id}));
    assert!(both.contains("either reason or handoff_id"), "{both}");
}

#[test]
fn listening_ports_are_listed() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    data(&client, "exec", json!({"command": "true"}));
    let listed = data(&client, "ports", json!({}));
    let ports = listed["ports"].as_array().unwrap();
    assert!(ports.contains(&server.address.port().into()), "{listed}");
    let terminals = client.get("/api/threads/main/terminals").expect(200);
    assert_eq!(terminals["items"].as_array().unwrap().len(), 1, "{terminals}");
    let link = data(&client, "port_link", json!({"port": 8000, "expires_in_ms": 60_000}));
    assert!(link["url"].as_str().unwrap().starts_with("http://p-"), "{link}");
    let refused = failure(&client, "port_link", json!({"port": 0}));
    assert!(refused.contains("must be 1 to 65535"), "{refused}");
}

#[test]
fn the_url_selects_the_default_thread() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let params = json!({"name": "exec", "arguments": {"command": "export A=1"}});
    let request = request(&client, "tools/call", params, &json!({}));
    let answer = request.to("/mcp?thread=build").send();
    assert_eq!(messages(&answer)[0]["result"]["isError"], false);
    let shown = data(&client, "exec", json!({"command": "echo $A", "thread": "build"}));
    assert_eq!(shown["stdout"], "1\n");
}

#[test]
fn unknown_names_are_refused_and_fixtures_are_off() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let none = json!({});
    let listed = ask(&client, "tools/list", json!({}), &none);
    let names: Vec<&str> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 20, "{names:?}");
    for (method, params, code) in [
        ("tools/call", json!({"name": "test_simple_text"}), -32602),
        ("resources/read", json!({"uri": "test://static-text"}), -32602),
        ("resources/read", json!({"uri": "stead://terminals/term_x/screen"}), -32602),
        ("prompts/list", json!({}), -32601),
    ] {
        let answer = request(&client, method, params.clone(), &none).send();
        assert_eq!(messages(&answer)[0]["error"]["code"], code, "{method} {params}");
    }
    let refused = client.request("POST", "/mcp").header("origin", "http://evil.example").send();
    assert!((400..500).contains(&refused.status), "{refused:?}");
    assert_eq!(server.stranger().post("/mcp", json!({})).status, 401);
}
