//! What a sandbox reaches, by its egress.

use std::process::Command;

use crate::harness::{Engine, engines};
use crate::probes::WORDS;
use crate::world::{PUBLIC, World};

/// Whether somebody answers at an address.
const KNOCK: &str =
    "knock() { timeout 4 bash -c \"exec 9<>/dev/tcp/$1/$2; head -1 <&9\" 2>/dev/null; }";

fn check(arguments: &[&str], expected: &[(&str, u16, bool)]) {
    let Some(world) = World::new(arguments) else { return };
    let sandbox = world.sandbox("reach");
    sandbox.words(WORDS);
    sandbox.words(KNOCK);
    for (address, port, reached) in expected {
        let said = sandbox.run(&format!("knock {address} {port}"));
        let seen = said.contains("the internet");
        assert_eq!(seen, *reached, "{arguments:?}: {address}:{port} said {said:?}");
    }
    // Itself, always.
    let own = sandbox.run(
        "perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(Listen => 1, LocalAddr => \
         \"127.0.0.1:8088\") or die; $c = IO::Socket::INET->new(\"127.0.0.1:8088\") or die; print \"ok\"'",
    );
    assert_eq!(own, "ok");
}

const OF_PUBLIC: &[(&str, u16, bool)] = &[
    (PUBLIC[0], 80, true),
    (PUBLIC[1], 80, true),
    ("169.254.169.254", 80, false),
    ("10.1.2.3", 80, false),
    ("172.16.9.9", 80, false),
    ("192.168.7.7", 80, false),
    ("100.64.1.1", 80, false),
];

const LIST: &str = "sandbox.egress=203.0.113.1:80,10.1.2.3:80";
const OF_LIST: &[(&str, u16, bool)] = &[
    (PUBLIC[0], 80, true),
    (PUBLIC[0], 443, false),
    ("10.1.2.3", 80, true),
    (PUBLIC[1], 80, false),
    ("192.168.7.7", 80, false),
];

#[test]
fn public_is_the_internet_and_nothing_private() {
    check(&["--set", "sandbox.egress=public"], OF_PUBLIC);
}

#[test]
fn a_container_reaches_what_a_sandbox_does() {
    for (_, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        let container = ["--provider", "docker", "--set", &host, "--set"];
        for (egress, expected) in [("sandbox.egress=public", OF_PUBLIC), (LIST, OF_LIST)] {
            check(&[&container[..], &[egress]].concat(), expected);
        }
    }
}

/// Docker has all that is passed on dropped, unless it is told of an exception.
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
    sandbox.words(KNOCK);
    for (address, port, reached) in OF_PUBLIC {
        let said = sandbox.run(&format!("knock {address} {port}"));
        assert_eq!(said.contains("the internet"), *reached, "{address}: {said:?}\n{}", rules());
    }
    // A container is no more reached than before.
    assert!(!sandbox.run("knock 172.31.99.1 81").contains("the internet"));
    world.server.client().delete("/api/threads/beside-docker").expect_success();
    drop(engine);
}

#[test]
fn none_is_nothing() {
    check(
        &["--set", "sandbox.egress=none"],
        &[(PUBLIC[0], 80, false), ("10.1.2.3", 80, false), ("169.254.169.254", 80, false)],
    );
}

#[test]
fn all_is_what_the_machine_reaches() {
    check(&["--set", "sandbox.egress=all"], &[(PUBLIC[0], 80, true), ("10.1.2.3", 80, true)]);
}

#[test]
fn an_allow_list_is_itself_and_nothing_else() {
    check(&["--set", LIST], OF_LIST);
}
