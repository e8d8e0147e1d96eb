//! A server that is killed again and again while sandboxes come and go leaves nothing that the next
//! start does not adopt or end.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Server, left, wait_for};
use crate::world::World;

/// How often it is killed; `STEAD_SOAK` asks for the long run.
fn times() -> u32 {
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

/// The cgroups of sandboxes, whoever's they are.
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
fn a_server_killed_while_sandboxes_come_and_go_leaves_no_orphan() {
    let warm = ["--set", "sandbox.warm=1"];
    let Some(mut world) = World::new(&warm) else { return };
    let arguments = ["--provider", "namespace", "--set", "sandbox.disk=64m"];
    let mut made = BTreeSet::new();
    for round in 0..times() {
        // Created, used and destroyed at once, and killed somewhere in the middle of it.
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
            // One that waited keeps its name beneath the name it is given.
            made.extend(names_of_labels(&world.home.path().join("sandboxes")));
            let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        world.server.wait();
        // The last keeps none ready, so that nothing is to be left.
        let warm = if round + 1 < times() { "sandbox.warm=1" } else { "sandbox.warm=0" };
        let arguments = [&arguments[..], &["--set", warm]].concat();
        world.server = Server::start_with(&world.home, &arguments);
    }
    let client = world.server.client();
    // What is still there belongs to a thread, and works.
    let threads = client.get("/api/threads?limit=500").expect(200);
    for thread in threads["items"].as_array().unwrap() {
        let target = format!("/api/threads/{}", thread["thread_id"].as_str().unwrap());
        let body = json!({"command": "echo here"});
        assert_eq!(client.post(&format!("{target}/exec"), body).expect(200)["stdout"], "here\n");
        client.delete(&target).expect_success();
    }
    wait_for("nothing to be left", || {
        let left = left(world.home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    let orphans: Vec<_> = cgroups().intersection(&made).cloned().collect();
    assert!(orphans.is_empty(), "{orphans:?}");
    // The world is a network of its own: whatever wire is left in it is one of ours.
    wait_for("no wire to be left", || {
        let wires = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        if wires.contains("stead") { Err(wires) } else { Ok(()) }
    });
    let rules = std::process::Command::new("nft").args(["list", "tables"]).output().unwrap();
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    assert!(!rules.contains("stead"), "{rules}");
}
