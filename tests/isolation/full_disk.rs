//! What sandboxes notice of a machine whose disk is full.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use rustix::fs::FallocateFlags;
use rustix::thread::UnshareFlags;
use serde_json::json;

use harness::{Answer, Client, Home, Server, has_sandboxes, terminal::exec, wait_for};

/// The size of the machine's disk, and what sandboxes leave free of it.
const DISK_BYTES: u64 = 4 << 30;
const RESERVE_BYTES: u64 = DISK_BYTES / 20;

/// Mounts a small disk at a home, in a mount namespace of this thread and its children.
fn on_small_disk(home: &Path) {
    // SAFETY: no descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    let script = "mount --make-rprivate / && truncate -s $2 $1.disk && mkfs.ext4 -q -m 0 $1.disk && \
        mount -o loop $1.disk $1 && rm $1.disk && chmod 700 $1 && rmdir $1/lost+found";
    let size = DISK_BYTES.to_string();
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(home).arg(size).status().unwrap();
    assert!(made.success());
}

fn free_bytes(home: &Path) -> u64 {
    let disk = rustix::fs::statvfs(home).unwrap();
    disk.f_bfree * disk.f_frsize
}

fn start(home: &Home) -> Server {
    let all = ["--provider", "namespace", "--set", "sandbox.disk=512m", "--set", "sandbox.warm=0"];
    Server::start_with(home, &[&all[..], &["--set", "sandbox.egress=none"]].concat())
}

fn put(client: &Client, path: &str, bytes: &[u8]) -> Answer {
    let target = format!("/api/threads/t/fs/write?path={path}");
    client.request("PUT", &target).body(bytes).send()
}

#[test]
fn a_full_disk_of_the_machine_is_a_full_disk_inside_until_there_is_space() {
    if !has_sandboxes() {
        return;
    }
    let home = Home::new();
    on_small_disk(home.path());
    let server = start(&home);
    let client = server.client();
    let run = |command: &str| exec(&client, "t", command);
    assert_eq!(run("echo 1 > /root/kept; echo 1 > kept; here=still")["exit_code"], 0);
    // Another program of the machine takes the space but a little more than the reserve.
    let filler = home.path().join("filler");
    let file = File::create(&filler).unwrap();
    let bytes = free_bytes(home.path()) - RESERVE_BYTES - (24 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    // The sandbox takes the rest, but not the reserve.
    for path in ["/root/big", "/workspace/big"] {
        let full = run(&format!(
            "for i in $(seq 100); do head -c 4M /dev/zero; done > {path}; sync {path}"
        ));
        assert!(full["stderr"].as_str().unwrap().contains("No space left on device"), "{full}");
    }
    assert!(free_bytes(home.path()) > RESERVE_BYTES / 2, "{}", free_bytes(home.path()));
    for path in ["/root/new", "/workspace/new"] {
        assert_eq!(put(&client, path, &[1; 100_000]).problem(503), "disk_full", "{path}");
    }
    // What has a block can still be changed.
    assert_eq!(run("echo 2 >> /root/kept && echo 2 >> kept && sync")["exit_code"], 0);
    fs::remove_file(&filler).unwrap();
    drop(file);
    wait_for("the sandbox to write again", || match put(&client, "/root/new", &[1; 100_000]) {
        done if done.status == 201 => Ok(()),
        refused => Err(refused.text()),
    });
    put(&client, "/workspace/new", b"x").expect(201);
    assert_eq!(run("cat /root/kept kept; echo $here")["stdout"], "1\n2\n1\n2\nstill\n");
    client.delete("/api/threads/t").expect_success();
}

#[test]
fn a_disk_that_the_kernel_made_read_only_works_again_after_a_suspend() {
    if !has_sandboxes() {
        return;
    }
    let home = Home::new();
    let server = start(&home);
    let client = server.client();
    assert_eq!(exec(&client, "t", "echo 1 > kept")["exit_code"], 0);
    let project = fs::read_dir(home.path().join("workspaces")).unwrap().next().unwrap().unwrap();
    // As the kernel does after a failed write of its journal.
    let disk = project.path().join("disk");
    let stopped = Command::new("mount").args(["-o", "remount,abort"]).arg(disk).status();
    assert!(stopped.unwrap().success());
    let refused = put(&client, "/workspace/new", b"x");
    assert!(refused.text().contains("suspend and resume the sandboxes"), "{}", refused.text());
    assert_eq!(refused.problem(503), "store_unavailable");
    let lease = client.get("/api/threads/t/lease").expect(200)["lease_id"].clone();
    let suspend = format!("/api/leases/{}/suspend", lease.as_str().unwrap());
    client.post(&suspend, json!({})).expect_success();
    let back = exec(&client, "t", "cat kept && echo 2 >> kept && cat kept");
    assert_eq!(back["stdout"], "1\n1\n2\n", "{back}");
    put(&client, "/workspace/new", b"x").expect(201);
    client.delete("/api/threads/t").expect_success();
}
