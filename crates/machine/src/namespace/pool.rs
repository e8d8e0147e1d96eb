//! Sandboxes that are ready before anybody asks for one.
//!
//! One that waits is a sandbox like any other, in a directory with a name of its own and without a
//! label. It is given away by writing its label, and then moving its disk and its directory to the
//! names that they have for that lease. What a server that is killed in between leaves is a directory
//! whose name is not its label's; the next start ends it.
//!
//! A host that waits hears its server by a connection that is held open for it, and ends when that
//! closes before there was a terminal: a server that is killed leaves none waiting for ever.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::host::wire::{FEATURES, Request, VERSION};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::blocking;
use super::disks::Disks;
use super::host::Host;
use super::label::Label;
use super::launch::TERMINALS;
use super::make::make_dir;
use super::spec::{Egress, SandboxSpec};
use model::InstanceId;
use provider::{Intent, ProviderError};

/// What the names of those that wait begin with.
pub(crate) const MARK: &str = "warm-";

/// Kinds of sandboxes that are kept ready: the usual one, and those asked for last.
const KINDS: usize = 4;

/// How long after one was given away the next is made: its shell is starting meanwhile.
const AFTER: Duration = Duration::from_millis(150);

/// How long after one could not be made the next is tried.
const AGAIN: Duration = Duration::from_secs(10);

/// How often it is looked whether those that wait still live.
const LOOK: Duration = Duration::from_secs(30);

/// Who makes the sandboxes that wait. Generic, not a trait object: there are two, known where they are
/// used.
pub(crate) trait Makes: Send + Sync {
    /// Where they wait.
    fn pool(&self) -> &Pool;

    /// Where their disks are.
    fn disks(&self) -> &Disks;

    /// What the runtime or the engine calls the one of this name.
    fn called(&self, name: &str) -> String;

    /// Makes one in the directory of its name, which is there, with the disk of its name.
    fn make(
        &self,
        name: &str,
        spec: &SandboxSpec,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Makes one be gone, with its directory.
    fn end(&self, name: &str) -> impl Future<Output = Result<(), ProviderError>> + Send;
}

/// The sandboxes that wait.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The directory that those of all sandboxes of this kind are in.
    places: PathBuf,
    /// How many of a kind are to wait.
    size: usize,
    ready: Mutex<Vec<Warm>>,
    /// The kinds to be kept ready, the one asked for last first.
    kinds: Mutex<VecDeque<SandboxSpec>>,
    /// Raised when there is something to do.
    changed: Notify,
    /// Held for those that were given away.
    held: Mutex<HashMap<InstanceId, UnixStream>>,
    /// Held while a directory changes its name.
    renaming: Arc<Mutex<()>>,
}

/// One that waits.
#[derive(Debug)]
struct Warm {
    name: String,
    spec: SandboxSpec,
    held: Option<UnixStream>,
}

impl Pool {
    pub(crate) fn new(places: PathBuf, size: usize) -> Self {
        Self {
            places,
            size,
            ready: Mutex::default(),
            kinds: Mutex::default(),
            changed: Notify::new(),
            held: Mutex::default(),
            renaming: Arc::default(),
        }
    }

    /// Notes that such a sandbox is asked for.
    fn note(&self, spec: &SandboxSpec) {
        // The addresses of an allow-list are looked up when a sandbox is made: they would grow old. So
        // would a snapshot, in whose place there may be another of its name.
        if matches!(spec.egress, Egress::Only(_) | Egress::Ruled(_)) || spec.snapshot.is_some() {
            return;
        }
        let mut kinds = lock(&self.kinds);
        if kinds.front() != Some(spec) {
            kinds.retain(|kind| kind != spec);
            kinds.push_front(spec.clone());
            kinds.truncate(KINDS);
        }
    }

    /// How many wait; `None` where none ever do.
    pub(crate) fn ready(&self) -> Option<usize> {
        (self.size > 0).then(|| lock(&self.ready).len())
    }

