//! A database with a flipped bit.

use serde_json::json;

use harness::{Home, Server, flip_bit, run, wait_for};

#[test]
fn a_row_with_a_flipped_bit_is_reported_and_the_others_work() {
    let home = Home::new();
    let server = Server::start(&home);
    let exec = |server: &Server, command: &str| {
        server.client().post("/api/threads/t/exec", json!({"command": command})).expect(200)
    };
    let whole = exec(&server, "echo whole");
    let damaged = exec(&server, "echo damaged-by-a-flipped-bit");
    assert_eq!(server.stop().0.code(), Some(0));
    let stead = ["doctor", "--inspect", "--home", home.path().to_str().unwrap()];
    let doctor = || String::from_utf8(run(&stead, &[]).stdout).unwrap();
    assert!(doctor().contains("every row of"), "{}", doctor());

    flip_bit(home.path(), "echo damaged-by-a-flipped-bit");

    let server = Server::start(&home);
    let command = |receipt: &serde_json::Value| {
        format!("/api/commands/{}", receipt["command_id"].as_str().unwrap())
    };
    let refused = server.client().get(&command(&damaged));
    assert_eq!(refused.problem(500), "store_damaged");
    assert!(refused.text().contains("a command is damaged"), "{}", refused.text());
    server.client().get(&command(&whole)).expect(200);
    assert_eq!(exec(&server, "echo on")["stdout"], "on\n");
    wait_for("the log to report it", || {
        let log = server.log();
        if log.contains("the database has damaged rows") { Ok(()) } else { Err(log) }
    });
    assert!(doctor().contains("damaged rows: 1 in commands"), "{}", doctor());
}
