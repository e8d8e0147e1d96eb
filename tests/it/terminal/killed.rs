//! Commands whose shell, host or server is killed: never run twice, never without an answer.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use harness::{Client, Home, Server, let_pass, terminal::exec, wait_for};

/// How often each thing is tried; more in a soak. A lease that loses its host too often is given a
/// rest, so every few rounds have a server of their own.
fn rounds() -> usize {
    if std::env::var_os("STEAD_SOAK").is_some() { 40 } else { 2 }
}

const STATE: &str = "cd /usr; export A='x y'; b=(1 2); f() { echo \"f $1\"; }; set -o pipefail";

#[test]
fn a_command_right_after_the_death_of_its_host_runs_with_all_state() {
    for _ in 0..rounds() {
        let home = Home::new();
        let server = Server::start(&home);
        let client = server.client();
        exec(&client, "t", STATE);
        for _ in 0..4 {
            home.end_hosts();
            let ran = exec(&client, "t", "pwd; echo \"$A ${b[1]}\"; f z; false | true");
            assert_eq!(ran["stdout"], "/usr\nx y 2\nf z\n", "{ran}");
            assert_eq!((&ran["status"], &ran["exit_code"]), (&json!("finished"), &json!(1)));
        }
    }
}

/// A command that leaves a line each time it runs, how it was answered, and how often it ran.
fn marked(client: &Client, mark: &Path, killed: impl FnOnce()) -> (Value, usize) {
    let text = format!("echo ran >> '{}'; sleep 0.2; echo end", mark.display());
    let asked = thread::scope(|scope| {
        let asked = scope.spawn(|| exec(client, "t", &text));
        killed();
        asked.join().unwrap()
    });
    let ran = std::fs::read_to_string(mark).unwrap_or_default();
    (asked, ran.lines().count())
}

fn check(answer: &Value, ran: usize) {
    match answer["status"].as_str().unwrap() {
        "finished" if answer["exit_code"] == 0 => {
            assert_eq!((&answer["stdout"], ran), (&json!("end\n"), 1), "{answer}");
        }
        "finished" => assert!(answer["exit_code"] == 137 && ran <= 1, "ran {ran}: {answer}"),
        "lost" => assert!(ran <= 1, "ran {ran}: {answer}"),
        "not_started" => assert_eq!(ran, 0, "{answer}"),
        other => panic!("ended as {other}: {answer}"),
    }
}

/// From before the command can have begun to after its end.
const WINDOWS: [u64; 6] = [0, 1, 4, 30, 150, 210];

#[test]
fn a_command_whose_host_is_killed_runs_once_or_is_lost() {
    for round in 0..rounds() {
        let home = Home::new();
        let server = Server::start(&home);
        exec(&server.client(), "t", STATE);
        for wait in WINDOWS {
            let mark = home.path().join(format!("mark-{round}-{wait}"));
            let (answer, ran) = marked(&server.client(), &mark, || {
                let_pass(Duration::from_millis(wait));
                home.end_hosts();
            });
            check(&answer, ran);
            let id = answer["command_id"].as_str().unwrap();
            let receipt = server.client().get(&format!("/api/commands/{id}")).expect(200);
            assert_eq!(receipt["status"], answer["status"], "{receipt}");
            let after = exec(&server.client(), "t", "pwd; f y");
            assert_eq!(after["stdout"], "/usr\nf y\n", "{after}");
        }
    }
}

#[test]
fn a_command_whose_shell_or_session_leader_is_killed_runs_once() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", STATE);
    for round in 0..rounds() {
        for (wait, parent) in WINDOWS.into_iter().flat_map(|wait| [(wait, false), (wait, true)]) {
            let pids = exec(&client, "t", "echo $$ $PPID");
            let pids: Vec<i32> = pids["stdout"]
                .as_str()
                .unwrap()
                .split_ascii_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect();
            let mark = home.path().join(format!("mark-{round}-{wait}-{parent}"));
            let (answer, ran) = marked(&client, &mark, || {
                let_pass(Duration::from_millis(wait));
                // Without a session leader the parent of the shell is the host, which another test kills.
                let pid = if parent && is_session_leader(pids[1]) { pids[1] } else { pids[0] };
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            });
            check(&answer, ran);
            let after = exec(&client, "t", "pwd; f y");
            assert_eq!(after["stdout"], "/usr\nf y\n", "{after}");
        }
    }
}

