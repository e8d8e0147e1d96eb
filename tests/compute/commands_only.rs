//! Terminals at a vendor that only runs commands: two servers, one of which is the vendor of the other
//! and is only used for `sh -c` and files.

use serde_json::{Value, json};

use super::vendor::{COMMANDERS, Harm, Kind, Proxy, Vendor};
use harness::{
    Client, Home, Server,
    agentbay::StandIn,
    terminal::{exec, shows},
    wait_for, wait_long,
};

const WRONG: &str = "HTTP/1.1 500 Internal Server Error\r\n\
    content-length: 5\r\nconnection: close\r\n\r\nwrong";
const SOON: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";

fn stdout(client: &Client, thread: &str, command: &str) -> String {
    let ran = exec(client, thread, command);
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

/// The receipt of a command once it has ended.
fn receipt(client: &Client, id: &str) -> Value {
    wait_for("the command to end", || {
        let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
        if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
    })
}

#[test]
fn a_terminal_works_with_commands_only() {
    for kind in COMMANDERS {
        let Some(vendor) = Vendor::of(kind) else { continue };
        let home = Home::new();
        let server = vendor.commander(kind, vendor.address(), &home);
        let client = server.client();
        // Every kind of state is carried from one shell to the next.
        assert_eq!(
            stdout(&client, "t", "cd /usr; export A=1; a=(x 'y z'); f() { echo f:$1; }"),
            ""
        );
        let both = exec(&client, "t", "pwd; f \"${a[1]}\"; echo $A >&2; (exit 7)");
        assert_eq!((&both["stdout"], &both["stderr"]), (&json!("/usr\nf:y z\n"), &json!("1\n")));
        assert_eq!(both["exit_code"], 7);
        let changed = exec(&client, "t", "cd /tmp; export B=2; unset A");
        assert_eq!(changed["cwd"], "/tmp");
        assert_eq!(changed["changes"]["env"], json!({"set": {"B": "2"}, "unset": ["A"]}));
        assert_eq!(changed["changes"]["cwd"], json!({"from": "/usr", "to": "/tmp"}));
        // Environment and directory for one command only.
        let body = json!({"command": "wc -c; echo $ONCE $PWD", "stdin": "x".repeat(200_000),
            "env": {"ONCE": "it's"}, "cwd": "/"});
        let ran = client.post("/api/threads/t/exec", body).expect(200);
        assert_eq!(ran["stdout"], "200000\nit's /\n");
        assert_eq!(stdout(&client, "t", "echo ${ONCE-none} $PWD"), "none /tmp\n");
        // Binary output and large output arrive complete.
        let many =
            exec(&client, "t", "head -c 300000 /dev/zero | tr '\\0' '\\377'; printf '\\0\\n'");
        assert_eq!(many["stdout_bytes"], 300_002);
        // A timeout reverts the command's changes to its shell and ends its children.
        let mark = home.path().join("never");
        let text = format!(
            "export B=lost; cd /; echo part; (setsid sh -c 'sleep 20; touch {0}' &); sleep 1000; touch {0}",
            mark.display()
        );
        let body = json!({"command": text, "timeout_ms": 5000});
        let ran = client.post("/api/threads/t/exec", body).expect(200);
        assert_eq!(ran["status"], "timed_out", "{ran}");
        assert_eq!(stdout(&client, "t", "echo $B $PWD"), "2 /tmp\n");
        assert!(!mark.exists());
        // The environment can be changed through the API, and earlier states be restored.
        let terminal = ran["terminal_id"].as_str().unwrap();
        let body = json!({"set": {"C": "a b"}, "unset": ["B"]});
        client.patch(&format!("/api/terminals/{terminal}/env"), body).expect_success();
        assert_eq!(stdout(&client, "t", "echo \"$C\" ${B-unset}"), "a b unset\n");
        // The resource usage of the sandbox is reported.
        let lease = client.get("/api/threads/t/lease").expect(200);
        let metrics = &lease["instance"]["metrics"];
        assert!(metrics["disk_bytes"].as_u64() > Some(0), "{kind:?}: {lease}");
        // Available and missing shells.
        let providers = client.get("/api/providers").expect(200);
        let named = |it: &&Value| it["name"] == kind.name();
        let provider = providers["items"].as_array().unwrap().iter().find(named).unwrap();
        assert_eq!(provider["available"], true);
        assert_eq!(provider["capabilities"]["hosted"], false);
        let zsh = client.post("/api/threads/t/terminals", json!({"shell": "zsh"}));
        assert!((400..500).contains(&zsh.status), "{}", zsh.text());
        assert!(zsh.text().contains("zsh is not available here"), "{}", zsh.text());
        client.delete("/api/threads/t").expect_success();
        wait_for("no sandbox to be left", || {
            let left = vendor.sandboxes(kind);
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
        let kept = std::fs::read_dir(home.path().join("remote")).map(Iterator::count);
        assert_eq!(kept.unwrap_or(0), 0, "no files are left of a destroyed instance");
    }
}

#[test]
fn commands_are_followed_fed_signalled_and_typed() {
    let (vendor, home) = (Vendor::start(), Home::new());
    let server = vendor.commander(Kind::E2b, vendor.address(), &home);
    let client = server.client();
    let gate = home.path().join("gate");
    // A command that keeps running, and its output as it arrives.
    let text =
        format!("echo early; until [ -e {} ]; do sleep 0.05; done; echo late", gate.display());
    let body = json!({"command": text, "yield_ms": 1});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    assert_eq!(ran["status"], "running");
    let (id, terminal) =
        (ran["command_id"].as_str().unwrap(), ran["terminal_id"].as_str().unwrap());
    let output = |from: usize| {
        client.get(&format!("/api/commands/{id}/output?from={from}&wait_ms=60000")).text()
    };
    assert_eq!(output(0), "early\n");
    let busy = json!({"command": "true", "if_busy": "fail"});
    assert_eq!(client.post("/api/threads/t/exec", busy).problem(409), "busy");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(output(6), "late\n");
    assert_eq!(receipt(&client, id)["exit_code"], 0);
    // The screen shows the command as if it was typed.
    shows(&client, terminal, "$ echo early");
    // A command that reads its input; each write arrives once.
    let body = json!({"command": "cat; echo over", "yield_ms": 1});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    let id = ran["command_id"].as_str().unwrap();
    for _ in 0..2 {
        let body = json!({"data": "one\n", "write_id": "w1"});
        client.post(&format!("/api/commands/{id}/stdin"), body).expect_success();
    }
    let body = json!({"data": "two\n", "eof": true});
    client.post(&format!("/api/commands/{id}/stdin"), body).expect_success();
    assert_eq!(receipt(&client, id)["stdout"], "one\ntwo\nover\n");
    // A command that gets a signal.
    let text = "trap 'echo got; exit 4' USR1; echo set; while :; do sleep 0.05; done";
    let body = json!({"command": text, "yield_ms": 1});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    let id = ran["command_id"].as_str().unwrap();
    client.get(&format!("/api/commands/{id}/output?wait_ms=60000")).expect_status(200);
    let body = json!({"signal": "USR1"});
    client.post(&format!("/api/commands/{id}/signal"), body).expect_success();
    let done = receipt(&client, id);
    assert_eq!((&done["exit_code"], &done["stdout"]), (&json!(4), &json!("set\ngot\n")));
    // Later output of a background process belongs to its command.
    let gate = home.path().join("second");
    let text =
        format!("(until [ -e {} ]; do sleep 0.05; done; echo behind) & echo now", gate.display());
    let ran = exec(&client, "t", &text);
    assert_eq!(ran["stdout"], "now\n");
    assert_eq!(stdout(&client, "t", "echo next"), "next\n");
    std::fs::write(&gate, "").unwrap();
    let id = ran["command_id"].as_str().unwrap();
    let behind = client.get(&format!("/api/commands/{id}/output?from=4&wait_ms=60000")).text();
    assert_eq!(behind, "behind\n");
    // A typed command changes the shared shell state, and is in the history.
    let input = |data: &str| {
        let path = format!("/api/terminals/{terminal}/input");
        client.post(&path, json!({"data": data})).expect_status(204);
    };
    input("export TYPED=y\x7fes; echo typed-$((40 + 2))\r");
    shows(&client, terminal, "typed-42");
    wait_for("the typed command to be recorded", || {
        let listed = client.get(&format!("/api/terminals/{terminal}/commands?q=typed")).expect(200);
        let first = listed["items"][0]["command"].as_str().unwrap_or_default().to_owned();
        if first.starts_with("export TYPED=es") { Ok(()) } else { Err(listed) }
    });
    assert_eq!(stdout(&client, "t", "echo $TYPED"), "es\n");
    input("echo be''gun; sleep 1000\r");
    shows(&client, terminal, "begun");
    input("\u{3}");
    assert_eq!(stdout(&client, "t", "echo after"), "after\n");
    // The output of a program without a PTY is shown, and its exit is reported.
    let body = json!({"cmd": ["sh", "-c", "test -t 1 || echo no terminal here; exit 3"]});
    let program = client.post("/api/threads/t/terminals", body).expect(201);
    let program = program["terminal_id"].as_str().unwrap();
    shows(&client, program, "no terminal here");
    wait_for("the program to end", || {
        let row = client.get(&format!("/api/terminals/{program}")).expect(200);
        if row["exit_code"] == 3 { Ok(()) } else { Err(row) }
    });
    client.delete("/api/threads/t").expect_success();
}

#[test]
fn a_killed_server_finds_its_command_by_its_id() {
    for kind in COMMANDERS {
        let Some(vendor) = Vendor::of(kind) else { continue };
        let home = Home::new();
        let server = vendor.commander(kind, vendor.address(), &home);
        let (gate, ran) = (home.path().join("gate"), home.path().join("ran"));
        let text = format!(
            "echo x >>{}; echo before; until [ -e {} ]; do sleep 0.05; done; export KEPT=yes; seq 20000",
            ran.display(),
            gate.display()
        );
        exec(&server.client(), "t", "cd /usr; mark=here");
        let body = json!({"command": text, "yield_ms": 1});
        let answer = server.client().post("/api/threads/t/exec", body).expect(200);
        let id = answer["command_id"].as_str().unwrap();
        wait_for("the command to start", || if ran.exists() { Ok(()) } else { Err("not yet") });
        server.kill();
        let server = vendor.commander(kind, vendor.address(), &home);
        let client = server.client();
        std::fs::write(&gate, "").unwrap();
        let done = receipt(&client, id);
        assert_eq!(
            (&done["status"], &done["exit_code"]),
            (&json!("finished"), &json!(0)),
            "{done}"
        );
        let whole = client.get(&format!("/api/commands/{id}/output")).text();
        let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
        assert!(whole == format!("before\n{expected}"), "{} bytes", whole.len());
        assert_eq!(stdout(&client, "t", "echo $KEPT $mark $PWD"), "yes here /usr\n");
        assert_eq!(std::fs::read(&ran).unwrap(), b"x\n", "it ran once");
        // After a pause, and after the deletion of the sandbox, the next command has the state.
        client.post("/api/threads/t/pause", json!({})).expect_success();
        assert_eq!(stdout(&client, "t", "echo $KEPT; again=1"), "yes\n");
        vendor.end(kind, &vendor.sandboxes(kind)[0]);
        assert_eq!(stdout(&client, "t", "echo $KEPT $mark $again $PWD"), "yes here 1 /usr\n");
        assert_eq!(vendor.sandboxes(kind).len(), 1);
        client.delete("/api/threads/t").expect_success();
    }
}

/// Each vendor with each of its data planes, and the start of a request that runs a command there.
fn ways() -> impl Iterator<Item = (Kind, Vendor, &'static str)> {
    let bay = |choices: &[&str], run| Some((Kind::AgentBay, StandIn::start(choices)?.into(), run));
    let ours = |kind, run| Some((kind, Vendor::start(), run));
    let all = [
        ours(Kind::E2b, "POST /process.Process/Start"),
        ours(Kind::Daytona, "POST /daytona/toolbox/"),
        bay(&[], "POST /link/"),
        bay(&["--central"], "POST /?Action=CallMcpTool&"),
    ];
    all.into_iter().flatten()
}

#[test]
fn a_command_runs_once_if_calls_are_lost() {
    for (kind, vendor, run) in ways() {
        let home = Home::new();
        let proxy = Proxy::around(vendor.address());
        let server = vendor.commander(kind, proxy.address, &home);
        let client = server.client();
        let ran = home.path().join("ran");
        assert_eq!(stdout(&client, "t", "state=0; echo up"), "up\n");
        let harms: [&[(&str, Harm)]; 4] = [
            &[(run, Harm::LoseReply), (run, Harm::LoseReply)],
            &[(run, Harm::Half)],
            &[(run, Harm::Answer(WRONG)), (run, Harm::LoseReply), (run, Harm::Answer(SOON))],
            &[(run, Harm::Half), (run, Harm::Answer(WRONG))],
        ];
        for (number, harm) in harms.into_iter().enumerate() {
            proxy.harm(harm);
            let text = format!(
                "echo {number} >>{}; state=$((state + 1)); echo fine $state",
                ran.display()
            );
            let stdout = stdout(&client, "t", &text);
            assert_eq!(stdout, format!("fine {}\n", number + 1), "{run}: {harm:?}");
            wait_for("all faults to happen", || {
                let left = proxy.left();
                if left.is_empty() {
                    Ok(())
                } else {
                    exec(&client, "t", ":");
                    Err(left)
                }
            });
        }
        assert_eq!(std::fs::read_to_string(&ran).unwrap(), "0\n1\n2\n3\n", "{run}");
        if kind != Kind::AgentBay {
            // An outage of the vendor loses nothing.
            let gate = home.path().join("gate");
            let text =
                format!("until [ -e {} ]; do sleep 0.05; done; echo through", gate.display());
            let body = json!({"command": text, "yield_ms": 1});
            let answer = client.post("/api/threads/t/exec", body).expect(200);
            let vendor = vendor.restart();
            std::fs::write(&gate, "").unwrap();
            let done = receipt(&client, answer["command_id"].as_str().unwrap());
            assert_eq!(done["stdout"], "through\n", "{run}");
            client.delete("/api/threads/t").expect_success();
            drop(vendor);
            continue;
        }
        client.delete("/api/threads/t").expect_success();
    }
}

#[test]
fn a_call_without_an_answer_is_repeated() {
    std::thread::scope(|scope| {
        for (kind, vendor, run) in ways() {
            scope.spawn(move || {
                let home = Home::new();
                let proxy = Proxy::around(vendor.address());
                let server = vendor.commander(kind, proxy.address, &home);
                let client = server.client();
                let ran = home.path().join("ran");
                assert_eq!(stdout(&client, "t", "state=kept; echo up"), "up\n");
                proxy.harm(&[(run, Harm::Silence)]);
                let text = format!("echo once >>{}; echo $state", ran.display());
                let body = json!({"command": text, "yield_ms": 1});
                let answer = client.post("/api/threads/t/exec", body).expect(200);
                let id = answer["command_id"].as_str().unwrap();
                let done = wait_long("a command whose call is not answered", || {
                    let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
                    if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
                });
                assert_eq!((&done["stdout"], proxy.left()), (&json!("kept\n"), vec![]), "{run}");
                assert_eq!(std::fs::read_to_string(&ran).unwrap(), "once\n", "{run}");
                client.delete("/api/threads/t").expect_success();
            });
        }
    });
}

/// Returns a metric of the provider E2B from `/metrics`.
fn counted(client: &Client, name: &str) -> f64 {
    let text = client.get("/metrics").expect_status(200).text();
    let start = format!("stead_{name}{{provider=\"e2b\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
}

#[test]
fn a_session_ends_at_its_maximum_cost() {
    // The price is 1 per second, so the cost so far already exceeds the limit.
    ends_at("max_cost", "max_cost");
}

#[test]
fn a_session_ends_at_its_maximum_running_time() {
    // The limit is a few milliseconds.
    ends_at("max_running_hours", "max_running");
}

/// A session whose policy has a limit of a millionth ends for this reason.
fn ends_at(limit: &str, reason: &str) {
    let (vendor, home) = (Vendor::start(), Home::new());
    let mut settings = vendor.settings(Kind::E2b, vendor.address(), &home);
    let more = ["--set", "e2b.runtime=remote", "--set", "e2b.price_per_hour=3600"];
    settings.extend(more.map(str::to_owned));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = Server::start_with(&home, &settings);
    let client = server.client();
    let mut events = client.request("GET", "/api/events").events();
    assert_eq!(stdout(&client, "t", "mark=kept; echo up"), "up\n");
    let session = || client.get("/api/threads/t/session").expect(200);
    let first = session();
    assert_eq!((&first["status"], &first["ended"]), (&json!("active"), &Value::Null));
    let set_limit = |value: f64| {
        let policy = json!({"policy": {limit: value, "on_expiry": "pause"}});
        client.put("/api/threads/t", policy).expect_success();
    };
    set_limit(0.000_001);
    let expired = loop {
        let event = events.until("session_expired").json();
        if event["thread_id"] == "t" {
            break event;
        }
    };
    assert_eq!((&expired["ended"], &expired["session_id"]), (&json!(reason), &first["session_id"]));
    let over = session();
    assert_eq!((&over["status"], &over["ended"]), (&json!("expired"), &json!(reason)));
    wait_for("the sandbox to be paused", || {
        let lease = client.get("/api/threads/t/lease").expect(200);
        if lease["instance"]["state"] == "paused" { Ok(()) } else { Err(lease) }
    });
    let (ran, cost) = (counted(&client, "lease_running_seconds"), counted(&client, "lease_cost"));
    assert!(ran > 0.0 && (cost - ran).abs() < 0.01, "{cost} for {ran} s");
    let body = json!({"command": "true", "resume": false});
    assert_eq!(client.post("/api/threads/t/exec", body).problem(409), "lease_paused");
    // Without the limit, the shell continues where it was.
    set_limit(0.0);
    assert_eq!(stdout(&client, "t", "echo $mark"), "kept\n");
    assert_ne!(session()["session_id"], first["session_id"]);
    client.delete("/api/threads/t").expect_success();
}
