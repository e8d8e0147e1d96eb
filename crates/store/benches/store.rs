//! Store benchmarks: single and grouped commits, and queries with 10,000 threads of 20 versions each.
//!
//! `cargo bench --bench store [-- THREADS]`. Set `TMPDIR` to a directory on the disk to measure.
#![allow(missing_docs)]

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Result;
use base::clock::Clock;
use model::{
    Cause, Command, CommandEnd, CommandId, SessionId, ShellKind, Source, TerminalId, ThreadId,
};
use store::{
    CommandQuery, FinishCommand, FirstUse, PageRequest, Retention, Section, StateChange, Store,
    ThreadChoices, ThreadFilter,
};

const VERSIONS: u64 = 20;

fn main() -> Result<()> {
    let home = Home::new()?;
    let threads = std::env::args().find_map(|text| text.parse().ok()).unwrap_or(10_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&home.0, threads))
}

struct Home(PathBuf);

impl Home {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("stead-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn run(home: &Path, threads: usize) -> Result<()> {
    let store = Store::open(home)?;
    let clock = Clock::system();

    let alone = time_each(500, || store.probe()).await?;
    println!("sequential changes          {alone}");
    for waiters in [16, 64, 256] {
        let started = Instant::now();
        let before = store.counts();
        let tasks: Vec<_> = (0..waiters)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..40 {
                        store.probe().await?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        let after = store.counts();
        let changes = f64::from(waiters * 40);
        println!(
            "{waiters:3} concurrent              {:.0} changes/s, {:.1} per commit",
            changes / started.elapsed().as_secs_f64(),
            changes / (after.commits - before.commits) as f64
        );
    }

    let first = make_thread(&store, &clock, "few-0").await?;
    let few = time_exec(&store, &clock, &first, 0).await?;
    println!("record exec, few threads    {few}");

    let started = Instant::now();
    let makers: Vec<_> = (0..64)
        .map(|maker| {
            let (store, clock) = (store.clone(), clock.clone());
            tokio::spawn(async move {
                for n in (maker..threads).step_by(64) {
                    let thread = make_thread(&store, &clock, &format!("t{n}")).await?;
                    for version in 0..VERSIONS {
                        let finish = exec(&clock, &thread, version);
                        store.finish_command(finish).await?;
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for maker in makers {
        maker.await??;
    }
    let size = std::fs::metadata(home.join("stead.db"))?.len() >> 20;
    println!("created {threads} x {VERSIONS} in {:.1?}, {size} MiB", started.elapsed());

    let many = time_exec(&store, &clock, &first, 500).await?;
    println!("record exec, many threads   {many}");
    let last = store.threads(ThreadFilter::default(), PageRequest::first(100)).await?;
    let page = PageRequest { limit: 100, after: last.next };
    let listing = time_each(200, || store.threads(ThreadFilter::default(), page.clone())).await?;
    println!("page of 100 threads         {listing}");
    let id: ThreadId = format!("t{}", threads / 2).parse()?;
    let terminal = store.thread(&id).await?.map(|thread| thread.terminal_id);
    if let Some(terminal) = terminal {
        let history = time_each(200, || {
            store.commands(&terminal, CommandQuery::default(), PageRequest::first(100))
        });
        println!("page of history             {}", history.await?);
        let versions = time_each(200, || store.versions(&terminal, PageRequest::first(100)));
        println!("page of versions            {}", versions.await?);
        let state = time_each(200, || store.terminal_state(&terminal, None));
        println!("whole state of a terminal   {}", state.await?);
    }
    let chain = time_each(200, || store.open_chain(first_use(&clock, id.clone()))).await?;
    println!("open a thread's chain       {chain}");
    let started = Instant::now();
    store.prune(Retention::default(), clock.wall()).await?;
    println!("prune, nothing to remove    {:.1?}", started.elapsed());

    drop(store);
    let wal = home.join("stead.db-wal");
    while wal.exists() {
        std::thread::yield_now();
    }
    let started = Instant::now();
    let store = Store::open(home)?;
    println!("reopen                      {:.1?}", started.elapsed());
    let started = Instant::now();
    let (leases, sessions) = (store.unsettled_leases().await?, store.open_sessions().await?);
    println!(
        "reads at startup            {:.1?} ({} leases, {} sessions)",
        started.elapsed(),
        leases.len(),
        sessions.len()
    );
    Ok(())
}

struct Made {
    terminal: TerminalId,
    session: SessionId,
}

fn first_use(clock: &Clock, thread_id: ThreadId) -> FirstUse {
    FirstUse {
        thread_id,
        choices: ThreadChoices::default(),
        provider: "local".into(),
        shell: ShellKind::Bash,
        size: (80, 24),
        policy: model::SessionPolicy::default(),
        now: clock.now(),
    }
}

async fn make_thread(store: &Store, clock: &Clock, name: &str) -> Result<Made> {
    let chain = store.open_chain(first_use(clock, name.parse()?)).await?;
    Ok(Made { terminal: chain.terminal.terminal_id, session: chain.session.session_id })
}

/// A command that changed directory and set a variable, in a shell with some functions.
fn exec(clock: &Clock, made: &Made, version: u64) -> FinishCommand {
    let at = clock.wall();
    let id = CommandId::fresh();
    let asked = Command::queued(
        id.clone(),
        made.terminal.clone(),
        format!("cd /work/{version} && export STEP={version}"),
        Source::Agent,
        version,
        at,
    );
    let end = CommandEnd::Finished { exit_code: Some(0), signal: None };
    let command = asked.start(at, version * 100).and_then(|c| c.end(end, at));
    let env =
        format!("PATH=/usr/bin:/bin\0HOME=/root\0STEP={version}\0TERMINAL={}\0", made.terminal);
    let mut changed = vec![("env".to_owned(), env.into_bytes())];
    if version == 0 {
        changed.push(("functions".into(), "f () { echo hello; }\n".repeat(60).into_bytes()));
        changed.push(("shopt".into(), "shopt -s extglob\n".repeat(50).into_bytes()));
    }
    FinishCommand {
        command: command.expect("a command starts and ends"),
        state: Some(StateChange {
            expected: version,
            cause: Cause::Exec { command_id: id },
            changed: Section::all(changed),
            removed: vec![],
            cwd: format!("/work/{version}"),
            env_delta: Some([("STEP".to_owned(), Some(version.to_string()))].into()),
            at,
        }),
        output: None,
        touch: Some((made.session.clone(), clock.now())),
    }
}

async fn time_exec(store: &Store, clock: &Clock, made: &Made, from: u64) -> Result<Times> {
    let mut times = Vec::new();
    for version in from..from + 500 {
        let finish = exec(clock, made, version);
        let started = Instant::now();
        store.finish_command(finish).await?;
        times.push(started.elapsed());
    }
    Ok(Times(times))
}

async fn time_each<T, E, F>(count: usize, act: impl Fn() -> F) -> Result<Times>
where
    E: std::error::Error + Send + Sync + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut times = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        act().await?;
        times.push(started.elapsed());
    }
    Ok(Times(times))
}

struct Times(Vec<Duration>);

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = |part: usize| sorted[(sorted.len() * part / 100).min(sorted.len() - 1)];
        write!(f, "p50 {:.2?}, p99 {:.2?}", at(50), at(99))
    }
}
