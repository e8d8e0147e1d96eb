//! Where the files are through which shells are driven, and that nothing is left of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use wire::{Outcome, Shell, StdinMode};

use crate::bench::Bench;
use crate::support::{EXE, Host, wait_until};

/// The place in memory of a terminal's shell; `None` where this machine has none.
fn place(host: &Host, bench: &Bench) -> Option<PathBuf> {
    let place = fs::read_link(host.terminal(&bench.terminal).join("run")).ok();
    if place.is_none() {
        eprintln!("skipped: this machine has no memory for files of ours alone");
    }
    place
}

#[test]
fn the_files_of_a_shell_are_in_memory_and_go_with_its_terminal() {
    let host = Host::start();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
        let mut bench = Bench::new(&host, shell);
        bench.run("n=1");
        let Some(place) = place(&host, &bench) else { return };
        assert!(place.is_dir(), "{shell:?}");
        let link = host.terminal(&bench.terminal).join("run");
        bench.close();
        assert!(!place.exists() && fs::symlink_metadata(link).is_err(), "{shell:?}");
    }
}

#[test]
fn what_a_killed_host_leaves_is_removed_by_the_next_start_of_any() {
    let mut host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("n=1");
    let Some(place) = place(&host, &bench) else { return };
    host.process.kill().unwrap();
    host.process.wait().unwrap();
    let living = Host::start();
    wait_until("it is removed", || {
        drop(Host::start());
        (!place.exists()).then_some(())
    });
    drop(living);
}

#[test]
fn files_that_somebody_removed_are_made_again() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
        let host = Host::start();
        let mut bench = Bench::new(&host, shell);
        bench.run("n=5; cd /usr");
        let Some(first) = place(&host, &bench) else { return };
        // The prompt may be drawn meanwhile, by files that come and go.
        wait_until("all is removed", || fs::remove_dir_all(&first).is_ok().then_some(()));
        assert_eq!(bench.run("echo $n $PWD").text(), (0, "5 /usr\n", ""), "{shell:?}");
        let second = place(&host, &bench).unwrap();
        assert!(second != first && second.is_dir(), "{shell:?}");
        // By the command itself: it has run, once, and what it would have reported is gone.
        let counted = bench.work.join("counted");
        let (count, all) = (counted.to_str().unwrap(), second.to_str().unwrap());
        let ran = bench.run(&format!("echo x >>{count}; n=6; rm -rf {all}"));
        assert_eq!((ran.outcome, ran.exit_code), (Outcome::Lost, None), "{shell:?}");
        assert_eq!(bench.run("echo $n $PWD").text(), (0, "5 /usr\n", ""), "{shell:?}");
        assert_eq!(fs::read_to_string(&counted).unwrap(), "x\n", "{shell:?}");
        bench.close();
    }
}

#[test]
fn a_memory_that_is_full_keeps_no_command_from_running() {
    let script = "mount -t tmpfs -o size=5m,mode=1777 none /dev/shm && exec \"$0\" \"$@\"";
    let within = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, program]);
        command
    };
    if !within("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let host = Host::start_with(&[], |command| {
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = within(EXE);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    });
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("f() { echo $n; }");
    let filled = bench.run("head -c 10000000 /dev/zero >/dev/shm/fill");
    assert_eq!(filled.exit_code, Some(1), "{filled:?}");
    assert_eq!(bench.run("echo still").text(), (0, "still\n", ""));
    assert_eq!(bench.run("n=7; (exit 3)").exit_code, Some(3));
    assert_eq!(bench.run("f $?").text(), (0, "7\n", ""));
    let mut spec = bench.spec(b"wc -c");
    (spec.stdin, spec.stdin_data) = (StdinMode::Given, vec![b'x'; 100_000]);
    assert_eq!(bench.run_spec(&spec).text(), (0, "100000\n", ""));
    assert!(bench.run("exit 4").shell_restarted);
    assert_eq!(bench.run("f").text(), (0, "7\n", ""));
    bench.run("rm /dev/shm/fill");
    assert_eq!(bench.run("f").text(), (0, "7\n", ""));
    // Another finds no room at all, and does without.
    bench.run("head -c 10000000 /dev/zero >/dev/shm/fill");
    let mut other = Bench::new(&host, Shell::Bash);
    assert_eq!(other.run("echo on disk").text(), (0, "on disk\n", ""));
    assert!(host.terminal(&other.terminal).join("run").symlink_metadata().unwrap().is_dir());
    other.close();
    bench.close();
}
