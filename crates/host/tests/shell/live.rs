//! One live shell that an agent and a person share.

use std::time::Duration;

use wire::{Event, IfBusy, Outcome, ReplyCode, Request, Shell, StdinMode, Stream};

use crate::bench::Bench;
use crate::support::{Host, TIMEOUT, contains, is_alive, wait_until};

/// Waits until the shell has a child of that name.
fn child(bench: &mut Bench, name: &str) {
    let pid = bench.session.info(&bench.terminal.clone()).pid;
    wait_until("the child runs", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_ascii_whitespace().find(|child| {
            let comm = std::fs::read_to_string(format!("/proc/{child}/comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        })?;
        Some(())
    });
}

#[test]
fn a_command_is_shown_as_if_it_had_been_typed() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.session.see("$ ");
    bench.run("echo one; echo two >&2");
    bench.session.see("$ echo one; echo two >&2\r\n");
    bench.session.see("one\r\n");
    bench.session.see("two\r\n");
    bench.run("printf '\\033[6n\\033[31mred\\033[m\\033[?1049h\\n'");
    bench.session.see("\x1b[31mred\x1b[m\r\n");
    let screen = bench.screen();
    assert!(!screen.contains("\x1b[6n") && !screen.contains("\x1b[?1049h"), "{screen:?}");
    bench.close();
}

#[test]
fn a_half_typed_line_survives_a_command() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.session.see("$ ");
    bench.types("echo ha");
    bench.session.see("echo ha");
    let ran = bench.run("x=5; echo agent");
    assert_eq!(ran.text(), (0, "agent\n", ""));
    bench.types("lf $x\r");
    bench.session.see("half 5\r\n");
    bench.close();
}

#[test]
fn a_command_that_a_person_types_is_reported_and_changes_the_same_shell() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("shared=agent");
    bench.types("cd /tmp; export shared=person; (exit 7)\r");
    let (text, exit_code, changed) = bench.until(|event| match event {
        Event::Typed { text, exit_code, changed, .. } => {
            Some((text.clone(), *exit_code, changed.clone()))
        }
        _ => None,
    });
    assert_eq!(String::from_utf8(text).unwrap(), "cd /tmp; export shared=person; (exit 7)");
    assert_eq!(exit_code, Some(7));
    let section = |wanted: &str| {
        changed.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| bytes.clone())
    };
    assert_eq!(section("cwd").as_deref(), Some(&b"/tmp"[..]));
    assert!(contains(&section("env").unwrap(), b"shared=person\0"));
    assert_eq!(bench.run("echo $? $shared $PWD").text(), (0, "7 person /tmp\n", ""));
    bench.close();
}

#[test]
fn no_key_is_typed_into_a_persons_program() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.session.see("$ ");
    bench.types("cat -v\r");
    bench.session.see("cat -v\r\n");
    child(&mut bench, "cat");
    let busy = |bench: &mut Bench| {
        let mut spec = bench.spec(b"echo refused");
        spec.if_busy = IfBusy::Fail;
        bench.submit(&spec)
    };
    assert_eq!(busy(&mut bench), ReplyCode::Busy);
    let spec = bench.spec(b"echo waited");
    assert_eq!(bench.submit(&spec), ReplyCode::Ok);
    bench.types("typed\r");
    bench.session.see("typed\r\ntyped\r\n");
    bench.types("\x04");
    let ran = bench.done(&spec.command);
    assert_eq!(ran.text(), (0, "waited\n", ""));
    assert!(!bench.screen().contains("5477"), "{:?}", bench.screen());
    bench.close();
}

#[test]
fn a_command_that_reads_the_terminal_is_reported_and_gets_typed_input() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    let spec = bench.spec(b"bash -c 'read -rp Name: name </dev/tty 2>/dev/tty; echo hello $name'");
    bench.submit(&spec);
    let waiting = |wanted: bool| {
        move |event: &Event| match event {
            Event::Waiting { waiting, .. } if *waiting == wanted => Some(()),
            _ => None,
        }
    };
    bench.until(waiting(true));
    bench.types("you\r");
    let ran = bench.done(&spec.command);
    assert_eq!(ran.text(), (0, "hello you\n", ""));
    assert_eq!(bench.run("echo next").text(), (0, "next\n", ""));
    bench.close();
}

