//! Builds and recovers the engine, and starts its background tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::background::{Background, LocalSandboxes};
use super::compute::Compute;
use api::{self, Engine};
use base::{clock::Clock, event::Events, metrics::ServerMetrics};
use config::{RouteBackend, Settings};
use engine::{
    departures::Departures,
    handoff::Handoffs,
    lease::{Leases, RetryPolicy},
    removal::{self, Removals},
    session::Sessions,
    terminal::{self, ShellSetup, Terminals},
};
use files::memory::{HotLimits, HotMemories};
use machine::WorkspaceImages;
use model::{BackendKind, Env};
use project::{
    AttendancePolicy, ProjectSettings, Projects, Workspace, cleanup::CleanupPolicy, workspace,
};
use store::{DeletedRows, Retention, Store};

/// Builds the engine; nothing runs yet.
pub async fn build(
    settings: &Settings,
    compute: Compute,
    store: &Store,
    events: Events,
    metrics: &ServerMetrics,
    disks: Arc<WorkspaceImages>,
    stop: &CancellationToken,
) -> anyhow::Result<Engine> {
    let clock = Clock::system();
    let Compute { providers, chosen: provider, .. } = compute;
    let leases = Leases::new(
        store.clone(),
        providers,
        events.clone(),
        clock.clone(),
        RetryPolicy::default(),
        stop.clone(),
    );
    let (home, mounted) = (settings.home.clone(), disks.clone());
    let shell_setup = move |project: &_| {
        let workspace = workspace(&home, project, &*mounted)?;
        let memories = workspace.memories.to_string_lossy().into_owned();
        let env = Env::from([(Workspace::MEMORIES_VARIABLE.to_owned(), memories)]);
        let mounts = vec![
            (workspace.repo.clone(), "/workspace".into()),
            (workspace.memories, "/memories/persistent".into()),
        ];
        let (directory, root) = (workspace.repo, Some(workspace.root));
        Ok(ShellSetup { directory, env, mounts, workspace: root })
    };
    let terminals = Terminals::new(
        terminal::TerminalSettings {
            home: settings.home.clone(),
            log_limit: settings.terminal.log_limit_bytes,
            scrollback: settings.terminal.scrollback,
            checksum_reports: settings.terminal.checksum_reports,
            max_per_thread: settings.terminal.max_per_thread,
            max: settings.terminal.max,
            metrics: metrics.clone(),
            shell_setup: Arc::new(shell_setup),
        },
        store.clone(),
        leases.clone(),
        events.clone(),
    );
    let sessions = Sessions::new(
        store.clone(),
        leases.clone(),
        events.clone(),
        clock.clone(),
        settings.policy.warn_before,
    );
    sessions.set_runtimes(Arc::new(terminals.clone()));
    let projects = Projects::start(
        &settings.home,
        store.clone(),
        clock.clone(),
        events.clone(),
        project_settings(settings),
        disks,
    );
    let projects = projects.await.context("cannot open the projects")?;
    let removals = Removals::new(
        store.clone(),
        leases.clone(),
        terminals.clone(),
        sessions.clone(),
        events.clone(),
        stop.clone(),
    );
    let sandboxes = engine::sandbox::Sandboxes::new(
        store.clone(),
        leases.clone(),
        terminals.clone(),
        sessions.clone(),
        removals.clone(),
        events.clone(),
        clock.clone(),
    );
    let handoffs = Handoffs::new(
        store.clone(),
        terminals.clone(),
        events.clone(),
        clock.clone(),
        super::webhook::notifier(settings, &clock)?,
    );
    Ok(Engine {
        leases,
        sessions,
        terminals,
        sandboxes,
        handoffs,
        removals,
        projects,
        events,
        clock,
        provider,
    })
}

fn project_settings(settings: &Settings) -> ProjectSettings {
    let days = |days: u64| u32::try_from(days).unwrap_or(u32::MAX);
    let (project, memory) = (&settings.project, &settings.memory);
    ProjectSettings {
        max_projects: project.max_projects,
        cleanup: CleanupPolicy {
            enabled: project.cleanup_enabled,
            after_days: days(project.cleanup_after_days),
            warning_days: days(project.cleanup_warning_days),
        },
        trash: project.trash_time,
        hot: HotLimits {
            entries: memory.max_entries,
            bytes: memory.max_bytes,
            entry_bytes: memory.max_entry_bytes,
        },
        attendance: AttendancePolicy {
            stop_on_disconnect: project.stop_on_disconnect,
            recreate_on_reconnect: project.recreate_on_reconnect,
            grace: project.disconnect_grace,
        },
        routes: project
            .routes
            .iter()
            .map(|(prefix, kind)| (prefix.clone(), backend(*kind)))
            .collect(),
    }
}

fn backend(kind: RouteBackend) -> BackendKind {
    match kind {
        RouteBackend::Filesystem => BackendKind::Filesystem,
        RouteBackend::State => BackendKind::State,
        RouteBackend::Store => BackendKind::Store,
    }
}