    /// As long as this is held, no directory of a sandbox changes its name.
    pub(crate) fn still(&self) -> MutexGuard<'_, ()> {
        lock(&self.renaming)
    }

    /// Takes one that waits.
    fn take(&self, spec: &SandboxSpec) -> Option<Warm> {
        let mut ready = lock(&self.ready);
        let at = ready.iter().position(|warm| warm.spec == *spec)?;
        Some(ready.remove(at))
    }

    /// Lets go of what was held for an instance.
    pub(crate) fn release(&self, id: &InstanceId) {
        lock(&self.held).remove(id);
    }

    /// A kind of which too few wait.
    fn lacking(&self) -> Option<SandboxSpec> {
        let (kinds, ready) = (lock(&self.kinds), lock(&self.ready));
        let waiting = |kind: &SandboxSpec| ready.iter().filter(|warm| warm.spec == *kind).count();
        kinds.iter().find(|kind| waiting(kind) < self.size).cloned()
    }

    /// Takes those of kinds that are not asked for any more.
    fn take_unwanted(&self) -> Vec<String> {
        let (kinds, mut ready) = (lock(&self.kinds), lock(&self.ready));
        let unwanted = ready.extract_if(.., |warm| !kinds.contains(&warm.spec));
        unwanted.map(|warm| warm.name).collect()
    }

    /// Takes those that died while they waited.
    async fn take_dead(&self) -> Vec<String> {
        let names: Vec<String> = lock(&self.ready).iter().map(|warm| warm.name.clone()).collect();
        let mut dead = Vec::new();
        for name in names {
            if Host::lives(&self.places.join(&name)).await.unwrap_or(false) {
                continue;
            }
            dead.extend(lock(&self.ready).extract_if(.., |warm| warm.name == name));
        }
        dead.into_iter().map(|warm| warm.name).collect()
    }

    fn take_all(&self) -> Vec<String> {
        lock(&self.ready).drain(..).map(|warm| warm.name).collect()
    }
}

/// Keeps sandboxes ready until told to stop, and then ends those that wait. Of the usual kind, some
/// wait before anybody has asked for one.
pub(crate) async fn keep_warm(
    maker: impl Makes,
    usual: Option<SandboxSpec>,
    stop: CancellationToken,
) {
    let pool = maker.pool();
    if pool.size == 0 {
        return;
    }
    if let Some(spec) = usual {
        pool.note(&spec);
    }
    let mut failing = false;
    while !stop.is_cancelled() {
        for name in pool.take_unwanted().into_iter().chain(pool.take_dead().await) {
            cool_down(&maker, &name).await;
        }
        let pause = match pool.lacking() {
            Some(spec) => match warm_up(&maker, spec).await {
                Ok(()) => {
                    failing = false;
                    continue;
                }
                Err(error) => {
                    // Said once: an engine may be away for days.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot keep a sandbox ready");
                    }
                    AGAIN
                }
            },
            None => {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = pool.changed.notified() => AFTER,
                    () = sleep(LOOK) => Duration::ZERO,
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(pause) => {}
        }
    }
    for name in pool.take_all() {
        cool_down(&maker, &name).await;
    }
}

async fn warm_up(maker: &impl Makes, spec: SandboxSpec) -> Result<(), ProviderError> {
    let id = InstanceId::fresh().to_string();
    let name = format!("{MARK}{}", id.trim_start_matches("inst_"));
    let dir = maker.pool().places.join(&name);
    let failed = |source| ProviderError::failed("make a sandbox", source);
    make_dir(&dir.join(TERMINALS)).map_err(failed)?;
    let made = async {
        maker.make(&name, &spec).await?;
        greet(&dir).await.map_err(failed)
    };
    match made.await {
        Ok(held) => lock(&maker.pool().ready).push(Warm { name, spec, held: Some(held) }),
        Err(error) => {
            cool_down(maker, &name).await;
            return Err(error);
        }
    }
    Ok(())
}

/// Ends one that waits, with its disk.
async fn cool_down(maker: &impl Makes, name: &str) {
    let ended = async {
        maker.end(name).await?;
        let (disks, name) = (maker.disks().clone(), name.to_owned());
        blocking("remove a sandbox's disk", move || disks.remove(&name)).await
    };
    if let Err(error) = ended.await {
        tracing::warn!(%error, "cannot end a sandbox that waits");
    }
}

