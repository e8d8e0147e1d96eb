//! The destinations that each egress setting allows.

use std::process::Command;

use crate::probes::FUNCTIONS;
use crate::world::{PUBLIC, World};
use harness::{Engine, engines};

/// Defines a shell function that connects to an address and prints the first line of the answer.
const CONNECT: &str =
    "connect() { timeout 4 bash -c \"exec 9<>/dev/tcp/$1/$2; head -1 <&9\" 2>/dev/null; }";

fn check(arguments: &[&str], expected: &[(&str, u16, bool)]) {
    let Some(world) = World::new(arguments) else { return };
    let sandbox = world.sandbox("reach");
    sandbox.define(FUNCTIONS);
    sandbox.define(CONNECT);
    for (address, port, reached) in expected {
        let output = sandbox.run(&format!("connect {address} {port}"));
        let seen = output.contains("the internet");
        assert_eq!(seen, *reached, "{arguments:?}: {address}:{port} answered {output:?}");
    }
    // A sandbox can always connect to itself.
    let own = sandbox.run(
        "perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(Listen => 1, LocalAddr => \
         \"127.0.0.1:8088\") or die; $c = IO::Socket::INET->new(\"127.0.0.1:8088\") or die; print \"ok\"'",
    );
    assert_eq!(own, "ok");
}

const PUBLIC_EXPECTED: &[(&str, u16, bool)] = &[
    (PUBLIC[0], 80, true),
    (PUBLIC[1], 80, true),
    ("169.254.169.254", 80, false),
    ("10.1.2.3", 80, false),
    ("172.16.9.9", 80, false),
    ("192.168.7.7", 80, false),
    ("100.64.1.1", 80, false),
];

const LIST: &str = "sandbox.egress=203.0.113.1:80,10.1.2.3:80";
const LIST_EXPECTED: &[(&str, u16, bool)] = &[
    (PUBLIC[0], 80, true),
    (PUBLIC[0], 443, false),
    ("10.1.2.3", 80, true),
    (PUBLIC[1], 80, false),
    ("192.168.7.7", 80, false),
];

#[test]
fn public_allows_the_internet_and_no_private_address() {
    check(&["--set", "sandbox.egress=public"], PUBLIC_EXPECTED);
}

#[test]
fn a_container_has_the_egress_of_a_sandbox() {
    for (_, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        let container = ["--provider", "docker", "--set", &host, "--set"];
        for (egress, expected) in
            [("sandbox.egress=public", PUBLIC_EXPECTED), (LIST, LIST_EXPECTED)]
        {
            check(&[&container[..], &[egress]].concat(), expected);
        }
    }
}

/// Docker drops all forwarded packets, so sandboxes need an exception in its rules.
#[test]
fn public_is_the_internet_beside_docker_too() {
    let Some(world) = World::new(&["--set", "sandbox.egress=public"]) else { return };
    let engine = match Engine::docker_with_network() {
        Ok(engine) => engine,
        Err(why) => {
            eprintln!("{why}");
            return;
        }
    };
    let rules = || {
        let listed = Command::new("iptables").args(["-w", "-S"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    assert!(rules().contains("-P FORWARD DROP"), "{}", rules());
    let sandbox = world.sandbox("beside-docker");
    sandbox.define(CONNECT);
    for (address, port, reached) in PUBLIC_EXPECTED {
        let output = sandbox.run(&format!("connect {address} {port}"));
        assert_eq!(output.contains("the internet"), *reached, "{address}: {output:?}\n{}", rules());
    }
    // A container is still out of reach.
    assert!(!sandbox.run("connect 172.31.99.1 81").contains("the internet"));
    world.server.client().delete("/api/threads/beside-docker").expect_success();
    drop(engine);
}

#[test]
fn none_allows_nothing() {
    check(
        &["--set", "sandbox.egress=none"],
        &[(PUBLIC[0], 80, false), ("10.1.2.3", 80, false), ("169.254.169.254", 80, false)],
    );
}

#[test]
fn all_allows_every_address_that_the_machine_reaches() {
    check(&["--set", "sandbox.egress=all"], &[(PUBLIC[0], 80, true), ("10.1.2.3", 80, true)]);
}

#[test]
fn an_allow_list_allows_its_entries_and_nothing_else() {
    check(&["--set", LIST], LIST_EXPECTED);
}
