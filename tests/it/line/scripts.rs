//! Commands that scripts use: copying files, waiting for a command, following events.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use harness::{Home, Server, run, wait_for};

fn stead(home: &Home, arguments: &[&str]) -> std::process::Output {
    run(arguments, &[("STEAD_HOME", home.path().to_str().unwrap())])
}

fn succeed(home: &Home, arguments: &[&str]) -> String {
    let output = stead(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(home: &Home, arguments: &[&str]) -> String {
    let output = stead(home, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_directory_is_copied_there_and_back() {
    let home = Home::new();
    let server = Server::start(&home);
    server.client().put("/api/threads/main", json!({})).expect_success();
    let local = home.path().join("local");
    std::fs::create_dir(&local).unwrap();
    let source = local.join("src");
    std::fs::create_dir_all(source.join("deep/empty")).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(source.join("deep/large.bin"), &large).unwrap();
    std::fs::write(source.join("a name é.txt"), "text").unwrap();

    let copied = succeed(&home, &["cp", "--json", text(&source), "main:/workspace/"]);
    let copied: Value = serde_json::from_str(&copied).unwrap();
    assert_eq!(copied, json!({"files": 2, "bytes": 3_000_004}));
    let back = local.join("back");
    succeed(&home, &["cp", "main:src", text(&back)]);
    assert_eq!(std::fs::read(back.join("deep/large.bin")).unwrap(), large);
    assert_eq!(std::fs::read_to_string(back.join("a name é.txt")).unwrap(), "text");
    assert!(back.join("deep/empty").is_dir());

    // Into an existing directory, under another name, and to standard output.
    succeed(&home, &["cp", text(&source.join("a name é.txt")), "main:src/deep"]);
    assert_eq!(succeed(&home, &["cp", "main:src/deep/a name é.txt", "-"]), "text");
    succeed(&home, &["cp", text(&source.join("a name é.txt")), "main:/workspace/new/b.txt"]);
    succeed(&home, &["cp", "main:new/b.txt", text(&local)]);
    assert_eq!(std::fs::read_to_string(local.join("b.txt")).unwrap(), "text");
}

#[test]
fn a_copy_that_cannot_be_made_is_refused_with_the_reason() {
    let home = Home::new();
    let server = Server::start(&home);
    server.client().put("/api/threads/main", json!({})).expect_success();
    let local = home.path().join("local");
    std::fs::create_dir(&local).unwrap();
    let check = |source: &str, destination: &str, reason: &str| {
        let error = refused(&home, &["cp", source, destination]);
        assert!(error.contains(reason), "{source} to {destination}: {error}");
    };
    check("a", "b", "neither side is a thread");
    check("main:a", "main:b", "one side must be a file of this machine");
    check("main:missing", text(&local), "/workspace/missing does not exist in main");
    check(text(&local.join("missing")), "main:x", "cannot read");
    check("missing:x", text(&local), "no thread or sandbox \"missing\"");
    assert_eq!(std::fs::read_dir(&local).unwrap().count(), 0, "something is left over");
}

/// Kills a server and starts another at its address.
fn restart(server: Server, home: &Home) -> Server {
    let address = server.address;
    server.kill();
    Server::start_at(home, address)
}

#[test]
fn waiting_for_a_command_gives_its_status_across_a_restart() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let go = home.path().join("go");
    let command = format!("while [ ! -e '{}' ]; do sleep 0.05; done; (exit 7)", go.display());
    let body = json!({"command": command, "yield_ms": 0});
    let started = client.post("/api/threads/main/exec", body).expect(200);
    let id = started["command_id"].as_str().unwrap();

    let given_up = stead(&home, &["wait", id, "--timeout", "10ms"]);
    assert_eq!(given_up.status.code(), Some(124), "{given_up:?}");

    let binary = harness::program();
    let mut waiting = Command::new(binary)
        .args(["wait", "main", "--json"])
        .env("STEAD_HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has reached the server and says what it waits for.
    let mut notice = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut notice).unwrap();
    assert_eq!(notice, format!("stead: waiting for {id}\n"));
    let _server = restart(server, &home);
    std::fs::write(&go, "").unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(7));
    let receipt: Value = serde_json::from_reader(waiting.stdout.take().unwrap()).unwrap();
    assert_eq!((&receipt["command_id"], &receipt["status"]), (&json!(id), &json!("finished")));
    assert_eq!(stead(&home, &["wait", id]).status.code(), Some(7), "it has ended already");
    assert!(refused(&home, &["wait", "cmd_1"]).contains("no command \"cmd_1\""));
}

#[test]
fn events_are_followed_across_a_restart() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut following = Command::new(harness::program())
        .args(["events", "--json", "--from", "0", "--type", "thread_created", "-n", "2"])
        .env("STEAD_HOME", home.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    server.client().put("/api/threads/first", json!({})).expect_success();
    assert_eq!(next()["thread_id"], "first");
    let server = restart(server, &home);
    server.client().put("/api/threads/second", json!({})).expect_success();
    assert_eq!(next()["thread_id"], "second");
    assert!(following.wait().unwrap().success());
}

#[test]
fn listening_ports_are_printed_and_a_stopped_thread_has_none() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.put("/api/threads/main", json!({})).expect_success();
    assert_eq!(succeed(&home, &["ports", "--json"]), "[]\n", "nothing is started to list ports");
    client.post("/api/threads/main/exec", json!({"command": "true"})).expect(200);
    let listed: Value = serde_json::from_str(&succeed(&home, &["ports", "--json"])).unwrap();
    let own = json!({"port": server.address.port()});
    assert!(listed.as_array().unwrap().contains(&own), "{listed}");
    let table = succeed(&home, &["ports", "main"]);
    assert_eq!(table.lines().next(), Some("PORT"), "{table}");
    assert!(table.lines().any(|line| line == server.address.port().to_string()), "{table}");
    let missing = refused(&home, &["ports", "nothing"]);
    assert!(missing.contains("no thread or sandbox \"nothing\""), "{missing}");
}

#[test]
fn the_last_lines_of_a_terminal_are_printed() {
    let home = Home::new();
    let _server = Server::start(&home);
    succeed(&home, &["send", "-t", "main", "seq 200 300", "--enter"]);
    let (all, prompt) = wait_for("the prompt after the output", || {
        let shown = succeed(&home, &["logs", "main"]);
        match shown.rsplit_once("\n300\n").map(|(_, prompt)| prompt.to_owned()) {
            Some(prompt) if !prompt.trim().is_empty() => Ok((shown, prompt)),
            Some(_) | None => Err(shown),
        }
    });
    assert!(all.contains("\n200\n201\n"), "{all}");
    let last = |lines: &str| succeed(&home, &["logs", "main", "-n", lines]);
    assert_eq!(last("3"), format!("299\n300\n{prompt}"));
    assert_eq!(last("1"), prompt);
    assert_eq!(last("0"), "");
    assert_eq!(last("100000"), all);
}