/// Gives one that waits to an instance that is to be made; answers what it is called, if there was one.
pub(crate) async fn claim(
    maker: &impl Makes,
    intent: &Intent,
    spec: &SandboxSpec,
) -> Result<Option<String>, ProviderError> {
    let pool = maker.pool();
    if pool.size == 0 {
        return Ok(None);
    }
    pool.note(spec);
    pool.changed.notify_one();
    // A lease that had an instance has files of its own.
    if maker.disks().of(intent.lease_id.as_str()).exists() {
        return Ok(None);
    }
    let failed = |source| ProviderError::failed("look at a sandbox", source);
    while let Some(Warm { name, held, .. }) = pool.take(spec) {
        let (from, to) = (pool.places.join(&name), pool.places.join(intent.instance_id.as_str()));
        if !Host::lives(&from).await.map_err(failed)? {
            cool_down(maker, &name).await;
            continue;
        }
        let called = maker.called(&name);
        let label = Label {
            lease_id: intent.lease_id.clone(),
            generation: intent.generation,
            instance_id: intent.instance_id.clone(),
            name: called.clone(),
        };
        let (disks, renaming) = (maker.disks().clone(), pool.renaming.clone());
        blocking("give a sandbox away", move || {
            label.write(&from)?;
            disks.give(&name, &label.lease_id)?;
            let _still = lock(&renaming);
            fs::rename(from, to)
        })
        .await?;
        if let Some(held) = held {
            lock(&pool.held).insert(intent.instance_id.clone(), held);
        }
        return Ok(Some(called));
    }
    Ok(None)
}

/// Tells a host that its server is there, as long as the connection is.
async fn greet(dir: &Path) -> io::Result<UnixStream> {
    let host = Host::connect(dir).await?;
    let mut stream = host.ok_or(io::ErrorKind::ConnectionRefused)?.stream;
    let hello = Request::Hello { version: VERSION, features: FEATURES };
    let mut frame = Vec::new();
    hello.encode(&mut frame).map_err(io::Error::other)?;
    stream.write_all(&frame).await?;
    Ok(stream)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(memory: u64) -> SandboxSpec {
        SandboxSpec::default_for(memory, 2)
    }

    fn warm(pool: &Pool, name: &str, spec: &SandboxSpec) {
        lock(&pool.ready).push(Warm { name: name.to_owned(), spec: spec.clone(), held: None });
    }

    #[test]
    fn each_kind_that_was_asked_for_is_kept_ready() {
        let (one, two) = (spec(1 << 30), spec(4 << 30));
        let pool = Pool::new(PathBuf::new(), 1);
        assert_eq!(pool.lacking(), None);
        pool.note(&one);
        pool.note(&two);
        assert_eq!(pool.lacking(), Some(two.clone()));
        warm(&pool, "a", &two);
        assert_eq!(pool.lacking(), Some(one.clone()));
        warm(&pool, "b", &one);
        assert_eq!(pool.lacking(), None);
        assert_eq!(pool.take(&one).map(|warm| warm.name).as_deref(), Some("b"));
        let take = |kind| pool.take(kind).map(|warm| warm.name);
        assert_eq!(take(&one), None, "one of another kind is not given away");
        assert_eq!(take(&two).as_deref(), Some("a"));
        assert_eq!(take(&two), None);
    }

    #[test]
    fn kinds_that_nobody_asks_for_any_more_go() {
        let pool = Pool::new(PathBuf::new(), 1);
        let kinds: Vec<SandboxSpec> = (1..=KINDS as u64 + 1).map(|nth| spec(nth << 30)).collect();
        for (nth, kind) in kinds.iter().enumerate() {
            pool.note(kind);
            warm(&pool, &nth.to_string(), kind);
        }
        let mut distinct = kinds.clone();
        distinct.dedup();
        let gone = pool.take_unwanted();
        assert_eq!(gone.len(), distinct.len().saturating_sub(KINDS), "{gone:?}");
        let listed = SandboxSpec { egress: Egress::Only(vec![]), ..spec(1 << 30) };
        pool.note(&listed);
        assert!(!lock(&pool.kinds).contains(&listed));
    }
}
