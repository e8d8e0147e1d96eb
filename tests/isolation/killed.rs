//! A server that is repeatedly killed while sandboxes are created and deleted leaves nothing that the next
//! start does not adopt or end.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::world::World;
use harness::{Server, left, wait_for};

/// The number of kills; more with `STEAD_SOAK`.
fn rounds() -> u32 {
    if std::env::var_os("STEAD_SOAK").is_some() { 50 } else { 12 }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn names_of_labels(dir: &Path) -> Vec<String> {
    let labels =
        names(dir).into_iter().filter_map(|name| fs::read(dir.join(name).join("label")).ok());
    let labels = labels.filter_map(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    labels.filter_map(|label| label["name"].as_str().map(str::to_owned)).collect()
}

/// The cgroups of the sandboxes of all servers on this machine.
fn cgroups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for entry in
            fs::read_dir(hierarchy.path().join("stead-sandboxes")).into_iter().flatten().flatten()
        {
            found.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn a_server_killed_while_sandboxes_are_created_and_deleted_leaves_no_orphan() {
    let warm = ["--set", "sandbox.warm=1"];
    let Some(mut world) = World::new(&warm) else { return };
    let arguments = ["--provider", "namespace", "--set", "sandbox.disk=64m"];
    let mut made = BTreeSet::new();
    for round in 0..rounds() {
        // Two sandboxes are created, used and deleted. The server is killed meanwhile.
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let server = &world.server;
                scope.spawn(move || {
                    let thread = format!("/api/threads/{name}{round}");
                    server.attempt(
                        "POST",
                        &format!("{thread}/exec"),
                        r#"{"command":"echo hello"}"#,
                    );
                    server.attempt("DELETE", &thread, "");
                });
            }
            let (_hold, wait) = std::sync::mpsc::channel::<()>();
            let _ = wait.recv_timeout(Duration::from_millis(u64::from(round) * 37 % 400));
            made.extend(names(&world.home.path().join("sandboxes")));
            // A sandbox from the pool keeps its first name in its label.
            made.extend(names_of_labels(&world.home.path().join("sandboxes")));
            let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        world.server.wait();
        // The last server has an empty pool, so that no sandbox may remain.
        let warm = if round + 1 < rounds() { "sandbox.warm=1" } else { "sandbox.warm=0" };
        let arguments = [&arguments[..], &["--set", warm]].concat();
        world.server = Server::start_with(&world.home, &arguments);
    }
    let client = world.server.client();
    // Every sandbox that remains belongs to a thread, and works.
    let threads = client.get("/api/threads?limit=500").expect(200);
    for thread in threads["items"].as_array().unwrap() {
        let target = format!("/api/threads/{}", thread["thread_id"].as_str().unwrap());
        let body = json!({"command": "echo here"});
        assert_eq!(client.post(&format!("{target}/exec"), body).expect(200)["stdout"], "here\n");
        client.delete(&target).expect_success();
    }
    wait_for("everything to be removed", || {
        let left = left(world.home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    let orphans: Vec<_> = cgroups().intersection(&made).cloned().collect();
    assert!(orphans.is_empty(), "{orphans:?}");
    // The test has a network namespace of its own, so every `veth` device in it is one of its sandboxes'.
    wait_for("all veth devices to be removed", || {
        let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        if devices.contains("stead") { Err(devices) } else { Ok(()) }
    });
    let rules = std::process::Command::new("nft").args(["list", "tables"]).output().unwrap();
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    assert!(!rules.contains("stead"), "{rules}");
}
