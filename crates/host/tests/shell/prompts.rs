//! The prompt that a person sees after a command of an agent.

use wire::{Event, Shell};

use crate::bench::Bench;
use crate::support::Host;

#[test]
fn the_prompt_shows_the_directory_that_a_command_changed_to() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("PS1='<\\w> '");
    bench.run("cd /usr");
    bench.session.see("</usr> ");
    bench.run("cd /tmp");
    bench.session.see("</tmp> ");
    bench.types("echo from $PWD\r");
    bench.session.see("from /tmp\r\n");
    bench.run("exit 3");
    bench.run("cd /var");
    bench.session.see("</var> ");
    bench.close();
}

#[test]
fn a_command_right_after_the_start_is_shown_at_the_prompt() {
    let host = Host::start();
    for _ in 0..20 {
        let mut bench = Bench::new(&host, Shell::Bash);
        bench.run("echo one");
        bench.session.see("one\r\n");
        let screen = bench.screen();
        assert!(screen.contains("$ echo one\r\n"), "{screen:?}");
        bench.close();
    }
}

#[test]
fn a_half_typed_line_survives_a_redraw() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("PS1='<\\w> '; cd /");
    bench.session.see("</> ");
    bench.types("echo \"it's $PWD\" ha\x02\x02");
    bench.session.see("ha\x08\x08");
    bench.run("cd /usr");
    bench.session.see("</usr> echo \"it's $PWD\" ha");
    bench.types("X\r");
    bench.session.see("it's /usr Xha\r\n");
    bench.close();
}

#[test]
fn a_prompt_command_runs_once_per_prompt() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("PS1='first\\n\\w> '; PROMPT_COMMAND='n=$((n+1)); echo drawn $n'");
    bench.session.see("drawn 1\r\n");
    bench.run("cd /usr; n=40");
    bench.session.see("drawn 41\r\n");
    bench.session.see("/usr> ");
    let ran = bench.run("echo $n; (exit 6)");
    assert_eq!(ran.text(), (6, "41\n", ""));
    bench.session.see("drawn 42\r\n");
    assert_eq!(bench.run("echo $?").text(), (0, "6\n", ""));
    bench.close();
}

#[test]
fn each_command_that_a_person_types_is_reported_once() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("HISTCONTROL=ignoreboth; PS1='<\\w> '");
    bench.session.see("> ");
    let typed = |bench: &mut Bench| {
        bench.until(|event| match event {
            Event::Typed { text, exit_code, .. } => {
                Some((String::from_utf8(text.clone()).unwrap(), *exit_code))
            }
            _ => None,
        })
    };
    for _ in 0..2 {
        bench.types("(exit 4)\r");
        assert_eq!(typed(&mut bench), ("(exit 4)".to_owned(), Some(4)));
    }
    bench.types("\x1b[A\r");
    assert_eq!(typed(&mut bench), ("(exit 4)".to_owned(), Some(4)));
    bench.types("\r");
    bench.types(" echo hid\r");
    bench.session.see("hid\r\n");
    bench.types("echo last\r");
    assert_eq!(typed(&mut bench), ("echo last".to_owned(), Some(0)));
    bench.run("exit 1");
    bench.types("\r");
    bench.types("echo again\r");
    assert_eq!(typed(&mut bench), ("echo again".to_owned(), Some(0)));
    bench.close();
}
