//! Suspending a lease with its files, and copies of them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Client, Server, left, wait_for};
use crate::world::{World, has};

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
fn a_fork_of_a_sandbox_has_its_files_and_its_shell_and_goes_its_own_way() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    let original = client.post("/api/sandboxes", json!({"labels": {"a": "b"}})).expect(201);
    let thread = |sandbox: &Value| sandbox["thread_id"].as_str().unwrap().to_owned();
    let target = |verb: &str| format!("/api/sandboxes/{}/{verb}", thread(&original));
    exec(&client, &thread(&original), "echo first > /opt/file; cd /opt; greet() { echo hi $1; }");
    let fork = client.post(&target("fork"), json!({"name": "attempt"})).expect(201);
    assert_eq!((&fork["name"], &fork["labels"]), (&json!("attempt"), &json!({"a": "b"})));
    let command = "cat file; greet $PWD; echo second > file";
    assert_eq!(exec(&client, &thread(&fork), command)["stdout"], "first\nhi /opt\n");
    assert_eq!(exec(&client, &thread(&original), "cat file")["stdout"], "first\n");
    assert_eq!(client.post(&target("fork"), json!({"name": "attempt"})).problem(409), "conflict");

    client.post(&target("snapshot"), json!({"name": "kept"})).expect(201);
    let later = client.post("/api/sandboxes", json!({"snapshot": "kept"})).expect(201);
    assert_eq!(later["template"], "kept");
    assert_eq!(exec(&client, &thread(&later), "cat /opt/file")["stdout"], "first\n");
    assert!(client.post("/api/sandboxes", json!({"snapshot": "none"})).status >= 400);
    assert_eq!(client.get("/api/sandboxes").expect(200)["items"].as_array().unwrap().len(), 3);
}

#[test]
fn a_disk_grows_with_its_files_while_nothing_runs_on_it() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    let made = client.post("/daytona/sandbox", json!({})).expect(200);
    let target = format!("/daytona/sandbox/{}", made["id"].as_str().unwrap());
    let said = |command: &str| {
        let target = target.replace("/sandbox/", "/toolbox/");
        let ran = client.post(&format!("{target}/process/execute"), json!({"command": command}));
        ran.expect(200)["result"].as_str().unwrap().to_owned()
    };
    said("echo kept > /opt/file");
    let larger = json!({"disk": 2});
    client.post(&format!("{target}/resize"), larger.clone()).expect(400);
    client.post(&format!("{target}/stop"), json!({})).expect(200);
    // Asked twice it is as large as asked once.
    for _ in 0..2 {
        let resized = client.post(&format!("{target}/resize"), larger.clone()).expect(200);
        assert_eq!(resized["disk"], 2);
    }
    client.post(&format!("{target}/resize"), json!({"disk": 1})).expect(400);
    client.post(&format!("{target}/start"), json!({})).expect(200);
    assert_eq!(said("cat /opt/file"), "kept\n");
    let blocks: u64 = said("df -k / | awk 'END {print $2}'").trim().parse().unwrap();
    assert!(blocks > 1 << 20, "{blocks}");
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

/// Where a fork can be cut short: by what it is about to do for the so manieth time.
const CUTS: [(&str, u32); 6] = [
    ("fdatasync", 1),
    ("fdatasync", 2),
    ("fdatasync", 3),
    ("copy_file_range", 1),
    ("rename", 1),
    ("pwrite64", 4),
];

/// Forks a sandbox while the server is killed at a call of its own; whether it was. `None` where nobody
/// may look at the calls of another.
fn fork_cut_short(server: &Server, sandbox: &str, (call, when): (&str, u32)) -> Option<bool> {
    let (pid, trace) = (server.pid().to_string(), format!("trace={call}"));
    let inject = format!("inject={call}:signal=SIGKILL:when={when}");
    let mut strace = Command::new("strace")
        .args(["-f", "-p", &pid, "-e", &trace, "-e", &inject, "-o", "/dev/null"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(strace.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("attached") {
        line.clear();
        if said.read_line(&mut line).unwrap() == 0 {
            strace.wait().unwrap();
            return None;
        }
    }
    // Read on, so that it can always speak.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let target = format!("/daytona/sandbox/{sandbox}/fork");
    let answer = server.client().request("POST", &target).json(&json!({})).attempt();
    // Killed, not asked to end: it may wait for ever for a thread that the kill has taken.
    strace.kill().unwrap();
    strace.wait().unwrap();
    Some(answer.is_none())
}

#[test]
fn a_server_killed_in_a_fork_leaves_no_lease_that_nobody_uses() {
    if !has("strace") {
        eprintln!("skipped: there is no strace");
        return;
    }
    let Some(mut world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let arguments = ["--provider", "namespace", "--set", "sandbox.disk=64m"];
    let arguments = [&arguments[..], &["--set", "sandbox.warm=0"]].concat();
    let made = world.server.client().post("/daytona/sandbox", json!({})).expect(200);
    let source = made["id"].as_str().unwrap().to_owned();
    let mut killed = 0;
    for cut in CUTS {
        let Some(was) = fork_cut_short(&world.server, &source, cut) else {
            eprintln!("skipped: strace may not look at the server");
            return;
        };
        killed += u32::from(was);
        let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        world.server.wait();
        world.server = Server::start_with(&world.home, &arguments);
        let client = world.server.client();
        wait_for("every lease to be somebody's", || {
            let leases = client.get("/api/leases").expect(200)["items"].clone();
            let unused = |lease: &Value| lease["shared_by"].as_array().unwrap().is_empty();
            let some = leases.as_array().unwrap().iter().any(unused);
            if some { Err(leases) } else { Ok(()) }
        });
        let leases = client.get("/api/leases").expect(200);
        let leases: BTreeSet<String> = leases["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lease| format!("{}.img", id(lease)))
            .collect();
        let disks = std::fs::read_dir(world.home.path().join("disks")).unwrap().flatten();
        let disks: BTreeSet<String> =
            disks.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(disks.is_subset(&leases), "{cut:?}: {disks:?} {leases:?}");
        // What came into being in spite of it is whole, and goes like any other.
        let all = client.get("/daytona/sandbox").expect(200)["items"].clone();
        for other in all.as_array().unwrap().iter().filter(|it| it["id"] != source.as_str()) {
            let target = format!("/daytona/sandbox/{}", other["id"].as_str().unwrap());
            client.delete(&target).expect_success();
        }
    }
    assert!(killed > 1, "killed {killed} times only");
    let client = world.server.client();
    client.delete(&format!("/daytona/sandbox/{source}")).expect_success();
    wait_for("nothing to be left", || {
        let left = left(world.home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}
