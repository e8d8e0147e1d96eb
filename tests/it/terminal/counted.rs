//! The metrics of snapshots, reconnects and recoveries.

use serde_json::json;

use harness::{
    Client, Home, Server,
    terminal::{exec, open},
    wait_for,
};

fn metric(client: &Client, name: &str) -> u64 {
    let text = client.get("/metrics").expect_status(200).text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
}

#[test]
fn snapshots_of_streams_and_reconnects_of_hosts_are_counted() {
    let home = Home::new();
    let server = Server::start(&home);
    exec(&server.client(), "t", "true");
    open(&server.client(), "t", json!({"cmd": ["cat"]}));
    drop(server);
    let server = Server::start(&home);
    let client = server.client();
    // One host holds both terminals.
    wait_for("the host to be found", || match metric(&client, "stead_reconnects_total") {
        1 => Ok(()),
        other => Err(other),
    });
    let terminal = client.get("/api/threads/t/terminal").expect(200)["terminal_id"].clone();
    let terminal = terminal.as_str().unwrap();
    let before = metric(&client, "stead_snapshot_bytes_count");
    let mut events = client.request("GET", &format!("/api/terminals/{terminal}/stream")).events();
    events.until("snapshot");
    assert!(metric(&client, "stead_snapshot_bytes_count") > before);
    assert!(metric(&client, "stead_snapshot_seconds_count") > before);

    let before = metric(&client, "stead_recovery_seconds_count");
    home.end_hosts();
    wait_for("the terminal to be restored", || {
        exec(&client, "t", "true");
        match metric(&client, "stead_recovery_seconds_count") {
            now if now > before => Ok(()),
            now => Err(now),
        }
    });
}

#[test]
fn a_terminal_that_cannot_be_restored_is_counted() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = exec(&client, "t", "echo shown >/dev/tty")["terminal_id"].clone();
    assert_eq!(metric(&client, "stead_recoveries_failed_total"), 0);
    home.end_hosts();
    let directory = home.path().join("terminals").join(id.as_str().unwrap());
    wait_for("the host to be gone", || {
        let shown = client.get(&format!("/api/terminals/{}", id.as_str().unwrap())).expect(200);
        if shown["status"] == "restorable" { Ok(()) } else { Err(shown) }
    });
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "in the way").unwrap();
    client.post("/api/threads/t/exec", json!({"command": "true"})).expect(503);
    assert!(metric(&client, "stead_recoveries_failed_total") > 0);
}
