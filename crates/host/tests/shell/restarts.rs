//! Shells that exit and are replaced.

use std::time::Duration;

use wire::{Event, Outcome, Shell};

use crate::bench::Bench;
use crate::support::{Host, wait_until};

/// Returns the changes of state that the host reported outside of commands.
fn reported_changes(bench: &Bench) -> Vec<String> {
    let sections = |event: &Event| match event {
        Event::StateChanged { changed, removed, .. } => {
            let names = changed
                .iter()
                .map(|(name, bytes)| format!("{name}: {:?}", String::from_utf8_lossy(bytes)));
            Some(names.chain(removed.iter().cloned()).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    };
    bench.session.events.iter().filter_map(sections).collect()
}

fn check_restart(shell: Shell, setting: &str) {
    let host = Host::start();
    let mut bench = Bench::new(&host, shell);
    bench.run(setting);
    bench.run("true");
    for end in ["exit 3", "kill -9 $$", "exec true"] {
        assert!(bench.run(end).shell_restarted, "{end}");
        let spec = bench.spec(b"echo alive");
        bench.submit(&spec);
        let ran = bench.done(&spec.command);
        assert_eq!(ran.text(), (0, "alive\n", ""), "{end}");
        let changed: Vec<_> = ran.changed.iter().filter(|(name, _)| name != "status").collect();
        assert!(changed.is_empty(), "{end}: {changed:?}");
        assert_eq!(reported_changes(&bench), Vec::<String>::new(), "{end}");
    }
    bench.close();
}

#[test]
fn a_restarted_bash_has_the_same_state() {
    check_restart(Shell::Bash, "cd /usr; export A=1; b=(1 2); f() { :; }; trap : USR1");
}

#[test]
fn a_restarted_zsh_has_the_same_state() {
    check_restart(Shell::Zsh, "cd /usr; export A=1; b=(1 2); f() { :; }; trap : USR1");
}

#[test]
fn a_restarted_sh_has_the_same_state() {
    check_restart(Shell::Sh, "cd /usr; export A=1; b=2; trap : USR1; set -- x y");
}

#[test]
fn a_start_up_file_that_ends_the_shell_is_skipped() {
    for (shell, file) in [(Shell::Bash, ".bashrc"), (Shell::Zsh, ".zshrc")] {
        let host = Host::start();
        let home = host.dir.0.join("home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join(file), "broken=yes\nexit 1\n").unwrap();
        let mut bench = Bench::new(&host, shell);
        assert_eq!(bench.run("echo ${broken-works}").text(), (0, "works\n", ""), "{file}");
        bench.session.see("start-up files");
        bench.run("kept=1");
        bench.run("kill -9 $$");
        assert_eq!(bench.run("echo $kept").text(), (0, "1\n", ""), "{file}");
        bench.close();
    }
}

#[test]
fn the_time_of_a_slow_start_does_not_count_for_a_command() {
    let host = Host::start();
    let home = host.dir.0.join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join(".bashrc"), "sleep 1\n").unwrap();
    let mut bench = Bench::new(&host, Shell::Bash);
    let mut spec = bench.spec(b"echo soon; sleep 60");
    spec.timeout = Duration::from_millis(300);
    let ran = bench.run_spec(&spec);
    assert_eq!((ran.outcome, ran.stdout.as_slice()), (Outcome::TimedOut, &b"soon\n"[..]));
    bench.close();
}

#[test]
fn a_shell_that_logs_out_at_an_idle_prompt_loses_no_command() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("kept=1; export TMOUT=1");
    // The next prompt sets an alarm.
    bench.types("\r");
    assert_eq!(bench.run("sleep 1.5; echo $TMOUT").text(), (0, "1\n", ""));
    assert_eq!(bench.run("trap -p").text(), (0, "", ""));
    bench.types("\r");
    bench.session.see("auto-logout");
    let ran = bench.run("echo $kept ${TMOUT-no more}; printenv TMOUT");
    assert_eq!(ran.text(), (1, "1 no more\n", ""));
    bench.close();
}

#[test]
fn the_modes_of_a_line_editor_are_repaired() {
    if !std::path::Path::new("/bin/busybox").exists() {
        println!("skipped: no busybox");
        return;
    }
    let host = Host::start();
    let mut bench = Bench::running(&host, &["/bin/busybox", "sh"], Shell::Sh, Vec::new());
    bench.run("kept=1");
    let pid = bench.session.info(&bench.terminal.clone()).pid;
    let terminal = std::fs::File::open(format!("/proc/{pid}/fd/0")).unwrap();
    // A late probe of a command sets this mode.
    wait_until("the line editor has set its modes", || {
        let mut modes = rustix::termios::tcgetattr(&terminal).unwrap();
        let raw = !modes.local_modes.contains(rustix::termios::LocalModes::ICANON);
        modes.local_modes |= rustix::termios::LocalModes::ICANON;
        raw.then(|| {
            let now = rustix::termios::OptionalActions::Now;
            rustix::termios::tcsetattr(&terminal, now, &modes).unwrap();
        })
    });
    // A terminal's answer makes the driver probe the prompt.
    bench.types("\x1b[1;1R");
    assert_eq!(bench.run("echo $kept").text(), (0, "1\n", ""));
    bench.close();
}
