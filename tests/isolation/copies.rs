//! Suspending a lease with its files, and copies of them.

use serde_json::{Value, json};

use crate::harness::Client;
use crate::world::World;

fn exec(client: &Client, thread: &str, command: &str) -> Value {
    let target = format!("/api/threads/{thread}/exec");
    client.post(&target, json!({"command": command, "timeout_ms": 60_000})).expect(200)
}

fn lease(client: &Client, thread: &str) -> Value {
    client.get(&format!("/api/threads/{thread}/lease")).expect(200)
}

fn id(lease: &Value) -> &str {
    lease["lease_id"].as_str().unwrap()
}

#[test]
fn a_suspended_lease_goes_on_with_its_files_and_its_shells_state() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    exec(&client, "t", "echo kept > /opt/file; cd /opt; A=1; sleep 1000 &");
    let before = lease(&client, "t");
    let target = format!("/api/leases/{}/suspend", id(&before));
    let refused = client.post(&target, json!({"fidelity": "memory"})).problem(409);
    assert_eq!(refused, "not_supported");
    assert_eq!(lease(&client, "t")["instance"]["state"], "running", "nothing was ended");
    let suspended = client.post(&target, json!({"fidelity": "filesystem"})).expect(200);
    assert_eq!(suspended["instance"], Value::Null);
    assert_eq!(exec(&client, "t", "cat file; echo $A $PWD; jobs")["stdout"], "kept\n1 /opt\n");
    let after = lease(&client, "t");
    assert_eq!((id(&before), &after["generation"]), (id(&after), &json!(2)));
}

#[test]
fn a_fork_begins_with_the_files_and_goes_its_own_way() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    // Written and not synced by anybody, while something goes on writing.
    exec(&client, "one", "echo first > /opt/file; (while :; do date > /opt/now; done) &");
    let one = lease(&client, "one");
    let fork = client.post(&format!("/api/leases/{}/fork", id(&one)), json!({})).expect(201);
    assert_ne!(id(&one), id(&fork));
    assert_eq!(fork["instance"], Value::Null, "nothing runs before it is used");
    assert_eq!(lease(&client, "one")["instance"]["state"], "running", "the first runs on");
    client.put("/api/threads/two", json!({"lease_id": id(&fork)})).expect(201);
    assert_eq!(exec(&client, "two", "cat /opt/file")["stdout"], "first\n");
    exec(&client, "two", "echo second > /opt/file");
    assert_eq!(exec(&client, "one", "cat /opt/file")["stdout"], "first\n");
    assert_eq!(exec(&client, "two", "cat /opt/file")["stdout"], "second\n");
    client.put("/api/threads/idle", json!({})).expect(201);
    let idle = lease(&client, "idle");
    let target = format!("/api/leases/{}/fork", id(&idle));
    assert_eq!(client.post(&target, json!({})).problem(409), "not_supported", "it has no files");
}

#[test]
fn threads_begin_with_a_snapshot_and_outlive_it() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    exec(&client, "first", "echo of the snapshot > /opt/file");
    let first = lease(&client, "first");
    let target = format!("/api/leases/{}/snapshot", id(&first));
    client.post(&target, json!({"name": "../x"})).problem(400);
    let made = client.post(&target, json!({"name": "ready"})).expect(201);
    assert_eq!((&made["name"], &made["provider"]), (&json!("ready"), &json!("namespace")));
    exec(&client, "first", "echo changed > /opt/file");
    for thread in ["a", "b"] {
        let body = json!({"sandbox": {"snapshot": "ready"}});
        client.put(&format!("/api/threads/{thread}"), body).expect(201);
        assert_eq!(exec(&client, thread, "cat /opt/file")["stdout"], "of the snapshot\n");
    }
    let unknown = json!({"sandbox": {"snapshot": "other"}});
    client.put("/api/threads/c", unknown).problem(400);
    client.delete("/api/snapshots/ready").expect_status(204);
    client.delete("/api/snapshots/ready").expect_status(404);
    assert_eq!(client.get("/api/snapshots").expect(200)["items"], json!([]));
    let a = lease(&client, "a");
    client.post(&format!("/api/leases/{}/suspend", id(&a)), json!({})).expect(200);
    assert_eq!(exec(&client, "a", "cat /opt/file")["stdout"], "of the snapshot\n");
}
