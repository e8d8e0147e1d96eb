//! Long commands as tasks, which outlive the client and the server.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{ask, messages, request, tasks_capability};
use harness::{Client, Home, Server, let_pass, wait_for};

/// Starts a command that becomes a task.
fn start(client: &Client, command: &str) -> Value {
    let params = json!({"name": "exec", "arguments": {"command": command}});
    let task = ask(client, "tools/call", params, &tasks_capability());
    assert_eq!((&task["resultType"], &task["status"]), (&"task".into(), &"working".into()));
    assert!(task["ttlMs"].as_u64().unwrap() >= 7 * 24 * 3600 * 1000, "{task}");
    task
}

fn get(client: &Client, task: &Value) -> Value {
    ask(client, "tasks/get", json!({"taskId": task["taskId"]}), &tasks_capability())
}

#[test]
fn a_task_is_completed_after_the_server_was_killed() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let task = start(&server.client(), "echo begin; sleep 10; echo end");
    assert_eq!(get(&server.client(), &task)["status"], "working");
    server.kill_and_start(&home);
    let done = wait_for("the task to complete", || {
        let task = get(&server.client(), &task);
        if task["status"] == "completed" { Ok(task) } else { Err(task) }
    });
    let result = &done["result"];
    assert_eq!(result["isError"], false, "{done}");
    let data = &result["structuredContent"];
    assert_eq!((&data["stdout"], &data["exit_code"]), (&"begin\nend\n".into(), &0.into()));
    assert_eq!(data["command_id"], task["taskId"], "the handle is the id of the command");
    assert_eq!(done["createdAt"], task["createdAt"]);
}

#[test]
fn a_task_is_cancelled_after_the_server_was_killed() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let task = start(&server.client(), "sleep 1000");
    server.kill_and_start(&home);
    let client = server.client();
    wait_for("the cancellation to be accepted", || {
        let params = json!({"taskId": task["taskId"]});
        let answer = request(&client, "tasks/cancel", params, &tasks_capability()).send();
        let message = messages(&answer).pop().unwrap();
        if message["error"].is_null() { Ok(()) } else { Err(message) }
    });
    wait_for("the task to end", || {
        let task = get(&client, &task);
        if task["status"] == "cancelled" { Ok(()) } else { Err(task) }
    });
}

#[test]
fn tasks_are_for_clients_that_support_them() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let quick = json!({"name": "exec", "arguments": {"command": "echo 1"}});
    let quick = ask(&client, "tools/call", quick, &tasks_capability());
    assert_eq!(quick["structuredContent"]["stdout"], "1\n", "a short command is no task");
    let slow = json!({"name": "exec", "arguments": {"command": "sleep 3; echo 2"}});
    let slow = ask(&client, "tools/call", slow, &json!({}));
    assert_eq!(slow["structuredContent"]["stdout"], "2\n");
    let params = json!({"taskId": slow["structuredContent"]["command_id"]});
    let answer = request(&client, "tasks/get", params, &json!({})).send();
    assert_eq!(messages(&answer)[0]["error"]["code"], -32021, "the capability is missing");
    let params = json!({"taskId": "cmd_00000000000000000000000000000000"});
    let answer = request(&client, "tasks/get", params, &tasks_capability()).send();
    assert_eq!(messages(&answer)[0]["error"]["code"], -32602);
}

#[test]
fn a_stopping_server_leaves_commands_running() {
    let home = Home::new();
    let server = Server::start(&home);
    let marker = home.path().join("marker");
    let command = format!("touch {}; sleep 3; echo done", marker.display());
    let params = json!({"name": "exec", "arguments": {"command": command}});
    let connection = request(&server.client(), "tools/call", params, &json!({})).start();
    wait_for("the command to start", || if marker.exists() { Ok(()) } else { Err("no marker") });
    let_pass(Duration::from_millis(200));
    server.stop();
    drop(connection);
    let server = Server::start(&home);
    let client = server.client();
    let terminal = client.get("/api/threads/main/terminal").expect(200);
    let history = format!("/api/terminals/{}/commands", terminal["terminal_id"].as_str().unwrap());
    let ended = wait_for("the command to end", || {
        let command = client.get(&history).expect(200)["items"][0].clone();
        if command["status"] == "finished" { Ok(command) } else { Err(command) }
    });
    assert_eq!((&ended["exit_code"], &ended["stdout_bytes"]), (&0.into(), &5.into()), "{ended}");
}
