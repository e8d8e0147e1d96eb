//! Suspending a lease with its files, and copies of them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::world::{World, has};
use harness::{Client, Request, Server, left, wait_for};

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
fn a_suspended_lease_resumes_with_its_files_and_the_state_of_its_shell() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    exec(&client, "t", "echo kept > /opt/file; cd /opt; A=1; sleep 1000 &");
    let before = lease(&client, "t");
    let target = format!("/api/leases/{}/suspend", id(&before));
    let refused = client.post(&target, json!({"fidelity": "memory"})).problem(409);
    assert_eq!(refused, "not_supported");
    assert_eq!(lease(&client, "t")["instance"]["state"], "running", "the instance was ended");
    let suspended = client.post(&target, json!({"fidelity": "filesystem"})).expect(200);
    assert_eq!(suspended["instance"], Value::Null);
    assert_eq!(exec(&client, "t", "cat file; echo $A $PWD; jobs")["stdout"], "kept\n1 /opt\n");
    let after = lease(&client, "t");
    assert_eq!((id(&before), &after["generation"]), (id(&after), &json!(2)));
}

#[test]
fn a_fork_has_the_files_and_changes_independently() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    // The file is not synced, and another process keeps writing.
    exec(&client, "one", "echo first > /opt/file; (while :; do date > /opt/now; done) &");
    let one = lease(&client, "one");
    let fork = client.post(&format!("/api/leases/{}/fork", id(&one)), json!({})).expect(201);
    assert_ne!(id(&one), id(&fork));
    assert_eq!(fork["instance"], Value::Null, "no instance runs before the first use");
    assert_eq!(lease(&client, "one")["instance"]["state"], "running", "the original keeps running");
    client.put("/api/threads/two", json!({"lease_id": id(&fork)})).expect(201);
    assert_eq!(exec(&client, "two", "cat /opt/file")["stdout"], "first\n");
    exec(&client, "two", "echo second > /opt/file");
    assert_eq!(exec(&client, "one", "cat /opt/file")["stdout"], "first\n");
    assert_eq!(exec(&client, "two", "cat /opt/file")["stdout"], "second\n");
    client.put("/api/threads/idle", json!({})).expect(201);
    let idle = lease(&client, "idle");
    let target = format!("/api/leases/{}/fork", id(&idle));
    assert_eq!(
        client.post(&target, json!({})).problem(409),
        "not_supported",
        "a lease without files has no fork"
    );
}

#[test]
fn a_fork_of_a_sandbox_has_its_files_and_its_shell_and_changes_independently() {
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
    let execute = |command: &str| {
        let target = target.replace("/sandbox/", "/toolbox/");
        let ran = client.post(&format!("{target}/process/execute"), json!({"command": command}));
        ran.expect(200)["result"].as_str().unwrap().to_owned()
    };
    execute("echo kept > /opt/file");
    let larger = json!({"disk": 2});
    client.post(&format!("{target}/resize"), larger.clone()).expect(400);
    client.post(&format!("{target}/stop"), json!({})).expect(200);
    // Resizing to the same size a second time changes nothing.
    for _ in 0..2 {
        let resized = client.post(&format!("{target}/resize"), larger.clone()).expect(200);
        assert_eq!(resized["disk"], 2);
    }
    client.post(&format!("{target}/resize"), json!({"disk": 1})).expect(400);
    client.post(&format!("{target}/start"), json!({})).expect(200);
    assert_eq!(execute("cat /opt/file"), "kept\n");
    let blocks: u64 = execute("df -k / | awk 'END {print $2}'").trim().parse().unwrap();
    assert!(blocks > 1 << 20, "{blocks}");
}

