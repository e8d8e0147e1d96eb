//! Resource abuse: a sandbox at its limits harms nothing but itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Sandbox, World};
use harness::wait_for;

/// How long a command in an idle sandbox may take while its neighbour is at its limits.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(3);

/// Runs a script in one sandbox while its neighbour runs short commands, and checks that both still work afterwards.
fn check(name: &str, script: &str, expect: impl Fn(&Sandbox, &str)) {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let (offender, neighbour) = (world.sandbox("offender"), world.sandbox("neighbour"));
    let output = std::thread::scope(|scope| {
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
        let output = offender.run(script);
        drop(done);
        let longest = watch.join().unwrap();
        println!("{name}: the neighbour's slowest answer took {longest:?}");
        assert!(longest < MAX_COMMAND_TIME, "{name}: the neighbour waited {longest:?}");
        output
    });
    expect(&offender, &output);
    assert_eq!(offender.run("echo alive"), "alive\n", "{name}: its shell does not answer");
    world.server.client().get("/healthz").expect_success();
}

#[test]
fn a_memory_bomb_is_killed_alone() {
    check(
        "memory bomb",
        "perl -e '$x = \"x\" x (1 << 20); push @a, $x . $_ for 1 .. 4096; print \"whole\"'; echo ended $?",
        |offender, output| {
            assert!(output.contains("ended 137"), "{output:?}");
            let lease = offender.lease();
            assert!(lease["instance"]["state"] == "running", "{lease}");
        },
    );
}

