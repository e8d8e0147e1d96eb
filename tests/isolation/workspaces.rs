//! The disks of workspaces are created, moved and removed with their projects.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::world::World;
use harness::{Server, engines, wait_for};

/// Mounts, loop devices and files of a project.
fn traces(home: &Path, project: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in ["workspaces", "trash"] {
        let entries = fs::read_dir(home.join(folder)).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path().display().to_string());
        found.extend(paths.filter(|path| path.contains(project)));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(project)).map(str::to_owned));
    for device in fs::read_dir("/sys/block").unwrap().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        found.extend(file.ok().filter(|file| file.contains(project)));
    }
    found
}

fn restart(world: &mut World, arguments: &[&str]) {
    let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.server.wait();
    let all = ["--set", "sandbox.disk=64m", "--set", "sandbox.warm=0"];
    let provider: &[&str] =
        if arguments.contains(&"--provider") { &[] } else { &["--provider", "namespace"] };
    world.server = Server::start_with(&world.home, &[&all, provider, arguments].concat());
}

fn kept_and_removed(arguments: &[&str]) {
    let all = [arguments, &["--set", "sandbox.egress=none", "--set", "project.trash_time=0s"]];
    let all = all.concat();
    let Some(mut world) = World::new(&all) else { return };
    let client = world.server.client();
    let project = client.post("/api/projects", json!({"prefix": "gone"})).expect(201);
    let id = project["project_id"].as_str().unwrap().to_owned();
    client.put("/api/threads/t", json!({"project_id": id})).expect_success();
    let run = |world: &World, thread: &str, command: &str| {
        let target = format!("/api/threads/{thread}/exec");
        let receipt = world.server.client().post(&target, json!({"command": command})).expect(200);
        receipt["stdout"].as_str().unwrap().to_owned()
    };
    assert_eq!(run(&world, "t", "echo inside > /workspace/file; cat /workspace/file"), "inside\n");
    // A sandbox that was started while the disk was mounted must not keep the mount.
    run(&world, "bystander", "true");
    let read = |world: &World, path: &str| {
        let target = format!("/api/threads/t/fs/read?path={path}");
        world.server.client().get(&target).expect_success().text()
    };
    assert_eq!(read(&world, "/workspace/file"), "inside\n");
    let note = "/api/threads/t/fs/write?path=/workspace/note";
    client.request("PUT", note).body(b"outside").send().expect_success();
    assert_eq!(run(&world, "t", "cat /workspace/note; ls -A /workspace"), "outsidefile\nnote\n");
    // The mount outlives the server, and the next one uses it.
    restart(&mut world, &all);
    assert_eq!(read(&world, "/workspace/file"), "inside\n");
    assert_eq!(run(&world, "t", "cat /workspace/file"), "inside\n");
    let client = world.server.client();
    client.delete(&format!("/api/projects/{id}")).expect_success();
    wait_for("the disk to be unmounted", || {
        let found = traces(world.home.path(), &id);
        let trash = world.home.path().join("trash").join(&id).display().to_string();
        if found == BTreeSet::from([trash]) { Ok(()) } else { Err(found) }
    });
    client.post(&format!("/api/projects/{id}/restore"), json!({})).expect_success();
    client.put("/api/threads/t", json!({"project_id": id})).expect_success();
    assert_eq!(read(&world, "/workspace/file"), "inside\n");
    client.delete(&format!("/api/projects/{id}")).expect_success();
    client.post("/api/projects/cleanup", json!({})).expect_success();
    wait_for("everything to be removed", || {
        let found = traces(world.home.path(), &id);
        if found.is_empty() { Ok(()) } else { Err(found) }
    });
    assert_eq!(run(&world, "bystander", "echo here"), "here\n");
}

#[test]
fn a_deleted_project_leaves_no_mount_no_loop_device_and_no_file() {
    kept_and_removed(&[]);
}

#[test]
fn a_deleted_project_of_containers_leaves_no_mount_no_loop_device_and_no_file() {
    for (_, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        kept_and_removed(&["--provider", "docker", "--set", &host]);
    }
}

