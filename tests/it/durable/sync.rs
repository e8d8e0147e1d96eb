//! After a failed sync the store accepts no writes: the kernel may have dropped the data, and a later sync
//! would not report it.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::json;

use super::readiness_check;
use harness::terminal::screen;
use harness::{Home, Server, run, wait_for};

/// Makes every sync of a server fail while the returned process runs; prints the reason and returns `None`
/// where that is not possible.
fn fail_syncs(server: &Server) -> Option<Child> {
    let mut strace = match Command::new("strace")
        .args(["-f", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO"])
        .args(["-o", "/dev/null", "-p", &server.pid().to_string()])
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(strace) => strace,
        Err(error) => {
            eprintln!("skipped: there is no strace: {error}");
            return None;
        }
    };
    let mut messages = String::new();
    let mut stderr = BufReader::new(strace.stderr.take().unwrap());
    while !messages.contains("attached") {
        if stderr.read_line(&mut messages).unwrap() == 0 {
            eprintln!("skipped: strace is not permitted to attach to the server: {messages}");
            strace.wait().unwrap();
            return None;
        }
    }
    // Its later output must not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    Some(strace)
}

#[test]
fn a_store_whose_sync_failed_takes_no_change_until_the_next_start() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.put("/api/threads/before", json!({})).expect_success();
    let Some(mut strace) = fail_syncs(&server) else { return };
    let refused = client.put("/api/threads/failed", json!({}));
    assert_eq!(refused.problem(503), "store_unavailable");
    strace.kill().unwrap();
    strace.wait().unwrap();
    // The disk works again, but it is unknown what was lost.
    for name in ["later", "again"] {
        let refused = client.put(&format!("/api/threads/{name}"), json!({}));
        let detail = refused.text();
        assert_eq!(refused.problem(503), "store_unavailable");
        assert!(detail.contains("until the server is restarted"), "{detail}");
    }
    let unready = client.get("/readyz");
    assert_eq!(unready.problem(503), "store_unavailable");
    let check = readiness_check(&unready.json(), "store");
    assert_eq!(check["ok"], false, "{check}");
    let reason = check["reason"].as_str().unwrap();
    assert!(reason.contains("until the server is restarted"), "{check}");
    // Callers without the token see what failed, and not why.
    let unready = server.stranger().get("/readyz");
    assert_eq!(unready.problem(503), "store_unavailable");
    assert_eq!(readiness_check(&unready.json(), "store"), json!({"name": "store", "ok": false}));
    assert!(!unready.text().contains(reason), "{}", unready.text());
    let status = run(&["status", "--home", home.path().to_str().unwrap()], &[]);
    let shown = String::from_utf8(status.stdout).unwrap();
    assert!(shown.contains(&format!("store    {reason}")), "{shown}");
    assert_eq!(status.status.code(), Some(1));

    client.get("/api/threads/before").expect(200);
    assert!(server.log().contains("no more changes are accepted"), "{}", server.log());
    drop(server);
    let server = Server::start(&home);
    let client = server.client();
    client.get("/api/threads/before").expect(200);
    client.put("/api/threads/later", json!({})).expect_success();
}

#[test]
fn a_command_that_ends_after_a_failed_sync_is_recorded_by_the_next_server() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    let go = home.path().join("go");
    let command =
        format!("until [ -e {} ]; do sleep 0.1; done; echo printed; (exit 3)", go.display());
    let started = client.post("/api/threads/t/exec", json!({"command": command, "yield_ms": 1}));
    let id = started.expect(200)["command_id"].as_str().unwrap().to_owned();
    let Some(mut strace) = fail_syncs(&server) else { return };
    client.put("/api/threads/failed", json!({})).expect_status(503);
    strace.kill().unwrap();
    strace.wait().unwrap();
    fs::write(go, "").unwrap();
    wait_for("the end of the command", || {
        match server.log().contains("the store is closed until the next start") {
            true => Ok(()),
            false => Err(client.get(&format!("/api/commands/{id}")).text()),
        }
    });
    // The host handles this after every request about the command.
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    screen(&client, terminal["terminal_id"].as_str().unwrap());
    server.kill_and_start(&home);
    let ended = wait_for("the receipt", || {
        let command = server.client().get(&format!("/api/commands/{id}")).expect(200);
        if command["status"] == "running" { Err(command) } else { Ok(command) }
    });
    let outcome = (&ended["status"], &ended["exit_code"], &ended["stdout"]);
    assert_eq!(outcome, (&json!("finished"), &json!(3), &json!("printed\n")), "{ended}");
}

#[test]
fn a_file_that_the_disk_does_not_confirm_is_refused_and_stays_as_it_was() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let write = |content: &[u8]| {
        client.request("PUT", "/api/threads/t/fs/write?path=/workspace/f").body(content).send()
    };
    client.put("/api/threads/t", json!({})).expect_success();
    write(b"before").expect_success();
    let Some(mut strace) = fail_syncs(&server) else { return };
    assert_eq!(write(b"after").problem(503), "store_unavailable");
    strace.kill().unwrap();
    strace.wait().unwrap();
    let read = client.get("/api/threads/t/fs/read?path=/workspace/f");
    assert_eq!((read.status, read.text().as_str()), (200, "before"));
}

#[test]
fn memories_that_cannot_be_opened_are_unavailable_until_the_disk_works() {
    let home = Home::new();
    let file = "/api/threads/t/fs/read?path=/memories/hot/x";
    let server = Server::start(&home);
    let client = server.client();
    client.put("/api/threads/t", json!({})).expect_success();
    client.put("/api/threads/t/fs/write?path=/memories/hot/x", json!(1)).expect_success();
    drop(server);
    let server = Server::start(&home);
    let client = server.client();
    let Some(mut strace) = fail_syncs(&server) else { return };
    assert_eq!(client.get(file).problem(503), "store_unavailable");
    strace.kill().unwrap();
    strace.wait().unwrap();
    assert_eq!(client.get(file).expect_status(200).text(), "1");
}