/// The limit that a command reached is in its receipt, at once and later, and on the screen.
#[test]
fn a_command_reports_the_limit_it_reached() {
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
        wait_for("the screen to show the reason", || {
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
fn many_processes_that_fill_the_memory_do_not_kill_the_host() {
    check(
        "many processes",
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do perl -e '$x = \"x\" x (30 << 20); sleep 2' & done; wait; echo over",
        |_, output| assert!(output.contains("over"), "{output:?}"),
    );
}

#[test]
fn a_fork_bomb_is_bounded() {
    check(
        "fork bomb",
        // The bomb comes last: it may leave no process for anything else.
        "perl -e 'my $n = 0; while (defined(my $p = fork)) { if (!$p) { select(undef, undef, undef, 3); exit } last if ++$n > 500 } print \"created $n\\n\"'; \
         bash -c 'b() { b | b & }; b' 2>/dev/null",
        |_, output| {
            let created: u32 = output.trim().rsplit(' ').next().unwrap().parse().unwrap();
            assert!(created < 64, "{created} processes were created");
        },
    );
}

#[test]
fn a_full_disk_is_bounded() {
    check(
        "disk filler",
        "head -c 1G /dev/zero > /tmp/fill 2>/dev/null; stat -c %s /tmp/fill; rm -f /tmp/fill",
        |_, output| {
            let bytes: u64 = output.trim().parse().unwrap();
            assert!(bytes < 64 << 20, "{bytes} bytes were written");
        },
    );
}

/// How many bytes of the machine a workspace may use: the limit of the sandbox plus ten percent.
const MAX_WORKSPACE_BYTES: u64 = (64 << 20) / 10 * 11;

/// Checks that a script, which prints the number of bytes that it wrote, wrote no more than the limit, and that
/// the sandbox keeps running.
fn check_workspace(name: &str, script: &str) {
    check(name, &format!("{script}; rm -rf /workspace/*"), |_, output| {
        let bytes: u64 = output.trim().parse().unwrap_or_else(|_| panic!("{name}: {output:?}"));
        println!("{name}: {bytes} bytes");
        assert!((1 << 20..=MAX_WORKSPACE_BYTES).contains(&bytes), "{name}: {bytes} bytes");
    });
}

/// The limit holds in the workspace too, which is not on the disk of the sandbox.
#[test]
fn files_in_the_workspace_are_bounded() {
    check_workspace(
        "files in the workspace",
        "for i in $(seq 20); do head -c 50M /dev/zero > /workspace/fill$i || break; done 2>/dev/null
        du -s --block-size=1 /workspace | cut -f1",
    );
}

#[test]
fn space_reserved_in_the_workspace_is_bounded() {
    check_workspace(
        "fallocate in the workspace",
        "for i in $(seq 100); do fallocate -l 5M /workspace/fill$i || break; done 2>/dev/null
        du -s --block-size=1 /workspace | cut -f1",
    );
}

#[test]
fn unlinked_files_in_the_workspace_are_bounded() {
    check_workspace(
        "unlinked files in the workspace",
        r#"perl -e '$SIG{XFSZ} = "IGNORE"; for my $i (1 .. 8) {
            open($f[$i], ">", "/workspace/u$i") or last; unlink("/workspace/u$i");
            while (my $n = syswrite($f[$i], "x" x 65536)) { $s += $n } } print $s'"#,
    );
}

/// The write fails, and the receipt has the reason. No process is killed.
#[test]
fn a_full_workspace_is_an_error_of_the_write() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("filler");
    let receipt = sandbox.receipt(
        "sleep 600 & head -c 100M /dev/zero > /workspace/a; kill -0 $! && echo alive; false",
    );
    assert_eq!(receipt["limit_reached"], "disk_full", "{receipt}");
    assert_eq!(receipt["stdout"], "alive\n", "{receipt}");
    // The server and other projects can still write.
    let client = world.server.client();
    let project = client.post("/api/projects", json!({"prefix": "other"})).expect(201);
    let other = project["project_id"].as_str().unwrap();
    client.put("/api/threads/other", json!({"project_id": other})).expect_success();
    let written = client.post(
        "/api/threads/other/exec",
        json!({"command": "head -c 30M /dev/zero > /workspace/a && echo fits"}),
    );
    assert_eq!(written.expect(200)["stdout"], "fits\n");
    assert_eq!(
        sandbox.run("rm /workspace/a; echo again > /workspace/b; cat /workspace/b"),
        "again\n"
    );
}

/// An empty file uses no space, but each file uses one of the disk's inodes.
#[test]
fn the_number_of_files_is_bounded() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let sandbox = world.sandbox("inodes");
    for directory in ["/workspace", "/tmp"] {
        let many = format!(
            "mkdir {directory}/e; perl -e 'for (1 .. 2000000) {{ open(my $f, \">\", \"{directory}/e/$_\") or do {{ print $!; exit 3 }} }}'; echo $?; rm -rf {directory}/e"
        );
        assert_eq!(sandbox.run(&many).trim(), "No space left on device3", "{directory}");
    }
}

#[test]
fn ram_disks_are_small() {
    check(
        "RAM disks",
        "for d in /dev /dev/shm /run /sys /proc /dev/mqueue; do head -c 200M /dev/zero > $d/fill 2>/dev/null; stat -c %s $d/fill 2>/dev/null; rm -f $d/fill; done",
        |_, output| {
            let largest =
                output.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
            assert!(largest <= 32 << 20, "{output}");
        },
    );
}

#[test]
fn endless_output_does_not_disturb_others() {
    check(
        "seq",
        "timeout 3 seq inf | head -c 300000000 >/dev/null; timeout 3 seq inf; echo over",
        |_, _| {},
    );
}

#[test]
fn a_sandbox_cannot_kill_its_host() {
    check("kill -9 -1", "( kill -9 -1 )", |_, _| {});
}

#[test]
fn named_shared_memory_is_bounded() {
    check(
        "shared memory",
        "for i in $(seq 100); do ipcmk -M 16777216 >/dev/null 2>&1; done; ipcs -m | grep -c ^0x",
        |_, output| {
            let created: u32 = output.trim().parse().unwrap();
            assert!(created <= 4, "{created} segments of 16 MiB");
        },
    );
}