#[test]
fn what_a_command_changed_while_no_server_received_it_is_recorded() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "export A=old");
    let file = |name: &str| home.path().join(name);
    let [begun, go, ended] = ["begun", "go", "ended"].map(file);
    let text = format!(
        "touch '{}'; until [ -e '{}' ]; do sleep 0.01; done; export A=new; touch '{}'",
        begun.display(),
        go.display(),
        ended.display()
    );
    let asked = client.post("/api/threads/t/exec", json!({"command": text, "yield_ms": 0}));
    let id = asked.expect(200)["command_id"].as_str().unwrap().to_owned();
    let exists = |path: &Path| if path.exists() { Ok(()) } else { Err("it is missing") };
    wait_for("the command to begin", || exists(&begun));
    // The host reports the end to a server that does not read it.
    kill_process(Pid::from_raw(server.pid()).unwrap(), Signal::STOP).unwrap();
    std::fs::write(&go, "").unwrap();
    wait_for("the command to end", || exists(&ended));
    let_pass(Duration::from_millis(300));
    server.kill_and_start(&home);
    let client = server.client();
    let receipt = wait_for("the receipt", || {
        let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
        if receipt["status"] == "finished" { Ok(receipt) } else { Err(receipt) }
    });
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    assert_eq!(terminal["env_delta"]["A"], "new", "{terminal}");
    let id = terminal["terminal_id"].as_str().unwrap();
    let version = format!("/api/terminals/{id}/versions/{}", receipt["version"]);
    assert_eq!(client.get(&version).expect(200)["env"]["A"], "new", "{receipt}");
}

/// Kills every process below another one.
fn kill_descendants(pid: i32) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
            kill_descendants(child);
            let _ = kill_process(Pid::from_raw(child).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn commands_are_answered_however_often_their_shells_are_killed() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", STATE);
    let instance = std::fs::read_dir(home.path().join("run")).unwrap().next().unwrap().unwrap();
    let host = std::fs::read_to_string(instance.path().join("host.pid")).unwrap();
    let (host, over) = (host.trim().parse().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        // As a quota does: for a while each new shell is killed, too, until the host starts no more.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let until = Instant::now() + Duration::from_millis(600);
                while Instant::now() < until {
                    kill_descendants(host);
                }
                let_pass(Duration::from_millis(300));
            }
        });
        let ask = || {
            for _ in 0..30 {
                let answer = exec(&client, "t", "echo ran");
                match answer["status"].as_str().unwrap() {
                    "finished" | "lost" | "not_started" => {}
                    other => panic!("ended as {other}: {answer}"),
                }
            }
        };
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        let asked: Vec<_> = asked.into_iter().map(|asked| asked.join()).collect();
        over.store(true, Ordering::Relaxed);
        asked.into_iter().for_each(|asked| asked.unwrap());
    });
    // After several shells that did not start, the host restores none of the state.
    let after = exec(&client, "t", "echo runs");
    assert_eq!(after["stdout"], "runs\n", "{after}");
}

fn is_session_leader(pid: i32) -> bool {
    let name = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    name.starts_with(b"stead-leader")
}

#[test]
fn a_command_with_a_key_runs_once_whenever_the_server_is_killed() {
    let home = Home::new();
    let mut server = Server::start(&home);
    exec(&server.client(), "t", STATE);
    for round in 0..rounds() {
        for wait in WINDOWS {
            let mark = home.path().join(format!("mark-{round}-{wait}"));
            let text = format!("echo ran >> '{}'; sleep 0.2; echo end", mark.display());
            let key = format!("key-{round}-{wait}");
            let ask = |client: &Client| {
                let request = client.request("POST", "/api/threads/t/exec");
                request.header("idempotency-key", &key).json(&json!({"command": text}))
            };
            let _unread = ask(&server.client()).start();
            let_pass(Duration::from_millis(wait));
            server.kill();
            server = Server::start(&home);
            let answer = wait_for("an answer", || {
                let answer = ask(&server.client()).send();
                if answer.status == 200 { Ok(answer.json()) } else { Err(answer.text()) }
            });
            let ran = std::fs::read_to_string(&mark).unwrap_or_default().lines().count();
            assert!(ran <= 1, "ran {ran} times: {answer}");
            check(&answer, ran);
            let again = ask(&server.client()).send().expect(200);
            assert_eq!(again["command_id"], answer["command_id"]);
        }
    }
}

#[test]
fn what_a_command_wrote_can_be_read_when_its_host_is_gone() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    let ran = exec(&client, "t", "seq 60000; seq 5 >&2");
    let id = ran["command_id"].as_str().unwrap();
    let whole: String = (1..=60_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(ran["stdout"].as_str().unwrap().len(), whole.len());
    home.end_hosts();
    exec(&client, "t", "true");
    let read = client.get(&format!("/api/commands/{id}/output?stream=stdout&from=5&limit=600000"));
    assert_eq!(read.text(), whole[5..], "from the file its host left");
    assert_eq!(read.header("x-end"), Some("true"));
    let read = client.get(&format!("/api/commands/{id}/output?stream=stderr"));
    assert_eq!(read.text(), "1\n2\n3\n4\n5\n");
}

