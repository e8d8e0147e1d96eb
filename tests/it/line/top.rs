//! `stead top`.

use serde_json::{Value, json};

use harness::{Home, Person, Server, run};

#[test]
fn what_runs_is_in_the_table_and_q_quits() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.put("/api/threads/t", json!({"provider": "local"})).expect_success();
    // The command runs until the fifo is written to.
    let fifo = home.path().join("fifo");
    let command = format!("mkfifo {0}; cat {0}", fifo.display());
    client.post("/api/threads/t/exec", json!({"command": command, "yield_ms": 1})).expect_success();
    let mut person = Person::run(&home, &["top", "--interval", "100ms"]);
    person.sees("1 running a command · q quits");
    person.sees("mkfifo");
    let path = home.path().to_str().unwrap();
    let output = run(&["top", "--once", "--json"], &[("STEAD_HOME", path)]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&rows[0]["thread_id"], &rows[0]["state"]), (&"t".into(), &"running".into()));
    assert!(rows[0]["cpu_percent"].is_u64() && rows[0]["memory_bytes"].is_u64(), "{rows}");
    client.post("/api/threads/other/exec", json!({"command": "true"})).expect_success();
    person.sees("other ");
    person.type_text("q");
    // The screen before is restored.
    person.sees("\x1b[?1049l");
    assert_eq!(person.ends(), Some(0));
    let output = run(&["top"], &[("STEAD_HOME", path)]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("THREAD") && text.contains("\nother "), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    std::fs::write(fifo, "").unwrap();
}
