//! `stead mcp`: the bridge between standard input and output and the server.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
};

use serde_json::{Value, json};

use super::client::{meta, tasks_capability};
use harness::{Home, Server, WAIT_TIMEOUT, wait_for};

/// A running bridge.
struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    messages: mpsc::Receiver<Value>,
}

impl Bridge {
    fn start(home: &Home) -> Bridge {
        let mut child = Command::new(harness::program())
            .args(["mcp", "--home"])
            .arg(home.path())
            .env("HOME", home.path())
            .env("STEAD_LISTEN", "127.0.0.1:0")
            .env("STEAD_PROVIDER", "local")
            .env_remove("STEAD_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        Bridge { child, input, messages }
    }

    fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Waits for the answer to a request.
    #[track_caller]
    fn answer(&self, id: u32) -> Value {
        loop {
            let message = self.messages.recv_timeout(WAIT_TIMEOUT).expect("an answer");
            if message["id"] == id {
                return message;
            }
        }
    }

    fn initialize(&mut self) {
        self.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }}));
        let answer = self.answer(0);
        assert_eq!(answer["result"]["serverInfo"]["name"], "stead", "{answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn exec(&mut self, id: u32, command: &str) {
        let params = json!({"name": "exec", "arguments": {"command": command}});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends the server that a bridge started.
struct StartedServer<'a>(&'a Home);

impl StartedServer<'_> {
    fn kill(&self) {
        let pid = std::fs::read_to_string(self.0.path().join("lock")).unwrap_or_default();
        let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for StartedServer<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn the_bridge_starts_a_server_that_outlives_it() {
    let home = Home::new();
    let _server = StartedServer(&home);
    let mut bridge = Bridge::start(&home);
    bridge.initialize();
    bridge.exec(1, "export A=1; echo hi");
    assert_eq!(bridge.answer(1)["result"]["structuredContent"]["stdout"], "hi\n");
    drop(bridge.input.take());
    let status =
        wait_for("the bridge to end", || bridge.child.try_wait().unwrap().ok_or("it runs"));
    assert!(status.success(), "{status}");
    let mut bridge = Bridge::start(&home);
    bridge.initialize();
    bridge.exec(2, "echo $A");
    assert_eq!(bridge.answer(2)["result"]["structuredContent"]["stdout"], "1\n");
}

#[test]
fn a_call_is_answered_although_the_server_was_killed() {
    let home = Home::new();
    let server = Server::start(&home);
    let _started = StartedServer(&home);
    let mut bridge = Bridge::start(&home);
    bridge.initialize();
    let marker = home.path().join("marker");
    bridge.exec(1, &format!("echo x >> {}; sleep 3; echo end", marker.display()));
    wait_for("the command to start", || if marker.exists() { Ok(()) } else { Err("no marker") });
    server.kill();
    // The bridge starts another server.
    let answer = bridge.answer(1);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "end\n", "{answer}");
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "x\n", "the command ran once");
    bridge.exec(2, "echo again");
    assert_eq!(bridge.answer(2)["result"]["structuredContent"]["stdout"], "again\n");
}

/// A request of version 2026-07-28.
fn stateless(id: u32, method: &str, mut params: Value, capabilities: &Value) -> Value {
    params["_meta"] = meta(capabilities);
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[test]
fn a_task_is_polled_over_the_bridge_although_the_server_was_killed() {
    let home = Home::new();
    let server = Server::start(&home);
    let _started = StartedServer(&home);
    let mut bridge = Bridge::start(&home);
    let request = |id, method, params| stateless(id, method, params, &tasks_capability());
    let call = json!({"name": "exec", "arguments": {"command": "sleep 4; echo end"}});
    bridge.send(&request(1, "tools/call", call));
    let task = bridge.answer(1)["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    server.kill();
    // The bridge starts another server, and the client notices nothing.
    let mut id = 1;
    let done = wait_for("the end of the task", || {
        id += 1;
        bridge.send(&request(id, "tasks/get", json!({"taskId": task["taskId"]})));
        let answer = bridge.answer(id);
        assert!(answer["error"].is_null(), "request {id}: {answer}");
        let task = answer["result"].clone();
        if task["status"] == "completed" { Ok(task) } else { Err(task) }
    });
    assert_eq!(done["result"]["structuredContent"]["stdout"], "end\n", "{done}");
    // Nothing was sent to the server that is gone, so that a call can be sent to the next one.
    let address = std::fs::read_to_string(home.path().join("address")).unwrap();
    let address = address.trim().strip_prefix("http://").unwrap().to_owned();
    StartedServer(&home).kill();
    wait_for("the server to end", || match TcpStream::connect(&address) {
        Ok(_) => Err("it accepts connections"),
        Err(_) => Ok(()),
    });
    let marker = home.path().join("marker");
    let command = format!("echo x >> {}; echo again", marker.display());
    bridge.send(&request(
        1000,
        "tools/call",
        json!({"name": "exec", "arguments": {"command": command}}),
    ));
    let answer = bridge.answer(1000);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "again\n", "{answer}");
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "x\n", "the command ran once");
}

#[test]
fn stateless_clients_are_bridged_and_cancel() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut bridge = Bridge::start(&home);
    let request = |id, method, params| stateless(id, method, params, &json!({}));
    bridge.send(&request(1, "server/discover", json!({})));
    let answer = bridge.answer(1);
    let versions = answer["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&"2026-07-28".into()), "{answer}");
    let marker = home.path().join("marker");
    let command = format!("touch {}; sleep 1000", marker.display());
    bridge.send(&request(
        2,
        "tools/call",
        json!({"name": "exec", "arguments": {"command": command}}),
    ));
    wait_for("the command to start", || if marker.exists() { Ok(()) } else { Err("no marker") });
    bridge.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}),
    );
    let client = server.client();
    let terminal = client.get("/api/threads/main/terminal").expect(200);
    let history = format!("/api/terminals/{}/commands", terminal["terminal_id"].as_str().unwrap());
    wait_for("the cancellation", || {
        let command = client.get(&history).expect(200)["items"][0].clone();
        if command["status"] == "cancelled" { Ok(()) } else { Err(command) }
    });
}
