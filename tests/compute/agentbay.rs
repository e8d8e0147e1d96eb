//! The parts that only AgentBay has: two data planes, calls that are lost on either, its PTYs and its error texts.
//! `commands_only`, `cloud` and `provider` test the rest, which it has in common with other vendors.

use cloud::TerminalRuntime;
use provider::{Provider, ProviderError};
use serde_json::{Value, json};

use harness::{
    Client, Home,
    agentbay::{KEY, StandIn},
    terminal::shows,
    wait_for,
};

use crate::{
    cloud::{end, stdout},
    vendor::{Kind, Vendor},
};

/// A vendor with a data plane per session, and one without.
fn planes() -> impl Iterator<Item = Vendor> {
    let planes: [&[&str]; 2] = [&[], &["--central"]];
    planes.into_iter().filter_map(StandIn::start).map(Vendor::Bay)
}

fn bay(vendor: &Vendor) -> &StandIn {
    match vendor {
        Vendor::Bay(bay) => bay,
        Vendor::Ours(..) => panic!("not a stand-in"),
    }
}

#[test]
fn a_command_runs_once_if_calls_are_lost_on_either_plane() {
    for vendor in planes() {
        let (bay, home) = (bay(&vendor), Home::new());
        let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
        let client = server.client();
        let ran = home.path().join("ran");
        assert_eq!(stdout(&client, "t", "cd /usr; export A=1; echo up"), "up\n");
        for harm in ["busy", "throttled", "error", "lose", "half"] {
            let calls = ["callTool", "CallMcpTool"].map(|action| (action, harm));
            bay.harm(&calls.repeat(3));
            let text = format!("echo {harm} >>{}; echo $A $PWD", ran.display());
            assert_eq!(stdout(&client, "t", &text), "1 /usr\n", "{harm}");
            bay.harm(&[]);
        }
        let once = std::fs::read_to_string(&ran).unwrap();
        assert_eq!(once, "busy\nthrottled\nerror\nlose\nhalf\n");
        // The key is neither in the environment nor in the log.
        assert_eq!(stdout(&client, "t", &format!("env | grep -c {KEY} ; true")), "0\n");
        assert!(!server.log().contains(KEY));
        end(&vendor, Kind::AgentBay, &server, &["t"]);
    }
}

#[test]
fn a_command_of_a_paused_session_continues_after_a_resume() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let home = Home::new();
    let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
    let client = server.client();
    let (began, gate) = (home.path().join("began"), home.path().join("gate"));
    let text = format!(
        "touch {}; until [ -e {} ]; do sleep 0.05; done; echo through",
        began.display(),
        gate.display()
    );
    let ran =
        client.post("/api/threads/t/exec", json!({"command": text, "yield_ms": 1})).expect(200);
    wait_for("the command to start", || if began.exists() { Ok(()) } else { Err("not yet") });
    client.post("/api/threads/t/pause", json!({})).expect_success();
    std::fs::write(&gate, "").unwrap();
    client.post("/api/threads/t/resume", json!({})).expect_success();
    let id = ran["command_id"].as_str().unwrap();
    let done = wait_for("the command to end", || {
        let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
        if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
    });
    assert_eq!((&done["stdout"], &done["exit_code"]), (&json!("through\n"), &json!(0)), "{done}");
    assert_eq!(bay(&vendor).sessions().len(), 1);
    end(&vendor, Kind::AgentBay, &server, &["t"]);
}

/// Opens a terminal that runs a program.
fn program(client: &Client, thread: &str, words: &[&str]) -> String {
    let body = json!({"cmd": words, "cols": 91, "rows": 33});
    let opened = client.post(&format!("/api/threads/{thread}/terminals"), body).expect(201);
    opened["terminal_id"].as_str().unwrap().to_owned()
}

fn typed(client: &Client, terminal: &str, text: &str) {
    let body = json!({"data": text});
    client.post(&format!("/api/terminals/{terminal}/input"), body).expect_status(204);
}

fn exit_code(client: &Client, terminal: &str) -> Value {
    wait_for("the program to end", || {
        let row = client.get(&format!("/api/terminals/{terminal}")).expect(200);
        if row["exit_code"].is_null() { Err(row) } else { Ok(row["exit_code"].clone()) }
    })
}

#[test]
fn a_program_has_a_pty_of_the_session_and_outlives_the_server() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let home = Home::new();
    let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
    let client = server.client();
    assert_eq!(stdout(&client, "t", "echo up"), "up\n");
    let id = program(&client, "t", &["bash", "--norc", "-i"]);
    typed(&client, &id, "kept=yes; test -t 0 && stty size\r");
    shows(&client, &id, "33 91");
    let size = json!({"cols": 100, "rows": 40});
    client.post(&format!("/api/terminals/{id}/resize"), size).expect_success();
    typed(&client, &id, "stty size; echo $((6 * 7))-and\r");
    shows(&client, &id, "42-and");
    shows(&client, &id, "40 100");
    // Ctrl-C interrupts only the foreground program.
    typed(&client, &id, "echo wai''ting; sleep 1000\r");
    shows(&client, &id, "waiting");
    typed(&client, &id, "\x03");
    typed(&client, &id, "echo un''hurt\r");
    shows(&client, &id, "unhurt");
    server.kill();
    let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
    let client = server.client();
    shows(&client, &id, "reconnected");
    typed(&client, &id, "echo $kept''-again\r");
    shows(&client, &id, "yes-again");
    // The log shows neither the start command nor repeated output.
    let log = client.get(&format!("/api/terminals/{id}/recording")).text();
    assert!(log.matches("42-and").count() <= 1 && !log.contains("exec sh"), "{log}");
    typed(&client, &id, "exit 3\r");
    assert_eq!(exit_code(&client, &id), 3);
    end(&vendor, Kind::AgentBay, &server, &["t"]);
}

