//! The egress log: the destinations that a sandbox connected to, and those that were refused.

use serde_json::{Value, json};

use crate::world::{PUBLIC, World};
use harness::{Client, engines};

/// Each destination of a log as text, in a fixed order. The kernel repeats the first packet of a connection
/// that is refused, so the number of those is unknown.
fn destinations(log: &Value) -> Vec<String> {
    let field = |entry: &Value, name: &str| entry[name].to_string().replace('"', "");
    let mut found: Vec<String> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            assert!(entry["attempts"].as_u64().unwrap() > 0, "{entry}");
            let attempts = if entry["verdict"] == "allowed" { "attempts" } else { "name" };
            ["verdict", "protocol", "address", "port", attempts]
                .map(|name| field(entry, name))
                .join(" ")
        })
        .collect();
    found.sort();
    found
}

fn log(client: &Client, id: &str) -> Value {
    client.get(&format!("/api/sandboxes/{id}/egress")).expect(200)
}

/// Defines a shell function that connects to an address and prints the first line of the answer.
const CONNECT: &str =
    "connect() { timeout 9 bash -c \"exec 9<>/dev/tcp/$1/$2; head -1 <&9\" 2>/dev/null; }";

fn check(arguments: &[&str]) {
    let Some(world) = World::new(arguments) else { return };
    let sandbox = world.sandbox("logged");
    let client = world.server.client();
    let empty = json!({"items": [], "unlisted_allowed": 0, "unlisted_refused": 0});
    assert_eq!(log(&client, "logged"), empty);
    sandbox.define(CONNECT);
    for _ in 0..2 {
        assert_eq!(sandbox.run(&format!("connect {} 80", PUBLIC[0])), "the internet\n");
    }
    assert_eq!(sandbox.run("connect 10.1.2.3 80"), "");
    // Connections to the loopback inside the sandbox are not logged.
    sandbox.run("connect 127.0.0.1 80");
    let expected =
        [format!("allowed tcp {} 80 2", PUBLIC[0]), "refused tcp 10.1.2.3 80 null".to_owned()];
    let found = log(&client, "logged");
    assert_eq!(destinations(&found), expected, "{found}");
    for entry in found["items"].as_array().unwrap() {
        let at: jiff::Timestamp = entry["last_seen_at"].as_str().unwrap().parse().unwrap();
        let ago = jiff::Timestamp::now().duration_since(at);
        assert!(ago.as_secs().abs() < 300, "{entry}");
    }
}

#[test]
fn the_log_has_allowed_and_refused_destinations() {
    check(&["--set", "sandbox.egress=public"]);
}

#[test]
fn a_container_has_a_log_too() {
    for (_, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        check(&["--provider", "docker", "--set", &host, "--set", "sandbox.egress=public"]);
    }
}

/// Changed rules do not hide what happened before.
#[test]
fn a_log_outlives_a_change_of_the_rules() {
    let Some(world) = World::new(&["--set", "sandbox.egress=public"]) else { return };
    let client = world.server.client();
    let made = client.post("/v2/sandboxes", json!({"templateID": "namespace", "timeout": 600}));
    let id = made.expect(201)["sandboxID"].as_str().unwrap().to_owned();
    let connect = || {
        let body = json!({"command": format!("{CONNECT}; connect {} 80", PUBLIC[0])});
        client.post(&format!("/api/threads/{id}/exec"), body).expect(200)
    };
    connect();
    let rules = json!({"denyOut": [PUBLIC[0]]});
    let target = format!("/sandboxes/{id}/network");
    client.request("PUT", &target).json(&rules).send().expect_status(204);
    connect();
    let expected =
        [format!("allowed tcp {} 80 1", PUBLIC[0]), format!("refused tcp {} 80 null", PUBLIC[0])];
    assert_eq!(destinations(&log(&client, &id)), expected);
}

/// A scan fills the log. Further destinations are counted only, and the rules still hold.
#[test]
fn a_scan_of_many_ports_does_not_grow_a_log_without_bound() {
    let Some(world) = World::new(&["--set", "sandbox.egress=public"]) else { return };
    let sandbox = world.sandbox("scan");
    sandbox.define(CONNECT);
    for address in ["10.1.2.3", PUBLIC[1]] {
        sandbox.run(&format!(
            "perl -MSocket -e 'for my $port (1001..2500) {{ \
             socket(S, PF_INET, SOCK_DGRAM, 17) or die; \
             send(S, \"x\", 0, pack_sockaddr_in($port, inet_aton(\"{address}\"))) }}'"
        ));
    }
    assert_eq!(sandbox.run(&format!("connect {} 80", PUBLIC[0])), "the internet\n");
    let found = log(&world.server.client(), "scan");
    let verdicts = ["allowed", "refused"].map(|verdict| {
        let all = found["items"].as_array().unwrap();
        all.iter().filter(|entry| entry["verdict"] == verdict).count()
    });
    assert_eq!(verdicts, [512, 512]);
    assert_eq!(
        (&found["unlisted_allowed"], &found["unlisted_refused"]),
        (&json!(989), &json!(988))
    );
}

#[test]
fn a_provider_without_egress_rules_has_no_log() {
    let Some(world) = World::new(&["--provider", "local"]) else { return };
    world.sandbox("plain");
    let refused = world.server.client().get("/api/sandboxes/plain/egress");
    let problem = refused.expect(409);
    assert_eq!(problem["code"], "not_supported", "{problem}");
    let absent = world.server.client().get("/api/sandboxes/absent/egress").expect(404);
    assert_eq!(absent["code"], "not_found", "{absent}");
}
