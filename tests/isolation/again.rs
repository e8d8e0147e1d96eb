//! A sandbox whose terminal was deleted is still usable.

use serde_json::json;

use crate::world::World;

#[test]
fn a_thread_whose_terminal_was_deleted_gets_a_new_one() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    let exec =
        |command: &str| client.post("/api/threads/t/exec", json!({"command": command})).expect(200);
    // The sandbox keeps running for this terminal when the other one is deleted.
    client.post("/api/threads/t/terminals", json!({"cmd": ["cat"]})).expect(201);
    for round in 0..2 {
        let ran = exec("echo $mark; mark=old");
        assert_eq!(ran["stdout"], "\n", "round {round}: {ran}");
        let terminal = ran["terminal_id"].as_str().unwrap();
        client.delete(&format!("/api/terminals/{terminal}")).expect_success();
        let left = std::fs::read_dir(world.home.path().join("sandboxes")).unwrap().flatten();
        let left: Vec<_> =
            left.map(|it| it.path().join("t").join(terminal)).filter(|it| it.exists()).collect();
        assert!(left.is_empty(), "the files of the terminal are still there: {left:?}");
    }
}
