//! A terminal with its own program ends with it; the thread's default terminal gets a new shell.

use serde_json::{Value, json};

use harness::{
    Client, Frame, Home, Server,
    terminal::{exec, open, shows},
    wait_for,
};

fn terminal(client: &Client, id: &str) -> Value {
    client.get(&format!("/api/terminals/{id}")).expect(200)
}

#[test]
fn a_terminal_with_its_own_program_reports_its_exit_and_stays_exited() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["bash", "-l"]}));
    let mut events = client.request("GET", &format!("/session/s/pty/{id}/stream")).events();
    events.until("snapshot");
    let exec_here = format!("/api/terminals/{id}/exec");
    let ran = client.post(&exec_here, json!({"command": "echo alive"})).expect(200);
    assert_eq!(ran["stdout"], "alive\n");
    client.post(&format!("/session/s/pty/{id}/input"), json!({"data": "exit 5\r"})).expect(204);
    assert_eq!(events.until("exit").json(), json!({"code": 5, "signal": null}));

    let exited = |client: &Client| {
        wait_for("the terminal to be exited", || {
            let shown = terminal(client, &id);
            let is = shown["status"] == "exited" && shown["exit_code"] == 5;
            if is { Ok(()) } else { Err(shown) }
        });
        let refused = client.post(&exec_here, json!({"command": "echo no"})).expect(409);
        assert_eq!(refused["code"], "not_running");
    };
    exited(&client);
    // Also for a server that was killed before or after it had recorded the exit.
    drop(server);
    let server = Server::start(&home);
    exited(&server.client());
}

#[test]
fn a_client_that_attaches_after_the_exit_gets_the_last_screen_and_the_exit() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["sh", "-c", "echo last words; exit 3"]}));
    wait_for("the program to end", || {
        let shown = terminal(&client, &id);
        if shown["status"] == "exited" { Ok(()) } else { Err(shown) }
    });
    for restart in [false, true] {
        if restart {
            server.kill_and_start(&home);
        }
        let client = server.client();
        for target in
            [format!("/api/terminals/{id}/stream"), format!("/session/s/pty/{id}/stream?from=0")]
        {
            let mut events = client.request("GET", &target).events();
            let mut shown = String::new();
            let exit = loop {
                let event = events.next().unwrap();
                match event.name.as_str() {
                    "exit" => break event.json(),
                    _ => shown.push_str(event.json()["data"].as_str().unwrap_or_default()),
                }
            };
            assert!(shown.contains("last words"), "{shown}");
            assert_eq!(exit, json!({"code": 3, "signal": null}));
        }
        let mut socket = client.socket(&format!("/api/terminals/{id}/ws"), &[]).unwrap();
        let (mut shown, mut exits) = (Vec::new(), Vec::new());
        while exits.is_empty() {
            match socket.next() {
                Frame::Bytes(bytes) => shown.extend(bytes),
                Frame::Control(message) if message["type"] == "exit" => exits.push(message),
                Frame::Control(_) => {}
                Frame::Closed => panic!("closed before the exit"),
            }
        }
        assert!(String::from_utf8_lossy(&shown).contains("last words"));
        assert_eq!(exits, [json!({"type": "exit", "code": 3, "signal": null})]);
    }
}

#[test]
fn an_exec_that_leaves_the_shell_ends_its_terminal_and_has_a_receipt() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let id = open(&client, "s", json!({"cmd": ["bash"]}));
    let body = json!({"command": "echo last; exit 7"});
    let ran = client.post(&format!("/api/terminals/{id}/exec"), body).expect(200);
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("last\n"), &json!(7)));
    wait_for("the terminal to end", || {
        let shown = terminal(&client, &id);
        if shown["status"] == "exited" && shown["exit_code"] == 7 { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn a_default_terminal_gets_a_new_shell_and_a_notice_on_its_screen() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ran = exec(&client, "t", "cd /usr; kept=1");
    let id = ran["terminal_id"].as_str().unwrap().to_owned();
    client.post(&format!("/api/terminals/{id}/input"), json!({"data": "exit 5\r"})).expect(204);
    shows(&client, &id, "the shell exited with code 5");
    assert_eq!(exec(&client, "t", "echo $kept $PWD")["stdout"], "1 /usr\n");
    assert_eq!(terminal(&client, &id)["status"], "live");
}
