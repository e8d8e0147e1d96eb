//! Escapes and abuse: what hostile code in a sandbox tries, and what must come of it. Each attempt
//! prints SAFE or BREACH; one BREACH fails the run.
//!
//! Everything happens in network namespaces of the test's own: a machine with the server in it, and an
//! internet with addresses that a sandbox may and may not reach. Nothing is sent anywhere else.
#![allow(clippy::unwrap_used, missing_docs)]

mod abuse;
mod copies;
#[allow(dead_code, unused_imports, reason = "not every test needs every tool")]
#[path = "../it/harness/mod.rs"]
mod harness;
mod killed;
mod machine;
mod others;
mod pool;
mod probes;
mod reach;
mod world;

use probes::{PROBES, WORDS};
use world::World;

#[test]
fn no_probe_gets_through() {
    let Some(world) = World::new(&[]) else { return };
    let sandbox = world.sandbox("probes");
    sandbox.words(WORDS);
    let mut breaches = Vec::new();
    for probe in PROBES {
        let said = sandbox.run(&format!("( {} )", probe.script));
        let verdict = said.lines().last().unwrap_or_default().to_owned();
        println!("{:6} {:10} {}", verdict, probe.group, probe.name);
        if verdict != "SAFE" {
            breaches.push(format!("{}: {}: {said:?}", probe.group, probe.name));
        }
    }
    assert!(breaches.is_empty(), "{} breaches: {breaches:#?}", breaches.len());
    assert!(PROBES.len() >= 80, "{} probes", PROBES.len());
}

/// A probe that cannot fail says nothing: without a sandbox, many of them have to.
#[test]
fn probes_get_through_where_there_is_no_sandbox() {
    let Some(world) = World::new(&["--provider", "local"]) else { return };
    let shell = world.sandbox("control");
    shell.words(WORDS);
    // Only such as change nothing on the machine that the test runs on.
    let harmless = [
        "the machine's password hashes",
        "a file of the machine by its name",
        "the server's home",
        "see the server",
        "the kernel's keys, timers and modules",
        "a user namespace",
        "a mount namespace",
        "clone with a user namespace",
        "any capability",
        "new privileges",
        "no filter of system calls",
        "a user of the machine",
        "a packet socket",
        "a raw socket",
        "netlink to the packet filter",
        "see the rules",
        "the server on the loopback",
        "the machine's abstract sockets",
        "a metadata service",
        "a private network (10)",
        "the host's socket by name",
    ];
    let blind: Vec<&str> = harmless
        .into_iter()
        .filter(|name| {
            let probe = PROBES.iter().find(|probe| probe.name == *name).unwrap();
            shell.run(&format!("( {} )", probe.script)).lines().last() != Some("BREACH")
        })
        .collect();
    assert!(blind.is_empty(), "these see nothing without a sandbox: {blind:?}");
}
