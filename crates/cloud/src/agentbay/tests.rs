//! The vendor against its stand-in, on both data planes, with faults.

use harness::agentbay::{KEY, StandIn};
use serde_json::json;

use super::super::http::VendorKey;
use super::api::{DEFAULT_SHELL_SERVER, MISSING_SESSION_PREFIX, with_missing_status};
use super::*;

/// A client with a new stand-in for each data plane; empty if the stand-in cannot run.
fn planes() -> Vec<(StandIn, Arc<AgentBayVendor>)> {
    let planes: [&[&str]; 2] = [&[], &["--central"]];
    let started = planes.into_iter().filter_map(StandIn::start);
    started.map(|stand_in| (client(&stand_in), stand_in)).map(|(bay, it)| (it, bay)).collect()
}

fn client(stand_in: &StandIn) -> Arc<AgentBayVendor> {
    let options = AgentBayOptions {
        key: VendorKey::new(KEY),
        endpoint: format!("http://{}", stand_in.address),
        image: "linux_latest".to_owned(),
        timeout: Duration::from_secs(900),
    };
    Arc::new(AgentBayVendor::new(options).unwrap())
}

fn labels(text: &str) -> VendorLabels {
    [("of".to_owned(), text.to_owned())].into()
}

async fn make(bay: &Arc<AgentBayVendor>, of: &str) -> VendorSandbox {
    let made = bay.create("", &labels(of), &Value::Null).await.unwrap();
    bay.get(&made.id).await.unwrap().unwrap()
}

fn command(text: &str) -> Execute {
    let timeout = Duration::from_secs(50);
    Execute { command: text.to_owned(), env: Default::default(), cwd: None, timeout }
}

