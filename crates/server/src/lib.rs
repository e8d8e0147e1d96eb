//! The server process: assembles the parts, serves, and shuts down gracefully.
//!
//! Shutdown ends no shell: shells live in hosts, which the next start recovers.

mod assembly;
mod background;
mod compute;
mod count;
mod database;
mod home;
mod line_ends;
mod listen;
mod log;
mod measure;
mod telemetry;
mod tls;
mod vendor_keys;
mod webhook;

use std::{io::Write, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use adapter::Adapter;
use api::{
    App, GuardState,
    auth::{Auth, AuthMode},
    key::Keys,
    pass::Shares,
};
use background::LocalSandboxes;
use base::{clock::Clock, event::Events, metrics::ServerMetrics};
use config::Settings;
use machine::{Prewarm, WorkspaceImages};
use mcp::FixtureMode;

pub use api::Assets;
pub use compute::{confined, image_options, sandboxes};
pub use home::{Home, certificate_path, read_address, read_token};
pub use log::start as start_log;
pub use telemetry::SpanQueue;

/// How long shutdown waits for responses in progress.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// Serves until SIGTERM or SIGINT. `spans` is what starting the log returned.
pub async fn run(
    mut settings: Settings,
    assets: Assets,
    spans: Option<SpanQueue>,
) -> anyhow::Result<()> {
    let descriptors = raise_descriptor_limit();
    forbid_inspection();
    forbid_writing_by_others();
    files::reserve_watches();
    settings.limits.connections = limit_connections(settings.limits.connections, descriptors);
    if let Some(file) = base::clock::offset_file() {
        tracing::warn!(
            file = %file.display(),
            "the wall clock of this server is WRONG on purpose: STEAD_CLOCK_FILE shifts it by the seconds in this \
             file; unset the variable unless you test a clock that jumps"
        );
    }
    let home = Home::open(&settings.home)?;
    let tls = settings.tls_files().map(|files| tls::Tls::load(files, &settings.home));
    let tls = tls.transpose()?.map(Arc::new);
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr().context("cannot determine the listening address")?;

    let stopping = CancellationToken::new();
    let token = home.token()?;
    for key in vendor_keys::clear_own_token(&mut settings, &token) {
        tracing::warn!(key, "ignored a vendor key that is this server's own token");
    }
    let auth_mode = if settings.no_auth { AuthMode::Disabled } else { AuthMode::Required };
    let store = database::open(&settings).await?;
    let auth =
        Auth::load(store.clone(), &token, auth_mode).await.context("cannot load the tokens")?;
    let shares = Shares::load(store.clone(), Clock::system())
        .await
        .context("cannot load the share links")?;
    let metrics = ServerMetrics::new();
    let events = Events::new(Clock::system());
    let compute = compute::gather(&settings, &events).await?;
    let isolation = compute.isolation();
    let warm = |name| if compute.chosen == name { Prewarm::Default } else { Prewarm::OnDemand };
    let disks = Arc::new(WorkspaceImages::new(&settings.home));
    let sandboxes = LocalSandboxes {
        workspaces: disks.clone(),
        namespace: compute.sandboxes.clone().map(|sandboxes| (sandboxes, warm("namespace"))),
        containers: compute.containers.clone().map(|containers| (containers, warm("docker"))),
    };
    let engine =
        assembly::build(&settings, compute, &store, events, &metrics, disks.clone(), &stopping)
            .await?;
    let tasks = TaskTracker::new();
    if let (Some(spans), Some(url)) = (spans, &settings.telemetry.otlp_endpoint) {
        let exporter = telemetry::exporter(spans, url, &address);
        let exporter = exporter.context("cannot set up the client of telemetry.otlp_endpoint")?;
        tasks.spawn(exporter.run(stopping.clone()));
    }
    assembly::recover(&engine, &tasks, &stopping).await?;
    assembly::start(&engine, &settings, &store, &metrics, sandboxes, &tasks, &stopping);
    let path = settings.home.clone();
    let access = (auth, shares, Keys::new(&token));
    drop(token);
    let app = App::new(settings, address, store, engine, access, metrics, stopping.clone());
    let adapter = Adapter::new(app.clone(), &path, image_options(&app.settings));
    let (sandboxes, stop) = (app.sandboxes.clone(), stopping.clone());
    tasks.spawn(async move { sandboxes.run(stop).await });
    let (handoffs, stop) = (app.handoffs.clone(), stopping.clone());
    tasks.spawn(async move { tokio::join!(handoffs.run(stop.clone()), handoffs.notify(stop)) });
    tasks.spawn(adapter::run(adapter.clone(), stopping.clone()));
    let state = GuardState { app: app.clone(), doors: compat::doors(&adapter), assets };
    let native = api::native_routes(&app, Arc::new(adapter.clone()));
    let mcp = mcp::routes(
        api::internal_routes(&app, native.clone()),
        &stopping,
        app.settings.limits.body_bytes,
        if app.settings.mcp_fixtures { FixtureMode::On } else { FixtureMode::Off },
    );
    // A session that is not known is refused, and its client repeats the request in another.
    let mcp = mcp.layer(axum::middleware::map_response(api::idempotency::release_if_refused));
    let router = api::router(state, native, compat::routes(&adapter).merge(mcp));

    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    if let Some(tls) = &tls {
        tasks.spawn(tls.clone().reload_on_change(stopping.clone()));
    }
    let serving = tokio::spawn(listen::serve(listener, tls, router, app.clone()));

    home.write_address(&app.settings.local_url(address))?;
    print_ready(&app, address, &isolation).context("cannot write to standard output")?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    stopping.cancel();
    app.tasks.close();
    let drained = async {
        let _ = serving.await;
        app.tasks.wait().await;
        app.removals.finished().await;
        app.terminals.stop().await;
        tasks.close();
        tasks.wait().await;
        app.leases.finished().await;
        if let Err(error) = app.projects.memories().snapshot_all().await {
            tracing::warn!(%error, "cannot write a snapshot of the hot memories; their log is complete");
        }
        // A backup of a stopped server copies the images.
        let _ = base::task::blocking(move || disks.unmount_idle(Duration::ZERO)).await;
    };
    tokio::select! {
        () = drained => tracing::info!("stopped"),
        () = tokio::time::sleep(SHUTDOWN_TIMEOUT) => tracing::warn!("stopped with responses in progress"),
        _ = terminate.recv() => tracing::warn!("stopped immediately: second SIGTERM"),
        _ = interrupt.recv() => tracing::warn!("stopped immediately: second SIGINT"),
    }
    home.remove_address();
    Ok(())
}

/// Prints one line that scripts can wait for, then what a person needs: the sign-in link, the isolation that is in
/// force, and where the data is. All by one write, because a script may close the pipe after the first line.
fn print_ready(app: &App, address: SocketAddr, isolation: &str) -> anyhow::Result<()> {
    let mut lines = format!("listening on {}://{address}\n", app.settings.scheme().name());
    if !app.auth.is_open() {
        lines += &format!("sign in (works once): {}\n", app.sign_in_link()?);
    }
    lines += &format!("isolation: {isolation}\ndata: {}\n", app.settings.home.display());
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Raises the soft limit of open files, because each client and each host needs a descriptor and the usual limit
/// is 1,024. Returns the new limit; `None` if it is unlimited.
fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) =
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current
}

/// Prevents other processes of the same user from reading tokens and environments from our memory, and the
/// kernel from writing them into a core file.
fn forbid_inspection() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot prevent other processes from inspecting this one");
    }
}

/// Removes the right of other users to write from every file that this process and its hosts create. They may read
/// below workspaces and roots, where users inside a sandbox need it; the home itself is closed to them.
fn forbid_writing_by_others() {
    use rustix::{fs::Mode, process::umask};
    let inherited = umask(Mode::from_raw_mode(0o077));
    umask(inherited | Mode::from_raw_mode(0o022));
}

/// Lowers the number of connections so that half of the descriptors remain for hosts, files and the store.
fn limit_connections(connections: usize, descriptors: Option<u64>) -> usize {
    let half =
        descriptors.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
    if connections > half {
        tracing::debug!(
            connections = half,
            "lowered limits.connections to half of the open file limit"
        );
    }
    connections.min(half).max(1)
}
