//! Commands after which the state is not dumped: the result must be the same as with a dump.

use std::path::PathBuf;

use wire::{Event, Outcome, Request, Sections, Shell};

use crate::bench::{Bench, Ran};
use crate::support::{EXE, Host, contains, wait_until};

/// Appended to a text it makes the text doubtful, so that the state is dumped, and does nothing else.
const DOUBT: &str = "\n#";

fn state(bench: &mut Bench) -> Sections {
    let terminal = bench.terminal.clone();
    match bench.session.ask(|seq| Request::State { seq, terminal }) {
        Event::StateReply { sections, .. } => sections,
        other => panic!("no state but {other:?}"),
    }
}

fn section(bench: &mut Bench, wanted: &str) -> Vec<u8> {
    state(bench).into_iter().find(|(name, _)| name == wanted).unwrap().1
}

/// Everything but the exit code of the last command.
fn lasting(sections: Sections) -> Sections {
    sections.into_iter().filter(|(name, _)| name != "status").collect()
}

/// Whether the last command was to tell the state.
fn dumped(host: &Host, bench: &Bench) -> bool {
    let all = host.terminal(&bench.terminal).join("run");
    let runs: Vec<PathBuf> =
        std::fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    let drive = runs.iter().find_map(|run| std::fs::read(run.join("drive")).ok()).unwrap();
    contains(&drive, b"declare -fp")
}

/// The state that is known is the one the shell has.
fn the_known_state_is_the_real_one(bench: &mut Bench, what: &str) {
    let known = lasting(state(bench));
    bench.run(&format!("true{DOUBT}"));
    assert_eq!(lasting(state(bench)), known, "{what}");
}

/// Runs a text until its state was not dumped: the prompt may be redrawn at any time, and the next command
/// dumps what that changed.
fn run_short(host: &Host, bench: &mut Bench, text: &str) -> Ran {
    wait_until(text, || {
        let ran = bench.run(text);
        (!dumped(host, bench)).then_some(ran)
    })
}

/// A shell that has dumped its state.
fn calm(host: &Host) -> Bench {
    let mut bench = Bench::new(host, Shell::Bash);
    bench.run("n=0; export A=1; f() { :; }; alias ll='ls -l'; mkdir dir; echo x >file");
    bench
}

#[test]
fn a_command_that_does_not_tell_does_what_it_does_when_it_tells() {
    let host = Host::start();
    let (mut short, mut whole) = (calm(&host), calm(&host));
    // Each with whether it has to tell.
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
    for (text, tells) in texts {
        let brief = if tells { short.run(text) } else { run_short(&host, &mut short, text) };
        assert_eq!(dumped(&host, &short), tells, "{text}");
        let long = whole.run(&format!("{text}{DOUBT}"));
        assert!(dumped(&host, &whole), "{text}");
        let neutral = |ran: &Ran, bench: &Bench| {
            let (code, out, err) = ran.text();
            let work = bench.work.to_str().unwrap();
            format!("{code} {out} {err} {:?}", ran.outcome).replace(work, "WORK")
        };
        // What `ls` tells of time is not of the shell.
        if !text.contains("ls -l") {
            assert_eq!(neutral(&brief, &short), neutral(&long, &whole), "{text}");
        }
        let status = section(&mut short, "status");
        assert_eq!(status, brief.exit_code.unwrap().to_string().into_bytes(), "{text}");
        the_known_state_is_the_real_one(&mut short, text);
        the_known_state_is_the_real_one(&mut whole, text);
    }
    short.close();
    whole.close();
}

#[test]
fn what_a_name_or_a_hook_came_to_mean_is_heeded() {
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
        let mut bench = calm(&host);
        bench.run(setting);
        bench.run(text);
        assert!(dumped(&host, &bench), "{setting}; {text}");
        bench.close();
    }
}

#[test]
fn builtins_that_were_loaded_are_heeded() {
    let library = ["/usr/lib/bash/basename", "/usr/local/lib/bash/basename"];
    let Some(library) = library.into_iter().find(|path| std::path::Path::new(path).exists()) else {
        eprintln!("skipped: this machine has no builtins for bash to load");
        return;
    };
    let host = Host::start();
    let mut bench = calm(&host);
    run_short(&host, &mut bench, "id");
    assert_eq!(bench.run(&format!("enable -f {library} basename")).text(), (0, "", ""));
    bench.run("basename /a/b");
    assert!(dumped(&host, &bench));
    bench.close();
}

#[test]
fn limits_that_a_program_set_from_outside_are_told() {
    let host = Host::start();
    let mut bench = calm(&host);
    let pid = bench.session.info(&bench.terminal.clone()).pid;
    for limit in ["500:500", "400:500"] {
        let text = format!("prlimit --pid {pid} --nofile={limit}");
        assert_eq!(run_short(&host, &mut bench, &text).text(), (0, "", ""));
        let limits = section(&mut bench, "limits");
        assert!(contains(&limits, format!("Max open files:{limit}\n").as_bytes()), "{limits:?}");
        the_known_state_is_the_real_one(&mut bench, limit);
    }
    bench.close();
}

/// Runs a harmless command until its program is there.
fn sleeping(host: &Host, bench: &mut Bench) -> String {
    run_short(host, bench, ":");
    let spec = bench.spec(b"sleep 1000; echo never");
    bench.submit(&spec);
    let pid = bench.session.info(&bench.terminal.clone()).pid;
    wait_until("the program", || {
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
    let mut bench = calm(&host);
    let before = lasting(state(&mut bench));
    let id = sleeping(&host, &mut bench);
    let command = id.clone();
    bench.session.ok(|seq| Request::ExecSignal { seq, command, signal: 2 });
    let ran = bench.done(&id);
    assert_eq!((ran.exit_code, ran.stdout.as_slice()), (Some(130), &b""[..]));
    the_known_state_is_the_real_one(&mut bench, "interrupted");
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
    the_known_state_is_the_real_one(&mut bench, "killed");
    assert_eq!(lasting(state(&mut bench)), before);
    bench.close();
}

#[test]
fn what_a_key_of_a_person_does_is_not_missed() {
    let host = Host::start();
    let mut bench = calm(&host);
    bench.run(r#"bind -x '"\C-g": n=$((n+1))'"#);
    run_short(&host, &mut bench, ":");
    bench.types("\x07");
    bench.run(":");
    assert!(dumped(&host, &bench));
    assert!(contains(&section(&mut bench, "vars"), b"declare -- n=\"1\"\n"));
    bench.close();
}

#[test]
fn another_executable_ends_a_harmless_command() {
    let host = Host::start();
    let mut bench = calm(&host);
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
    the_known_state_is_the_real_one(&mut bench, "upgraded");
    run_short(&host, &mut bench, ":");
    bench.close();
}
