//! The server is killed at any of its system calls while a client uses it. After a restart nothing that was
//! acknowledged is lost, nothing has run twice, and the client can continue.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use harness::{Answer, Client, Home, Server, busiest, wait_for};

/// The calls that can be interrupted by a kill: all that change a file, a process, or what others see.
const CALLS: &str = "pwrite64,fdatasync,fsync,ftruncate,write,writev,sendto,mkdir,rename,unlink,\
                     unlinkat,rmdir,clone3,kill,pidfd_send_signal";

/// How many points of each call are taken; all of them in a soak.
fn points() -> usize {
    if std::env::var_os("STEAD_SOAK").is_some() { usize::MAX } else { 2 }
}

/// The acknowledgements that a client got before the server was killed.
#[derive(Debug, Default)]
struct Acknowledged {
    steps: Vec<&'static str>,
    version: u64,
    receipts: Vec<Value>,
}

impl Acknowledged {
    fn has(&self, step: &str) -> bool {
        self.steps.contains(&step)
    }
}

/// Does one of everything, until the server dies.
fn journey(client: &Client) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let _ = (|| {
        let send = |method: &str, path: &str, body: Value| {
            let request = client.request(method, &format!("/api/threads/t{path}")).json(&body);
            request.attempt().filter(|answer| answer.status < 300)
        };
        send("PUT", "", json!({"labels": {"a": "b"}}))?;
        acknowledged.steps.push("thread");
        for command in ["cd /usr; export A=1", "export A=2", ONCE] {
            let request = client.request("POST", "/api/threads/t/exec");
            let request = request.json(&json!({"command": command}));
            let answer = request.header("idempotency-key", command).attempt()?;
            let receipt = answer.expect(200);
            acknowledged.version = receipt["version"].as_u64()?;
            acknowledged.receipts.push(receipt);
        }
        acknowledged.steps.push("once");
        let terminal = acknowledged.receipts[0]["terminal_id"].as_str()?.to_owned();
        let of_terminal = |method: &str, path: &str, body: Value| {
            let path = format!("/api/terminals/{terminal}{path}");
            client.request(method, &path).json(&body).attempt().filter(|a| a.status < 300)
        };
        of_terminal("PATCH", "/env", json!({"set": {"B": "patched"}}))?;
        acknowledged.steps.push("patched");
        send("POST", "/pause", json!({}))?;
        acknowledged.steps.push("paused");
        send("POST", "/resume", json!({}))?;
        send("POST", "/messages", json!({"role": "user", "content": "hello"}))?;
        acknowledged.steps.push("message");
        let first = acknowledged.receipts[0]["version"].clone();
        of_terminal("POST", "/rollback", json!({"version": first}))?;
        acknowledged.steps.push("rolled back");
        send("POST", "/session/close", json!({}))?;
        acknowledged.steps.push("closed");
        send("POST", "/exec", json!({"command": "true"}))?;
        acknowledged.steps.push("ending");
        let gone = client.request("DELETE", "/api/threads/t").attempt()?;
        (gone.status == 204).then(|| acknowledged.steps.push("deleted"))
    })();
    acknowledged
}

/// Leaves a mark each time it runs.
const ONCE: &str = "echo ran >> \"$STEAD_MEMORIES/ran\"";