#[test]
fn the_echo_stays_off_while_a_command_reads_a_password() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    // In a program that opens the terminal itself, in a script, and in the shell.
    for text in [
        "bash -c 'exec 3<>/dev/tty; read -rs -u 3 x; echo ${#x}'",
        "bash -c 'read -rsp Password: x </dev/tty 2>/dev/tty; echo ${#x}'",
        "read -rsp Password: x </dev/tty 2>/dev/tty; echo ${#x}; unset x",
    ] {
        let spec = bench.spec(text.as_bytes());
        bench.submit(&spec);
        bench.until(|event| match event {
            Event::Waiting { waiting: true, .. } => Some(()),
            _ => None,
        });
        bench.type_secret(&spec.command, "hunter2\n");
        let ran = bench.done(&spec.command);
        assert_eq!(ran.text(), (0, "7\n", ""), "{text}");
        assert_eq!(bench.run("echo next").text(), (0, "next\n", ""));
    }
    assert!(!bench.screen().contains("hunter2"), "{:?}", bench.screen());
    bench.close();
}

#[test]
fn the_variables_and_directory_of_a_command_apply_to_it_alone() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("export A=outer; B=plain; cd /; cd /usr");
    for posix in ["set +o posix", "set -o posix"] {
        bench.run(posix);
        let mut spec = bench.spec(b"echo $A $B $C; printenv A; pwd");
        spec.env =
            vec![(b"A".to_vec(), b"it's \"in\"".to_vec()), (b"C".to_vec(), b"c\nd".to_vec())];
        spec.cwd = b"/tmp".to_vec();
        let ran = bench.run_spec(&spec);
        assert_eq!(ran.text(), (0, "it's \"in\" plain c d\nit's \"in\"\n/tmp\n", ""), "{posix}");
        let ran = bench.run("echo $A $B [${C-none}] $PWD $OLDPWD");
        assert_eq!(ran.text(), (0, "outer plain [none] /usr /\n", ""), "{posix}");
    }
    let mut spec = bench.spec(b"echo x");
    spec.env = vec![(b"no-name".to_vec(), b"".to_vec())];
    assert_eq!(bench.submit(&spec), ReplyCode::BadRequest);
    bench.close();
}

#[test]
fn input_is_given_or_fed_once() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    let mut spec = bench.spec(b"cat; echo end");
    spec.stdin = StdinMode::Given;
    spec.stdin_data = b"given\0bytes\n".to_vec();
    assert_eq!(bench.run_spec(&spec).text(), (0, "given\0bytes\nend\n", ""));
    let mut spec = bench.spec(b"cat; echo end");
    spec.stdin = StdinMode::Open;
    spec.stdin_data = b"first\n".to_vec();
    bench.submit(&spec);
    let mut feed = |write_id: &str, data: &[u8], eof: bool| {
        let (command, write_id, data) = (spec.command.clone(), write_id.to_owned(), data.to_vec());
        bench.session.code(|seq| Request::ExecStdin { seq, command, write_id, data, eof }).0
    };
    assert_eq!(feed("a", b"second\n", false), ReplyCode::Ok);
    assert_eq!(feed("a", b"second\n", false), ReplyCode::AlreadyApplied);
    assert_eq!(feed("b", b"third\n", true), ReplyCode::Ok);
    let ran = bench.done(&spec.command);
    assert_eq!(ran.text(), (0, "first\nsecond\nthird\nend\n", ""));
    let large = vec![b'x'; 400_000];
    let mut spec = bench.spec(b"sleep 0.2; wc -c");
    spec.stdin = StdinMode::Open;
    bench.submit(&spec);
    for (nth, piece) in large.chunks(60_000).enumerate() {
        let (command, data) = (spec.command.clone(), piece.to_vec());
        let eof = nth == 6;
        let write_id = String::new();
        bench.session.ok(|seq| Request::ExecStdin { seq, command, write_id, data, eof });
    }
    assert_eq!(bench.done(&spec.command).text(), (0, "400000\n", ""));
    bench.close();
}

