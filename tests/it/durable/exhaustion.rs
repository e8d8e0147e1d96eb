//! A running server runs out of descriptors or disk: precise errors, running commands continue, and service
//! returns by itself.

use std::{fs, path::Path, process::Command};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use harness::terminal::{exec, open};
use harness::{Client, Home, Server, wait_for};

fn runs(client: &Client, thread: &str) {
    assert_eq!(exec(client, thread, "echo runs")["stdout"], "runs\n");
}

/// The host of a home that has one.
fn host(home: &Home) -> Pid {
    let instance = fs::read_dir(home.path().join("run")).unwrap().next().unwrap().unwrap();
    let pid = fs::read_to_string(instance.path().join("host.pid")).unwrap();
    Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
}

#[test]
fn a_host_without_descriptors_refuses_one_more_terminal_and_keeps_the_others() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    runs(&client, "t");
    let (host, before) = (host(&home), open(&client, "t", json!({})));
    let used = fs::read_dir(format!("/proc/{}/fd", host.as_raw_nonzero())).unwrap().count() as u64;
    let limit = |current| Rlimit { current: Some(current), maximum: Some(4096) };
    prlimit(Some(host), Resource::Nofile, limit(used)).unwrap();
    let refused = client.post("/api/threads/t/terminals", json!({}));
    assert_eq!(refused.problem(503), "out_of_descriptors");
    let typed = json!({"data": "echo $((40+2))\r"});
    client.post(&format!("/api/terminals/{before}/input"), typed).expect_success();
    harness::terminal::shows(&client, &before, "42");
    let listed = client.get("/api/threads/t/terminals").expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "nothing is left of the refused one");
    prlimit(Some(host), Resource::Nofile, limit(4096)).unwrap();
    open(&client, "t", json!({}));
    runs(&client, "t");
}

/// A small disk of its own, for as long as it is held.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn on(path: &'a Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "stead-test"])
            .arg(path)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Disk(path)),
            other => {
                eprintln!("skipped: no disk of its own can be mounted here ({other:?})");
                None
            }
        }
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_changes_answers_reads_and_is_forgotten_when_there_is_room() {
    let home = Home::new();
    let Some(_disk) = Disk::on(home.path()) else { return };
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "cd /usr; export A=1");
    let filler = home.path().join("filler");
    // Until not even one byte fits.
    let mut file = fs::File::create(&filler).unwrap();
    for size in [1 << 20, 1 << 12, 1] {
        while std::io::Write::write_all(&mut file, &vec![b'x'; size]).is_ok() {}
    }
    let refused = client.put("/api/threads/other", json!({"labels": {"a": "x".repeat(9000)}}));
    assert!(refused.status >= 500, "acknowledged on a full disk: {}", refused.text());
    refused.problem(refused.status);
    assert_eq!(client.get("/api/threads/t").expect(200)["thread_id"], "t");
    client.get("/api/threads/other").problem(404);
    drop(file);
    fs::remove_file(&filler).unwrap();
    wait_for("service to return", || {
        let answer = client.put("/api/threads/other", json!({}));
        if answer.status < 300 { Ok(()) } else { Err(answer.text()) }
    });
    let ran = exec(&client, "t", "pwd; echo $A");
    assert_eq!(ran["stdout"], "/usr\n1\n", "{ran}");
    runs(&client, "other");
    drop(server);
    home.end_hosts();
}
