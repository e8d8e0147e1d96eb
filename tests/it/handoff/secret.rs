//! A secret reaches the program that asks for it, and nothing else.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::World;
use harness::{Client, wait_for};

const SECRET: &str = "s3cret \"9f2c7d1e\" Ünder";

/// Asks for a password as most programs do: opens the terminal itself and turns its echo off.
const ASKS: &str = "bash -c 'exec 3<>/dev/tty; old=$(stty -g <&3); stty -echo <&3; \
    printf \"Password: \" >&3; IFS= read -r -u 3 x; stty $old <&3; \
    printf \"got %s\\n\" \"$(printf %s \"$x\" | sha256sum)\" >&3'";

/// Asks as a shell script does.
const READS: &str = "bash -c 'IFS= read -rs -p \"Password: \" x </dev/tty; \
    printf \"\\ngot %s\\n\" \"$(printf %s \"$x\" | sha256sum)\" >/dev/tty'";

/// Asks as a program does that opens the terminal and turns its echo off in one step.
const OPENS: &str = "bash -c 'exec 3<>/dev/tty; IFS= read -rs -u 3 x; \
    printf \"\\ngot %s\\n\" \"$(printf %s \"$x\" | sha256sum)\" >&3'";

fn digest() -> String {
    Sha256::digest(SECRET.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn screen(world: &World) -> String {
    world.client().get(&world.at("/snapshot?format=text&scrollback=1000")).text()
}

/// Answers once the program reads; until then the answer is refused.
fn answer(client: &Client, route: &str) -> Value {
    wait_for("the program to ask", || {
        let answer = client.post(&format!("{route}/answer"), json!({"secret": SECRET}));
        match answer.status {
            200 => Ok(answer.json()),
            409 if ["not_waiting", "echo_on"].contains(&answer.problem(409).as_str()) => {
                Err(answer.text())
            }
            _ => panic!("{}", answer.text()),
        }
    })
}

/// The files below a directory that contain these bytes.
fn files_with(root: PathBuf, needle: &[u8]) -> Vec<PathBuf> {
    let (mut left, mut found) = (vec![root], Vec::new());
    while let Some(path) = left.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|it| it.path()));
        } else if metadata.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            if bytes.windows(needle.len()).any(|window| window == needle) {
                found.push(path);
            }
        }
    }
    found
}

/// Searches everything that the server keeps and sends.
fn assert_kept_nowhere(world: &World) {
    let client = world.client();
    let commands = client.get(&world.at("/commands")).expect(200);
    let mut targets = vec![
        "/api/handoffs".to_owned(),
        "/api/threads".to_owned(),
        "/api/threads/t".to_owned(),
        "/api/ledger".to_owned(),
        "/metrics".to_owned(),
        world.at(""),
        world.at("/snapshot"),
        world.at("/snapshot?format=text&scrollback=1000"),
        world.at("/recording"),
        world.at("/commands"),
        world.at("/versions"),
    ];
    for command in commands["items"].as_array().unwrap() {
        let id = command["command_id"].as_str().unwrap();
        targets.push(format!("/api/commands/{id}?reveal=true"));
        targets.push(format!("/api/commands/{id}/output?stream=stdout"));
        targets.push(format!("/api/commands/{id}/output?stream=stderr"));
    }
    // Quotes are escaped in JSON, so a part without them is searched for.
    for part in [SECRET, "9f2c7d1e"] {
        for target in &targets {
            let shown = client.get(target).expect_status(200).text();
            assert!(!shown.contains(part), "{target}: {shown}");
        }
        assert!(!world.server.log().contains(part), "{}", world.server.log());
        let found = files_with(world.home.path().to_owned(), part.as_bytes());
        assert!(found.is_empty(), "{found:?}");
    }
    let mut events = client.request("GET", "/api/events?from=1").events();
    let last =
        client.post("/api/threads/u/terminals", json!({})).expect(201)["terminal_id"].clone();
    loop {
        let event = events.next().expect("the stream is open");
        assert!(!event.data.contains("9f2c7d1e"), "{}", event.data);
        if event.name == "terminal_created" && event.json()["terminal_id"] == last {
            break;
        }
    }
}

#[test]
fn a_secret_reaches_the_program_and_is_kept_nowhere() {
    let mut world = World::new();
    for (number, program) in [ASKS, READS].into_iter().enumerate() {
        let client = world.client();
        // The program is a person's, typed into the shell.
        client.post(&world.at("/input"), json!({"data": format!("{program}\r")})).expect_success();
        let route = world.ask(json!({"kind": "secret", "reason": "The password for the test"}));
        let answered = answer(&client, &route);
        assert_eq!(answered["status"], "answered", "{answered}");
        assert!(answered.get("answer").is_none(), "{answered}");
        let expected = format!("got {}", digest());
        wait_for("the program to get the secret", || {
            let shown = screen(&world);
            match shown.matches(&expected).count() {
                count if count == number + 1 => Ok(()),
                _ => Err(shown),
            }
        });
    }
    assert_kept_nowhere(&world);
    world.server.kill_and_start(&world.home);
    assert_kept_nowhere(&world);
}

