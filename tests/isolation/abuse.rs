//! Taking more than is given: only the offender suffers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

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

/// Bytes that a workspace may take on the machine: the limit of the sandbox, and a tenth.
const WORKSPACE: u64 = (64 << 20) / 10 * 11;

/// Checks that a script, which prints how many bytes it got, got no more than the limit, and that the
/// sandbox goes on.
fn check_workspace(name: &str, script: &str) {
    check(name, &format!("{script}; rm -rf /workspace/*"), |_, said| {
        let bytes: u64 = said.trim().parse().unwrap_or_else(|_| panic!("{name}: {said:?}"));
        println!("{name}: {bytes} bytes");
        assert!((1 << 20..=WORKSPACE).contains(&bytes), "{name}: {bytes} bytes");
    });
}

/// A workspace is not on the sandbox's own disk, but it is no way around the limit.
#[test]
fn files_in_the_workspace_meet_the_limit() {
    check_workspace(
        "files in the workspace",
        "for i in $(seq 20); do head -c 50M /dev/zero > /workspace/fill$i || break; done 2>/dev/null
        du -s --block-size=1 /workspace | cut -f1",
    );
}

#[test]
fn space_that_is_reserved_in_the_workspace_meets_the_limit() {
    check_workspace(
        "fallocate in the workspace",
        "for i in $(seq 100); do fallocate -l 5M /workspace/fill$i || break; done 2>/dev/null
        du -s --block-size=1 /workspace | cut -f1",
    );
}

#[test]
fn files_without_a_name_in_the_workspace_meet_the_limit() {
    check_workspace(
        "unlinked files in the workspace",
        r#"perl -e '$SIG{XFSZ} = "IGNORE"; for my $i (1 .. 8) {
            open($f[$i], ">", "/workspace/u$i") or last; unlink("/workspace/u$i");
            while (my $n = syswrite($f[$i], "x" x 65536)) { $s += $n } } print $s'"#,
    );
}

/// The write fails, and the receipt says why. Nothing is killed.
#[test]
fn a_full_workspace_is_an_error_of_the_write() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("filler");
    let receipt = sandbox.receipt(
        "sleep 600 & head -c 100M /dev/zero > /workspace/a; kill -0 $! && echo alive; false",
    );
    assert_eq!(receipt["limit_reached"], "disk_full", "{receipt}");
    assert_eq!(receipt["stdout"], "alive\n", "{receipt}");
    // Nor has it reached the files of the server, which are beside.
    let client = world.server.client();
    let project = client.post("/api/projects", json!({"prefix": "other"})).expect(201);
    let other = project["project_id"].as_str().unwrap();
    client.put("/api/threads/other", json!({"project_id": other})).expect_success();
    let said = client.post(
        "/api/threads/other/exec",
        json!({"command": "head -c 30M /dev/zero > /workspace/a && echo fits"}),
    );
    assert_eq!(said.expect(200)["stdout"], "fits\n");
    assert_eq!(
        sandbox.run("rm /workspace/a; echo again > /workspace/b; cat /workspace/b"),
        "again\n"
    );
}

/// An empty file takes no room, but a disk has a place for only so many.
#[test]
fn empty_files_without_end_meet_the_limit() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("places");
    for place in ["/workspace", "/tmp"] {
        let many = format!(
            "mkdir {place}/e; perl -e 'for (1 .. 2000000) {{ open(my $f, \">\", \"{place}/e/$_\") or do {{ print $!; exit 3 }} }}'; echo $?; rm -rf {place}/e"
        );
        assert_eq!(sandbox.run(&many).trim(), "No space left on device3", "{place}");
    }
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