#[test]
fn threads_created_from_a_snapshot_outlive_it() {
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

#[test]
fn eight_snapshots_of_a_sandbox_at_the_same_time_all_end() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    exec(&client, "t", "echo kept > /opt/file; (while :; do date > /opt/now; done) &");
    let target = format!("/api/leases/{}/snapshot", id(&lease(&client, "t")));
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (client, target) = (world.server.client().with_long_timeout(), &target);
            let name = json!({"name": format!("at-once-{number}")});
            scope.spawn(move || client.post(target, name).expect(201));
        }
    });
    assert_eq!(client.get("/api/snapshots").expect(200)["items"].as_array().unwrap().len(), 8);
    assert_eq!(exec(&client, "t", "cat /opt/file")["stdout"], "kept\n");
    let body = json!({"sandbox": {"snapshot": "at-once-7"}});
    client.put("/api/threads/later", body).expect(201);
    assert_eq!(exec(&client, "later", "cat /opt/file")["stdout"], "kept\n");
}

#[test]
fn a_list_of_snapshots_is_filtered_by_name_and_comes_in_pages() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    let made = client.post("/v2/sandboxes", json!({"templateID": "base", "timeout": 600}));
    let target =
        format!("/sandboxes/{}/snapshots", made.expect(201)["sandboxID"].as_str().unwrap());
    for name in ["one", "two", "three"] {
        client.post(&target, json!({"name": name})).expect(201);
    }
    let list = |query: &str| {
        let answer = client.get(&format!("/snapshots{query}"));
        let next = answer.header("x-next-token").map(str::to_owned);
        let items = answer.expect(200);
        let names = items.as_array().unwrap().iter();
        let names = names.map(|it| it["snapshotID"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), next)
    };
    assert_eq!(list("").0, ["one", "three", "two"]);
    assert_eq!(list("?name=two"), (vec!["two".to_owned()], None));
    assert_eq!(list("?name=two:default"), (vec!["two".to_owned()], None));
    assert_eq!(list("?name=none"), (vec![], None));
    let (first, next) = list("?limit=2");
    assert_eq!(first, ["one", "three"]);
    assert_eq!(list(&format!("?limit=2&nextToken={}", next.unwrap())), (vec!["two".into()], None));
    for wrong in ["?limit=0", "?limit=x", "?nextToken=!", "?name=one&name=two"] {
        client.get(&format!("/snapshots{wrong}")).expect_status(400);
    }
}

/// The points of a fork at which the server is killed: before the nth call of each system call.
const FORK_KILL_POINTS: [(&str, u32); 6] = [
    ("fdatasync", 1),
    ("fdatasync", 2),
    ("fdatasync", 3),
    ("copy_file_range", 1),
    ("rename", 1),
    ("pwrite64", 4),
];

/// The points of a snapshot and of a suspension.
const LEASE_KILL_POINTS: [(&str, &str, u32); 8] = [
    ("snapshot", "fdatasync", 1),
    ("snapshot", "copy_file_range", 1),
    ("snapshot", "rename", 1),
    ("snapshot", "pwrite64", 4),
    ("suspend", "fdatasync", 1),
    ("suspend", "fdatasync", 2),
    ("suspend", "pwrite64", 4),
    ("suspend", "unlink", 1),
];

