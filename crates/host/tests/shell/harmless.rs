//! Commands after which the state is not dumped: the result must be the same as with a dump.

use std::path::PathBuf;

use wire::{Event, Outcome, Request, Sections, Shell};

use crate::bench::{Bench, CommandResult};
use crate::support::{EXE, Host, contains, wait_until};

/// A suffix that makes any text not harmless, so that the state is dumped, and has no other effect.
const FORCE_DUMP: &str = "\n#";

fn state(bench: &mut Bench) -> Sections {
    let terminal = bench.terminal.clone();
    match bench.session.ask(|seq| Request::State { seq, terminal }) {
        Event::StateReply { sections, .. } => sections,
        other => panic!("expected a state, got {other:?}"),
    }
}

fn section(bench: &mut Bench, wanted: &str) -> Vec<u8> {
    state(bench).into_iter().find(|(name, _)| name == wanted).unwrap().1
}

/// Returns the state without the exit code of the last command.
fn lasting(sections: Sections) -> Sections {
    sections.into_iter().filter(|(name, _)| name != "status").collect()
}

/// Returns whether the drive file of the last command dumps the state.
fn dumped(host: &Host, bench: &Bench) -> bool {
    let all = host.terminal(&bench.terminal).join("run");
    let runs: Vec<PathBuf> =
        std::fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    let drive = runs.iter().find_map(|run| std::fs::read(run.join("drive")).ok()).unwrap();
    contains(&drive, b"declare -fp")
}

/// Checks that the known state is the state of the shell.
fn check_known_state(bench: &mut Bench, what: &str) {
    let known = lasting(state(bench));
    bench.run(&format!("true{FORCE_DUMP}"));
    assert_eq!(lasting(state(bench)), known, "{what}");
}

/// Runs a text until its state was not dumped: the prompt may be redrawn at any time, and the next command
/// dumps what that changed.
fn run_short(host: &Host, bench: &mut Bench, text: &str) -> CommandResult {
    wait_until(text, || {
        let ran = bench.run(text);
        (!dumped(host, bench)).then_some(ran)
    })
}

/// Opens a terminal whose shell has dumped its state.
fn dumped_shell(host: &Host) -> Bench {
    let mut bench = Bench::new(host, Shell::Bash);
    bench.run("n=0; export A=1; f() { :; }; alias ll='ls -l'; mkdir dir; echo x >file");
    bench
}

#[test]
fn a_command_without_a_dump_has_the_same_result_as_with_one() {
    let host = Host::start();
    let (mut short, mut whole) = (dumped_shell(&host), dumped_shell(&host));
    // Each text with whether its state must be dumped.
    let texts = [
        (":", false),
        ("false", false),
        ("echo one two; echo three >&2", false),
        ("printf '%s|%d\\n' a 5", false),
        ("echo 'a\nb' && /bin/false || echo \"no\"", false),
        ("test -d dir && [ -f file ] && echo both", false),
        ("cat <file | tr x y 2>&1", false),
        ("nosuchprogram --flag", false),
        ("./nosuch; dir", false),
        ("echo hi >/nosuch/file", false),
        ("sh -c 'exit 7'", false),
        ("sh -c 'kill -9 $$'; sh -c 'kill -TERM $$'", false),
        ("true |false\n\n  true ;\n", false),
        ("echo * d?r ~/x", false),
        ("printf %n n", true),
        ("printf -v n 5", true),
        ("n=1", true),
        ("cd dir", true),
        ("pwd", false),
        ("ll file", true),
        ("f", true),
        ("umask 077; set -o pipefail", true),
        ("echo x >new; ls -l new", false),
        ("true | read n", true),
        ("echo $?", true),
        ("shopt -s lastpipe", true),
        ("true | echo a", false),
        ("command_not_found_handle() { n=9; cd /; echo \"no $1\"; }", true),
        ("nosuchprogram", false),
    ];
    for (text, dumps) in texts {
        let brief = if dumps { short.run(text) } else { run_short(&host, &mut short, text) };
        assert_eq!(dumped(&host, &short), dumps, "{text}");
        let long = whole.run(&format!("{text}{FORCE_DUMP}"));
        assert!(dumped(&host, &whole), "{text}");
        let neutral = |ran: &CommandResult, bench: &Bench| {
            let (code, out, err) = ran.text();
            let work = bench.work.to_str().unwrap();
            format!("{code} {out} {err} {:?}", ran.outcome).replace(work, "WORK")
        };
        // The output of `ls -l` contains times that differ.
        if !text.contains("ls -l") {
            assert_eq!(neutral(&brief, &short), neutral(&long, &whole), "{text}");
        }
        let status = section(&mut short, "status");
        assert_eq!(status, brief.exit_code.unwrap().to_string().into_bytes(), "{text}");
        check_known_state(&mut short, text);
        check_known_state(&mut whole, text);
    }
    short.close();
    whole.close();
}

