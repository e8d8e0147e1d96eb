//! The pool of warm sandboxes, which are started before a lease needs one.
//!
//! A warm sandbox is an ordinary sandbox in a directory `warm-…` without a label. To assign it to a lease,
//! its label is written, and its disk and directory are renamed. A server that is killed in between leaves
//! a directory whose name differs from its label; the next start removes it.
//!
//! The server holds a connection to each warm host. A host without a terminal ends when that closes, so a
//! killed server leaves no warm sandbox behind.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use wire::{FEATURES, Request, VERSION};

use crate::blocking::blocking;
use crate::disk::store::{DiskStore, WARM_PREFIX};
use crate::files::make_dir;
use crate::label::InstanceLabel;
use crate::layout::TERMINALS;
use crate::spec::{EgressPolicy, SandboxSpec};
use model::InstanceId;
use provider::{HostSocket, Intent, ProviderError};

/// The number of different settings for which sandboxes are kept warm: the most recently requested ones.
const MAX_KINDS: usize = 4;

/// The delay before a claimed sandbox is replaced, while its shell is starting.
const REPLACE_DELAY: Duration = Duration::from_millis(150);

/// The delay after a failed start.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The interval between two checks that warm sandboxes are alive.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The sandboxes that are started before any is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prewarm {
    /// Those with the default settings.
    Default,
    /// None: the pool only holds kinds that were requested.
    OnDemand,
}

/// Starts the sandboxes of a pool.
pub(crate) trait WarmSource: Send + Sync {
    fn pool(&self) -> &Pool;

    fn disk_store(&self) -> &DiskStore;

    /// The name of the cgroup or container of the sandbox with this directory.
    fn runtime_name(&self, directory: &str) -> String;

    /// Starts a sandbox in the existing directory of this name, with the disk of this name.
    fn start(
        &self,
        name: &str,
        spec: &SandboxSpec,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Ends a sandbox and removes its directory.
    fn end(&self, name: &str) -> impl Future<Output = Result<(), ProviderError>> + Send;
}

/// The warm sandboxes of one provider.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The directory of all instances.
    instances: PathBuf,
    /// The number of warm sandboxes of each kind.
    size: usize,
    ready: Mutex<Vec<WarmSandbox>>,
    /// The kinds to be kept warm, the last requested one first.
    kinds: Mutex<VecDeque<SandboxSpec>>,
    /// Wakes [`keep_warm`] when a sandbox was requested.
    changed: Notify,
    /// The connections to hosts of claimed sandboxes.
    connections: Mutex<HashMap<InstanceId, UnixStream>>,
    /// Locked while a directory is renamed.
    renaming: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct WarmSandbox {
    name: String,
    spec: SandboxSpec,
    connection: Option<UnixStream>,
}

impl Pool {
    pub(crate) fn new(instances: PathBuf, size: usize) -> Self {
        Self {
            instances,
            size,
            ready: Mutex::default(),
            kinds: Mutex::default(),
            changed: Notify::new(),
            connections: Mutex::default(),
            renaming: Arc::default(),
        }
    }

    /// Records that a sandbox with these settings is requested.
    fn note_request(&self, spec: &SandboxSpec) {
        // The names of an allow-list are resolved when a sandbox starts, and would become outdated. So would
        // a snapshot, which may be replaced.
        if matches!(spec.egress, EgressPolicy::Only(_) | EgressPolicy::Ruled(_))
            || spec.snapshot.is_some()
        {
            return;
        }
        let mut kinds = self.kinds.lock();
        if kinds.front() != Some(spec) {
            kinds.retain(|kind| kind != spec);
            kinds.push_front(spec.clone());
            kinds.truncate(MAX_KINDS);
        }
    }

    /// The number of warm sandboxes; `None` if the pool is off.
    pub(crate) fn ready(&self) -> Option<usize> {
        (self.size > 0).then(|| self.ready.lock().len())
    }

    /// Keeps the directories of sandboxes from being renamed while the guard lives.
    pub(crate) fn forbid_renames(&self) -> MutexGuard<'_, ()> {
        self.renaming.lock()
    }

