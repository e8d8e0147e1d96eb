//! Commands over HTTP.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};

use harness::{
    Home, Server, let_pass,
    terminal::{data, exec, open, screen, shows},
    wait_for,
};

#[test]
fn a_receipt_has_the_outcome_and_the_changes() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let first = exec(&client, "t", "cd /; unset LANG");
    let second = exec(&client, "t", "echo out; echo err >&2; cd /tmp; export A=1; (exit 7)");
    assert_eq!(second["version"].as_u64(), first["version"].as_u64().map(|v| v + 1));
    let changes =
        json!({"cwd": {"from": "/", "to": "/tmp"}, "env": {"set": {"A": "1"}, "unset": []}});
    let expected = json!({
        "status": "finished", "exit_code": 7, "signal": null, "timed_out": false,
        "stdout": "out\n", "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4,
        "truncated": false, "shell_restarted": false, "waiting_for_input": false,
        "cwd": "/tmp", "changes": changes,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&second[name], value, "{name} of {second}");
    }
    let id = second["command_id"].as_str().unwrap();
    let later = client.get(&format!("/api/commands/{id}")).expect(200);
    assert_eq!(later, second);
    let terminal = second["terminal_id"].as_str().unwrap();
    let long = "x".repeat(50_001);
    client.get(&format!("/api/terminals/{terminal}/commands?q={long}")).expect(400);
    let found = client.get(&format!("/api/terminals/{terminal}/commands?q=export")).expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["command_id"], id);
}

#[test]
fn without_its_directory_a_command_does_not_run() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let befores = ["cd /", "trap 'echo trapped' ERR; set -C", "set -x; trap ':' DEBUG", "set -e"];
    for (choice, befores) in [
        (json!({"shell": "bash"}), &befores[..]),
        (json!({"shell": "zsh"}), &befores),
        (json!({"shell": "sh"}), &befores),
        // A program of its own is not started again when it exits.
        (json!({"cmd": ["busybox", "sh"]}), &befores[..3]),
    ] {
        let program = choice["shell"].as_str().unwrap_or("busybox");
        if Command::new(program).args(["-c", "true"]).output().is_err() {
            eprintln!("skipped: there is no {program}");
            continue;
        }
        let terminal = client.post("/api/threads/t/terminals", choice.clone()).expect(201);
        let target = format!("/api/terminals/{}/exec", terminal["terminal_id"].as_str().unwrap());
        let run = |body: Value| client.post(&target, body).expect(200);
        for before in befores {
            run(json!({"command": before}));
            let lost = run(json!({"command": "echo $PWD", "cwd": "/no/such'dir"}));
            let stderr = lost["stderr"].as_str().unwrap();
            let case = format!("{choice} after {before}: {lost}");
            assert!(stderr.contains("/no/such'dir"), "{case}");
            assert!(!lost["stdout"].as_str().unwrap().contains('/'), "{case}");
            assert!(matches!(lost["exit_code"].as_i64(), Some(1 | 2)), "{case}");
            assert_eq!(lost["cwd"], "/", "{case}");
            let kept = run(json!({"command": "set +ex; echo $PWD", "cwd": "/tmp"}));
            assert_eq!((&kept["stdout"], &kept["cwd"]), (&json!("/tmp\n"), &json!("/")), "{case}");
        }
    }
}

#[test]
fn output_can_be_read_by_offset_during_and_after_the_command() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let body = json!({"command": "echo first; (sleep 0.3; echo late) & echo second"});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    assert_eq!(ran["stdout"], "first\nsecond\n");
    let id = ran["command_id"].as_str().unwrap();
    let target = format!("/api/commands/{id}/output?from=13&wait_ms=20000");
    let rest = client.get(&target);
    assert_eq!((rest.status, rest.text().as_str()), (200, "late\n"));
    assert_eq!(rest.header("x-offset"), Some("13"));
    assert_eq!(rest.header("x-next-offset"), Some("18"));
    wait_for("the end of the output", || {
        let rest = client.get(&format!("/api/commands/{id}/output?from=18&wait_ms=1000"));
        match rest.header("x-end") {
            Some("true") => Ok(()),
            other => Err(other.map(str::to_owned)),
        }
    });
}

