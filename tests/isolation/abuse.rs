//! Taking more than is given: only the offender suffers.

use std::time::{Duration, Instant};

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
        "bash -c 'b() { b | b & }; b' 2>/dev/null; \
         perl -e 'my $n = 0; while (defined(my $p = fork)) { if (!$p) { select(undef, undef, undef, 3); exit } last if ++$n > 500 } print \"made $n\\n\"'",
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
        "yes",
        "timeout 3 yes | head -c 300000000 >/dev/null; timeout 3 yes; echo over",
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
