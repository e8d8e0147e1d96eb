//! The pool of warm sandboxes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::World;
use harness::wait_for;

/// Returns the directories of the warm sandboxes and of those in use.
fn sandboxes(home: &Path) -> (Vec<String>, Vec<String>) {
    let entries = fs::read_dir(home.join("sandboxes")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.partition(|name| name.starts_with("warm-"))
}

/// Waits until this number of sandboxes is ready.
fn wait_ready(world: &World, count: usize) {
    wait_for("warm sandboxes", || {
        let providers = world.server.client().get("/api/providers").expect(200);
        let all = providers["items"].as_array().unwrap();
        let namespace = all.iter().find(|provider| provider["name"] == "namespace").unwrap();
        if namespace["ready"] == count { Ok(()) } else { Err(namespace.clone()) }
    });
}

/// Returns the name under which the sandbox of an instance was created, from its label.
fn created_as(home: &Path, lease: &Value) -> String {
    let instance = lease["instance"]["instance_id"].as_str().unwrap();
    let label = fs::read(home.join("sandboxes").join(instance).join("label")).unwrap();
    let label: Value = serde_json::from_slice(&label).unwrap();
    label["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_new_thread_gets_a_warm_sandbox() {
    let Some(world) = World::new(&["--set", "sandbox.warm=2"]) else { return };
    let home = world.home.path();
    wait_ready(&world, 2);
    let mut fastest = Duration::MAX;
    for name in ["one", "two", "three"] {
        wait_ready(&world, 2);
        let began = Instant::now();
        let client = world.server.client();
        let target = format!("/api/threads/{name}/exec");
        let ran = client.post(&target, json!({"command": "echo $PWD; ls /tmp; touch /tmp/mine"}));
        fastest = fastest.min(began.elapsed());
        assert_eq!(ran.expect(200)["stdout"], "/workspace\n", "the sandbox was used before");
        let lease = client.get(&format!("/api/threads/{name}/lease")).expect(200);
        assert!(created_as(home, &lease).starts_with("warm-"), "{lease}");
    }
    println!("from creating a thread to the end of its first command: {fastest:?}");
    // A pool that was used is filled again.
    wait_ready(&world, 2);
    assert_eq!(sandboxes(home).1.len(), 3);
}

#[test]
fn a_warm_sandbox_with_other_limits_is_not_used() {
    let Some(world) = World::new(&["--set", "sandbox.warm=1", "--set", "sandbox.egress=none"])
    else {
        return;
    };
    let (home, client) = (world.home.path(), world.server.client());
    wait_ready(&world, 1);
    let limits = json!({"provider": "namespace", "sandbox": {"memory": "64m", "processes": 32}});
    client.put("/api/threads/small", limits).expect(201);
    client.post("/api/threads/small/exec", json!({"command": "true"})).expect(200);
    let lease = client.get("/api/threads/small/lease").expect(200);
    assert!(created_as(home, &lease).starts_with("inst_"), "{lease}");
    assert_eq!(lease["instance"]["metrics"]["limits"]["memory_bytes"], 64 << 20);
    // The pool now has a sandbox with these limits beside the default one.
    wait_ready(&world, 2);
}

#[test]
fn warm_sandboxes_end_with_the_server() {
    let Some(mut world) = World::new(&["--set", "sandbox.warm=2", "--set", "sandbox.egress=none"])
    else {
        return;
    };
    wait_ready(&world, 2);
    world.server.terminate();
    world.server.wait();
    if world.server.log().contains("responses in progress") {
        // The shutdown timeout passed first; the next start removes the rest.
        return;
    }
    assert_eq!(sandboxes(world.home.path()), (vec![], vec![]));
    let disks = fs::read_dir(world.home.path().join("disks")).unwrap().count();
    assert_eq!(disks, 0, "a disk is left");
}

/// This does not need another server on the same home.
#[test]
fn warm_sandboxes_end_by_themselves_when_the_server_is_killed() {
    let Some(mut world) = World::new(&["--set", "sandbox.warm=2", "--set", "sandbox.egress=none"])
    else {
        return;
    };
    wait_ready(&world, 2);
    let (waiting, _) = sandboxes(world.home.path());
    assert_eq!(waiting.len(), 2);
    let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.server.wait();
    let procs = |name: &String| {
        let file = format!("/sys/fs/cgroup/{}/stead-sandboxes/{name}/cgroup.procs", "pids");
        fs::read_to_string(file).unwrap_or_default()
    };
    wait_for("warm sandboxes to end", || {
        let alive: Vec<String> =
            waiting.iter().map(procs).filter(|pids| !pids.is_empty()).collect();
        if alive.is_empty() { Ok(()) } else { Err(alive) }
    });
}