#[test]
fn a_signal_reaches_the_command_and_the_shell_survives() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("kept=1");
    for (text, signal, expected) in [
        ("y=2; sleep 60; echo rest", 2, (130, "")),
        ("sleep 60; echo rest $?", 15, (0, "rest 143\n")),
        ("z=3; while :; do :; done", 2, (130, "")),
    ] {
        let spec = bench.spec(text.as_bytes());
        bench.submit(&spec);
        let begun = |event: &Event| matches!(event, Event::Started { .. }).then_some(());
        bench.until(begun);
        if text.contains("sleep") {
            child(&mut bench, "sleep");
        } else {
            let pid = bench.session.info(&bench.terminal.clone()).pid;
            wait_until("the loop runs", || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                stat.contains(") R ").then_some(())
            });
        }
        let command = spec.command.clone();
        bench.session.ok(|seq| Request::ExecSignal { seq, command, signal });
        let ran = bench.done(&spec.command);
        assert_eq!((ran.exit_code.unwrap(), ran.text().1), expected, "{text}");
        assert!(!ran.shell_restarted, "{text}");
    }
    assert_eq!(bench.run("echo $kept $y $z").text(), (0, "1 2 3\n", ""));
    bench.close();
}

#[test]
fn a_cancelled_command_ends_as_after_a_timeout() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("kept=1; sleep 300 & echo $! > older");
    let first = bench.spec(b"echo partial; kept=2; setsid sleep 301 & sleep 302; echo never");
    let second = bench.spec(b"echo never");
    let third = bench.spec(b"echo $kept");
    bench.submit(&first);
    bench.submit(&second);
    bench.submit(&third);
    for id in [&second.command, &first.command] {
        let command = id.clone();
        bench.session.ok(|seq| Request::ExecCancel { seq, command });
    }
    let ran = bench.done(&second.command);
    assert_eq!((ran.outcome, ran.exit_code), (Outcome::Cancelled, None));
    let ran = bench.done(&first.command);
    assert_eq!((ran.outcome, ran.exit_code, ran.shell_restarted), (Outcome::Cancelled, None, true));
    assert_eq!(bench.done(&third.command).text(), (0, "1\n", ""));
    let older: u32 =
        std::fs::read_to_string(bench.work.join("older")).unwrap().trim().parse().unwrap();
    assert!(is_alive(older), "an older job was ended");
    let ran = bench.run("pgrep -xf 'sleep 30[12]' | wc -l; kill $(cat older)");
    assert_eq!(ran.text(), (0, "0\n", ""));
    bench.close();
}

#[test]
fn an_older_job_survives_every_kind_of_exit_of_the_shell() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    for end in ["exit 3", "kill -9 $$", "kill -TERM $$", "exec true", "set -e; false"] {
        bench.run("sleep 310 & echo $! > older");
        let ran = bench.run(end);
        assert!(ran.shell_restarted, "{end}");
        let ran = bench.run("kill -0 $(cat older) && echo alive; kill $(cat older)");
        assert_eq!(ran.text(), (0, "alive\n", ""), "{end}");
    }
    bench.close();
}

#[test]
fn late_output_belongs_to_its_command() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    let early = bench.spec(b"(read x <go; echo late $x; echo err >&2) & echo now");
    bench.run("mkfifo go");
    let ran = bench.run_spec(&early);
    assert_eq!(ran.text(), (0, "now\n", ""));
    let ran = bench.run("echo word >go; echo other");
    assert_eq!(ran.text(), (0, "other\n", ""));
    let id = early.command.clone();
    if !bench
        .session
        .events
        .iter()
        .any(|event| matches!(event, Event::Sealed { command, .. } if *command == id))
    {
        bench.until(|event| {
            matches!(event, Event::Sealed { command, .. } if *command == id).then_some(())
        });
    }
    assert_eq!(bench.output(&early.command, Stream::Stdout), b"now\nlate word\n");
    assert_eq!(bench.output(&early.command, Stream::Stderr), b"err\n");
    let command = early.command.clone();
    bench.session.ok(|seq| Request::ExecForget { seq, command });
    assert_eq!(bench.output(&early.command, Stream::Stdout), b"now\nlate word\n");
    bench.close();
}