/// Lines of ten bytes, `SIZE` bytes in total.
const FIRST_LINE: u64 = 100_000_000;
const SIZE: u64 = 100 << 20;

/// Compares a part of the output of `seq` with what must be there.
#[track_caller]
fn check_lines(offset: u64, bytes: &[u8]) {
    let end = offset + bytes.len() as u64;
    let lines = (offset / 10..end.div_ceil(10)).map(|line| format!("{}\n", FIRST_LINE + line));
    let skipped = usize::try_from(offset % 10).unwrap();
    let expected = lines.collect::<String>().into_bytes();
    assert!(bytes == &expected[skipped..skipped + bytes.len()], "other bytes at {offset}");
}

#[test]
fn a_hundred_megabytes_arrive_without_a_gap_although_the_server_is_killed() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let command = format!("seq {FIRST_LINE} {}", FIRST_LINE + SIZE / 10 - 1);
    let request = server.client().request("POST", "/api/threads/t/exec");
    let mut events = request.json(&json!({"command": command})).events();
    let started = events.until("started").json();
    let output = format!("/api/commands/{}/output", started["command_id"].as_str().unwrap());
    let (kills, mut received) = (5, 0);
    while received < SIZE / (kills + 1) {
        let event = events.until("stdout").json();
        let data = event["data"].as_str().unwrap().as_bytes();
        assert_eq!(event["offset"], received);
        check_lines(received, data);
        received += data.len() as u64;
    }
    for kill in 1..=kills {
        server.kill_and_start(&home);
        while received < SIZE * (kill + 1) / (kills + 1) {
            let path = format!("{output}?from={received}&limit=4194304&wait_ms=5000");
            let part = server.client().get(&path);
            assert_eq!(part.expect_status(200).header("x-offset"), Some(&*received.to_string()));
            check_lines(received, &part.body);
            received += part.body.len() as u64;
        }
    }
    assert_eq!(received, SIZE);
    let end = server.client().get(&format!("{output}?from={SIZE}&wait_ms=5000"));
    assert_eq!((end.header("x-end"), end.body.len()), (Some("true"), 0));
}

#[test]
fn a_repeated_key_is_answered_when_its_time_to_yield_is_over() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let mark = home.path().join("began");
    let body = json!({"command": format!("touch '{}'; cat", mark.display()), "yield_ms": 3000});
    let request = |server: &Server| {
        let request = server.client().request("POST", "/api/threads/t/exec");
        request.header("idempotency-key", "one").json(&body)
    };
    let first = request(&server).start();
    wait_for("the command to begin", || if mark.exists() { Ok(()) } else { Err("it has not") });
    server.kill_and_start(&home);
    drop(first);
    let again = request(&server).send().expect(200);
    assert_eq!(again["status"], "running", "{again}");
}

#[test]
fn output_that_a_client_has_read_outlives_the_host_and_its_successor() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    exec(&client, "t", "true");
    // The first bytes are read as soon as they are there; the rest follows after the file was created.
    let go = home.path().join("go");
    let text = format!(
        "printf first; while [ ! -e '{}' ]; do sleep 0.01; done; seq 4000; sleep 600",
        go.display()
    );
    let body = json!({"command": text, "yield_ms": 1});
    let started = client.post("/api/threads/t/exec", body).json();
    let id = started["command_id"].as_str().unwrap_or_else(|| panic!("{started}"));
    let output = || client.get(&format!("/api/commands/{id}/output?limit=1000000")).text();
    let reads = |expected: &str| match output() {
        read if read == expected => Ok(()),
        read => Err(read),
    };
    wait_for("the first bytes", || reads("first"));
    std::fs::write(&go, "").unwrap();
    let expected = format!("first{}", (1..=4000).map(|n| format!("{n}\n")).collect::<String>());
    wait_for("all bytes", || reads(&expected));
    home.end_hosts();
    wait_for("the loss of the command", || {
        let receipt = client.get(&format!("/api/commands/{id}")).json();
        if receipt["status"] == "lost" { Ok(()) } else { Err(receipt) }
    });
    assert_eq!(output().len(), expected.len(), "from the files of the dead host");
    exec(&client, "t", "true");
    assert_eq!(output(), expected, "from the next host");
}
