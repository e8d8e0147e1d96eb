//! Lists of the command line: only ids, and again when they change.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use serde_json::json;

use harness::{Client, Home, Server, run, wait_for};

fn use_thread(client: &Client, thread: &str) {
    client.post(&format!("/api/threads/{thread}/exec"), json!({"command": "true"})).expect(200);
}

#[test]
fn a_watched_list_is_printed_again_when_it_changes() {
    let home = Home::new();
    let server = Server::start(&home);
    use_thread(&server.client(), "one");
    let listed =
        run(&["thread", "ls", "--quiet"], &[("STEAD_HOME", home.path().to_str().unwrap())]);
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "one\n");

    let mut list = Command::new(harness::program())
        .args(["thread", "ls", "--quiet", "--watch"])
        .env("STEAD_HOME", home.path())
        .env_remove("STEAD_URL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(list.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "one"));
    use_thread(&server.client(), "two");
    assert!(lines.any(|line| line == "two"));
    // A server that restarts is waited for.
    let address = server.address;
    server.kill();
    let server = Server::start_at(&home, address);
    use_thread(&server.client(), "three");
    assert!(lines.any(|line| line == "three"));
    // The next change has no reader.
    drop(lines);
    use_thread(&server.client(), "four");
    let status = wait_for("the list to end", || list.try_wait().unwrap().ok_or("still running"));
    assert!(status.success(), "{status}");
}