#[test]
fn a_program_runs_once_if_its_pty_is_lost() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let (bay, home) = (bay(&vendor), Home::new());
    let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
    let client = server.client();
    assert_eq!(stdout(&client, "t", "echo up"), "up\n");
    let ran = home.path().join("ran");
    // It prints nothing before there is a connection: output without a connected client is lost.
    let text = |name: &str| {
        let file = ran.display();
        let wait = format!("until test -e {file}.{name}; do sleep 0.02; done");
        let test = format!("test -t 0 && echo {name} on a screen || echo {name} on none");
        format!("echo {name} >>{file}; read -r l; {wait}; {test}; read -r l; exit 4")
    };
    let print = |name: &str| std::fs::write(ran.with_extension(name), "").unwrap();
    let again = |id: &str| {
        let log = client.get(&format!("/api/terminals/{id}/recording")).text();
        log.matches("reconnected").count()
    };
    let reconnected = |id: &str, before: usize| {
        wait_for("another connection", || if again(id) > before { Ok(()) } else { Err(before) });
    };
    // A refused connection, one that is lost with its request or its input, and a lost PTY.
    let plans: [(&str, &[(&str, &str)]); 4] = [
        ("refused", &[("ws", "error"), ("ws", "error")]),
        ("made", &[("pty.create", "lose")]),
        ("typed", &[("pty.input", "lose")]),
        ("broken", &[("pty.create", "error"), ("pty.create", "error")]),
    ];
    for (name, harms) in plans {
        bay.harm(harms);
        let id = program(&client, "t", &["sh", "-c", &text(name)]);
        typed(&client, &id, "first\r");
        if name == "typed" {
            reconnected(&id, 0);
        }
        print(name);
        shows(&client, &id, &format!("{name} on a screen"));
        assert_eq!(bay.control(&json!({}))["harms"], json!([]), "{name}");
        // A connection that breaks later: the program keeps running.
        let before = again(&id);
        bay.harm(&[("pty.resize", "lose")]);
        let size = json!({"cols": 90, "rows": 30});
        client.post(&format!("/api/terminals/{id}/resize"), size).expect_success();
        reconnected(&id, before);
        typed(&client, &id, "over\r");
        assert_eq!(exit_code(&client, &id), 4, "{name}");
    }
    // If no PTY can be created, the program runs without one.
    bay.harm(&[("ws", "error"); 4]);
    let id = program(&client, "t", &["sh", "-c", &text("plain")]);
    typed(&client, &id, "first\r");
    print("plain");
    shows(&client, &id, "plain on none");
    typed(&client, &id, "over\r");
    assert_eq!(exit_code(&client, &id), 4);
    let once = std::fs::read_to_string(&ran).unwrap();
    assert_eq!(once, "refused\nmade\ntyped\nbroken\nplain\n");
    // No PTY is left, not even one whose creation was not reported.
    wait_for("the PTYs to be deleted", || {
        let status = bay.control(&json!({}));
        let left = &status["sessions"][&bay.sessions()[0]]["ptys"];
        if *left == json!([]) { Ok(()) } else { Err(left.clone()) }
    });
    end(&vendor, Kind::AgentBay, &server, &["t"]);
}

#[test]
fn a_quota_error_has_the_text_of_the_vendor() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let home = Home::new();
    let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
    let client = server.client();
    bay(&vendor).control(&json!({"max_sessions": 0}));
    let refused = client.post("/api/threads/no/exec", json!({"command": "true"}));
    assert_eq!(refused.problem(503), "provider_unavailable");
    let words = "AgentBay answered 400 Bad Request: ExceededQuota.Session: the limit of 0 sessions is reached";
    assert!(refused.text().contains(words), "{}", refused.text());
    bay(&vendor).control(&json!({"max_sessions": 1}));
    assert_eq!(stdout(&client, "yes", "echo fine"), "fine\n");
    end(&vendor, Kind::AgentBay, &server, &["no", "yes"]);
}

#[test]
fn the_spec_of_a_lease_accepts_only_an_image() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let home = Home::new();
    let provider = vendor.provider(Kind::AgentBay, home.path(), TerminalRuntime::Remote);
    provider.accepts(&json!({"image": "code_latest"})).unwrap();
    let wrong = provider.accepts(&json!({"template": "base"}));
    assert!(matches!(wrong, Err(ProviderError::Refused { .. })), "{wrong:?}");
}
