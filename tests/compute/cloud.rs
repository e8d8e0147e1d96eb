//! Leases on vendors' sandboxes: two servers, one of which is the vendor of the other.

use std::time::Duration;

use serde_json::{Value, json};

use super::vendor::{COMMANDERS, Harm, KINDS, Kind, Proxy, Vendor};
use harness::{Client, Home, Server, run, terminal::exec, wait_for, wait_long};

pub fn stdout(client: &Client, thread: &str, command: &str) -> String {
    let ran = exec(client, thread, command);
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

fn lease(client: &Client, thread: &str) -> Value {
    client.get(&format!("/api/threads/{thread}/lease")).expect(200)
}

/// Deletes the threads of a server, and checks that its vendor has no sandbox left.
pub fn end(vendor: &Vendor, kind: Kind, server: &Server, threads: &[&str]) {
    for thread in threads {
        server.client().delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_for("no sandbox to be left", || {
        let left = vendor.sandboxes(kind);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_terminal_runs_in_a_vendors_sandbox() {
    for kind in KINDS {
        let (vendor, home) = (Vendor::start(), Home::new());
        let server = vendor.user(kind, &home);
        let client = server.client();
        assert_eq!(stdout(&client, "t", "cd /usr; export A=1; echo $((6 * 7))"), "42\n");
        assert_eq!(vendor.sandboxes(kind).len(), 1);
        let both = exec(&client, "t", "pwd; echo $A >&2; (exit 7)");
        assert_eq!((&both["stdout"], &both["stderr"]), (&json!("/usr\n"), &json!("1\n")));
        assert_eq!(both["exit_code"], 7);
        // Binary output and large output arrive complete.
        let many =
            exec(&client, "t", "head -c 300000 /dev/zero | tr '\\0' '\\377'; printf '\\0\\n'");
        assert_eq!(many["stdout_bytes"], 300_002);
        let body = json!({"command": "wc -c", "stdin": "x".repeat(200_000)});
        let ran = client.post("/api/threads/t/exec", body).expect(200);
        assert_eq!(ran["stdout"].as_str().unwrap().trim(), "200000");
        // It is a terminal: input is echoed.
        let id = both["terminal_id"].as_str().unwrap();
        let typed = json!({"data": "echo typed-$((1 + 1))\r"});
        client.post(&format!("/api/terminals/{id}/input"), typed).expect_status(204);
        harness::terminal::shows(&client, id, "typed-2");
        let providers = client.get("/api/providers").expect(200);
        let named = |it: &&Value| it["name"] == kind.name();
        let provider = providers["items"].as_array().unwrap().iter().find(named).unwrap();
        assert_eq!(provider["available"], true, "{provider}");
        // The key is not in the environment.
        let key = vendor.key();
        let found = stdout(&client, "t", &format!("env | grep -c {} ; true", &key[8..]));
        assert_eq!(found, "0\n");
        assert!(!server.log().contains(key));
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn a_killed_server_finds_its_command_running_in_a_sandbox() {
    for kind in KINDS {
        let (vendor, home) = (Vendor::start(), Home::new());
        let server = vendor.user(kind, &home);
        let gate = home.path().join("gate");
        let text = format!(
            "echo before; until [ -e {} ]; do sleep 0.05; done; seq 20000; echo after",
            gate.display()
        );
        let body = json!({"command": text, "yield_ms": 500});
        let ran = server.client().post("/api/threads/t/exec", body).expect(200);
        assert_eq!(ran["status"], "running");
        let id = ran["command_id"].as_str().unwrap();
        let before = lease(&server.client(), "t")["instance"]["instance_id"].clone();
        server.kill();
        let server = vendor.user(kind, &home);
        let client = server.client();
        std::fs::write(&gate, "").unwrap();
        let done = wait_for("the command to end", || {
            let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
            if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
        });
        assert_eq!((&done["status"], &done["exit_code"]), (&json!("finished"), &json!(0)));
        let whole = client.get(&format!("/api/commands/{id}/output")).text();
        assert!(whole.starts_with("before\n1\n2\n") && whole.ends_with("20000\nafter\n"));
        assert_eq!(lease(&client, "t")["instance"]["instance_id"], before);
        assert_eq!(vendor.sandboxes(kind).len(), 1);
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn the_output_of_a_deleted_sandbox_is_kept() {
    for kind in KINDS {
        let (vendor, home) = (Vendor::start(), Home::new());
        let server = vendor.user(kind, &home);
        let client = server.client();
        let ran = exec(&client, "t", "cd /usr; export KEPT=yes; seq 30000");
        let (id, terminal) =
            (ran["command_id"].as_str().unwrap(), ran["terminal_id"].as_str().unwrap());
        let typed = json!({"data": "echo on-the-screen-$((40 + 2))\r"});
        client.post(&format!("/api/terminals/{terminal}/input"), typed).expect_status(204);
        harness::terminal::shows(&client, terminal, "on-the-screen-42");
        let offset =
            client.get(&format!("/api/terminals/{terminal}")).expect(200)["offset"].clone();
        // The server copies all output before the host may delete it.
        wait_for("the copy of the output", || {
            let dir = home.path().join("terminals").join(terminal).join("commands");
            let found = std::fs::metadata(dir.join(format!("{id}.out")));
            if found.is_ok_and(|file| file.len() > 168_894) { Ok(()) } else { Err("not yet") }
        });
        vendor.end(kind, &vendor.sandboxes(kind)[0]);
        // The server has the whole output; the new sandbox continues from the last state.
        let expected: String = (1..=30_000).map(|n| format!("{n}\n")).collect();
        wait_for("the output of a command whose sandbox was deleted", || {
            let whole = client.get(&format!("/api/commands/{id}/output"));
            if whole.status == 200 && whole.text() == expected { Ok(()) } else { Err(whole.status) }
        });
        assert_eq!(stdout(&client, "t", "pwd; echo $KEPT"), "/usr\nyes\n");
        let log = client.get(&format!("/api/terminals/{terminal}/recording")).text();
        assert!(log.contains("on-the-screen-42") && log.contains("restored"), "{log}");
        let later = client.get(&format!("/api/terminals/{terminal}")).expect(200)["offset"].clone();
        assert!(later.as_u64() > offset.as_u64(), "{later} after {offset}");
        assert_eq!(vendor.sandboxes(kind).len(), 1);
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn a_paused_sandbox_resumes_as_its_vendor_supports() {
    for kind in KINDS {
        let (vendor, home) = (Vendor::start(), Home::new());
        let server = vendor.user(kind, &home);
        let client = server.client();
        let shell = stdout(&client, "t", "cd /usr; mark=kept; export E=e; echo $$");
        client.post("/api/threads/t/pause", json!({})).expect_success();
        assert_eq!(lease(&client, "t")["instance"]["state"], "paused");
        assert_eq!(stdout(&client, "t", "echo $mark $E $PWD"), "kept e /usr\n");
        let same = stdout(&client, "t", "echo $$") == shell;
        assert_eq!(same, kind == Kind::E2b, "only E2B keeps processes over a pause");
        assert_eq!(vendor.sandboxes(kind).len(), 1);
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn lost_calls_leave_one_sandbox_and_no_orphan() {
    const QUOTA: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
        content-length: 49\r\nconnection: close\r\n\r\n\
        {\"code\":429,\"message\":\"the limit is 20 sandboxes\"}";
    const SOON: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n\
        content-length: 0\r\nconnection: close\r\n\r\n";
    const WRONG: &str = "HTTP/1.1 500 Internal Server Error\r\n\
        content-length: 5\r\nconnection: close\r\n\r\nwrong";
    const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n\
        content-length: 36\r\nconnection: close\r\n\r\n\
        {\"message\":\"your account is on hold\"}";
    for kind in COMMANDERS {
        let Some(vendor) = Vendor::of(kind) else { continue };
        let home = Home::new();
        let proxy = Proxy::start(vendor.address());
        let server = vendor.user_through(kind, proxy.address, &home);
        let client = server.client();
        let (make, list) = match kind {
            Kind::E2b => ("POST /sandboxes ", "GET /v2/sandboxes"),
            Kind::Daytona => ("POST /daytona/api/sandbox ", "GET /daytona/api/sandbox?"),
            Kind::AgentBay => ("POST /?Action=CreateMcpSession&", "POST /?Action=ListSession&"),
        };
        let harms: [&[(&str, Harm)]; 6] = [
            &[(make, Harm::LoseReply)],
            &[(make, Harm::Half)],
            &[(make, Harm::Answer(SOON)), (make, Harm::Answer(SOON))],
            &[(make, Harm::Answer(WRONG))],
            &[(list, Harm::Answer(WRONG)), (make, Harm::LoseReply), (list, Harm::Answer(WRONG))],
            &[(make, Harm::Late(Duration::from_millis(300)))],
        ];
        for (number, harm) in harms.into_iter().enumerate() {
            proxy.harm(harm);
            let thread = format!("t{number}");
            let stdout = stdout(&client, &thread, "echo fine");
            assert_eq!((stdout.as_str(), proxy.left()), ("fine\n", vec![]), "{harm:?}");
            assert_eq!(vendor.sandboxes(kind).len(), 1, "{kind:?} {harm:?}");
            end(&vendor, kind, &server, &[&thread]);
        }
        for (answer, words) in [(QUOTA, "the limit is 20 sandboxes"), (FORBIDDEN, "on hold")] {
            proxy.harm(&vec![(make, Harm::Answer(answer)); 40]);
            let refused = client.post("/api/threads/no/exec", json!({"command": "true"}));
            assert_eq!(refused.problem(503), "provider_unavailable");
            assert!(refused.text().contains(words), "{}", refused.text());
            proxy.harm(&[]);
            assert_eq!(vendor.sandboxes(kind), Vec::<String>::new());
        }
        end(&vendor, kind, &server, &["no"]);
    }
}

#[test]
fn an_outage_of_the_vendor_loses_nothing() {
    for kind in KINDS {
        let (vendor, home) = (Vendor::start(), Home::new());
        let server = vendor.user(kind, &home);
        let client = server.client();
        assert_eq!(stdout(&client, "t", "mark=kept; echo up"), "up\n");
        let gate = home.path().join("gate");
        let text = format!("until [ -e {} ]; do sleep 0.05; done; echo through", gate.display());
        let body = json!({"command": text, "yield_ms": 500});
        let ran = client.post("/api/threads/t/exec", body).expect(200);
        let id = ran["command_id"].as_str().unwrap();
        let vendor = vendor.restart();
        std::fs::write(&gate, "").unwrap();
        let done = wait_for("the command to end", || {
            let receipt = client.get(&format!("/api/commands/{id}")).expect(200);
            if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
        });
        assert_eq!(done["stdout"], "through\n", "{done}");
        assert_eq!(stdout(&client, "t", "echo $mark"), "kept\n");
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn a_command_that_a_vendor_lost_on_its_way_runs_once() {
    // The vendor confirms input and discards it. The stream breaks before it is sent again.
    const CONFIRMED: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
        content-length: 2\r\nconnection: close\r\n\r\n{}";
    let (vendor, home) = (Vendor::start(), Home::new());
    let proxy = Proxy::around(vendor.address());
    let server = vendor.user_through(Kind::E2b, proxy.address, &home);
    let client = server.client();
    assert_eq!(stdout(&client, "t", "echo up"), "up\n");
    let ran = home.path().join("ran");
    proxy.harm(&[("POST /process.Process/SendInput ", Harm::Answer(CONFIRMED))]);
    let command = format!("echo once >>{}; echo done", ran.display());
    let vendor = std::thread::scope(|scope| {
        let lost = scope.spawn(|| stdout(&client, "t", &command));
        wait_for("the input to be discarded", || match proxy.left() {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        });
        let vendor = vendor.restart();
        assert_eq!(lost.join().unwrap(), "done\n");
        vendor
    });
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "once\n");
    assert_eq!(stdout(&client, "t", "echo next"), "next\n");
    end(&vendor, Kind::E2b, &server, &["t"]);
}

#[test]
fn the_output_of_a_running_command_has_no_end_while_its_vendor_is_away() {
    for kind in KINDS {
        let (vendor, home) = (Vendor::start(), Home::new());
        let server = vendor.user(kind, &home);
        let client = server.client();
        let gate = home.path().join("gate");
        let text =
            format!("echo early; until [ -e {} ]; do sleep 0.05; done; echo late", gate.display());
        let body = json!({"command": text, "yield_ms": 500});
        let ran = client.post("/api/threads/t/exec", body).expect(200);
        assert_eq!(ran["status"], "running");
        let target = format!("/api/commands/{}/output", ran["command_id"].as_str().unwrap());
        assert_eq!(client.get(&format!("{target}?wait_ms=60000")).text(), "early\n");
        let (address, stopped) = vendor.kill();
        wait_long("the lease to be unreachable", || {
            let lease = lease(&client, "t");
            if lease["reachable"] == false { Ok(()) } else { Err(lease) }
        });
        // No bytes, or those that were copied, or a refusal: the command still runs.
        for from in [0, 3, 6] {
            let read = client.get(&format!("{target}?from={from}"));
            match read.status {
                200 => {
                    let offsets = ["x-offset", "x-end"].map(|name| read.header(name).unwrap());
                    assert_eq!(offsets, [from.to_string(), "false".into()], "{}", read.text());
                    assert!("early\n"[from..].starts_with(&read.text()), "{}", read.text());
                }
                _ => assert_eq!(read.problem(503), "unreachable"),
            }
        }
        let vendor = Vendor::start_at(address, stopped);
        std::fs::write(&gate, "").unwrap();
        let mut whole = String::new();
        wait_for("the rest of the output", || {
            let read = client.get(&format!("{target}?from={}&wait_ms=1000", whole.len()));
            if read.status == 200 {
                whole.push_str(&read.text());
            }
            if whole == "early\nlate\n" { Ok(()) } else { Err(whole.clone()) }
        });
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn without_a_key_a_vendor_is_absent_and_a_key_is_never_shown() {
    let home = Home::new();
    let server = Server::start(&home);
    let providers = server.client().get("/api/providers").expect(200);
    for kind in COMMANDERS {
        let named = |it: &&Value| it["name"] == kind.name();
        let provider = providers["items"].as_array().unwrap().iter().find(named).unwrap();
        assert_eq!(provider["available"], false);
        assert!(provider["missing"][0].as_str().unwrap().starts_with("key: set"), "{provider}");
    }
    let home = home.path().display().to_string();
    let variables = [
        ("HOME", home.as_str()),
        ("E2B_API_KEY", "secret-1"),
        ("DAYTONA_API_KEY", "secret-2"),
        ("AGENTBAY_API_KEY", "secret-3"),
    ];
    let shown = run(&["config"], &variables);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for kind in COMMANDERS {
        assert!(shown.contains(&format!("{}.key = \"(set)\"", kind.name())), "{shown}");
    }
    assert!(!shown.contains("secret-"), "{shown}");
}

/// Needs the API keys `E2B_API_KEY`, `DAYTONA_API_KEY`, `AGENTBAY_API_KEY`.
#[test]
fn a_terminal_runs_at_the_real_vendors() {
    for kind in COMMANDERS {
        let variable = format!("{}_API_KEY", kind.name().to_uppercase());
        if std::env::var_os(&variable).is_none() {
            println!("skipped: {variable} is not set");
            continue;
        }
        let home = Home::new();
        let server = Server::start_with(&home, &["--provider", kind.name()]);
        let client = server.client();
        assert_eq!(stdout(&client, "real", "cd /usr; export A=1; echo up"), "up\n");
        client.post("/api/threads/real/pause", json!({})).expect_success();
        assert_eq!(stdout(&client, "real", "echo $A $PWD"), "1 /usr\n");
        server.kill();
        let server = Server::start_with(&home, &["--provider", kind.name()]);
        assert_eq!(stdout(&server.client(), "real", "echo $A"), "1\n");
        server.client().delete("/api/threads/real").expect_success();
    }
}