#[test]
fn endless_output_is_bounded_on_disk() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    let mut spec = bench.spec(b"echo start; yes");
    spec.timeout = Duration::from_millis(700);
    spec.keep = (100_000, 50_000);
    let ran = bench.run_spec(&spec);
    assert_eq!(ran.outcome, Outcome::TimedOut);
    assert_eq!(ran.stdout.len(), 150_000);
    assert!(ran.stdout.starts_with(b"start\ny\n"));
    let dir = host.terminal(&bench.terminal).join("commands");
    let size: u64 = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 150_064, "{size} bytes on disk");
    bench.close();
}

#[test]
fn a_script_is_applied_without_output() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.session.see("$ ");
    for (script, code) in [
        ("export Q='a b'", ReplyCode::Ok),
        ("false", ReplyCode::Failed),
        ("export Q=2", ReplyCode::Ok),
    ] {
        let (terminal, script) = (bench.terminal.clone(), script.as_bytes().to_vec());
        let found = bench.session.code(|seq| Request::Apply { seq, terminal, script }).0;
        assert_eq!(found, code);
    }
    assert_eq!(bench.run("printenv Q").text(), (0, "2\n", ""));
    assert!(!bench.screen().contains("export Q"));
    bench.close();
}

#[test]
fn what_a_script_changed_is_reported_before_its_reply() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.session.see("$ ");
    let seq = bench.session.client.seq();
    let (terminal, script) = (bench.terminal.clone(), b"export Q=1".to_vec());
    bench.session.client.send(&Request::Apply { seq, terminal, script }).unwrap();
    let mut changed = false;
    bench.until(|event| match event {
        Event::StateChanged { changed: sections, .. } => {
            changed |= sections.iter().any(|(name, _)| name == "env");
            None
        }
        Event::Reply { seq: answered, .. } => (*answered == seq).then_some(()),
        _ => None,
    });
    assert!(changed, "the reply came before the change");
    bench.close();
}

#[test]
fn a_terminal_opened_with_a_state_has_it() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run(concat!(
        "mkdir -p 'a b/c'; cd 'a b'; pushd c >/dev/null; export E=$'x\\ny'; v=(1 'two 2'); ",
        "declare -A m=([k]='v 1'); f() { echo \"f:$1\"; }; export -f f; alias ll='echo al'; ",
        "shopt -s extglob nullglob; set -o pipefail -u; umask 027; ulimit -S -n 200; ",
        "trap 'echo usr' USR1; set -- p 'q r'; readonly RO=ro; declare -i n=7; OLDIFS=$IFS; (exit 9)",
    ));
    let terminal = bench.terminal.clone();
    let state = match bench.session.ask(|seq| Request::State { seq, terminal }) {
        Event::StateReply { sections, .. } => sections,
        other => panic!("expected a state, got {other:?}"),
    };
    let mut other = Bench::with(&host, Shell::Bash, state.clone());
    let ran = other.run(concat!(
        "echo $?; echo ${PWD##*/} $E \"${v[1]}\" \"${m[k]}\"; f z; bash -c 'f y'; ll; ",
        "shopt -q extglob nullglob && echo opts; echo $-; set -o | grep pipefail; umask; ulimit -n; ",
        "kill -USR1 $$; echo \"$#:$2\"; (RO=2) 2>/dev/null || echo ro; n=n+1; echo $n; dirs | wc -w",
    ));
    let expected = concat!(
        "9\nc x y two 2 v 1\nf:z\nf:y\nal\nopts\n",
        "hiuBHs\npipefail       \ton\n0027\n200\nusr\n2:q r\nro\n8\n4\n",
    );
    assert_eq!(ran.text(), (0, expected, ""));
    other.run("(exit 9)");
    let terminal = other.terminal.clone();
    let again = match other.session.ask(|seq| Request::State { seq, terminal }) {
        Event::StateReply { sections, .. } => sections,
        other => panic!("expected a state, got {other:?}"),
    };
    for ((name, before), (_, after)) in state.iter().zip(&again) {
        if name != "vars" {
            assert_eq!(String::from_utf8_lossy(before), String::from_utf8_lossy(after), "{name}");
        }
    }
    other.close();
    bench.close();
}