async fn output(bay: &Arc<AgentBayVendor>, sandbox: &VendorSandbox, text: &str) -> String {
    let ran = bay.run(sandbox, &command(text)).await.unwrap();
    assert_eq!(ran.exit_code, Some(0), "{text}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn a_missing_session_is_recognized_by_its_error_code() {
    let fault = refusal(
        StatusCode::BAD_REQUEST,
        format!("{MISSING_SESSION_PREFIX}: session s-1 not found"),
    );
    assert_eq!(with_missing_status(fault).status(), Some(StatusCode::NOT_FOUND));
    let other = refusal(StatusCode::BAD_REQUEST, "InvalidParameter: Args".to_owned());
    assert_eq!(with_missing_status(other).status(), Some(StatusCode::BAD_REQUEST));
}

#[test]
fn a_session_is_parsed_from_either_response() {
    let whole = json!({"SessionId": "s-1", "Status": "PAUSED", "LinkUrl": "https://a/b/",
        "Token": "t", "ToolList": r#"[{"name":"shell","server":"other"}]"#});
    let sandbox = decode::<AgentBaySession>(whole).unwrap().sandbox(VendorLabels::new());
    assert_eq!((&*sandbox.url, sandbox.server.as_deref()), ("https://a/b", Some("other")));
    assert_eq!((sandbox.observed, sandbox.token.is_some()), (Observed::Paused, true));
    let listed = json!({"SessionId": "s-1", "SessionStatus": "DELETING", "Token": ""});
    let sandbox = decode::<AgentBaySession>(listed).unwrap().sandbox(VendorLabels::new());
    assert_eq!((sandbox.observed, sandbox.token.is_some()), (Observed::Gone, false));
    assert_eq!((&*sandbox.url, sandbox.server.as_deref()), ("", Some(DEFAULT_SHELL_SERVER)));
}

#[tokio::test]
async fn sessions_are_found_by_their_labels_until_they_are_deleted() {
    for (stand_in, bay) in planes() {
        let one = make(&bay, "one").await;
        let two = make(&bay, "two").await;
        assert!(two.url.is_empty() == two.token.is_none());
        let found = bay.find(&labels("two")).await.unwrap();
        assert_eq!((found.len(), &found[0].id), (1, &two.id));
        assert_eq!((&found[0].labels, found[0].observed), (&labels("two"), Observed::Running));
        assert_eq!(bay.find(&VendorLabels::new()).await.unwrap().len(), 2);
        for sandbox in [&one, &two] {
            bay.delete(&sandbox.id).await.unwrap();
            bay.delete(&sandbox.id).await.unwrap();
            assert!(bay.get(&sandbox.id).await.unwrap().is_none());
        }
        assert_eq!(stand_in.sessions(), Vec::<String>::new());
        let late = bay.run(&one, &command("true")).await.unwrap_err();
        assert_eq!(late.status(), Some(StatusCode::NOT_FOUND), "{late}");
        let late = bay.pause(&one.id).await.unwrap_err();
        assert_eq!(late.status(), Some(StatusCode::NOT_FOUND), "{late}");
    }
}

#[tokio::test]
async fn sessions_on_further_pages_are_found() {
    let Some(stand_in) = StandIn::start(&["--page", "2"]) else { return };
    let bay = client(&stand_in);
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(make(&bay, "pages").await.id);
    }
    made.sort();
    let found = bay.find(&labels("pages")).await.unwrap();
    assert_eq!(found.into_iter().map(|it| it.id).collect::<Vec<_>>(), made);
}

#[tokio::test]
async fn a_command_runs_to_its_end_with_complete_output() {
    for (_stand_in, bay) in planes() {
        let sandbox = make(&bay, "commands").await;
        let asked = Execute {
            env: [("A".to_owned(), "it's\n".to_owned())].into(),
            cwd: Some("/usr".to_owned()),
            ..command("pwd; printf \"$A\"; printf '\\377\\0' >&2; exit 3")
        };
        let ran = bay.run(&sandbox, &asked).await.unwrap();
        let (stdout, stderr) = (b"/usr\nit's\n".to_vec(), b"\xff\0".to_vec());
        assert_eq!(ran, Executed { exit_code: Some(3), stdout, stderr });
        let long = format!("echo $(printf %s {} | wc -c)", "x".repeat(90 << 10));
        assert_eq!(output(&bay, &sandbox, &long).await, format!("{}\n", 90 << 10));
        let many = output(&bay, &sandbox, "seq 100000").await;
        assert_eq!((many.len(), &many[..4]), (588_895, "1\n2\n"));
        let late = Execute { timeout: Duration::from_secs(1), ..command("sleep 1000") };
        assert_eq!(bay.run(&sandbox, &late).await.unwrap().exit_code, None);
        let key = output(&bay, &sandbox, &format!("env | grep -c {KEY}; true")).await;
        assert_eq!(key, "0\n");
    }
}

#[tokio::test]
async fn files_are_uploaded_in_chunks() {
    for (stand_in, bay) in planes() {
        let sandbox = make(&bay, "files").await;
        let home = output(&bay, &sandbox, "pwd").await.trim().to_owned();
        let large: Vec<u8> = (0..300_000u32).flat_map(|n| n.to_le_bytes()).take(299_999).collect();
        for bytes in [&large[..], b"", &large[..shell::UPLOAD_CHUNK_BYTES]] {
            let path = format!("{home}/it's a dir/file");
            // A chunk whose answer is lost is sent again.
            let plane = if sandbox.url.is_empty() { "CallMcpTool" } else { "callTool" };
            stand_in.harm(&[(plane, "lose"), (plane, "half"), (plane, "error")]);
            bay.upload(&sandbox, &path, Bytes::copy_from_slice(bytes), None).await.unwrap();
            // The sandboxes of the stand-in are directories of this machine.
            assert!(std::fs::read(&path).unwrap() == bytes);
            stand_in.harm(&[]);
        }
    }
}

#[tokio::test]
async fn a_paused_session_keeps_its_processes() {
    for (stand_in, bay) in planes() {
        let sandbox = make(&bay, "pause").await;
        let started = "setsid sleep 1000 >/dev/null 2>&1 & echo $!";
        let pid = output(&bay, &sandbox, started).await;
        for _ in 0..2 {
            bay.pause(&sandbox.id).await.unwrap();
            bay.pause(&sandbox.id).await.unwrap();
            let paused = bay.get(&sandbox.id).await.unwrap().unwrap();
            assert_eq!(paused.observed, Observed::Paused);
            assert!(bay.run(&sandbox, &command("true")).await.is_err());
            bay.resume(&sandbox.id).await.unwrap();
            bay.resume(&sandbox.id).await.unwrap();
            assert_eq!(output(&bay, &sandbox, &format!("kill -0 {pid}")).await, "");
        }
        // The token of a session may change.
        stand_in.control(&json!({"renew": sandbox.id}));
        assert_eq!(output(&bay, &sandbox, "echo found").await, "found\n");
        bay.keep_alive(&sandbox).await.unwrap();
        let session = stand_in.control(&json!({}));
        assert_eq!(session["sessions"][&sandbox.id]["refreshed"], 1);
    }
}

#[tokio::test]
async fn a_session_reports_its_usage() {
    for (stand_in, bay) in planes() {
        let sandbox = make(&bay, "usage").await;
        let usage = bay.usage(&sandbox).await.unwrap().unwrap();
        assert!(usage.mem_used > 100_000 && usage.disk_used > 0, "{usage:?}");
        output(&bay, &sandbox, "head -c 1000000 /dev/urandom >large; sync large").await;
        let more = bay.usage(&sandbox).await.unwrap().unwrap();
        assert!(more.disk_used > usage.disk_used + 900_000, "{more:?} after {usage:?}");
        // A lost or truncated answer is requested again.
        stand_in.harm(&[("CallMcpTool", "lose"), ("CallMcpTool", "half")]);
        bay.usage(&sandbox).await.unwrap();
        stand_in.harm(&[("CallMcpTool", "error"); 4]);
        bay.usage(&sandbox).await.unwrap_err();
    }
}

#[tokio::test]
async fn faults_are_reported_or_retried() {
    for (stand_in, bay) in planes() {
        let plane =
            if make(&bay, "which").await.url.is_empty() { "CallMcpTool" } else { "callTool" };
        // Idempotent requests are repeated.
        for harm in ["busy", "throttled", "error", "lose", "half"] {
            stand_in.harm(&[("GetSession", harm), ("ListSession", harm), ("GetLabel", harm)]);
            make(&bay, harm).await;
            assert_eq!(bay.find(&labels(harm)).await.unwrap().len(), 1, "{harm}");
            assert_eq!(stand_in.control(&json!({}))["harms"], json!([]), "{harm}");
        }
        // Neither a creation nor a command is repeated: the caller gets an unknown outcome.
        for harm in ["error", "lose", "half"] {
            let of = format!("make {harm}");
            stand_in.harm(&[("CreateMcpSession", harm)]);
            let fault = bay.create("", &labels(&of), &Value::Null).await.unwrap_err();
            assert!(fault.is_unknown(), "{harm}: {fault}");
            let made = bay.find(&labels(&of)).await.unwrap().len();
            assert_eq!(made, usize::from(harm != "error"), "{harm}");
        }
        let sandbox = make(&bay, "run").await;
        for harm in ["lose", "half"] {
            stand_in.harm(&[(plane, harm)]);
            let fault = bay.run(&sandbox, &command(&format!("echo x >>{harm}"))).await.unwrap_err();
            assert!(fault.is_unknown(), "{harm}: {fault}");
            assert_eq!(output(&bay, &sandbox, &format!("cat {harm}")).await, "x\n");
        }
        stand_in.harm(&[(plane, "busy"), (plane, "throttled")]);
        assert_eq!(output(&bay, &sandbox, "echo again").await, "again\n");
        // A refusal has the vendor's message.
        stand_in.control(&json!({"max_sessions": 1}));
        let fault = bay.create("", &labels("limit"), &Value::Null).await.unwrap_err();
        assert!(
            !fault.is_unknown() && fault.to_string().contains("the limit of 1 sessions is reached")
        );
        stand_in.control(&json!({"vanish": sandbox.id}));
        let fault = bay.run(&sandbox, &command("true")).await.unwrap_err();
        assert_eq!(fault.status(), Some(StatusCode::NOT_FOUND), "{fault}");
        let options = AgentBayOptions { key: VendorKey::new("akm-wrong"), ..bay.options.clone() };
        let other = Arc::new(AgentBayVendor::new(options).unwrap());
        let fault = other.find(&VendorLabels::new()).await.unwrap_err();
        assert!(fault.to_string().contains("InvalidApiKey: the API key is not valid"), "{fault}");
        assert!(!format!("{other:?}").contains("akm-wrong"));
    }
}
