//! The short forms of `make chaos` and `make power-cut`, with fixed seeds so that every run tests the same plan.

use std::{path::Path, process::Command};

/// Runs the harness on the server that was built beside it.
fn harness(arguments: &[&str]) {
    let chaos = Path::new(env!("CARGO_BIN_EXE_chaos"));
    let server = chaos.with_file_name("stead");
    assert!(
        server.exists(),
        "no server; run the tests of the whole workspace: cargo nextest run --workspace"
    );
    let mut command = Command::new(chaos);
    let status =
        command.args(arguments).arg("--bin").arg(&server).status().expect("the harness runs");
    assert!(status.success(), "see above what was violated, and how to replay it");
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_left_under_faults() {
    let faults = "kill,term,host-kill,shell-kill,vanish,stop,descriptors,clock";
    // A full disk and a failing fsync need root.
    let is_root = rustix::process::geteuid().is_root();
    let faults = if is_root { format!("{faults},disk,fsync") } else { faults.to_owned() };
    harness(&["--seconds", "20", "--faults", &faults, "--seed", "1"]);
}

#[test]
fn what_was_acknowledged_is_there_after_a_power_cut() {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists()) {
        eprintln!("skipped: power cuts need root, /dev/fuse and loop devices");
        return;
    }
    harness(&["power-cut", "--clients", "4", "--seconds", "5", "--cuts", "20", "--seed", "1"]);
}
