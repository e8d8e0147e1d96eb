//! `stead exec`, `history` and `output`.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use serde_json::{Value, json};

use harness::{Home, Server, run};

fn stead(home: &Home, arguments: &[&str]) -> Output {
    run(arguments, &[("STEAD_HOME", home.path().to_str().unwrap())])
}

fn start(home: &Home) -> Server {
    let server = Server::start(home);
    server.client().put("/api/threads/main", json!({"provider": "local"})).expect_success();
    server
}

/// Standard output, standard error and exit code.
fn parts(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn streams_are_separate_and_the_exit_code_is_that_of_the_command() {
    let home = Home::new();
    let server = start(&home);
    for stream in [&[][..], &["--stream"]] {
        let arguments = [&["exec"], stream, &["--", "echo out; echo err >&2; (exit 3)"]].concat();
        let output = stead(&home, &arguments);
        assert_eq!(parts(&output), ("out\n".into(), "err\n".into(), Some(3)));
    }
    let metrics = server.client().get("/metrics").text();
    assert!(metrics.contains("\nstead_commands_total 2\n"), "{metrics}");
    assert!(metrics.contains("\nstead_command_seconds_count 2\n"), "{metrics}");
    stead(&home, &["exec", "--", "cd /usr && A=kept"]);
    let output = stead(&home, &["exec", "--", "echo", "$A", "in", "$PWD"]);
    assert_eq!(parts(&output), ("kept in /usr\n".into(), String::new(), Some(0)));
    let output = stead(&home, &["exec", "-e", "B=1", "--cwd", "/tmp", "--", "echo $B $PWD"]);
    assert_eq!(parts(&output).0, "1 /tmp\n");
    let output = stead(&home, &["exec", "--cwd", "/no/such/directory", "--", "echo $PWD"]);
    let (stdout, stderr, code) = parts(&output);
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("/no/such/directory: No such file or directory"), "{stderr}");
    let output = stead(&home, &["exec", "--timeout", "200ms", "--", "echo a; sleep 100"]);
    let stderr = "stead: the command timed out\n";
    assert_eq!(parts(&output), ("a\n".into(), stderr.into(), Some(124)));
}

#[test]
fn exit_codes_tell_our_failures_from_those_of_the_shell() {
    let home = Home::new();
    let _server = start(&home);
    let code = |arguments: &[&str]| {
        let output = stead(&home, arguments);
        let (_, stderr, code) = parts(&output);
        (code, stderr.starts_with("stead: "))
    };
    assert_eq!(code(&["exec", "--", "no-such-program"]), (Some(127), false));
    assert_eq!(code(&["exec", "--", "/etc/passwd"]), (Some(126), false));
    // No result, because the thread is not there.
    assert_eq!(code(&["exec", "-t", "missing", "--", "true"]), (Some(125), true));
    assert_eq!(code(&["attach", "missing"]), (Some(125), true));
    assert_eq!(code(&["new", "-d", "--memory", "much"]), (Some(125), true));
    let server = ["--url", "http://127.0.0.1:1"];
    assert_eq!(code(&[&["attach"], &server[..]].concat()), (Some(125), true));
    assert_eq!(code(&[&["new", "-d"], &server[..]].concat()), (Some(125), true));
    // Every other command has one code for a failure.
    assert_eq!(code(&["snapshot", "missing"]), (Some(1), true));
}

#[test]
fn history_and_output_show_earlier_commands() {
    let home = Home::new();
    let _server = start(&home);
    stead(&home, &["exec", "--", "echo first"]);
    stead(&home, &["exec", "--", "echo second"]);
    let history = stead(&home, &["history", "--json", "--query", "second"]);
    let history: Value = serde_json::from_slice(&history.stdout).unwrap();
    assert_eq!(history.as_array().map(Vec::len), Some(1), "{history}");
    assert_eq!(history[0]["command"], "echo second");
    let id = history[0]["command_id"].as_str().unwrap();
    assert_eq!(parts(&stead(&home, &["output", id])).0, "second\n");
    assert_eq!(parts(&stead(&home, &["output", id, "--follow"])).0, "second\n");
    let table = parts(&stead(&home, &["history"])).0;
    assert!(table.lines().count() == 3 && table.contains("echo first"), "{table}");
}

/// Starts `stead exec --stream`, with the lines that it prints.
fn follow(home: &Home, command: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(harness::program())
        .args(["exec", "--stream", "--", command])
        .env("STEAD_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// The process that prints is the one that waits, so a signal cannot arrive between two commands.
const STARTED_AND_WAITS: &str = "sh -c 'echo started; exec sleep 100'";

#[test]
fn an_interrupt_reaches_the_command() {
    let home = Home::new();
    let _server = start(&home);
    let (mut child, mut lines) = follow(&home, STARTED_AND_WAITS);
    assert_eq!(lines.next().unwrap().unwrap(), "started");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupt_reaches_the_command_over_the_next_connection() {
    let home = Home::new();
    let server = start(&home);
    let address = server.address;
    let (mut child, mut lines) = follow(&home, STARTED_AND_WAITS);
    assert_eq!(lines.next().unwrap().unwrap(), "started");
    server.kill();
    let _server = Server::start_at(&home, address);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_killed_server_loses_neither_output_nor_result() {
    let home = Home::new();
    let server = start(&home);
    let address = server.address;
    let command = "for n in $(seq 1 200); do echo $n; sleep 0.01; done; (exit 5)";
    let (mut child, lines) = follow(&home, command);
    let mut lines = lines.map(Result::unwrap);
    let mut seen: Vec<String> = lines.by_ref().take(20).collect();
    server.kill();
    let _server = Server::start_at(&home, address);
    seen.extend(lines);
    assert_eq!(seen, (1..=200).map(|n: u32| n.to_string()).collect::<Vec<_>>());
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn the_terminal_commands_work_in_a_script() {
    let home = Home::new();
    let _server = start(&home);
    let made = stead(&home, &["new", "-t", "main", "-d", "--cols", "100", "--rows", "30"]);
    let terminal = parts(&made).0.trim().to_owned();
    assert!(terminal.starts_with("term_"), "{made:?}");
    let listed = stead(&home, &["ls", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["terminal_id"]).collect();
    assert!(ids.len() == 2 && ids.contains(&&json!(terminal)), "{listed}");

    let sent = stead(&home, &["send", "-t", &terminal, "echo \"<$((6*7))>\"", "--enter"]);
    assert!(sent.status.success(), "{sent:?}");
    harness::wait_for("the output", || {
        let shown = parts(&stead(&home, &["snapshot", &terminal])).0;
        if shown.contains("<42>") { Ok(()) } else { Err(shown) }
    });
    assert!(parts(&stead(&home, &["logs", &terminal])).0.contains("<42>"));
    assert!(stead(&home, &["resize", &terminal, "90x20"]).status.success());
    let shown = stead(&home, &["terminals", "show", &terminal, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["cols"], &shown["rows"]), (&json!(90), &json!(20)), "{shown}");
    let recorded = parts(&stead(&home, &["record", &terminal])).0;
    let head: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    assert_eq!(head["version"], 2, "{recorded}");
    assert!(recorded.contains("<42>"));
    assert!(stead(&home, &["kill", &terminal]).status.success());
    let deleted = parts(&stead(&home, &["snapshot", &terminal]));
    assert!(deleted.1.contains("not_found, 404"), "{deleted:?}");
}