    fn take(&self, spec: &SandboxSpec) -> Option<WarmSandbox> {
        let mut ready = self.ready.lock();
        let at = ready.iter().position(|warm| warm.spec == *spec)?;
        Some(ready.remove(at))
    }

    /// Closes the connection that was kept for an instance.
    pub(crate) fn release(&self, id: &InstanceId) {
        self.connections.lock().remove(id);
    }

    /// A kind with too few warm sandboxes.
    fn lacking(&self) -> Option<SandboxSpec> {
        let (kinds, ready) = (self.kinds.lock(), self.ready.lock());
        let waiting = |kind: &SandboxSpec| ready.iter().filter(|warm| warm.spec == *kind).count();
        kinds.iter().find(|kind| waiting(kind) < self.size).cloned()
    }

    /// Takes the sandboxes of kinds that are no longer requested.
    fn take_unwanted(&self) -> Vec<String> {
        let (kinds, mut ready) = (self.kinds.lock(), self.ready.lock());
        let unwanted = ready.extract_if(.., |warm| !kinds.contains(&warm.spec));
        unwanted.map(|warm| warm.name).collect()
    }

    /// Takes the sandboxes that died.
    async fn take_dead(&self) -> Vec<String> {
        let names: Vec<String> = self.ready.lock().iter().map(|warm| warm.name.clone()).collect();
        let mut dead = Vec::new();
        for name in names {
            if HostSocket::is_alive(&self.instances.join(&name)).await.unwrap_or(false) {
                continue;
            }
            dead.extend(self.ready.lock().extract_if(.., |warm| warm.name == name));
        }
        dead.into_iter().map(|warm| warm.name).collect()
    }

    fn take_all(&self) -> Vec<String> {
        self.ready.lock().drain(..).map(|warm| warm.name).collect()
    }
}

/// Keeps the pool filled until `stop` is cancelled, and then empties it. Sandboxes of the `first` kind are
/// started before any is requested.
pub(crate) async fn keep_warm(
    source: impl WarmSource,
    first: Option<SandboxSpec>,
    stop: CancellationToken,
) {
    let pool = source.pool();
    if pool.size == 0 {
        return;
    }
    if let Some(spec) = first {
        pool.note_request(&spec);
    }
    let mut failing = false;
    while !stop.is_cancelled() {
        for name in pool.take_unwanted().into_iter().chain(pool.take_dead().await) {
            remove(&source, &name).await;
        }
        let delay = match pool.lacking() {
            Some(spec) => match add(&source, spec).await {
                Ok(()) => {
                    failing = false;
                    continue;
                }
                Err(error) => {
                    // Logged once: an engine may be down for days.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot keep a sandbox warm");
                    }
                    RETRY_DELAY
                }
            },
            None => {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = pool.changed.notified() => REPLACE_DELAY,
                    () = sleep(CHECK_INTERVAL) => Duration::ZERO,
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(delay) => {}
        }
    }
    for name in pool.take_all() {
        remove(&source, &name).await;
    }
}

async fn add(source: &impl WarmSource, spec: SandboxSpec) -> Result<(), ProviderError> {
    let id = InstanceId::fresh().to_string();
    let name = format!("{WARM_PREFIX}{}", id.trim_start_matches("inst_"));
    let dir = source.pool().instances.join(&name);
    let failed = |error| ProviderError::failed("start a warm sandbox", error);
    make_dir(&dir.join(TERMINALS)).map_err(failed)?;
    let started = async {
        source.start(&name, &spec).await?;
        greet(&dir).await.map_err(failed)
    };
    match started.await {
        Ok(connection) => {
            let warm = WarmSandbox { name, spec, connection: Some(connection) };
            source.pool().ready.lock().push(warm);
        }
        Err(error) => {
            remove(source, &name).await;
            return Err(error);
        }
    }
    Ok(())
}

/// Ends a warm sandbox and removes its disk.
async fn remove(source: &impl WarmSource, name: &str) {
    let ended = async {
        source.end(name).await?;
        let (disks, name) = (source.disk_store().clone(), name.to_owned());
        blocking("remove a sandbox's disk", move || disks.remove(&name)).await
    };
    if let Err(error) = ended.await {
        tracing::warn!(%error, "cannot end a warm sandbox");
    }
}

