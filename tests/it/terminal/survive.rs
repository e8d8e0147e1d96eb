//! Shells outlive the server.

use serde_json::json;

use harness::{
    Home, Server,
    terminal::{data, exec, open, screen, shows},
    wait_for,
};

/// A program that numbers its lines, so that a lost or repeated byte is detected.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo \"line $i of a long story\"; \
    [ $((i % 20)) = 0 ] && sleep 0.01; done";

/// How often the server is killed; more in a soak.
fn cycles() -> usize {
    std::env::var("STEAD_KILL_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

#[test]
fn no_byte_is_lost_or_doubled_however_often_the_server_is_killed() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let id = open(&server.client(), "s", json!({"cmd": ["sh", "-c", COUNT]}));
    let mut whole: Vec<u8> = Vec::new();
    let mut last: Option<String> = None;
    let mut pid = None;
    for cycle in 0..cycles() {
        let client = server.client();
        let mut request = client.request("GET", &format!("/api/terminals/{id}/stream"));
        let from = last.clone().unwrap_or_else(|| "0".to_owned());
        request = request.header("last-event-id", &from);
        let mut events = request.events();
        let before = whole.len();
        while whole.len() < before + 2000 {
            let event = events.next().unwrap_or_else(|| panic!("cycle {cycle}: the stream ended"));
            match event.name.as_str() {
                "data" => {
                    let (offset, bytes) = data(&event);
                    assert_eq!(offset, whole.len() as u64, "cycle {cycle}");
                    whole.extend_from_slice(&bytes);
                    last = event.id;
                }
                "snapshot" => panic!("cycle {cycle}: a picture instead of the missed bytes"),
                _ => {}
            }
        }
        let lease = client.get("/api/threads/s/lease").expect(200);
        let instance = lease["instance"]["instance_id"].clone();
        assert_eq!(*pid.get_or_insert(instance.clone()), instance, "another host");
        server.kill();
        server = Server::start(&home);
    }
    let text = String::from_utf8(whole).unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    for (index, line) in lines[..lines.len() - 1].iter().enumerate() {
        assert_eq!(*line, format!("line {} of a long story", index + 1));
    }
    let client = server.client();
    let shown = client.get(&format!("/api/terminals/{id}")).expect(200);
    assert_eq!(shown["status"], "live");
    client.delete("/api/threads/s").expect_status(204);
    let left: Vec<_> = std::fs::read_dir(home.path().join("terminals")).unwrap().collect();
    assert!(left.is_empty(), "files were left: {left:?}");
    let left: Vec<_> = std::fs::read_dir(home.path().join("run")).unwrap().collect();
    assert!(left.is_empty(), "an instance was left: {left:?}");
}

#[test]
fn shell_state_and_a_running_command_outlive_a_kill_of_the_server() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "cd /usr; export A=1; b=2; f() { echo \"f $1\"; }");
    let body = json!({"command": "sleep 0.5; echo done", "yield_ms": 50});
    let running = client.post("/api/threads/t/exec", body).expect(200);
    assert_eq!(running["status"], "running");
    let command = running["command_id"].as_str().unwrap().to_owned();
    server.kill();

    let server = Server::start(&home);
    let client = server.client();
    let receipt = wait_for("the command to end", || {
        let receipt = client.get(&format!("/api/commands/{command}")).expect(200);
        if receipt["status"] == "finished" { Ok(receipt) } else { Err(receipt) }
    });
    assert_eq!((&receipt["stdout"], &receipt["exit_code"]), (&json!("done\n"), &json!(0)));
    let after = exec(&client, "t", "pwd; echo $A $b; f x");
    assert_eq!(after["stdout"], "/usr\n1 2\nf x\n");
    assert_eq!(after["shell_restarted"], false);
}

#[test]
fn a_terminal_whose_host_was_killed_is_restored_with_its_scrollback_and_state() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "cd /usr; export A='x y'; arr=(1 2); f() { echo f; }; set -o pipefail");
    exec(&client, "t", "echo before-the-reboot");
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    let id = terminal["terminal_id"].as_str().unwrap();
    shows(&client, id, "before-the-reboot");
    server.kill();
    home.end_hosts();

    let server = Server::start(&home);
    let client = server.client();
    let shown = client.get(&format!("/api/terminals/{id}")).expect(200);
    assert_eq!(shown["status"], "restorable");
    assert!(screen(&client, id).contains("before-the-reboot"));
    let after = exec(&client, "t", "pwd; echo \"$A ${arr[1]}\"; f; set -o | grep pipefail");
    assert_eq!(after["stdout"], "/usr\nx y 2\nf\npipefail       \ton\n");
    let lease = client.get("/api/threads/t/lease").expect(200);
    assert_eq!(lease["generation"], 2);
    let text = client.get(&format!("/api/terminals/{id}/snapshot?format=text&scrollback=1000"));
    assert!(text.text().contains("before-the-reboot"), "{}", text.text());
    assert!(text.text().contains("restored from its last state"), "{}", text.text());
    assert!(client.get(&format!("/api/terminals/{id}")).expect(200)["status"] == "live");
}
