//! Clients that disconnect: their requests are executed or not, as recorded.

use std::{fs, net::Shutdown, path::Path};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use harness::{Client, Home, Server, terminal::exec, wait_for};

/// Ids of all processes that have this directory as an argument: the hosts of a server.
fn hosts(home: &Path) -> Vec<i32> {
    let name = home.to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_host = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&name) && line.contains(" host") && !line.contains(" serve ")
    };
    ids.filter(is_host).collect()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits until nothing is left of any thread: no lease, no host, no directory.
pub(super) fn nothing_is_left(client: &Client, home: &Home) {
    wait_for("everything to be gone", || {
        let leases = client.get("/api/leases").expect(200)["items"].clone();
        let hosts = hosts(home.path());
        let directories: Vec<_> = fs::read_dir(home.path().join("terminals"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        let is_left = leases != json!([]) || !hosts.is_empty() || !directories.is_empty();
        if is_left { Err(format!("{leases} {hosts:?} {directories:?}")) } else { Ok(()) }
    });
}

/// The newest command of a thread's default terminal whose text is this.
fn command(client: &Client, thread: &str, text: &str) -> Result<Value, String> {
    let terminal = client.get(&format!("/api/threads/{thread}/terminal")).expect(200);
    let id = terminal["terminal_id"].as_str().unwrap();
    let all = client.get(&format!("/api/terminals/{id}/commands")).expect(200);
    let found = all["items"].as_array().unwrap().iter().find(|it| it["command"] == text);
    found.cloned().ok_or_else(|| all.to_string())
}

#[test]
fn a_client_that_leaves_during_delete_leaves_nothing_behind() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    for thread in ["alone", "other"] {
        exec(&client, thread, "true");
    }
    for _ in 0..3 {
        client.post("/api/threads/alone/terminals", json!({})).expect(201);
    }
    for thread in ["alone", "other"] {
        let target = format!("/api/threads/{thread}");
        let stream = client.request("DELETE", &target).start();
        // The rows go first; the client leaves before anything of the answer is read.
        wait_for("the request to be heard", || match client.get(&target).status {
            404 => Ok(()),
            status => Err(status),
        });
        stream.shutdown(Shutdown::Both).unwrap();
    }
    nothing_is_left(&client, &home);
    client.delete("/api/threads/alone").expect_status(404);
}

#[test]
fn a_deletion_is_accepted_immediately_and_can_be_repeated_until_it_is_done() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "true");
    client.delete("/api/threads/t?wait=false").expect_status(202);
    client.get("/api/threads/t").expect_status(404);
    wait_for("404 once it is gone", || match client.delete("/api/threads/t").status {
        404 => Ok(()),
        204 => Err("204".to_owned()),
        other => panic!("{other}"),
    });
    nothing_is_left(&client, &home);
}

#[test]
fn an_interrupted_deletion_is_completed_by_the_next_server() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    exec(&client, "kept", "true");
    let more = client.post("/api/threads/kept/terminals", json!({})).expect(201);
    let more = more["terminal_id"].as_str().unwrap().to_owned();
    exec(&client, "gone", "true");
    server.attempt("DELETE", &format!("/api/terminals/{more}?wait=false"), "");
    server.attempt("DELETE", "/api/threads/gone?wait=false", "");
    server.kill_and_start(&home);
    let client = server.client();
    client.get("/api/threads/gone").expect_status(404);
    client.get(&format!("/api/terminals/{more}")).expect_status(404);
    wait_for("one lease, one host, one directory", || {
        let leases = client.get("/api/leases").expect(200)["items"].as_array().unwrap().len();
        let left = fs::read_dir(home.path().join("terminals")).unwrap().count();
        let hosts = hosts(home.path()).len();
        if (leases, hosts, left) == (1, 1, 1) { Ok(()) } else { Err((leases, hosts, left)) }
    });
    assert_eq!(exec(&client, "kept", "echo here")["stdout"], "here\n");
}

#[test]
fn a_deletion_can_be_repeated_after_a_kill_until_it_is_done() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    exec(&client, "kept", "true");
    let lease = client.get("/api/threads/kept/lease").expect(200);
    client.put("/api/threads/sharing", json!({"lease_id": lease["lease_id"]})).expect_success();
    exec(&client, "sharing", "true");
    let more = client.post("/api/threads/kept/terminals", json!({})).expect(201);
    let more = format!("/api/terminals/{}", more["terminal_id"].as_str().unwrap());
    let [host] = hosts(home.path())[..] else { panic!("one host") };
    // A stopped host does not end its shells.
    signal(host, Signal::STOP);
    let deleted = ["/api/threads/sharing", &more];
    for target in deleted {
        client.delete(&format!("{target}?wait=false")).expect_status(202);
    }
    for _ in 0..2 {
        server.kill_and_start(&home);
        let client = server.client();
        for target in deleted {
            client.get(target).expect_status(404);
            client.delete(&format!("{target}?wait=false")).expect_status(202);
        }
    }
    signal(host, Signal::CONT);
    let client = server.client();
    for target in deleted {
        wait_for("404 once it is gone", || match client.delete(target).status {
            404 => Ok(()),
            status => Err(status),
        });
    }
    wait_for("one directory", || {
        match fs::read_dir(home.path().join("terminals")).unwrap().count() {
            1 => Ok(()),
            left => Err(left),
        }
    });
    assert_eq!(exec(&client, "kept", "echo here")["stdout"], "here\n");
}