/// Assigns a warm sandbox to an instance that is to be created. Returns the name of its cgroup or
/// container, or `None` if no warm sandbox has these settings.
pub(crate) async fn claim(
    source: &impl WarmSource,
    intent: &Intent,
    spec: &SandboxSpec,
) -> Result<Option<String>, ProviderError> {
    let pool = source.pool();
    if pool.size == 0 {
        return Ok(None);
    }
    pool.note_request(spec);
    pool.changed.notify_one();
    // A lease that had an instance has a disk.
    if source.disk_store().of(intent.lease_id.as_str()).exists() {
        return Ok(None);
    }
    let failed = |error| ProviderError::failed("claim a warm sandbox", error);
    while let Some(WarmSandbox { name, connection, .. }) = pool.take(spec) {
        let from = pool.instances.join(&name);
        let to = pool.instances.join(intent.instance_id.as_str());
        if !HostSocket::is_alive(&from).await.map_err(failed)? {
            remove(source, &name).await;
            continue;
        }
        let runtime_name = source.runtime_name(&name);
        let label = InstanceLabel::new(intent, runtime_name.clone());
        let (disks, renaming) = (source.disk_store().clone(), pool.renaming.clone());
        blocking("claim a warm sandbox", move || {
            label.write(&from)?;
            disks.give(&name, &label.lease_id)?;
            let _renaming = renaming.lock();
            fs::rename(from, to)
        })
        .await?;
        if let Some(connection) = connection {
            pool.connections.lock().insert(intent.instance_id.clone(), connection);
        }
        return Ok(Some(runtime_name));
    }
    Ok(None)
}

/// Connects to a host and sends the greeting. The host runs as long as the connection.
async fn greet(dir: &Path) -> io::Result<UnixStream> {
    let host = HostSocket::connect(dir).await?;
    let mut stream = host.ok_or(io::ErrorKind::ConnectionRefused)?.stream;
    let hello = Request::Hello { version: VERSION, features: FEATURES };
    let mut frame = Vec::new();
    hello.encode(&mut frame).map_err(io::Error::other)?;
    stream.write_all(&frame).await?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(memory: u64) -> SandboxSpec {
        SandboxSpec::default_for(memory, 2)
    }

    fn warm(pool: &Pool, name: &str, spec: &SandboxSpec) {
        let (name, spec) = (name.to_owned(), spec.clone());
        pool.ready.lock().push(WarmSandbox { name, spec, connection: None });
    }

    #[test]
    fn each_requested_kind_is_kept_warm() {
        let (one, two) = (spec(1 << 30), spec(4 << 30));
        let pool = Pool::new(PathBuf::new(), 1);
        assert_eq!(pool.lacking(), None);
        pool.note_request(&one);
        pool.note_request(&two);
        assert_eq!(pool.lacking(), Some(two.clone()));
        warm(&pool, "a", &two);
        assert_eq!(pool.lacking(), Some(one.clone()));
        warm(&pool, "b", &one);
        assert_eq!(pool.lacking(), None);
        assert_eq!(pool.take(&one).map(|warm| warm.name).as_deref(), Some("b"));
        let take = |kind| pool.take(kind).map(|warm| warm.name);
        assert_eq!(take(&one), None, "a sandbox of another kind is not claimed");
        assert_eq!(take(&two).as_deref(), Some("a"));
        assert_eq!(take(&two), None);
    }

    #[test]
    fn kinds_that_are_no_longer_requested_are_removed() {
        let pool = Pool::new(PathBuf::new(), 1);
        let kinds: Vec<SandboxSpec> =
            (1..=MAX_KINDS as u64 + 1).map(|nth| spec(nth << 30)).collect();
        for (nth, kind) in kinds.iter().enumerate() {
            pool.note_request(kind);
            warm(&pool, &nth.to_string(), kind);
        }
        let mut distinct = kinds.clone();
        distinct.dedup();
        let removed = pool.take_unwanted();
        assert_eq!(removed.len(), distinct.len().saturating_sub(MAX_KINDS), "{removed:?}");
        let listed = SandboxSpec { egress: EgressPolicy::Only(vec![]), ..spec(1 << 30) };
        pool.note_request(&listed);
        assert!(!pool.kinds.lock().contains(&listed));
    }
}
