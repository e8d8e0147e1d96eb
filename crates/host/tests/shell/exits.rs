//! Terminals whose shell exits: some end with it, the others get a new shell and show a notice.

use std::time::Duration;

use wire::{Outcome, ReplyCode, Request, Shell};

use crate::bench::Bench;
use crate::support::Host;

fn ends_with_program(host: &Host, shell: Shell) -> Bench {
    let mut bench = Bench::new(host, shell);
    let terminal = bench.terminal.clone();
    let code = bench.session.code(|seq| Request::EndWithProgram { seq, terminal }).0;
    assert_eq!(code, ReplyCode::Ok);
    bench
}

#[test]
fn a_terminal_that_ends_with_its_program_has_the_exit_code_of_its_shell() {
    let host = Host::start();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Sh] {
        let mut bench = ends_with_program(&host, shell);
        bench.run("cd /");
        bench.types("exit 5\r");
        let terminal = bench.terminal.clone();
        let (_, code, signal) = bench.session.exited(&terminal);
        assert_eq!((code, signal), (5, 0), "{shell:?}");
        let spec = bench.spec(b"echo still here");
        assert_eq!(bench.submit(&spec), ReplyCode::NotDrivable, "{shell:?}");
        bench.close();
    }
}

#[test]
fn the_last_command_of_an_ended_terminal_is_reported_and_can_be_read() {
    let host = Host::start();
    for (text, code, signal) in [
        ("echo last; exit 7", 7, 0),
        ("echo last; sleep 60 & exit 7", 7, 0),
        ("echo last; kill -9 $$", -1, 9),
    ] {
        let mut bench = ends_with_program(&host, Shell::Bash);
        let ran = bench.run(text);
        assert_eq!((ran.outcome, ran.stdout), (Outcome::Finished, b"last\n".to_vec()), "{text}");
        let terminal = bench.terminal.clone();
        let (_, exit, by) = bench.session.exited(&terminal);
        assert_eq!((exit, by), (code, signal), "{text}");
        bench.close();
    }
}

#[test]
fn a_shell_that_the_host_replaces_does_not_end_its_terminal() {
    let host = Host::start();
    let mut bench = ends_with_program(&host, Shell::Bash);
    bench.run("kept=1");
    let mut spec = bench.spec(b"sleep 60");
    spec.timeout = Duration::from_millis(200);
    assert_eq!(bench.run_spec(&spec).outcome, Outcome::TimedOut);
    assert_eq!(bench.run("echo $kept").text(), (0, "1\n", ""));
    let (terminal, state) = (bench.terminal.clone(), Vec::new());
    let code = bench.session.code(|seq| Request::Replace { seq, terminal, state }).0;
    assert_eq!(code, ReplyCode::Ok);
    assert_eq!(bench.run("echo ${kept-fresh}").text(), (0, "fresh\n", ""));
    bench.close();
}

#[test]
fn a_new_shell_is_announced_on_the_screen() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("true");
    bench.types("exit 5\r");
    bench.session.see("[the shell exited with code 5; a new shell continues from its state]");
    bench.run("kill -9 $$");
    bench.session.see("[the shell was ended by signal 9; a new shell continues from its state]");
    assert_eq!(bench.run("echo alive").text(), (0, "alive\n", ""));
    bench.close();
}

#[test]
fn a_syntax_error_does_not_end_the_shell() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    for text in
        ["((", "((1+", "echo $(;)", "[[ ( a", "a=(", "case a in (", "f() {", "echo ${x", "("]
    {
        let ran = bench.run(text);
        assert_eq!(ran.outcome, Outcome::Finished, "{text}");
        assert_ne!(ran.exit_code, Some(0), "{text}");
        assert!(!ran.shell_restarted, "{text}");
        assert_eq!(bench.run("echo next").text(), (0, "next\n", ""), "{text}");
    }
    bench.close();
}

#[test]
fn a_syntax_error_in_a_posix_shell_has_the_status_of_that_shell() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Sh);
    for text in ["if", "echo )", "echo $(;)"] {
        let ran = bench.run(text);
        assert_eq!(
            (ran.outcome, ran.exit_code, ran.signal),
            (Outcome::Finished, Some(2), None),
            "{text}"
        );
        assert_eq!(bench.run("echo next").text(), (0, "next\n", ""), "{text}");
    }
    bench.close();
}