#[test]
fn running_commands_continue_under_another_executable_of_the_host() {
    let host = Host::start();
    let mut idle = Bench::new(&host, Shell::Bash);
    idle.run("kept=idle; f() { echo $kept; }");
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("mkfifo go; (exit 5)");
    let mut late = bench.spec(b"(read x <later; echo late) & mkfifo later 2>/dev/null; echo early");
    late.text = b"mkfifo later; (read x <later; echo late) & echo early".to_vec();
    bench.run_spec(&late);
    let spec = bench.spec(b"echo before; v=1; read x <go; echo after $x");
    let queued = bench.spec(b"echo queued $v");
    bench.submit(&spec);
    bench.submit(&queued);
    bench.session.see("before\r\n");
    let path = crate::support::EXE.as_bytes().to_vec();
    bench.session.ok(|seq| Request::Upgrade { seq, path });
    bench.reconnect(&host);
    idle.reconnect(&host);
    std::fs::write(bench.work.join("go"), "word\n").unwrap();
    assert_eq!(bench.done(&spec.command).text(), (0, "before\nafter word\n", ""));
    assert_eq!(bench.done(&queued.command).text(), (0, "queued 1\n", ""));
    std::fs::write(bench.work.join("later"), "x\n").unwrap();
    let id = late.command.clone();
    bench.until(|event| {
        matches!(event, Event::Sealed { command, .. } if *command == id).then_some(())
    });
    assert_eq!(bench.output(&late.command, Stream::Stdout), b"early\nlate\n");
    assert_eq!(idle.run("f").text(), (0, "idle\n", ""));
    assert_eq!(idle.run("exit 4").text(), (4, "", ""));
    assert_eq!(idle.run("f").text(), (0, "idle\n", ""));
}

#[test]
fn a_shell_starts_in_the_parent_of_a_removed_directory() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("mkdir -p a/b; cd a/b; rmdir ../b");
    bench.run("exit 1");
    assert_eq!(bench.run("basename \"$PWD\"").text(), (0, "a\n", ""));
    bench.session.see("a/b is gone; the shell is in ");
    bench.close();
}

#[test]
fn terminals_run_side_by_side_without_mixing_a_byte() {
    let host = Host::start();
    let mut benches: Vec<Bench> = (0..6).map(|_| Bench::new(&host, Shell::Bash)).collect();
    for round in 0..5 {
        let mut specs = Vec::new();
        for (nth, bench) in benches.iter_mut().enumerate() {
            let text = format!("n=${{n-{nth}}}; for i in {{1..2000}}; do echo $n.$i.{round}; done");
            let spec = bench.spec(text.as_bytes());
            assert_eq!(bench.submit(&spec), ReplyCode::Ok);
            specs.push(spec);
        }
        for (nth, (bench, spec)) in benches.iter_mut().zip(specs).enumerate() {
            let ran = bench.done(&spec.command);
            let expected: String = (1..=2000).map(|i| format!("{nth}.{i}.{round}\n")).collect();
            assert_eq!(ran.text(), (0, expected.as_str(), ""));
        }
    }
    let _ = TIMEOUT;
}

#[test]
fn a_host_that_is_killed_leaves_no_process() {
    let mut host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    let ran = bench.run("read -r _ _ _ _ _ session _ </proc/$$/stat; echo $$ $session");
    let output = String::from_utf8(ran.stdout).unwrap();
    let pids: Vec<u32> = output.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)), "{output}");
    host.process.kill().unwrap();
    host.process.wait().unwrap();
    wait_until("the shell and its session leader exit", || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    });
}
