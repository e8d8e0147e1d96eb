//! The running server: puts the parts together, serves, and stops in good order.
//!
//! Stopping ends no shell: those live in hosts, which are found again at the next start.

mod assembly;
mod background;
mod compute;
mod count;
mod home;
mod listen;
mod log;
mod measure;
mod tls;
mod vendor_keys;

use std::{io::Write, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::web::ASSETS;
use api::{
    App, Entrance,
    auth::{Auth, Open},
    pass::Shares,
};
use base::{clock::Clock, event::Events, metrics::Metrics};
use compat::Compat;
use config::Settings;
use machine::Prewarm;
use store::Store;

pub use compute::{confined, sandboxes};
pub use home::{Home, certificate_path, read_address, read_token};
pub use log::start as start_log;

/// Time given to answers that are under way when the server is told to stop.
const DRAIN: Duration = Duration::from_secs(4);

/// Serves until a signal says stop.
pub async fn run(mut settings: Settings) -> anyhow::Result<()> {
    let descriptors = raise_descriptor_limit();
    settings.limits.connections = affordable(settings.limits.connections, descriptors);
    let home = Home::open(&settings.home)?;
    let tls = settings.tls_files().map(|files| tls::Tls::load(files, &settings.home));
    let tls = tls.transpose()?.map(Arc::new);
    let listener = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr().context("cannot tell the listening address")?;

    let stopping = CancellationToken::new();
    let token = home.token()?;
    for key in vendor_keys::clear_own_token(&mut settings, &token) {
        tracing::warn!(key, "ignored: it is this server's own token, not the key of a vendor");
    }
    let open = if settings.no_auth { Open::ToAnyone } else { Open::ToHolders };
    let path = settings.home.clone();
    let store = tokio::task::spawn_blocking(move || Store::open(&path)).await?;
    let store = store.context("cannot open the store")?;
    let auth = Auth::load(store.clone(), &token, open).await.context("cannot load the tokens")?;
    let shares = Shares::load(store.clone()).await.context("cannot load the share links")?;
    let metrics = Metrics::new();
    let events = Events::new(Clock::system());
    let compute = compute::gather(&settings, &events).await?;
    let warm = |name| if compute.chosen == name { Prewarm::Default } else { Prewarm::OnDemand };
    let sandboxes = background::Sandboxes {
        namespace: compute.sandboxes.clone().map(|sandboxes| (sandboxes, warm("namespace"))),
        containers: compute.containers.clone().map(|containers| (containers, warm("docker"))),
    };
    let engine = assembly::build(&settings, compute, &store, events, &metrics, &stopping).await?;
    let tasks = TaskTracker::new();
    assembly::recover(&engine, &tasks, &stopping).await?;
    assembly::start(&engine, &settings, &store, &metrics, sandboxes, &tasks, &stopping);
    let path = settings.home.clone();
    let app = App::new(settings, address, store, engine, (auth, shares), metrics, stopping.clone());
    let compat = Compat::new(app.clone(), &token, &path);
    drop(token);
    tasks.spawn(compat::expire(compat.clone(), stopping.clone()));
    tasks.spawn(compat::measure(compat.clone(), stopping.clone()));
    let entrance = Entrance { app: app.clone(), doors: compat.doors(), assets: ASSETS };
    let router = api::router(entrance, compat.routes());

    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    if let Some(tls) = &tls {
        tasks.spawn(tls.clone().reload_on_change(stopping.clone()));
    }
    let serving = tokio::spawn(listen::serve(listener, tls, router, app.clone()));

    home.write_address(&app.settings.local_url(address))?;
    say_ready(&app, address).context("cannot say that the server is ready")?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    stopping.cancel();
    app.tasks.close();
    let drained = async {
        let _ = serving.await;
        app.tasks.wait().await;
        app.terminals.stop().await;
        tasks.close();
        tasks.wait().await;
        app.leases.finished().await;
        if let Err(error) = app.projects.memories().snapshot_all().await {
            tracing::warn!(%error, "no snapshot on stop; the log has everything");
        }
    };
    tokio::select! {
        () = drained => tracing::info!("stopped"),
        () = tokio::time::sleep(DRAIN) => tracing::warn!("stopped with answers under way"),
        _ = terminate.recv() => tracing::warn!("stopped at once: second SIGTERM"),
        _ = interrupt.recv() => tracing::warn!("stopped at once: second SIGINT"),
    }
    home.remove_address();
    Ok(())
}

/// One line others can wait for, then the link for a person.
fn say_ready(app: &App, address: SocketAddr) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {}://{address}", app.settings.scheme().name())?;
    if !app.auth.is_open() {
        writeln!(out, "sign in (works once): {}", app.sign_in_link()?)?;
    }
    out.flush()?;
    Ok(())
}

/// Each watcher and each host costs a descriptor; the usual soft limit of 1,024 is soon met.
/// Returns the limit; `None` if there is none.
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

/// The connections that leave half of the descriptors to hosts, files and the store.
fn affordable(connections: usize, descriptors: Option<u64>) -> usize {
    let half =
        descriptors.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
    if connections > half {
        tracing::info!(connections = half, "limits.connections is lowered: open files are limited");
    }
    connections.min(half).max(1)
}
