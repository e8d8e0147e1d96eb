//! A host that exists and does not respond: reported, waited for, and without effect on others.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::readiness_check;
use harness::{Client, Home, Server, has_sandboxes, run, wait_for};

/// A host that is stopped, and continued when the test ends.
struct Stopped(Pid);

impl Stopped {
    /// Stops the host of a thread's lease.
    fn of(home: &Home, client: &Client, thread: &str) -> Stopped {
        let lease = lease(client, thread);
        let instance = lease["instance"]["instance_id"].as_str().unwrap();
        let sockets =
            ["run", "sandboxes"].map(|dir| home.path().join(dir).join(instance).join("host.sock"));
        let host = sockets.iter().find_map(|socket| UnixStream::connect(socket).ok()).unwrap();
        let pid = socket_peercred(&host).unwrap().pid;
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn lease(client: &Client, thread: &str) -> Value {
    client.get(&format!("/api/threads/{thread}/lease")).expect(200)
}

fn exec(client: &Client, thread: &str, command: &str) -> Value {
    let body = json!({"command": command, "timeout_ms": 30_000});
    client.post(&format!("/api/threads/{thread}/exec"), body).expect(200)
}

/// Waits until a thread's shell responds again with its state.
fn responds_again(client: &Client, thread: &str) {
    let receipt = wait_for("the shell to answer", || {
        let body = json!({"command": "echo $KEPT"});
        let answer = client.post(&format!("/api/threads/{thread}/exec"), body);
        if answer.status == 200 { Ok(answer.json()) } else { Err(answer.status) }
    });
    assert_eq!(receipt["stdout"], format!("{thread}\n"), "{receipt}");
    assert_eq!(receipt["shell_restarted"], false, "{receipt}");
    assert_eq!(lease(client, thread)["reachable"], true);
}

fn is_unreachable(client: &Client, thread: &str) {
    let lease = wait_for("the lease to be unreachable", || {
        let lease = lease(client, thread);
        if lease["reachable"] == false { Ok(lease) } else { Err(lease) }
    });
    assert!(lease["unreachable_since"].is_string(), "{lease}");
    let body = json!({"command": "true", "timeout_ms": 2000});
    let refused = client.post(&format!("/api/threads/{thread}/exec"), body);
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    let problem = refused.json();
    assert_eq!(problem["code"], "unreachable", "{problem}");
    let named = lease["lease_id"].as_str().unwrap();
    assert!(problem["detail"].as_str().unwrap().contains(named), "{problem}");
}

#[test]
fn a_stopped_host_does_not_delay_the_start() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    for thread in ["stuck", "free"] {
        exec(&client, thread, &format!("KEPT={thread}"));
    }
    let stopped = Stopped::of(&home, &client, "stuck");
    server.kill_and_start(&home);
    let client = server.client();
    client.get("/readyz").expect(200);
    responds_again(&client, "free");
    is_unreachable(&client, "stuck");
    drop(stopped);
    responds_again(&client, "stuck");
}

#[test]
fn a_host_that_stops_while_the_server_runs_is_reported_and_waited_for() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    for thread in ["stuck", "free"] {
        exec(&client, thread, &format!("KEPT={thread}"));
    }
    let stopped = Stopped::of(&home, &client, "stuck");
    let measured = lease(&client, "stuck");
    assert!(measured["instance"]["metrics"]["disk_bytes"].as_u64() > Some(0), "{measured}");
    // The first command finds out.
    let body = json!({"command": "touch ran", "timeout_ms": 2000});
    let refused = client.post("/api/threads/stuck/exec", body);
    assert_eq!(refused.json()["code"], "unreachable");
    is_unreachable(&client, "stuck");
    responds_again(&client, "free");
    warns_of_the_host(&home, &server);
    drop(stopped);
    responds_again(&client, "stuck");
    let check = readiness_check(&client.get("/readyz").expect(200), "hosts");
    assert_eq!(check, json!({"name": "hosts", "ok": true}));
}

/// Checks that the server is ready, and that only the owner sees which host does not answer.
fn warns_of_the_host(home: &Home, server: &Server) {
    let check = readiness_check(&server.client().get("/readyz").expect(200), "hosts");
    let lease = lease(&server.client(), "stuck")["lease_id"].as_str().unwrap().to_owned();
    let reason = format!("no answer from the hosts of {lease}");
    assert_eq!(check, json!({"name": "hosts", "ok": false, "reason": reason}));
    let check = readiness_check(&server.stranger().get("/readyz").expect(200), "hosts");
    assert_eq!(check, json!({"name": "hosts", "ok": false}));
    let status = run(&["status", "--home", home.path().to_str().unwrap()], &[]);
    let shown = String::from_utf8(status.stdout).unwrap();
    assert!(status.status.success() && shown.contains(&reason), "{shown}");
}

#[test]
fn a_stopped_host_inside_a_sandbox_is_reported_before_it_could_be_a_slow_disk() {
    if !has_sandboxes() {
        return;
    }
    let home = Home::new();
    let arguments = ["--provider", "namespace", "--set", "sandbox.disk=64m"];
    let server = Server::start_with(&home, &arguments);
    let client = server.client();
    exec(&client, "stuck", "KEPT=stuck");
    let body = json!({"command": "sleep 15", "yield_ms": 0});
    let running = client.post("/api/threads/free/exec", body).expect(200);
    let stopped = Stopped::of(&home, &client, "stuck");
    let body = json!({"command": "true", "timeout_ms": 2000});
    let refused = client.post("/api/threads/stuck/exec", body);
    assert_eq!(refused.json()["code"], "unreachable");
    is_unreachable(&client, "stuck");
    // A host that is only slow has 20 seconds.
    let id = running["command_id"].as_str().unwrap();
    let running = client.get(&format!("/api/commands/{id}")).expect(200);
    assert_eq!(running["status"], "running", "{running}");
    drop(stopped);
    responds_again(&client, "stuck");
}

