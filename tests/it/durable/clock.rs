//! A wall clock that jumps while the server runs.

use std::{cmp::Ordering, fs};

use serde_json::json;

use harness::terminal::exec;
use harness::{Home, Server};

const JUMP_SECONDS: i64 = 400 * 24 * 3600;

#[test]
fn a_running_server_follows_jumps_of_the_wall_clock_and_keeps_working() {
    let home = Home::new();
    let file = home.path().join("clock");
    fs::write(&file, "0").unwrap();
    let server = Server::start_as(&home, &[], &[("STEAD_CLOCK_FILE", file.to_str().unwrap())]);
    let client = server.client();
    exec(&client, "t", "KEPT=here");
    let year = || {
        let project = client.post("/api/projects", json!({"prefix": "clock"})).expect(201);
        let year = project["created_at"].as_str().unwrap().split('-').next().unwrap().to_owned();
        year.parse::<u32>().unwrap()
    };
    let today = year();
    for (offset, expected) in [(JUMP_SECONDS, Ordering::Greater), (-JUMP_SECONDS, Ordering::Less)] {
        fs::write(&file, offset.to_string()).unwrap();
        assert_eq!(year().cmp(&today), expected, "after {offset} s");
        assert_eq!(exec(&client, "t", "echo $KEPT")["stdout"], "here\n");
    }
    assert!(server.log().contains("STEAD_CLOCK_FILE"), "no warning in {}", server.log());
}
