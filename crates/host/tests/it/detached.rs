//! A host that is detached from the process that started it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use host::client::Client;
use wire::{Event, ReplyCode, Request};

use crate::support::{Dir, EXE, Session, TIMEOUT, is_alive, wait_until};

#[test]
fn a_detached_host_outlives_its_starter_and_locks_its_directory() {
    let dir = Dir::new();
    // A path that is too long for a socket address.
    let run = dir.0.join("x".repeat(120)).join(dir.0.file_name().unwrap());
    host::spawn_detached(EXE.as_ref(), &run, "the label").unwrap();
    let mut client = Client::connect(&run).unwrap();
    let Event::Hello { pid, label, .. } = client.receive(TIMEOUT).unwrap() else { panic!() };
    assert_eq!(label, "the label");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(
        (fields[2], fields[3]),
        (&*pid.to_string(), &*pid.to_string()),
        "the host leads its own session"
    );
    assert_ne!(fields[1], std::process::id().to_string(), "the host is not our child");
    let written = std::fs::read_to_string(run.join("host.pid")).unwrap();
    assert_eq!(written.trim(), pid.to_string());

    let error = host::spawn_detached(EXE.as_ref(), &run, "another").unwrap_err();
    assert!(error.to_string().contains("already running"), "{error}");

    let seq = client.seq();
    let answer = client.ask(&Request::Shutdown { seq }, TIMEOUT).unwrap();
    assert!(matches!(answer, Event::Reply { code: ReplyCode::Ok, .. }));
    wait_until("the host exits", || (!is_alive(pid)).then_some(()));
    assert!(!run.join("host.sock").exists() && !run.join("host.pid").exists());
}

#[test]
fn a_detached_host_survives_the_end_of_its_starters_process_group() {
    let dir = Dir::new();
    let run = dir.0.join(dir.0.file_name().unwrap());
    let script = format!("{EXE} host --detach --dir {} && exec sleep 1000000", run.display());
    let mut starter = Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap();
    wait_until("the host listens", || Client::connect(&run).ok());
    let mut session = Session::connect(&run);
    let group = rustix::process::Pid::from_child(&starter);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    starter.wait().unwrap();
    session.ok(|seq| Request::Ping { seq });
    let pid = session.pid;
    // SIGHUP and SIGINT are ignored; SIGTERM shuts the host down like a request.
    let host = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(host, rustix::process::Signal::HUP).unwrap();
    rustix::process::kill_process(host, rustix::process::Signal::INT).unwrap();
    session.ok(|seq| Request::Ping { seq });
    rustix::process::kill_process(host, rustix::process::Signal::TERM).unwrap();
    wait_until("the host exits", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_host_that_cannot_start_reports_the_reason() {
    let error = host::spawn_detached(EXE.as_ref(), "/proc/nowhere/x".as_ref(), "").unwrap_err();
    assert!(error.to_string().contains("create the host's directory"), "{error}");
    let error = host::spawn_detached("/no/such/exe".as_ref(), "/tmp".as_ref(), "").unwrap_err();
    assert!(error.to_string().contains("start a host"), "{error}");
}
