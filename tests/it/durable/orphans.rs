//! Rows that belong to nothing, as a damaged or hand-edited store may have them.

use serde_json::json;

use harness::{Home, Server, database};

#[test]
fn history_whose_terminal_has_no_row_keeps_no_command_from_running() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let exec = |server: &Server, command: &str| {
        let body = json!({"command": command, "timeout_ms": 30_000});
        server.client().post("/api/threads/a/exec", body).expect(200)
    };
    exec(&server, "X=1");
    server.kill();
    let store = database(home.path());
    store.pragma_update(None, "foreign_keys", false).unwrap();
    assert_eq!(store.execute("DELETE FROM terminals", []).unwrap(), 1);
    drop(store);
    server = Server::start(&home);
    for round in ["1", "2"] {
        let receipt = exec(&server, &format!("echo {round}"));
        assert_eq!(receipt["stdout"], format!("{round}\n"), "{receipt}");
    }
    let log = server.log();
    assert!(!log.contains("cannot record"), "{log}");
}
