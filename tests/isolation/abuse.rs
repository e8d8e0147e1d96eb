//! Taking more than is given: only the offender suffers.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::wait_for;
use crate::world::{Sandbox, World};

/// The longest a quiet neighbour may take to answer while another is at its limits.
const ANSWER: Duration = Duration::from_secs(3);

/// Does something in one sandbox, and looks how it and its neighbour are afterwards.
fn check(name: &str, script: &str, expect: impl Fn(&Sandbox, &str)) {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let (offender, neighbour) = (world.sandbox("offender"), world.sandbox("neighbour"));
    let said = std::thread::scope(|scope| {
        let (done, ended) = std::sync::mpsc::channel::<()>();
        let watch = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let began = Instant::now();
                assert_eq!(neighbour.run("echo here"), "here\n");
                longest = longest.max(began.elapsed());
            }
            longest
        });
        let said = offender.run(script);
        drop(done);
        let longest = watch.join().unwrap();
        println!("{name}: the neighbour's slowest answer took {longest:?}");
        assert!(longest < ANSWER, "{name}: the neighbour waited {longest:?}");
        said
    });
    expect(&offender, &said);
    assert_eq!(offender.run("echo alive"), "alive\n", "{name}: its shell does not answer");
    world.server.client().get("/healthz").expect_success();
}

#[test]
fn a_memory_bomb_kills_itself() {
    check(
        "memory bomb",
        "perl -e '$x = \"x\" x (1 << 20); push @a, $x . $_ for 1 .. 4096; print \"whole\"'; echo ended $?",
        |offender, said| {
            assert!(said.contains("ended 137"), "{said:?}");
            let lease = offender.lease();
            assert!(lease["instance"]["state"] == "running", "{lease}");
        },
    );
}

/// The limit that a command met is in its receipt, then and later, and on the screen.
#[test]
fn a_limit_that_was_met_is_said() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("limited");
    let fine = sandbox.receipt("true");
    assert!(fine["limit_reached"].is_null(), "{fine}");
    for (script, word, shown) in [
        (
            "perl -e '$x = \"x\" x (1 << 20); push @a, $x . $_ for 1 .. 4096'",
            "out_of_memory",
            "out of memory",
        ),
        (
            "perl -e 'for (1 .. 100) { my $p = fork; if (!defined $p) { kill 9, @all; exit 3 } \
             $p or sleep 600; push @all, $p }'",
            "processes",
            "process limit",
        ),
        (
            "head -c 1G /dev/zero > /tmp/fill; e=$?; rm /tmp/fill; (exit $e)",
            "disk_full",
            "disk full",
        ),
    ] {
        let receipt = sandbox.receipt(script);
        assert_eq!(receipt["limit_reached"], word, "{receipt}");
        let id = receipt["command_id"].as_str().unwrap();
        let later = world.server.client().get(&format!("/api/commands/{id}")).expect(200);
        assert_eq!(later["limit_reached"], word, "{later}");
        wait_for("the screen to say why", || {
            let screen = sandbox.screen();
            if screen.contains(shown) { Ok(()) } else { Err(screen) }
        });
        let after = sandbox.receipt("echo again");
        assert_eq!((&after["stdout"], &after["limit_reached"]), (&"again\n".into(), &Value::Null));
    }
    let lease = sandbox.lease();
    let metrics = &lease["instance"]["metrics"];
    assert_eq!(metrics["limits"]["memory_bytes"], 96 << 20, "{lease}");
    assert_eq!(metrics["limits"]["processes"], 64, "{lease}");
    assert!(metrics["exceeded"]["out_of_memory"].as_u64() > Some(0), "{lease}");
    assert!(metrics["exceeded"]["processes"].as_u64() > Some(0), "{lease}");
    assert!(metrics["memory_bytes"].as_u64() < Some(96 << 20), "{lease}");
}

#[test]
fn many_small_eaters_do_not_kill_the_host() {
    check(
        "many eaters",
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do perl -e '$x = \"x\" x (30 << 20); sleep 2' & done; wait; echo over",
        |_, said| assert!(said.contains("over"), "{said:?}"),
    );
}