#[test]
fn a_command_streams_as_events() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let body = json!({"command": "echo a; echo b >&2; printf '\\377'; exit 4"});
    let request = client.request("POST", "/api/threads/t/exec").json(&body);
    let mut events = request.header("accept", "text/event-stream").events();
    let started = events.until("started").json();
    let mut streams = [Vec::new(), Vec::new()];
    let exit = loop {
        let event = events.next().expect("the stream ended early");
        match event.name.as_str() {
            "stdout" => streams[0].extend(data(&event).1),
            "stderr" => streams[1].extend(data(&event).1),
            "exit" => break event.json(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(streams, [b"a\n\xff".to_vec(), b"b\n".to_vec()]);
    assert_eq!((&exit["exit_code"], &exit["command_id"]), (&json!(4), &started["command_id"]));
    assert_eq!(exit["stdout_base64"], "YQr/");
}

#[test]
fn input_and_signals_reach_a_running_command() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let run = |command: &str| {
        let body = json!({"command": command, "yield_ms": 20});
        let ran = client.post("/api/threads/t/exec", body).expect(200);
        ran["command_id"].as_str().unwrap().to_owned()
    };
    let receipt = |id: &str| {
        wait_for("the command to end", || {
            let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
            if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
        })
    };
    let id = run("cat");
    let stdin = format!("/api/commands/{id}/stdin");
    for _ in 0..2 {
        let body = json!({"data": "once\n", "write_id": "a"});
        client.post(&stdin, body).expect_status(204);
    }
    client.post(&stdin, json!({"data": "end\n", "eof": true})).expect_status(204);
    assert_eq!(receipt(&id)["stdout"], "once\nend\n");
    assert_eq!(client.post(&stdin, json!({"data": "x"})).problem(409), "not_running");

    let id = run("sleep 60");
    client.post(&format!("/api/commands/{id}/signal"), json!({"signal": "INT"})).expect_status(204);
    assert_eq!(receipt(&id)["exit_code"], 130);
    assert_eq!(exec(&client, "t", "echo fine")["stdout"], "fine\n");
}

#[test]
fn a_busy_shell_is_waited_for_or_reported() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let body = json!({"command": "sleep 0.4", "yield_ms": 20});
    client.post("/api/threads/t/exec", body).expect(200);
    let body = json!({"command": "echo x", "if_busy": "fail"});
    assert_eq!(client.post("/api/threads/t/exec", body).problem(409), "busy");
    assert_eq!(exec(&client, "t", "echo x")["stdout"], "x\n");
}

#[test]
fn one_shell_has_two_drivers() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ran = exec(&client, "t", "echo from-the-agent; V=agent");
    let id = ran["terminal_id"].as_str().unwrap();
    shows(&client, id, "from-the-agent");
    let input = format!("/api/terminals/{id}/input");
    client
        .post(&input, json!({"data": "echo \"V is $V\"; W=person; cd /usr\r"}))
        .expect_status(204);
    shows(&client, id, "V is agent");
    wait_for("the person's command in the history", || {
        let page = client.get(&format!("/api/terminals/{id}/commands?q=W%3Dperson")).expect(200);
        match page["items"][0]["source"].as_str() {
            Some("person") => Ok(()),
            _ => Err(page),
        }
    });
    // Half typed, and still there after the agent's command.
    client.post(&input, json!({"data": "echo half-"})).expect_status(204);
    shows(&client, id, "echo half-");
    assert_eq!(exec(&client, "t", "echo $W; pwd")["stdout"], "person\n/usr\n");
    client.post(&input, json!({"data": "typed\r"})).expect_status(204);
    wait_for("the whole line", || {
        let seen = screen(&client, id);
        if seen.lines().any(|line| line.trim_end() == "half-typed") { Ok(()) } else { Err(seen) }
    });
}

#[test]
fn environment_patches_reach_the_live_shell_any_number_of_times() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ran = exec(&client, "t", "export OLD=1");
    let target = format!("/api/terminals/{}/env", ran["terminal_id"].as_str().unwrap());
    let odd = "it's \"$HOME\"\n`x` \\ é";
    for (patch, command, expected) in [
        (json!({"set": {"A": "1"}}), "echo $A", "1\n".to_owned()),
        (json!({"set": {"A": odd}, "unset": ["OLD"]}), "printf %s \"$A${OLD-}\"", odd.to_owned()),
        (json!({"set": {"A": "3", "B": ""}}), "echo \"$A${B-unset}\"", "3\n".to_owned()),
    ] {
        client.patch(&target, patch).expect(200);
        assert_eq!(exec(&client, "t", command)["stdout"], Value::String(expected));
    }
}