#[test]
fn a_queued_command_whose_caller_has_left_never_starts() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let flag = home.path().join("ran");
    let go = home.path().join("go");
    let waits = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    client.post("/api/threads/t/exec", json!({"command": waits, "yield_ms": 1})).expect(200);
    let text = |name: &str| format!("touch {}.{name}", flag.display());
    for (name, accept) in [("plain", "*/*"), ("events", "text/event-stream")] {
        let request = client
            .request("POST", "/api/threads/t/exec")
            .header("accept", accept)
            .json(&json!({"command": text(name)}));
        let stream = request.start();
        wait_for("it to be queued", || command(&client, "t", &text(name)));
        stream.shutdown(Shutdown::Both).unwrap();
    }
    // A command that can be resumed by its key stays.
    let keyed = client
        .request("POST", "/api/threads/t/exec")
        .header("idempotency-key", "k")
        .json(&json!({"command": text("keyed")}));
    let stream = keyed.start();
    wait_for("it to be queued", || command(&client, "t", &text("keyed")));
    stream.shutdown(Shutdown::Both).unwrap();
    for name in ["plain", "events"] {
        wait_for("not_started", || match command(&client, "t", &text(name))? {
            it if it["status"] == "not_started" => Ok(()),
            it => Err(it.to_string()),
        });
    }
    fs::write(go, "").unwrap();
    assert_eq!(keyed.send().expect(200)["status"], "finished");
    let there = |name: &str| fs::exists(format!("{}.{name}", flag.display())).unwrap();
    assert_eq!([there("plain"), there("events"), there("keyed")], [false, false, true]);
}

#[test]
fn a_sandbox_stopped_on_request_is_not_started_by_a_queued_command() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ask = |command: &str| {
        let body = json!({"command": command, "yield_ms": 1});
        let receipt = client.post("/api/threads/t/exec", body).expect(200);
        receipt["command_id"].as_str().unwrap().to_owned()
    };
    let (runs, queued) = (ask("sleep 1000"), ask("echo never"));
    let lease = client.get("/api/threads/t/lease").expect(200);
    let lease = format!("/api/leases/{}", lease["lease_id"].as_str().unwrap());
    client.post(&format!("{lease}/destroy"), json!({})).expect_success();
    for (id, expected) in [(runs, "lost"), (queued, "not_started")] {
        wait_for("the receipt", || {
            let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
            if receipt["status"] == expected { Ok(()) } else { Err(receipt.to_string()) }
        });
    }
    assert_eq!(client.get(&lease).expect(200)["instance"], Value::Null);
    assert_eq!(hosts(home.path()), Vec::<i32>::new());
}

#[test]
fn a_cancelled_command_is_reported_as_cancelled_whether_or_not_it_had_started() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ask = |command: &str| {
        let asked = json!({"command": command, "yield_ms": 1});
        let ran = client.post("/api/threads/t/exec", asked).expect(200);
        ran["command_id"].as_str().unwrap().to_owned()
    };
    let (runs, waits) = (ask("sleep 1000"), ask("echo never"));
    for id in [&waits, &runs] {
        let ended = client.post(&format!("/api/commands/{id}/cancel"), json!({}));
        assert!(ended.status < 300, "{ended:?}");
        let receipt = wait_for("its receipt", || {
            let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
            if receipt["status"] == "running" { Err(receipt.to_string()) } else { Ok(receipt) }
        });
        assert_eq!(receipt["status"], "cancelled", "{receipt}");
        assert_eq!(receipt["timed_out"], false);
        assert_eq!(receipt["exit_code"], Value::Null);
    }
}

#[test]
fn output_from_before_its_host_was_killed_is_in_the_receipt() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "true");
    let command = "echo partial; echo problem >&2; sleep 1000";
    let asked = json!({"command": command, "yield_ms": 1});
    let ran = client.post("/api/threads/t/exec", asked).expect(200);
    let id = ran["command_id"].as_str().unwrap().to_owned();
    let files = || {
        let all = fs::read_dir(home.path().join("terminals")).unwrap().flatten();
        all.map(|entry| entry.path().join("commands").join(format!("{id}.err"))).next().unwrap()
    };
    wait_for("its output to be on disk", || if files().exists() { Ok(()) } else { Err(files()) });
    for pid in hosts(home.path()) {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let receipt = wait_for("its receipt", || {
        let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
        if receipt["status"] == "running" { Err(receipt.to_string()) } else { Ok(receipt) }
    });
    assert_eq!(receipt["status"], "lost", "{receipt}");
    assert_eq!(
        (&receipt["stdout"], &receipt["stderr"]),
        (&json!("partial\n"), &json!("problem\n"))
    );
    assert_eq!(receipt["stdout_bytes"], 8, "{receipt}");
}