#[test]
fn a_secret_reaches_the_program_of_a_command() {
    let world = World::new();
    let client = world.client();
    for program in [OPENS, READS] {
        let ran = client.post("/api/threads/t/exec", json!({"command": program, "yield_ms": 1}));
        let id = ran.expect(200)["command_id"].as_str().unwrap().to_owned();
        let route = world.ask(json!({"kind": "secret", "reason": "The password for the test"}));
        answer(&client, &route);
        let receipt = wait_for("the command to end", || {
            let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
            if receipt["status"] == "finished" { Ok(receipt) } else { Err(receipt) }
        });
        assert_eq!(receipt["exit_code"], 0, "{receipt}");
        let shown = screen(&world);
        assert!(shown.contains(&format!("got {}", digest())), "{shown}");
    }
    assert_kept_nowhere(&world);
}

#[test]
fn a_secret_is_refused_where_it_would_be_shown() {
    let world = World::new();
    let client = world.client();
    let route = world.ask(json!({"kind": "secret", "reason": "The password"}));
    let answer = format!("{route}/answer");
    let refused = |code: &str| {
        wait_for("the refusal", || {
            let refused = client.post(&answer, json!({"secret": SECRET}));
            assert_eq!(refused.status, 409, "{}", refused.text());
            assert!(!refused.text().contains("9f2c7d1e"), "{}", refused.text());
            if refused.problem(409) == code { Ok(()) } else { Err(refused.text()) }
        });
    };
    // The line editor of the shell, a program with echo, and one that does not read.
    refused("echo_on");
    client.post(&world.at("/input"), json!({"data": "cat\r"})).expect_success();
    wait_for("the program", || {
        let shown = screen(&world);
        if shown.contains("cat") { Ok(()) } else { Err(shown) }
    });
    refused("echo_on");
    client.post(&world.at("/signal"), json!({"signal": "INT"})).expect_success();
    // Runs when the shell is at its prompt again.
    client.post("/api/threads/t/exec", json!({"command": "true"})).expect(200);
    let program = json!({"data": "stty -echo; sleep 1000\r"});
    client.post(&world.at("/input"), program).expect_success();
    refused("not_waiting");
    for (body, status) in [
        (json!({"text": SECRET}), 400),
        (json!({"secret": 5}), 400),
        (json!({"secret": "a\nb"}), 400),
        (json!({"secret": "x".repeat(4001)}), 400),
        (json!({"secret": SECRET, "approve": true}), 400),
    ] {
        let refused = client.post(&answer, body);
        assert_eq!(refused.status, status, "{}", refused.text());
        assert!(!refused.text().contains("9f2c7d1e"), "{}", refused.text());
    }
    assert_eq!(client.get(&route).expect(200)["status"], "open");
    client.post(&world.at("/signal"), json!({"signal": "INT"})).expect_success();
    assert_kept_nowhere(&world);
}

#[test]
fn a_repeated_answer_types_the_secret_once() {
    let world = World::new();
    let client = world.client();
    let program = "bash -c 'for i in 1 2; do IFS= read -rs -p \"Password: \" x </dev/tty; \
        printf \"\\n$i got %s\\n\" \"$(printf %s \"$x\" | sha256sum)\" >/dev/tty; done'";
    client.post(&world.at("/input"), json!({"data": format!("{program}\r")})).expect_success();
    let route = world.ask(json!({"kind": "secret", "reason": "The password"}));
    let mut attempt = 0;
    let send = |key: String| {
        let request = client.request("POST", &format!("{route}/answer"));
        request.json(&json!({"secret": SECRET})).header("idempotency-key", &key).send()
    };
    let (key, answered) = wait_for("the program to ask", || {
        attempt += 1;
        let key = format!("k{attempt}");
        let answer = send(key.clone());
        if answer.status == 200 { Ok((key, answer.json())) } else { Err(answer.text()) }
    });
    assert_eq!(send(key).expect(200), answered);
    assert_eq!(send("another".into()).problem(409), "conflict");
    wait_for("the program to get the secret", || {
        let shown = screen(&world);
        if shown.contains("1 got") { Ok(()) } else { Err(shown) }
    });
    assert!(!screen(&world).contains("2 got"));
    client.post(&world.at("/signal"), json!({"signal": "INT"})).expect_success();
    assert_kept_nowhere(&world);
}
