//! The server is killed at any system call, its disk is full, its syncs fail: no acknowledged change is
//! lost, no failed change is acknowledged, and the service recovers.
//!
//! A child process (this test's own executable) makes one change of each kind and records which were
//! acknowledged; `strace` injects the faults; the parent restarts on the same home and compares.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    Cause, CommandEnd, CommandId, CommandStatus, LeaseState, SessionStatus, Source, ThreadId,
};
use provider::Observed;
use store::{FinishCommand, PageRequest, Section, StateChange, Store, StoreError};

use super::{Hands, World, local, provider::living};
use harness::{Home, WAIT_TIMEOUT, busiest, wait_for};

const HOME: &str = "STEAD_TEST_CHILD_HOME";

/// The system calls at which the server is killed: those that change a file or a process, or that another
/// process can observe.
const CALLS: &str = "pwrite64,fdatasync,fsync,ftruncate,write,mkdir,rename,unlink,unlinkat,rmdir,\
                     clone3,vfork,kill,pidfd_send_signal,sendto,connect";

/// How many occurrences of each call the short test covers.
const POINTS: usize = 4;

fn thread() -> ThreadId {
    "t".parse().unwrap()
}

#[test]
#[ignore = "other tests run it in a child process"]
fn child() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let home = PathBuf::from(home);
    let mut acks = fs::File::create(home.join("acks")).unwrap();
    let mut ack = move |what: &str| acks.write_all(format!("{what}\n").as_bytes()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(everything(&home, &mut ack));
    // A change that fails because of the fault is not acknowledged; nothing else is required.
    std::process::exit(if done.is_ok() { 0 } else { 3 });
}

/// Makes one change of each kind.
async fn everything(home: &Path, ack: &mut impl FnMut(&str)) -> Result<(), anyhow::Error> {
    let provider = Arc::new(local(home));
    let world = World::on(home.to_owned(), Hands::default(), provider)?;
    let chain = world.sessions.open(world.first_use("t")).await?;
    ack("thread");
    let lease = &chain.lease.lease_id;
    let running = world.leases.running(lease).await?;
    ack(&format!("running {}", running.instance.instance_id));
    for version in 0..2u64 {
        let (id, finish) = finish(&chain, version);
        let finished = world.store.finish_command(finish).await?;
        ack(&format!("command {id}"));
        ack(&format!("version {}", finished.version));
    }
    let terminal = &chain.terminal.terminal_id;
    let at = chain.thread.created_at;
    let version = world.store.rollback(terminal, 2, 1, Default::default(), at).await?;
    ack(&format!("version {version}"));
    world.leases.pause(lease).await?;
    ack("paused");
    world.leases.running(lease).await?;
    ack("resumed");
    world.hands.turn(Duration::from_secs(1800));
    world.sessions.check().await;
    if world.store.open_sessions().await?.is_empty() {
        ack(&format!("expired {}", chain.session.session_id));
    }
    world.sessions.open(world.first_use("t")).await?;
    ack("reopened");
    world.leases.running(lease).await?;
    ack("ending");
    let deleted = world.store.delete_thread(&thread(), at).await?;
    ack("deleted");
    for lease in deleted.leases {
        world.leases.destroy(&lease).await?;
    }
    ack("destroyed");
    Ok(())
}

fn finish(chain: &store::Chain, version: u64) -> (CommandId, FinishCommand) {
    let at = chain.thread.created_at;
    let id = CommandId::fresh();
    let terminal = chain.terminal.terminal_id.clone();
    let text = format!("A={version}");
    let asked = model::Command::queued(id.clone(), terminal, text, Source::Agent, version, at);
    let end = CommandEnd::Finished { exit_code: Some(0), signal: None };
    let finish = FinishCommand {
        command: asked.start(at, 0).unwrap().end(end, at).unwrap(),
        state: Some(StateChange {
            expected: version,
            cause: Cause::Exec { command_id: id.clone() },
            changed: vec![Section::new("env", format!("A={}", version + 1).into_bytes())],
            removed: vec![],
            cwd: "/".into(),
            env_delta: None,
            at,
        }),
        output: None,
        touch: Some((chain.session.session_id.clone(), chain.session.last_active)),
    };
    (id, finish)
}