#[test]
fn a_command_that_triggers_a_function_an_alias_or_a_hook_is_not_harmless() {
    let host = Host::start();
    for (setting, text) in [
        ("ls() { n=$((n+1)); }", "ls"),
        ("alias id='n=1; id'", "id"),
        ("shopt -s autocd", "./dir"),
        ("trap 'n=$((n+1))' DEBUG", "true"),
        ("trap 'n=$((n+1))' ERR", "false"),
        ("trap 'n=$((n+1))' CHLD", "/bin/true"),
        ("trap 'n=$((n+1))' RETURN", "true"),
        ("PROMPT_COMMAND='n=$((n+1))'", "true"),
        ("set -k", "echo a=1"),
        ("enable -n echo", "echo a"),
        ("builtin() { n=5; }", "true"),
    ] {
        let mut bench = dumped_shell(&host);
        bench.run(setting);
        bench.run(text);
        assert!(dumped(&host, &bench), "{setting}; {text}");
        bench.close();
    }
}

#[test]
fn a_loaded_builtin_is_not_harmless() {
    let library = ["/usr/lib/bash/basename", "/usr/local/lib/bash/basename"];
    let Some(library) = library.into_iter().find(|path| std::path::Path::new(path).exists()) else {
        eprintln!("skipped: no loadable builtins of bash are installed");
        return;
    };
    let host = Host::start();
    let mut bench = dumped_shell(&host);
    run_short(&host, &mut bench, "id");
    assert_eq!(bench.run(&format!("enable -f {library} basename")).text(), (0, "", ""));
    bench.run("basename /a/b");
    assert!(dumped(&host, &bench));
    bench.close();
}

#[test]
fn limits_that_another_process_set_are_reported() {
    let host = Host::start();
    let mut bench = dumped_shell(&host);
    let pid = bench.session.info(&bench.terminal.clone()).pid;
    for limit in ["500:500", "400:500"] {
        let text = format!("prlimit --pid {pid} --nofile={limit}");
        assert_eq!(run_short(&host, &mut bench, &text).text(), (0, "", ""));
        let limits = section(&mut bench, "limits");
        assert!(contains(&limits, format!("Max open files:{limit}\n").as_bytes()), "{limits:?}");
        check_known_state(&mut bench, limit);
    }
    bench.close();
}

/// Starts a harmless command and waits until its program runs.
fn sleeping(host: &Host, bench: &mut Bench) -> String {
    run_short(host, bench, ":");
    let spec = bench.spec(b"sleep 1000; echo never");
    bench.submit(&spec);
    let pid = bench.session.info(&bench.terminal.clone()).pid;
    wait_until("the program runs", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let sleeps = |child: &&str| {
            std::fs::read_to_string(format!("/proc/{child}/comm"))
                .is_ok_and(|comm| comm == "sleep\n")
        };
        children.split_ascii_whitespace().find(sleeps).map(|_| ())
    });
    spec.command
}

#[test]
fn a_harmless_command_is_interrupted_cancelled_and_killed_like_any_other() {
    let host = Host::start();
    let mut bench = dumped_shell(&host);
    let before = lasting(state(&mut bench));
    let id = sleeping(&host, &mut bench);
    let command = id.clone();
    bench.session.ok(|seq| Request::ExecSignal { seq, command, signal: 2 });
    let ran = bench.done(&id);
    assert_eq!((ran.exit_code, ran.stdout.as_slice()), (Some(130), &b""[..]));
    check_known_state(&mut bench, "interrupted");
    assert_eq!(lasting(state(&mut bench)), before);

    let id = sleeping(&host, &mut bench);
    let command = id.clone();
    bench.session.ok(|seq| Request::ExecCancel { seq, command });
    let ran = bench.done(&id);
    assert_eq!((ran.outcome, ran.shell_restarted), (Outcome::Cancelled, true));
    assert_eq!(bench.run("echo $n $A").text(), (0, "0 1\n", ""));

    let pid = bench.session.info(&bench.terminal.clone()).pid;
    run_short(&host, &mut bench, ":");
    let ran = bench.run(&format!("/bin/kill -9 {pid}; echo never"));
    assert_eq!((ran.shell_restarted, ran.text()), (true, (137, "", "")));
    check_known_state(&mut bench, "killed");
    assert_eq!(lasting(state(&mut bench)), before);
    bench.close();
}

#[test]
fn a_change_by_a_bound_key_of_a_person_is_found() {
    let host = Host::start();
    let mut bench = dumped_shell(&host);
    bench.run(r#"bind -x '"\C-g": n=$((n+1))'"#);
    run_short(&host, &mut bench, ":");
    bench.types("\x07");
    bench.run(":");
    assert!(dumped(&host, &bench));
    assert!(contains(&section(&mut bench, "vars"), b"declare -- n=\"1\"\n"));
    bench.close();
}

#[test]
fn a_harmless_command_ends_under_another_executable() {
    let host = Host::start();
    let mut bench = dumped_shell(&host);
    run_short(&host, &mut bench, ":");
    bench.run("mkfifo go");
    let spec = bench.spec(b"echo before; cat <go; echo end");
    bench.submit(&spec);
    bench.session.see("before\r\n");
    bench.session.ok(|seq| Request::Upgrade { seq, path: EXE.into() });
    bench.reconnect(&host);
    std::fs::write(bench.work.join("go"), "data\n").unwrap();
    let ran = bench.done(&spec.command);
    assert_eq!(ran.text(), (0, "before\ndata\nend\n", ""));
    check_known_state(&mut bench, "upgraded");
    run_short(&host, &mut bench, ":");
    bench.close();
}
