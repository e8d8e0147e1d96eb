//! Who is attached: the last to leave makes a snapshot, and stops the instance where that is the
//! policy; a returning client finds the shell as it was.

use serde_json::{Value, json};

use super::{World, world_with};
use harness::{Frame, Socket, wait_for};

/// A server whose project stops its instance when the last client disconnects.
fn stopping(config: Value) -> World {
    let world = world_with(&[], &[("STEAD_PROJECT_DISCONNECT_GRACE", "0s")]);
    let path = format!("/api/projects/{}", world.project);
    world.client.patch(&path, json!({"config": config})).expect(200);
    world
}

impl World {
    fn instance(&self) -> Value {
        self.client.get("/api/threads/t/lease").expect(200)["instance"].clone()
    }

    fn exec(&self, command: &str) -> Value {
        self.client.post("/api/threads/t/exec", json!({"command": command})).expect(200)
    }

    fn terminal(&self) -> String {
        let terminal = self.client.get("/api/threads/t/terminal").expect(200);
        terminal["terminal_id"].as_str().unwrap().to_owned()
    }

    fn attach(&self) -> (Socket, Value) {
        let target = format!("/api/terminals/{}/ws", self.terminal());
        let mut socket = self.client.socket(&target, &[]).unwrap();
        let Frame::Control(hello) = socket.next() else { panic!("no hello") };
        assert_eq!(hello["type"], "hello");
        (socket, hello)
    }

    fn wait_until_stopped(&self) {
        wait_for("the instance to be stopped", || match self.instance() {
            Value::Null => Ok(()),
            instance if instance["state"] == "dead" => Ok(()),
            instance => Err(instance),
        });
    }

    fn snapshots(&self) -> u64 {
        self.metric("stead_memory_snapshots_total") as u64
    }
}

#[test]
fn the_last_client_to_leave_stops_the_instance_and_the_next_has_the_same_shell() {
    let world = stopping(json!({"stop_on_disconnect": true}));
    world.exec("cd /tmp; export GREETING=hello; secret=42; f() { echo $secret; }");
    let before = world.instance();
    world.write("/memories/hot/k", b"x").expect(201);
    let (one, _) = world.attach();
    let target = format!("/api/terminals/{}/stream", world.terminal());
    let mut other = world.client.request("GET", &target).events();
    other.until("snapshot");
    drop(one);
    // One is still there: the same instance, and no snapshot yet.
    assert_eq!(world.instance()["instance_id"], before["instance_id"]);
    drop(other);
    world.wait_until_stopped();
    wait_for("a snapshot", || match world.snapshots() {
        1.. => Ok(()),
        none => Err(none),
    });
    assert!(world.repo().is_dir(), "the workspace stays");

    let (_socket, hello) = world.attach();
    assert_eq!(hello["live"], true);
    let again = world.instance();
    assert_eq!(again["state"], "running");
    assert_ne!(again["instance_id"], before["instance_id"]);
    let ran = world.exec("pwd; echo $GREETING; f");
    assert_eq!(ran["stdout"], "/tmp\nhello\n42\n");
}

#[test]
fn a_command_that_runs_keeps_the_instance_until_it_ends() {
    let world = stopping(json!({"stop_on_disconnect": true}));
    let body = json!({"command": "read line; echo got $line", "yield_ms": 1});
    let command = world.client.post("/api/threads/t/exec", body).expect(200);
    let command = command["command_id"].as_str().unwrap().to_owned();
    let (socket, _) = world.attach();
    drop(socket);
    wait_for("no client to be attached", || match world.metric("stead_watchers") as u64 {
        0 => Ok(()),
        watchers => Err(watchers),
    });
    assert_eq!(world.instance()["state"], "running");
    let stdin = format!("/api/commands/{command}/stdin");
    world.client.post(&stdin, json!({"data": "it\n", "eof": true})).expect_success();
    let receipt = wait_for("the command to end", || {
        let receipt = world.client.get(&format!("/api/commands/{command}")).expect(200);
        if receipt["status"] == "finished" { Ok(receipt) } else { Err(receipt) }
    });
    assert_eq!(receipt["stdout"], "got it\n");
    world.wait_until_stopped();
}

#[test]
fn without_recreation_only_a_command_starts_the_instance() {
    let config = json!({"stop_on_disconnect": true, "recreate_on_reconnect": false});
    let world = stopping(config);
    world.exec("cd /tmp; echo a line that stays");
    drop(world.attach());
    world.wait_until_stopped();
    let (mut socket, hello) = world.attach();
    assert_eq!(hello["live"], false);
    let picture = loop {
        match socket.next() {
            Frame::Bytes(bytes) => break String::from_utf8_lossy(&bytes).into_owned(),
            Frame::Control(_) => {}
            Frame::Closed => panic!("closed"),
        }
    };
    assert!(picture.contains("a line that stays"), "{picture:?}");
    world.wait_until_stopped();
    assert_eq!(world.exec("pwd")["stdout"], "/tmp\n");
    assert_eq!(world.instance()["state"], "running");
}

#[test]
fn by_default_the_shell_keeps_running_without_clients() {
    let world = world_with(&[], &[("STEAD_PROJECT_DISCONNECT_GRACE", "0s")]);
    world.exec("true");
    let before = world.instance();
    world.write("/memories/hot/k", b"x").expect(201);
    drop(world.attach());
    // The snapshot shows that the disconnect was noticed.
    wait_for("a snapshot", || match world.snapshots() {
        1.. => Ok(()),
        none => Err(none),
    });
    assert_eq!(world.instance()["instance_id"], before["instance_id"]);
}

#[test]
fn a_restarted_server_stops_an_instance_without_clients() {
    let mut world = stopping(json!({"stop_on_disconnect": true}));
    world.exec("cd /tmp");
    let (socket, _) = world.attach();
    world.restart();
    drop(socket);
    world.wait_until_stopped();
    assert_eq!(world.exec("pwd")["stdout"], "/tmp\n");
}

#[test]
fn sessions_share_one_workspace_and_its_end_is_not_theirs() {
    let world = world_with(&[], &[]);
    let path = format!("/api/projects/{}/sessions", world.project);
    let other = world.client.post(&path, json!({})).expect(201);
    let other = other["thread_id"].as_str().unwrap();
    world.exec("echo one > shared");
    let target = format!("/api/threads/{other}/exec");
    let ran = world.client.post(&target, json!({"command": "cat shared"})).expect(200);
    assert_eq!(ran["stdout"], "one\n");
    world.client.delete("/api/threads/t").expect_success();
    world.client.delete(&format!("/api/threads/{other}")).expect_success();
    assert_eq!(std::fs::read_to_string(world.repo().join("shared")).unwrap(), "one\n");
}
