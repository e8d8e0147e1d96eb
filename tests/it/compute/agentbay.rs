//! What is AgentBay's own: two ways to its sessions, calls that get lost on either, and its words. The rest it
//! has in common with others (`commands_only`, `cloud`, `provider`).

use serde_json::json;
use stead::provider::{Provider, ProviderError, cloud::Runtime};

use super::{
    cloud::{end, said},
    stand_in::{KEY, StandIn},
    vendor::{Kind, Vendor},
};
use crate::harness::{Home, wait_for};

/// A vendor with data planes of its sessions' own, and one without.
fn planes() -> impl Iterator<Item = Vendor> {
    let planes: [&[&str]; 2] = [&[], &["--central"]];
    planes.into_iter().filter_map(StandIn::start).map(Vendor::Bay)
}

fn bay(vendor: &Vendor) -> &StandIn {
    match vendor {
        Vendor::Bay(bay) => bay,
        Vendor::Ours(..) => panic!("this is no stand-in"),
    }
}

#[test]
fn calls_that_get_lost_on_either_plane_run_a_command_once() {
    for vendor in planes() {
        let (bay, home) = (bay(&vendor), Home::new());
        let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
        let client = server.client();
        let ran = home.path().join("ran");
        assert_eq!(said(&client, "t", "cd /usr; export A=1; echo up"), "up\n");
        for harm in ["busy", "throttled", "error", "lose", "half"] {
            let calls = ["callTool", "CallMcpTool"].map(|action| (action, harm));
            bay.harm(&calls.repeat(3));
            let text = format!("echo {harm} >>{}; echo $A $PWD", ran.display());
            assert_eq!(said(&client, "t", &text), "1 /usr\n", "{harm}");
            bay.harm(&[]);
        }
        let once = std::fs::read_to_string(&ran).unwrap();
        assert_eq!(once, "busy\nthrottled\nerror\nlose\nhalf\n");
        // Nobody inside knows the key, and no log.
        assert_eq!(said(&client, "t", &format!("env | grep -c {KEY} ; true")), "0\n");
        assert!(!server.log().contains(KEY));
        end(&vendor, Kind::AgentBay, &server, &["t"]);
    }
}

#[test]
fn a_paused_session_holds_its_command_and_goes_on_with_it() {
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
    wait_for("it to begin", || if began.exists() { Ok(()) } else { Err("not yet") });
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

#[test]
fn a_quota_is_told_in_the_vendors_words() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let home = Home::new();
    let server = vendor.commander(Kind::AgentBay, vendor.address(), &home);
    let client = server.client();
    bay(&vendor).control(&json!({"most": 0}));
    let refused = client.post("/api/threads/no/exec", json!({"command": "true"}));
    assert_eq!(refused.problem(503), "provider_unavailable");
    let words = "AgentBay answered 400 Bad Request: ExceededQuota.Session: 0 sessions are the most";
    assert!(refused.text().contains(words), "{}", refused.text());
    bay(&vendor).control(&json!({"most": 1}));
    assert_eq!(said(&client, "yes", "echo fine"), "fine\n");
    end(&vendor, Kind::AgentBay, &server, &["no", "yes"]);
}

#[test]
fn a_lease_names_an_image_and_nothing_else() {
    let Some(vendor) = Vendor::of(Kind::AgentBay) else { return };
    let home = Home::new();
    let provider = vendor.provider(Kind::AgentBay, home.path(), Runtime::Remote);
    provider.accepts(&json!({"image": "code_latest"})).unwrap();
    let wrong = provider.accepts(&json!({"template": "base"}));
    assert!(matches!(wrong, Err(ProviderError::Refused { .. })), "{wrong:?}");
}