/// How long the start waits for the recovery of running hosts. Slower ones are recovered while the server is up.
const RECOVERY_WAIT_TIMEOUT: Duration = Duration::from_millis(150);

/// Starts the recovery of everything that kept running. Every start is a recovery. A host, an engine or a vendor
/// that does not respond only delays its own leases.
pub async fn recover(
    engine: &Engine,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    engine
        .leases
        .providers()
        .named(&engine.provider)
        .context("the setting `provider` is invalid")?;
    engine.sessions.recover().await.context("cannot recover the sessions")?;
    let recovery = engine.terminals.recover().await.context("cannot recover the terminals")?;
    engine.removals.resume().await.context("cannot continue the deletions")?;
    let (leases, sessions) = (engine.leases.clone(), engine.sessions.clone());
    let (provider, stop) = (engine.provider.clone(), stop.clone());
    let (finished, waited) = tokio::sync::oneshot::channel();
    tasks.spawn(async move {
        let work = async {
            let mut recovery = recovery;
            let ((), recovered) = tokio::join!(recovery.finished(), leases.recover());
            if let Err(error) = recovered {
                tracing::error!(%error, "cannot recover the leases");
            }
            tracing::debug!(provider, elapsed = ?began.elapsed(), "recovered");
            let _ = finished.send(());
            sessions.settle_ended().await;
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    });
    let _ = tokio::time::timeout(RECOVERY_WAIT_TIMEOUT, waited).await;
    Ok(())
}

/// Starts all background tasks.
pub fn start(
    engine: &Engine,
    settings: &Settings,
    store: &Store,
    metrics: &ServerMetrics,
    sandboxes: LocalSandboxes,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let days = u32::try_from(settings.history.age.as_secs() / 86_400).unwrap_or(u32::MAX);
    let background = Background {
        store: store.clone(),
        leases: engine.leases.clone(),
        sessions: engine.sessions.clone(),
        clock: engine.clock.clone(),
        retention: Retention {
            versions: settings.history.versions as u64,
            days,
            ..Retention::default()
        },
        projects: engine.projects.clone(),
        cleanup_interval: settings.project.cleanup_check_interval,
        snapshot_interval: settings.memory.snapshot_interval,
        sandboxes,
    };
    let terminals = engine.terminals.clone();
    background.start(
        tasks,
        stop,
        move |pruned| {
            let terminals = terminals.clone();
            async move { terminals.forget_commands(pruned.commands).await }
        },
        {
            let (terminals, leases) = (engine.terminals.clone(), engine.leases.clone());
            let store = store.clone();
            move |gone: DeletedRows| {
                let (terminals, leases) = (terminals.clone(), leases.clone());
                let store = store.clone();
                async move { removal::end(&store, &terminals, &leases, gone).await }
            }
        },
        {
            let terminals = engine.terminals.clone();
            move || {
                let terminals = terminals.clone();
                async move {
                    terminals.reap().await;
                }
            }
        },
    );
    let departures = Departures {
        projects: engine.projects.clone(),
        store: store.clone(),
        terminals: engine.terminals.clone(),
        leases: engine.leases.clone(),
    };
    tasks.spawn(departures.run(stop.clone()));
    tasks.spawn(super::measure::run(engine, store.clone(), stop.clone()));
    tasks.spawn(super::count::run(engine.events.clone(), metrics.clone(), stop.clone()));
    let (terminals, metrics, idle) =
        (engine.terminals.clone(), metrics.clone(), settings.terminal.idle_limit);
    let (projects, clock) = (engine.projects.clone(), engine.clock.clone());
    let stop = stop.clone();
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            let (live, watchers) = terminals.census();
            metrics.terminals_live.set(live as i64);
            metrics.watchers.set(watchers as i64);
            measure_memories(projects.memories(), &clock, &metrics);
            if !idle.is_zero() {
                terminals.end_unused(idle).await;
            }
        }
    });
}

fn measure_memories(memories: &HotMemories, clock: &Clock, metrics: &ServerMetrics) {
    let census = memories.census();
    metrics.memory_entries.set(i64::try_from(census.entries).unwrap_or(i64::MAX));
    metrics.memory_bytes.set(i64::try_from(census.bytes).unwrap_or(i64::MAX));
    let age = census.oldest_change.map(|since| clock.wall().duration_since(since));
    metrics.memory_snapshot_age.set(age.map_or(0.0, |age| age.as_secs_f64().max(0.0)));
    let written = memories.snapshots();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    metrics.memory_snapshots.inner().store(count(&written.count), Ordering::Relaxed);
    metrics.memory_snapshot_bytes.inner().store(count(&written.bytes), Ordering::Relaxed);
    let seconds = Duration::from_micros(count(&written.micros)).as_secs_f64();
    metrics.memory_snapshot_seconds.inner().store(seconds.to_bits(), Ordering::Relaxed);
}