/// Sends a request and kills the server before one of its system calls. Returns whether the server was killed;
/// `None` where strace is not permitted to attach.
fn kill_during(server: &Server, request: &Request, (call, when): (&str, u32)) -> Option<bool> {
    let (pid, trace) = (server.pid().to_string(), format!("trace={call}"));
    let inject = format!("inject={call}:signal=SIGKILL:when={when}");
    let mut strace = Command::new("strace")
        .args(["-f", "-p", &pid, "-e", &trace, "-e", &inject, "-o", "/dev/null"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(strace.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("attached") {
        line.clear();
        if messages.read_line(&mut line).unwrap() == 0 {
            strace.wait().unwrap();
            return None;
        }
    }
    // Keep reading, so that strace is never blocked by a full pipe.
    std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::sink()));
    let answer = request.attempt();
    // SIGKILL, because strace may otherwise wait indefinitely for a thread that no longer exists.
    strace.kill().unwrap();
    strace.wait().unwrap();
    Some(answer.is_none())
}

/// Kills the server if it still runs, and starts the next.
fn start_again(world: &mut World) {
    let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    world.server.wait();
    let arguments = ["--provider", "namespace", "--set", "sandbox.disk=64m"];
    let arguments = [&arguments[..], &["--set", "sandbox.warm=0"]].concat();
    world.server = Server::start_with(&world.home, &arguments);
}

#[test]
fn a_server_killed_in_a_snapshot_or_a_suspension_keeps_the_files_and_no_partial_copy() {
    if !has("strace") {
        eprintln!("skipped: there is no strace");
        return;
    }
    let Some(mut world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    exec(&world.server.client(), "t", "echo kept > /opt/file; A=1");
    let lease = id(&lease(&world.server.client(), "t")).to_owned();
    let mut killed = 0;
    for (verb, call, when) in LEASE_KILL_POINTS {
        // There is an instance to suspend.
        exec(&world.server.client(), "t", "true");
        let target = format!("/api/leases/{lease}/{verb}");
        let body = if verb == "snapshot" { json!({"name": "cut"}) } else { json!({}) };
        let request = world.server.client().request("POST", &target).json(&body);
        let Some(was_killed) = kill_during(&world.server, &request, (call, when)) else {
            eprintln!("skipped: strace is not permitted to attach to the server");
            return;
        };
        killed += u32::from(was_killed);
        start_again(&mut world);
        let client = world.server.client();
        let point = format!("{verb} at {call} {when}");
        let result = exec(&client, "t", "cat /opt/file; echo $A");
        assert_eq!(result["stdout"], "kept\n1\n", "{point}: {result}");
        // A copy is whole or does not exist.
        for copy in client.get("/api/snapshots").expect(200)["items"].as_array().unwrap() {
            assert_eq!(copy["name"], "cut", "{point}");
            client.put("/api/threads/copy", json!({"sandbox": {"snapshot": "cut"}})).expect(201);
            assert_eq!(exec(&client, "copy", "cat /opt/file")["stdout"], "kept\n", "{point}");
            client.delete("/api/threads/copy").expect_status(204);
            client.delete("/api/snapshots/cut").expect_status(204);
        }
        for directory in ["disks", "snapshots"] {
            let entries = std::fs::read_dir(world.home.path().join(directory));
            let names = entries.into_iter().flatten().flatten().map(|entry| entry.path());
            let unfinished: Vec<_> =
                names.filter(|path| path.extension().is_some_and(|it| it == "new")).collect();
            assert!(unfinished.is_empty(), "{point}: {unfinished:?}");
        }
    }
    assert!(killed > 2, "killed {killed} times only");
    world.server.client().delete("/api/threads/t").expect_status(204);
    wait_for("nothing to be left", || {
        let left = left(world.home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_server_killed_in_a_fork_leaves_no_unused_lease() {
    if !has("strace") {
        eprintln!("skipped: there is no strace");
        return;
    }
    let Some(mut world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let made = world.server.client().post("/daytona/sandbox", json!({})).expect(200);
    let source = made["id"].as_str().unwrap().to_owned();
    let mut killed = 0;
    for point in FORK_KILL_POINTS {
        let target = format!("/daytona/sandbox/{source}/fork");
        let fork = world.server.client().request("POST", &target).json(&json!({}));
        let Some(was_killed) = kill_during(&world.server, &fork, point) else {
            eprintln!("skipped: strace is not permitted to attach to the server");
            return;
        };
        killed += u32::from(was_killed);
        start_again(&mut world);
        let client = world.server.client();
        wait_for("every lease to belong to a thread", || {
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
        assert!(disks.is_subset(&leases), "{point:?}: {disks:?} {leases:?}");
        // A fork that was completed nevertheless is whole, and can be deleted like any other.
        let all = client.get("/daytona/sandbox").expect(200)["items"].clone();
        for other in all.as_array().unwrap().iter().filter(|it| it["id"] != source.as_str()) {
            let target = format!("/daytona/sandbox/{}", other["id"].as_str().unwrap());
            client.delete(&target).expect_success();
        }
    }
    assert!(killed > 1, "killed {killed} times only");
    let client = world.server.client();
    client.delete(&format!("/daytona/sandbox/{source}")).expect_success();
    wait_for("everything to be removed", || {
        let left = left(world.home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}