#[test]
fn state_can_be_rolled_back_and_forked() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let first = exec(&client, "t", "cd /usr; X=1; f() { echo one; }");
    exec(&client, "t", "cd /tmp; X=2; f() { echo two; }");
    let id = first["terminal_id"].as_str().unwrap();
    let version = &first["version"];
    let body = json!({"version": version});
    let forked = client.post(&format!("/api/terminals/{id}/fork"), body.clone()).expect(201);
    let other = forked["terminal_id"].as_str().unwrap();
    let run = |id: &str| {
        let body = json!({"command": "pwd; echo $X; f"});
        client.post(&format!("/api/terminals/{id}/exec"), body).expect(200)
    };
    let check = |id: &str, expected: &str| {
        let ran = run(id);
        assert_eq!(ran["stdout"], expected, "{ran}");
    };
    check(other, "/usr\n1\none\n");
    check(id, "/tmp\n2\ntwo\n");
    client.post(&format!("/api/terminals/{id}/rollback"), body).expect(200);
    check(id, "/usr\n1\none\n");
    let versions = client.get(&format!("/api/terminals/{id}/versions")).expect(200);
    assert!(versions["items"].as_array().unwrap().iter().any(|v| v["cause"]["kind"] == "rollback"));
}

#[test]
fn the_same_key_runs_a_command_once() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let body = json!({"command": "echo x >> $STEAD_MEMORIES/log; wc -l < $STEAD_MEMORIES/log"});
    let send = || {
        let request = client.request("POST", "/api/threads/t/exec").json(&body);
        request.header("idempotency-key", "k1").send().expect(200)
    };
    assert_eq!(send()["stdout"], "1\n");
    assert_eq!(send()["stdout"], "1\n");
    assert_eq!(exec(&client, "t", "wc -l < $STEAD_MEMORIES/log")["stdout"], "1\n");
}

#[test]
fn many_terminals_run_in_parallel_and_never_mix() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ids: Vec<String> = (0..20).map(|_| open(&client, "t", json!({}))).collect();
    std::thread::scope(|scope| {
        for (index, id) in ids.iter().enumerate() {
            let client = server.client();
            scope.spawn(move || {
                let target = format!("/api/terminals/{id}/exec");
                let run = |command: String| {
                    client.post(&target, json!({"command": command})).expect(200)["stdout"].clone()
                };
                run(format!("me={index}"));
                for round in 0..5 {
                    let expected = format!("{index} {round}\n").repeat(50);
                    let command = format!("for i in $(seq 50); do echo $me {round}; done");
                    assert_eq!(run(command), Value::String(expected));
                }
            });
        }
    });
}

#[test]
fn the_screen_shows_the_prompt_as_it_is_after_a_command() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "PS1='[\\w] '; cd /");
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    let id = terminal["terminal_id"].as_str().unwrap();
    shows(&client, id, "\n[/]");
    exec(&client, "t", "cd /usr; echo done");
    let typed = json!({"data": "ls -d . x"});
    wait_for("the whole picture", || {
        let seen = screen(&client, id);
        if seen.trim_end().ends_with("\n[/] cd /usr; echo done\ndone\n[/usr]") {
            Ok(())
        } else {
            Err(seen)
        }
    });
    client.post(&format!("/api/terminals/{id}/input"), typed).expect_success();
    shows(&client, id, "[/usr] ls -d . x");
    exec(&client, "t", "cd /tmp");
    shows(&client, id, "[/tmp] ls -d . x");
    let enter = json!({"data": "\u{7f}\r"});
    client.post(&format!("/api/terminals/{id}/input"), enter).expect_success();
    shows(&client, id, "[/tmp] ls -d .\n.\n[/tmp]");
}

#[test]
fn a_prompt_of_several_rows_erases_no_command_and_no_output() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "PS1='$(printf %0170d 7)> '");
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    let id = terminal["terminal_id"].as_str().unwrap();
    shows(&client, id, "7>");
    for number in 1..=4 {
        exec(&client, "t", &format!("echo out{number}"));
    }
    // Without a line end, the output is in the row that the editor erases first.
    let receipt = exec(&client, "t", "printf open");
    assert_eq!(receipt["stdout"], "open");
    let seen = || {
        let seen = screen(&client, id);
        let whole =
            (1..=4).all(|number| seen.contains(&format!("> echo out{number}\nout{number}\n")));
        if whole && seen.contains("> printf open\nopen") { Ok(()) } else { Err(seen) }
    };
    wait_for("all commands with their output", seen);
    // The prompt is redrawn when the shell has been idle for a moment.
    let_pass(Duration::from_millis(300));
    seen().unwrap();
}
