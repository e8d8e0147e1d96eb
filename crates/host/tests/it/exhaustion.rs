//! Exhausted resources: descriptors, processes, PTYs, disk. Running terminals continue, a refusal names the
//! missing resource, and the host recovers as soon as the resource is available again.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit};
use wire::{Event, ReplyCode, Request};

use crate::support::{Dir, EXE, Host, Session, wait_until};

fn limit(host: &Host, resource: Resource, current: Option<u64>) {
    let pid = Pid::from_raw(host.pid() as i32);
    let maximum = rustix::process::getrlimit(resource).maximum;
    rustix::process::prlimit(pid, resource, Rlimit { current, maximum }).unwrap();
}

fn works(session: &mut Session, terminal: &str) {
    session.output.clear();
    session.input(terminal, b"echo wor''ks\n");
    session.see("works");
}

#[test]
fn without_descriptors_running_terminals_continue() {
    let host = Host::start();
    let mut session = host.connect();
    session.open(host.opening("first", &["sh"]));
    session.attach("first", 0);
    limit(&host, Resource::Nofile, Some(40));
    let mut opened = 0;
    let refused = loop {
        match session.try_open(host.opening(&format!("t{opened}"), &["cat"])).0 {
            ReplyCode::Ok => opened += 1,
            code => break code,
        }
    };
    assert_eq!(refused, ReplyCode::NoMoreDescriptors);
    assert!(opened > 3);
    works(&mut session, "first");
    // Connections are still accepted, and even the executable can be replaced.
    drop(session);
    let mut session = host.connect();
    let mut second = host.connect();
    second.ok(|seq| Request::Ping { seq });
    session.ok(|seq| Request::Upgrade { seq, path: EXE.into() });
    let mut session = host.connect();
    session.attach("first", 0);
    works(&mut session, "first");
    session.ok(|seq| Request::Close { seq, terminal: "t0".into() });
    session.open(host.opening("again", &["cat"]));
    works(&mut session, "first");
}

#[test]
fn without_processes_running_terminals_continue() {
    // The limit does not apply to root, so the host runs as a user that has no other process.
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can start a host as another user");
        return;
    }
    let uid = 40_000 + std::process::id() % 20_000;
    let host = Host::start_with(&[], |command| {
        use std::os::unix::process::CommandExt;
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let dir = Path::new(&args[2]).to_owned();
        std::fs::create_dir(&dir).unwrap();
        for dir in [dir.parent().unwrap(), &dir] {
            std::os::unix::fs::chown(dir, Some(uid), Some(uid)).unwrap();
        }
        // The host's two threads, the first shell and one further process.
        *command = Command::new("bash");
        command.args(["-c", "ulimit -u 4; exec \"$0\" \"$@\"", EXE]);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).uid(uid).gid(uid);
    });
    let mut session = host.connect();
    session.open(host.opening("first", &["sh"]));
    session.attach("first", 0);
    session.open(host.opening("second", &["cat"]));
    assert_eq!(session.try_open(host.opening("t", &["cat"])).0, ReplyCode::NoMoreProcesses);
    works(&mut session, "first");
    session.ok(|seq| Request::Close { seq, terminal: "second".into() });
    session.open(host.opening("t", &["cat"]));
}

#[test]
fn without_ptys_running_terminals_continue() {
    // All processes share the machine's PTYs, so the host gets a devpts instance of its own with two PTYs.
    let script = "mount -t devpts -o newinstance,ptmxmode=0666,max=2 devpts /dev/pts && ";
    let can = Command::new("unshare").args(["-m", "sh", "-c", &format!("{script} true")]).status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no devpts instance can be mounted");
        return;
    }
    let host = Host::start_with(&[], |command| {
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{script} exec \"$0\" \"$@\""), EXE]);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    });
    let mut session = host.connect();
    session.open(host.opening("first", &["sh"]));
    session.attach("first", 0);
    session.open(host.opening("second", &["cat"]));
    assert_eq!(session.try_open(host.opening("t", &["cat"])).0, ReplyCode::NoMoreTerminals);
    works(&mut session, "first");
    session.ok(|seq| Request::Close { seq, terminal: "second".into() });
    session.open(host.opening("t", &["cat"]));
}

/// Fills the disk of a terminal's log and frees it again. Checks that the log recovers and reports a gap.
fn check_full_disk(host: &Host, fill: impl FnOnce(), empty: impl FnOnce()) {
    let mut session = host.connect();
    session.open(host.opening("t", &["sh"]));
    session.attach("t", 0);
    works(&mut session, "t");
    let before = session.info("t").end_offset;
    fill();
    session.output.clear();
    session.input("t", b"seq 1 20000; echo the''end\n");
    session.see("theend");
    let lost = |session: &mut Session| match session.ask(|seq| Request::Metrics { seq }) {
        Event::MetricsReply { values, .. } => {
            values.into_iter().find(|(name, _)| name == "log_lost_bytes").unwrap().1
        }
        other => panic!("{other:?}"),
    };
    assert!(lost(&mut session) > 0, "the disk was full");
    empty();
    // The log recovers: from some point on no further bytes are lost.
    wait_until("the log is written again", || {
        let so_far = lost(&mut session);
        works(&mut session, "t");
        (lost(&mut session) == so_far).then_some(())
    });
    // A later watcher gets the gap, and the output before and after it.
    let end = session.info("t").end_offset;
    let mut later = host.connect();
    later.attach("t", 0);
    let mut next = 0;
    let mut gap = None;
    while next < end {
        match later.step() {
            Event::Output { offset, bytes, .. } => {
                assert_eq!(offset, next);
                next += bytes.len() as u64;
            }
            Event::Gap { from, to, .. } => {
                assert_eq!(from, next);
                gap.get_or_insert(from);
                next = to;
            }
            _ => {}
        }
    }
    assert!(gap.is_some_and(|from| from >= before));
}

#[test]
fn output_on_a_full_disk_is_reported_as_a_gap() {
    let dir = Dir::new();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"])
        .arg(&dir.0)
        .status()
        .is_ok_and(|status| status.success());
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    if !mounted {
        eprintln!("skipped: a small file system cannot be mounted");
        return;
    }
    let _unmount = Unmount(&dir.0);
    let host = Host::start();
    std::os::unix::fs::symlink(&dir.0, host.dir.0.join("terminals")).unwrap();
    let filler = dir.0.join("filler");
    check_full_disk(
        &host,
        || {
            let _ = std::fs::write(&filler, vec![0; 2 << 20]);
        },
        || std::fs::remove_file(&filler).unwrap(),
    );
}

#[test]
fn output_beyond_the_file_size_limit_is_reported_as_a_gap() {
    let host = Host::start();
    check_full_disk(
        &host,
        || limit(&host, Resource::Fsize, Some(0)),
        || limit(&host, Resource::Fsize, rustix::process::getrlimit(Resource::Fsize).maximum),
    );
}