/// A home of an earlier version, whose server is killed while it moves the files to a disk.
#[test]
fn no_file_is_lost_when_the_server_is_killed_while_it_moves_them() {
    let none = ["--set", "sandbox.egress=none"];
    let Some(mut world) = World::new(&none) else { return };
    for (nth, marker) in ["disk.new", "disk/repo", "disk.img"].into_iter().enumerate() {
        let client = world.server.client();
        let project = client.post("/api/projects", json!({"prefix": "old"})).expect(201);
        let id = project["project_id"].as_str().unwrap();
        let workspace = world.home.path().join("workspaces").join(id);
        for name in 0..500 {
            let directory = workspace.join("repo").join((name % 10).to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name.to_string()), vec![b'x'; 20_000]).unwrap();
        }
        fs::write(workspace.join("memories/persistent/note"), "remember").unwrap();
        let thread = format!("/api/threads/t{nth}");
        client.put(&thread, json!({"project_id": id})).expect_success();
        let exec = format!("{thread}/exec");
        std::thread::scope(|scope| {
            let server = &world.server;
            let exec = &exec;
            scope.spawn(move || server.attempt("POST", exec, r#"{"command":"true"}"#));
            wait_for(marker, || workspace.join(marker).exists().then_some(()).ok_or(marker));
            let pid = rustix::process::Pid::from_raw(server.pid()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        restart(&mut world, &none);
        let client = world.server.client();
        let read = format!("{thread}/fs/read?path=/workspace/7/497");
        assert_eq!(client.get(&read).expect_success().text().len(), 20_000, "{marker}");
        let count = "find /workspace -type f -size 20000c | wc -l; cat /memories/persistent/note";
        let receipt = client.post(&exec, json!({"command": count})).expect(200);
        assert_eq!(receipt["stdout"], "500\nremember", "{marker}: {receipt}");
        let receipt = client.post(&exec, json!({"command": "df --output=target /workspace"}));
        assert_eq!(receipt.expect(200)["stdout"], "Mounted on\n/workspace\n");
        let left = ["disk.new", "moved-repo", "moved-memories"];
        assert!(left.iter().all(|name| !workspace.join(name).exists()), "{marker}");
        assert!(workspace.join("disk.img").exists(), "{marker}");
    }
}

/// Files are not moved away from a program of the machine. Until it ends, a sandbox over its limit is stopped.
#[test]
fn a_workspace_that_a_local_program_uses_is_checked_after_the_fact() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    let project = client.post("/api/projects", json!({"prefix": "both"})).expect(201);
    let id = project["project_id"].as_str().unwrap();
    let workspace = world.home.path().join("workspaces").join(id);
    let mut program = Command::new("cat")
        .current_dir(workspace.join("repo"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    client.put("/api/threads/t", json!({"project_id": id})).expect_success();
    let fill = "while i=$(((i + 1) % 8)); do head -c 50M /dev/zero > /workspace/fill$i; done";
    let stopped = client.post("/api/threads/t/exec", json!({"command": fill})).expect(200);
    assert_eq!(stopped["limit_reached"], "disk_full", "{stopped}");
    drop(program.stdin.take());
    program.wait().unwrap();
    assert!(!workspace.join("disk.img").exists());
    for nth in 0..8 {
        let _ = fs::remove_file(workspace.join(format!("repo/fill{nth}")));
    }
    // The files are moved when the next sandbox starts.
    fs::write(workspace.join("repo/kept"), "kept").unwrap();
    client.delete("/api/threads/t").expect_success();
    client.put("/api/threads/next", json!({"project_id": id})).expect_success();
    let receipt = wait_for("the end of the other sandbox", || {
        let command = json!({"command": "cat /workspace/kept"});
        let receipt = client.post("/api/threads/next/exec", command).expect(200);
        match workspace.join("disk.img").exists() {
            true => Ok(receipt),
            false => {
                client.delete("/api/threads/next").expect_success();
                client.put("/api/threads/next", json!({"project_id": id})).expect_success();
                Err(receipt)
            }
        }
    });
    assert_eq!(receipt["stdout"], "kept", "{receipt}");
}