#[test]
fn a_fork_bomb_meets_its_limit() {
    check(
        "fork bomb",
        // The bomb comes last: it may leave no process for anything else.
        "perl -e 'my $n = 0; while (defined(my $p = fork)) { if (!$p) { select(undef, undef, undef, 3); exit } last if ++$n > 500 } print \"made $n\\n\"'; \
         bash -c 'b() { b | b & }; b' 2>/dev/null",
        |_, said| {
            let made: u32 = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
            assert!(made < 64, "{made} processes were made");
        },
    );
}

#[test]
fn a_disk_filler_meets_its_limit() {
    check(
        "disk filler",
        "head -c 1G /dev/zero > /tmp/fill 2>/dev/null; stat -c %s /tmp/fill; rm -f /tmp/fill",
        |_, said| {
            let bytes: u64 = said.trim().parse().unwrap();
            assert!(bytes < 64 << 20, "{bytes} bytes were written");
        },
    );
}

/// A workspace is not on the sandbox's own disk, but it is no way around the limit.
#[test]
fn a_disk_filler_in_the_workspace_is_stopped() {
    check(
        "one large file in the workspace",
        "head -c 4G /dev/zero > /workspace/fill 2>/dev/null; stat -c %s /workspace/fill",
        |_, said| {
            let bytes: u64 = said.trim().parse().unwrap();
            assert!(bytes <= 64 << 20, "{bytes} bytes were written");
        },
    );
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("filler");
    let many = "for i in $(seq 200); do head -c 50M /dev/zero > /workspace/fill$i; done";
    let receipt = sandbox.receipt(many);
    assert_eq!(receipt["limit_reached"], "disk_full", "{receipt}");
    // What is started while it is stopped is ended, too.
    let look = "du -sm /workspace | cut -f1; rm -rf /workspace/fill*";
    let written = wait_for("what was written", || sandbox.attempt(look));
    let written: u64 = written.trim().parse().unwrap();
    println!("{written} MB were written to the workspace at a limit of 64 MB");
    assert!(written < 9000, "it was not stopped");
}

/// An empty file takes no room, but a disk has a place for only so many.
#[test]
fn empty_files_without_end_are_stopped() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("places");
    let many = "mkdir /workspace/e; perl -e 'for (1 .. 2000000) { open(my $f, \">\", \"/workspace/e/$_\") or last }'";
    let receipt = sandbox.receipt(many);
    assert_eq!(receipt["limit_reached"], "disk_full", "{receipt}");
    // What is started while it is stopped is ended, too.
    wait_for("the files to be gone", || sandbox.attempt("rm -rf /workspace/e"));
    // On its own disk there are as many places as that was made with.
    let own = "mkdir -p /tmp/e; perl -e 'for (1 .. 2000000) { open(my $f, \">\", \"/tmp/e/$_\") or exit 3 }'; echo $?; rm -rf /tmp/e";
    assert_eq!(sandbox.run(own).trim(), "3");
}

#[test]
fn ram_disks_are_small() {
    check(
        "RAM disks",
        "for d in /dev /dev/shm /run /sys /proc /dev/mqueue; do head -c 200M /dev/zero > $d/fill 2>/dev/null; stat -c %s $d/fill 2>/dev/null; rm -f $d/fill; done",
        |_, said| {
            let most = said.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
            assert!(most <= 32 << 20, "{said}");
        },
    );
}

#[test]
fn a_flood_of_output_is_bounded() {
    check(
        "seq",
        "timeout 3 seq inf | head -c 300000000 >/dev/null; timeout 3 seq inf; echo over",
        |_, _| {},
    );
}

#[test]
fn everything_inside_can_be_killed_but_the_host() {
    check("kill -9 -1", "( kill -9 -1 )", |_, _| {});
}

#[test]
fn named_shared_memory_is_bounded() {
    check(
        "shared memory",
        "for i in $(seq 100); do ipcmk -M 16777216 >/dev/null 2>&1; done; ipcs -m | grep -c ^0x",
        |_, said| {
            let made: u32 = said.trim().parse().unwrap();
            assert!(made <= 4, "{made} segments of 16 MiB");
        },
    );
}