/// Starts again and compares.
fn check(home: &Home, acknowledged: &Acknowledged, context: &str) {
    let server = Server::start(home);
    let client = server.client();
    let thread = client.get("/api/threads/t");
    if acknowledged.has("deleted") {
        assert_eq!(thread.status, 404, "{context}");
    } else if acknowledged.has("thread") && !acknowledged.has("ending") {
        thread.expect(200);
    }
    if thread.status == 200 && acknowledged.has("thread") {
        check_thread(&client, acknowledged, context);
    }
    // The client can continue, with at most one instance.
    let body = json!({"command": "echo again"});
    assert_eq!(client.post("/api/threads/t/exec", body).expect(200)["stdout"], "again\n");
    wait_for("an instance that no lease knows to go", || {
        let instances = fs::read_dir(home.path().join("run")).unwrap().count();
        if instances == 1 { Ok(()) } else { Err(format!("{instances} instances: {context}")) }
    });
    client.delete("/api/threads/t").expect_status(204);
    wait_for("everything to go", || {
        let left: Vec<_> = fs::read_dir(home.path().join("run")).unwrap().flatten().collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

fn check_thread(client: &Client, acknowledged: &Acknowledged, context: &str) {
    for receipt in &acknowledged.receipts {
        let id = receipt["command_id"].as_str().unwrap();
        let kept = client.get(&format!("/api/commands/{id}")).expect(200);
        assert_eq!(
            (&kept["status"], &kept["exit_code"]),
            (&json!("finished"), &json!(0)),
            "{context}"
        );
    }
    let terminal = client.get("/api/threads/t/terminal").expect(200);
    let id = terminal["terminal_id"].as_str().unwrap();
    let version = terminal["version"].as_u64().unwrap();
    assert!(version >= acknowledged.version, "{context}: {terminal}");
    let versions = client.get(&format!("/api/terminals/{id}/versions")).expect(200);
    let numbers: Vec<u64> = versions["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["version"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=version).rev().collect::<Vec<_>>(), "{context}");
    let messages = client.get("/api/threads/t/messages").expect(200);
    if acknowledged.has("message") {
        assert_eq!(messages["items"][0]["content"], "hello", "{context}");
    }
    if acknowledged.has("ending") {
        return;
    }
    let seen = |command: &str| {
        let body = json!({"command": command});
        let answer = client.post("/api/threads/t/exec", body);
        answer.expect(200)["stdout"].as_str().unwrap().to_owned()
    };
    match acknowledged.receipts.len() {
        _ if acknowledged.has("rolled back") => {
            assert_eq!(seen("pwd; echo $A"), "/usr\n1\n", "{context}")
        }
        // A rollback that was asked for may have happened.
        2.. if !acknowledged.has("message") => {
            assert_eq!(seen("pwd; echo $A"), "/usr\n2\n", "{context}")
        }
        _ => {}
    }
    if acknowledged.has("patched") && !acknowledged.has("message") {
        assert_eq!(seen("echo $B"), "patched\n", "{context}");
    }
    // Whatever became of its answer, asked for again under its key it has run once.
    let request = client.request("POST", "/api/threads/t/exec").json(&json!({"command": ONCE}));
    let again: Option<Answer> = request.header("idempotency-key", ONCE).attempt();
    let ran = seen("cat \"$STEAD_MEMORIES/ran\" 2>/dev/null");
    assert!(
        ran == "ran\n" || (ran.is_empty() && !acknowledged.has("once")),
        "{context}: {ran:?} {again:?}"
    );
}

/// How often each call is made without harm.
fn count_calls() -> Option<BTreeMap<String, usize>> {
    let home = Home::new();
    let trace = home.path().join("trace");
    let set = format!("trace={CALLS}");
    let strace = ["strace", "-f", "-b", "execve", "-qq", "-e", &set, "-o", trace.to_str().unwrap()];
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: no strace here");
        return None;
    }
    let server = Server::start_beneath(&home, &strace).unwrap();
    let acknowledged = journey(&server.client());
    assert!(acknowledged.has("deleted"), "the journey fails even without harm: {acknowledged:?}");
    server.stop();
    Some(busiest(&trace))
}

#[test]
fn a_server_killed_at_any_call_has_lost_nothing_it_acknowledged() {
    let Some(calls) = count_calls() else { return };
    let mut killed = 0;
    for (call, count) in calls {
        // The first ones belong to the start, which has tests of its own.
        let step = count.div_ceil(points().saturating_add(1)).max(1);
        for point in (step..=count).step_by(step) {
            let home = Home::new();
            let trace = format!("trace={call}");
            let inject = format!("inject={call}:signal=SIGKILL:when={point}");
            let strace = [
                "strace",
                "-f",
                "-b",
                "execve",
                "-qq",
                "-e",
                &trace,
                "-e",
                &inject,
                "-o",
                "/dev/null",
            ];
            let context = format!("{call} {point} of {count}");
            let acknowledged = match Server::start_beneath(&home, &strace) {
                Ok(server) => journey(&server.client()),
                Err(_) => Acknowledged::default(),
            };
            killed += usize::from(!acknowledged.has("deleted"));
            check(
                &home,
                &acknowledged,
                &format!("{context}, acknowledged {:?}", acknowledged.steps),
            );
        }
    }
    eprintln!("killed at {killed} points");
    assert!(killed > 10, "killed at {killed} points only");
}