#[test]
fn a_command_whose_host_stops_is_answered_and_its_receipt_found_later() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "stuck", "KEPT=stuck");
    let body = json!({"command": "sleep 600", "timeout_ms": 1000, "yield_ms": 0});
    let running = client.post("/api/threads/stuck/exec", body).expect(200);
    let id = running["command_id"].as_str().unwrap().to_owned();
    let stopped = Stopped::of(&home, &client, "stuck");
    let body = json!({"command": "echo second", "timeout_ms": 1000});
    let request = client.request("POST", "/api/threads/stuck/exec");
    let refused = request.header("idempotency-key", "again").json(&body).send();
    assert_eq!(refused.json()["code"], "unreachable");
    drop(stopped);
    let receipt = wait_for("the receipt", || {
        let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
        if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
    });
    assert_eq!(receipt["status"], "timed_out", "{receipt}");
}

#[test]
fn requests_are_answered_while_the_host_is_stopped_and_none_waits_for_it() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    // Two threads share a host, so that deleting one of them does not end it.
    exec(&client, "stuck", "KEPT=stuck");
    let shared = lease(&client, "stuck")["lease_id"].clone();
    client.put("/api/threads/other", json!({"lease_id": shared})).expect(201);
    exec(&client, "other", "true");
    let stopped = Stopped::of(&home, &client, "stuck");
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", stopped.0.as_raw_nonzero()));
        stat.unwrap().rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let began = Instant::now();
    let body = json!({"command": "true", "timeout_ms": 2000});
    let refused = client.post("/api/threads/stuck/exec", body);
    assert_eq!(refused.problem(503), "unreachable");
    // Its 2 seconds, and as much again for a busy machine; without a deadline there is no answer at all.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    is_unreachable(&client, "stuck");
    let began = Instant::now();
    client.delete("/api/threads/other").expect_status(204);
    // A removal that waits is answered after 5 seconds.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    client.get("/api/threads/other").problem(404);
    assert!(is_stopped(), "answered while the host was stopped");
    drop(stopped);
    responds_again(&client, "stuck");
}

#[test]
fn a_thread_deleted_while_its_shared_host_is_silent_leaves_nothing_when_the_host_ends() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "a", "true");
    let shared = lease(&client, "a");
    client.put("/api/threads/b", json!({"lease_id": shared["lease_id"]})).expect_success();
    exec(&client, "b", "true");
    let _stopped = Stopped::of(&home, &client, "a");
    client.delete("/api/threads/a").expect_status(204);
    is_unreachable(&client, "b");
    client.delete("/api/threads/b").expect_status(204);
    wait_for("the directories of the terminals to be removed", || {
        let left = std::fs::read_dir(home.path().join("terminals")).unwrap().count();
        if left == 0 { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_thread_whose_host_is_stopped_can_be_deleted() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "stuck", "KEPT=stuck");
    let stopped = Stopped::of(&home, &client, "stuck");
    client.delete("/api/threads/stuck").expect(204);
    wait_for("the host to be ended", || {
        let alive = rustix::process::test_kill_process(stopped.0).is_ok();
        if alive { Err("it lives") } else { Ok(()) }
    });
    client.get("/api/threads/stuck").expect(404);
}

/// A command of a killed server that did not reach its stopped host ends at the next start, and not only when its caller
/// repeats the request.
#[test]
fn a_command_that_never_reached_its_host_ends_at_the_next_start() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    exec(&client, "stuck", "KEPT=stuck");
    let stopped = Stopped::of(&home, &client, "stuck");
    let body = json!({"command": "true", "timeout_ms": 2000});
    assert_eq!(client.post("/api/threads/stuck/exec", body).problem(503), "unreachable");
    is_unreachable(&client, "stuck");
    let refused = client
        .request("POST", "/api/threads/stuck/exec")
        .header("Idempotency-Key", "never-received")
        .json(&json!({"command": "echo never", "timeout_ms": 2000}))
        .send();
    assert_eq!(refused.problem(503), "unreachable");
    server.kill_and_start(&home);
    drop(stopped);
    let client = server.client();
    responds_again(&client, "stuck");
    let terminal = client.get("/api/threads/stuck/terminal").expect(200);
    let listed = format!("/api/terminals/{}/commands", terminal["terminal_id"].as_str().unwrap());
    let never = wait_for("the command to end", || {
        let commands = client.get(&listed).expect(200);
        let items = commands["items"].as_array().unwrap();
        let never = items.iter().find(|it| it["command"] == "echo never").cloned();
        match never {
            Some(it) if ["queued", "running"].contains(&it["status"].as_str().unwrap()) => Err(it),
            other => Ok(other),
        }
    });
    let status = never.map(|it| it["status"].clone());
    assert!(
        status.as_ref().is_some_and(|it| it == "not_started" || it == "cancelled"),
        "{status:?}"
    );
}
