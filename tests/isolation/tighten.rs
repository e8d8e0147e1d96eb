//! Changed egress rules apply to open connections, too.

use serde_json::{Value, json};

use crate::world::{PUBLIC, World};
use harness::engines;

#[test]
fn connections_end_when_the_rules_no_longer_allow_them() {
    let Some(world) = World::new(&["--set", "sandbox.egress=public"]) else { return };
    let client = world.server.client();
    let made = client.post("/v2/sandboxes", json!({"templateID": "namespace", "timeout": 600}));
    let id = made.expect(201)["sandboxID"].as_str().unwrap().to_owned();
    let run = |command: &str| {
        let body = json!({"command": command, "timeout_ms": 60_000});
        let ran = client.post(&format!("/api/threads/{id}/exec"), body).expect(200);
        ran["stdout"].as_str().unwrap().to_owned()
    };
    let change = |rules: Value| {
        let target = format!("/sandboxes/{id}/network");
        client.request("PUT", &target).json(&rules).send().expect_status(204);
    };
    let echo = |descriptor: u32, word: &str| {
        run(&format!("echo {word} >&{descriptor} && timeout 50 head -1 <&{descriptor}"))
    };
    run(&format!("exec 8<>/dev/tcp/{}/7 9<>/dev/tcp/{}/7", PUBLIC[0], PUBLIC[1]));
    assert_eq!((echo(8, "one"), echo(9, "one")), ("one\n".into(), "one\n".into()));
    change(json!({"denyOut": [PUBLIC[1]]}));
    assert_eq!(echo(8, "two"), "two\n", "an allowed connection was closed");
    assert_eq!(echo(9, "two"), "", "a forbidden connection is still open");
    change(json!({"allowInternetAccess": false}));
    assert_eq!(echo(8, "three"), "", "a connection is open without a network");
    change(json!({}));
    run(&format!("exec 8<>/dev/tcp/{}/7", PUBLIC[0]));
    assert_eq!(echo(8, "four"), "four\n", "the network comes back with its rules");
}

/// The machine tracks all connections in one table of a fixed size.
fn connections_are_bounded(arguments: &[&str]) {
    let Some(world) = World::new(arguments) else { return };
    let sandbox = world.sandbox("many");
    let sent = sandbox.run(&format!(
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 17) or die; my $n = 0; \
         for my $port (1000..6999) {{ \
         $n++ if send(S, \"x\", 0, pack_sockaddr_in($port, inet_aton(\"{}\"))) }} print $n'",
        PUBLIC[0]
    ));
    let sent: u32 = sent.parse().unwrap();
    assert!((3000..=4096).contains(&sent), "{sent} connections were made with {arguments:?}");
    assert_eq!(sandbox.run("echo works"), "works\n");
}

#[test]
fn the_connections_of_a_sandbox_are_bounded() {
    connections_are_bounded(&["--set", "sandbox.egress=public"]);
}

#[test]
fn the_connections_of_a_container_are_bounded() {
    for (_, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        let container = ["--provider", "docker", "--set", &host];
        let egress = ["--set", "sandbox.egress=public"];
        connections_are_bounded(&[&container[..], &egress].concat());
    }
}
