//! The run directories of shells: where they are, and that they are removed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use wire::{Outcome, Shell, StdinMode};

use crate::bench::Bench;
use crate::support::{EXE, Host, wait_until};

/// Returns the run directory of a terminal if it is in memory; `None` if this machine has no private memory.
fn run_dir(host: &Host, bench: &Bench) -> Option<PathBuf> {
    let run_dir = fs::read_link(host.terminal(&bench.terminal).join("run")).ok();
    if run_dir.is_none() {
        eprintln!("skipped: this machine has no private directory in memory");
    }
    run_dir
}

#[test]
fn a_run_directory_is_in_memory_and_is_removed_with_its_terminal() {
    let host = Host::start();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
        let mut bench = Bench::new(&host, shell);
        bench.run("n=1");
        let Some(directory) = run_dir(&host, &bench) else { return };
        assert!(directory.is_dir(), "{shell:?}");
        let link = host.terminal(&bench.terminal).join("run");
        bench.close();
        assert!(!directory.exists() && fs::symlink_metadata(link).is_err(), "{shell:?}");
    }
}

#[test]
fn the_run_directory_of_a_killed_host_is_removed_when_another_host_starts() {
    let mut host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("n=1");
    let Some(directory) = run_dir(&host, &bench) else { return };
    host.process.kill().unwrap();
    host.process.wait().unwrap();
    let living = Host::start();
    wait_until("the run directory is removed", || {
        drop(Host::start());
        (!directory.exists()).then_some(())
    });
    drop(living);
}

#[test]
fn a_deleted_run_directory_is_created_again() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
        let host = Host::start();
        let mut bench = Bench::new(&host, shell);
        bench.run("n=5; cd /usr");
        let Some(first) = run_dir(&host, &bench) else { return };
        // A redraw of the prompt may create files in it at the same time.
        wait_until("the run directory is removed", || {
            fs::remove_dir_all(&first).is_ok().then_some(())
        });
        assert_eq!(bench.run("echo $n $PWD").text(), (0, "5 /usr\n", ""), "{shell:?}");
        let second = run_dir(&host, &bench).unwrap();
        assert!(second != first && second.is_dir(), "{shell:?}");
        // A command that deletes the directory runs once, and its result is lost.
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
fn commands_run_even_if_the_memory_is_full() {
    let script = "mount -t tmpfs -o size=5m,mode=1777 none /dev/shm && exec \"$0\" \"$@\"";
    let within = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, program]);
        command
    };
    if !within("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted");
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
    // Another terminal finds no room in memory and uses the disk.
    bench.run("head -c 10000000 /dev/zero >/dev/shm/fill");
    let mut other = Bench::new(&host, Shell::Bash);
    assert_eq!(other.run("echo on disk").text(), (0, "on disk\n", ""));
    assert!(host.terminal(&other.terminal).join("run").symlink_metadata().unwrap().is_dir());
    other.close();
    bench.close();
}