/// Runs the child under `strace`; returns `None` if it is not installed.
fn run_child(home: &Path, tracing: &[&str]) -> Option<ExitStatus> {
    // Create the database first, so that its creation does not hide the other calls.
    drop(Store::open(home).unwrap());
    let log = home.join("stead.db-wal");
    wait_for("the database to be closed", || if log.exists() { Err(&log) } else { Ok(()) });
    // `strace` detaches from hosts when they start: they get no faults, and outlive the child.
    let status = Command::new("strace")
        .args(["-f", "-b", "execve", "-qq"])
        .args(tracing)
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "faults::child"])
        .env(HOME, home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) => Some(status),
        Err(error) => {
            eprintln!("skipped: strace is not installed ({error})");
            None
        }
    }
}

/// Counts the occurrences of each call without faults.
fn count_calls() -> Option<BTreeMap<String, usize>> {
    let home = Home::new();
    let trace = home.path().join("trace");
    let set = format!("trace={CALLS}");
    let status = run_child(home.path(), &["-e", &set, "-o", trace.to_str().unwrap()])?;
    assert!(status.success(), "the child fails even without faults: {status}");
    Some(busiest(&trace))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_change_is_lost_when_the_server_is_killed() {
    kill_at(POINTS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; `make soak` runs it"]
async fn soak_nothing_acknowledged_is_lost_at_any_call_whatever() {
    kill_at(usize::MAX).await;
}

/// Kills the child at up to this many occurrences of each call, and checks what is left.
async fn kill_at(points: usize) {
    let Some(calls) = count_calls() else { return };
    let mut killed = 0;
    for (call, count) in calls {
        let step = count.div_ceil(points);
        for point in (1..=count).step_by(step) {
            let home = Arc::new(Home::new());
            let inject = format!("inject={call}:signal=SIGKILL:when={point}");
            let trace = format!("trace={call}");
            let harm = ["-e", &trace, "-e", &inject, "-o", "/dev/null"];
            let Some(status) = run_child(home.path(), &harm) else { return };
            killed += usize::from(status.code().is_none());
            check_after(home, &format!("{call} {point} of {count} ({status})")).await;
        }
    }
    eprintln!("killed at {killed} points");
    assert!(killed > 20, "killed at {killed} points only");
}

/// Restarts on a home that a fault left, and compares it with the acknowledged changes.
async fn check_after(home: Arc<Home>, point: &str) {
    let acks = fs::read_to_string(home.path().join("acks")).unwrap_or_default();
    let acked = |word: &str| acks.lines().any(|line| line == word);
    let all = |word: &str| -> Vec<String> {
        acks.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
    };
    let provider = Arc::new(local(home.path()));
    let world = World::with(home, Hands::default(), provider);
    world.leases.recover().await.unwrap();
    world.sessions.recover().await.unwrap();
    let context = format!("{point}, acknowledged: {acks:?}");

    let stored = world.store.thread(&thread()).await.unwrap();
    if acked("deleted") {
        assert_eq!(stored, None, "{context}");
    } else if acked("thread") && !acked("ending") {
        assert!(stored.is_some(), "{context}");
    }
    if let Some(stored) = stored {
        let terminal = world.store.terminal(&stored.terminal_id).await.unwrap().unwrap();
        let last = all("version ").last().map_or(0, |version| version.parse::<u64>().unwrap());
        assert!(terminal.version >= last && terminal.version <= 3, "{context}: {terminal:?}");
        let versions = world.store.versions(&stored.terminal_id, PageRequest::first(10)).await;
        let numbers: Vec<u64> = versions.unwrap().items.iter().map(|v| v.version).collect();
        let expected: Vec<u64> = (1..=terminal.version).rev().collect();
        assert_eq!(numbers, expected, "{context}");
        for version in 1..=terminal.version {
            let state = world.store.terminal_state(&stored.terminal_id, Some(version)).await;
            let expected = if version == 2 { b"A=2" } else { b"A=1" };
            assert_eq!(state.unwrap().sections["env"], expected, "{context}");
        }
        for id in all("command ") {
            let command = world.store.command(&id.parse().unwrap()).await.unwrap();
            let status = command.map(|command| command.status);
            assert_eq!(status, Some(CommandStatus::Finished), "{context}");
        }
        for id in all("expired ") {
            let session = world.store.session(&id.parse().unwrap()).await.unwrap().unwrap();
            assert_eq!(session.status(), SessionStatus::Expired, "{context}");
        }
        check_compute(&world, &stored.lease_id, &context).await;
    }
    // Further changes succeed.
    let lease = world.lease("t").await;
    let running = world.leases.running(&lease).await;
    assert!(running.is_ok(), "{context}: {running:?}");
    world.leases.destroy(&lease).await.unwrap();
    world.leases.reap().await;
    assert_eq!(world.instances().await, 0, "{context}");
    assert_eq!(living(world.home.path()), Vec::<String>::new(), "{context}");
}

/// Checks that there is at most one instance, in the state of its lease.
async fn check_compute(world: &World, lease: &model::LeaseId, context: &str) {
    let lease = world.store.lease(lease).await.unwrap().unwrap();
    let found = world.provider.find_by_label(None).await.unwrap();
    let seen: Vec<_> = found.iter().map(|f| (f.instance_id.clone(), f.observed)).collect();
    let expected = match &lease.state {
        LeaseState::Running(instance) => vec![(instance.instance_id.clone(), Observed::Running)],
        LeaseState::Paused(instance) => vec![(instance.instance_id.clone(), Observed::Paused)],
        LeaseState::Idle
        | LeaseState::Creating { .. }
        | LeaseState::Dead { .. }
        | LeaseState::Destroyed => vec![],
    };
    assert_eq!(seen, expected, "{context}: {lease:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_is_never_acknowledged() {
    // Each sync fails once; then all syncs from some point on.
    for plan in ["1", "4", "7", "9", "12", "6+"] {
        let home = Arc::new(Home::new());
        let inject = format!("inject=fdatasync,fsync:error=EIO:when={plan}");
        let harm = ["-e", "trace=fdatasync,fsync", "-e", &inject, "-o", "/dev/null"];
        let Some(status) = run_child(home.path(), &harm) else { return };
        check_after(home, &format!("sync fails at {plan} ({status})")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_changes_serves_reads_and_recovers() {
    let home = Home::new();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(&disk)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this user cannot mount a file system");
        return;
    }
    let unmount = Unmount(disk.clone());
    let store = Store::open(&disk).unwrap();
    store.probe().await.unwrap();
    let at = model::Timestamp::now();
    let mut acknowledged = 0;
    let refused = loop {
        let detail = serde_json::json!({ "filler": "x".repeat(20_000) });
        match store.record(at, "filler", "disk", detail).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "the disk is never full");
    };
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    assert_ne!(store.health(), store::StoreHealth::Good);
    let kept = store.ledger_last(1000).await.unwrap();
    assert_eq!(kept.len(), acknowledged, "reads return the acknowledged changes");

    // More space: the file must not outgrow the disk.
    let more = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk).status().unwrap();
    assert!(more.success());
    let since = Instant::now();
    while store.probe().await.is_err() {
        assert!(since.elapsed() < WAIT_TIMEOUT, "the service does not recover");
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(store.health(), store::StoreHealth::Good);
    drop(store);
    let store = Store::open(&disk).unwrap();
    assert_eq!(store.ledger_last(1000).await.unwrap().len(), acknowledged);
    drop(store);
    drop(unmount);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // Lazily: a thread of the store may still be closing its file.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
