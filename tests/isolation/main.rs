//! Escapes and abuse: attacks by hostile code in a sandbox. Each probe prints SAFE or BREACH; one BREACH fails the
//! run.
//!
//! Each test has network namespaces of its own: one for the machine with the server, and one for the internet, with
//! addresses that are allowed and addresses that are not. No packet leaves them.
#![allow(clippy::unwrap_used, missing_docs)]

mod abuse;
mod again;
mod copies;
mod cpu_governor;
mod disk_governor;
mod egress_log;
mod full_disk;
mod killed;
mod machine;
mod others;
mod pool;
mod probes;
mod reach;
mod root;
mod templates;
mod tighten;
mod unprivileged;
mod volumes;
mod workspaces;
mod world;

use harness::engines;
use probes::{FUNCTIONS, PROBES};
use world::{World, has};

/// The number of sandboxes that run probes at the same time; most of the time they wait.
const PARALLEL_SANDBOXES: usize = 4;

/// Runs all probes except some.
fn probe_all(name: &str, arguments: &[&str], except: &[&str]) {
    let Some(world) = World::new(arguments) else { return };
    let part = |nth: usize| {
        let sandbox = world.sandbox(&format!("probes-{nth}"));
        sandbox.define(FUNCTIONS);
        let mut breaches = Vec::new();
        for probe in PROBES.iter().skip(nth).step_by(PARALLEL_SANDBOXES) {
            if except.contains(&probe.name) {
                continue;
            }
            let output = sandbox.run(&format!("( {} )", probe.script));
            let verdict = output.lines().last().unwrap_or_default().to_owned();
            println!("{verdict:6} {name:10} {:10} {}", probe.group, probe.name);
            if verdict != "SAFE" {
                breaches.push(format!("{}: {}: {output:?}", probe.group, probe.name));
            }
        }
        breaches
    };
    let part = &part;
    let breaches = std::thread::scope(|scope| {
        let parts: Vec<_> =
            (0..PARALLEL_SANDBOXES).map(|nth| scope.spawn(move || part(nth))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(breaches.is_empty(), "{name}: {} breaches: {breaches:#?}", breaches.len());
    assert!(PROBES.len() >= 200, "{} probes", PROBES.len());
}

/// What root may do to its own files and users; the tests in `root` check that the machine is not affected.
const OWN: [&str; 20] = [
    "the machine's password hashes",
    "the machine's rules for sudo",
    "write a program of the machine",
    "replace a program of the machine",
    "chroot",
    "a set-user-id file in the workspace",
    "a set-group-id file in the workspace",
    "fchmodat with set-id bits",
    "open with set-id bits",
    "openat with set-id bits",
    "creat with set-id bits",
    "mknod with set-id bits",
    "any capability",
    "new privileges",
    "become another user",
    "su and sudo",
    "other groups",
    "give a file away",
    "a set-user-id program",
    "keep capabilities over a change of user",
];

/// Unless the engine maps users, user 0 of a container is user 0 of the machine, with capabilities over its own files only.
const USER_OF_THE_MACHINE: &str = "a user of the machine";

#[test]
fn no_probe_breaches_a_sandbox() {
    probe_all("namespace", &[], &OWN);
}

#[test]
fn no_probe_breaches_a_sandbox_without_capabilities() {
    probe_all("none", &["--set", "sandbox.capabilities=none"], &[]);
}

#[test]
fn no_probe_breaches_runc() {
    if has("runc") {
        probe_all("runc", &["--set", "sandbox.runtime=runc"], &[]);
    } else {
        eprintln!("skipped: there is no runc");
    }
}

#[test]
fn no_probe_breaches_a_container() {
    for (name, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        let except = [&OWN[..], &[USER_OF_THE_MACHINE]].concat();
        probe_all(name, &["--provider", "docker", "--set", &host], &except);
    }
}

#[test]
fn no_probe_breaches_a_container_without_capabilities() {
    for (name, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        let arguments =
            ["--provider", "docker", "--set", &host, "--set", "sandbox.capabilities=none"];
        probe_all(name, &arguments, &[USER_OF_THE_MACHINE]);
    }
}

/// A probe that always passes proves nothing: without a sandbox, these must report a breach.
#[test]
fn probes_report_a_breach_without_a_sandbox() {
    let Some(world) = World::new(&["--provider", "local"]) else { return };
    let shell = world.sandbox("control");
    shell.define(FUNCTIONS);
    // Only probes that change nothing on the machine of the test.
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
    assert!(blind.is_empty(), "these report no breach without a sandbox: {blind:?}");
}
