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
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::host::wire::{FEATURES, Request, VERSION};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::host::Host;
use super::label::Label;
use super::spec::{Egress, SandboxSpec};
use super::{Namespace, blocking, disk, end, launch, make, snapshot};
use crate::model::InstanceId;
use crate::provider::{Intent, ProviderError};

/// What the names of those that wait begin with.
pub(super) const MARK: &str = "warm-";

/// Kinds of sandboxes that are kept ready: the usual one, and those asked for last.
const KINDS: usize = 4;

/// How long after one was given away the next is made: its shell is starting meanwhile.
const AFTER: Duration = Duration::from_millis(150);

/// How long after one could not be made the next is tried.
const AGAIN: Duration = Duration::from_secs(10);

/// The sandboxes that wait.
#[derive(Debug, Default)]
pub(super) struct Pool {
    ready: Mutex<Vec<Warm>>,
    /// The kinds to be kept ready, the one asked for last first.
    kinds: Mutex<VecDeque<SandboxSpec>>,
    /// Raised when there is something to do.
    changed: Notify,
    /// Held for those that were given away.
    held: Mutex<HashMap<InstanceId, UnixStream>>,
}

/// One that waits.
#[derive(Debug)]
struct Warm {
    name: String,
    spec: SandboxSpec,
    held: Option<UnixStream>,
}

impl Pool {
    /// Notes that such a sandbox is asked for.
    fn note(&self, spec: &SandboxSpec) {
        // The addresses of an allow-list are looked up when a sandbox is made: they would grow old. So
        // would a snapshot, in whose place there may be another of its name.
        if matches!(spec.egress, Egress::Only(_)) || spec.snapshot.is_some() {
            return;
        }
        let mut kinds = lock(&self.kinds);
        if kinds.front() != Some(spec) {
            kinds.retain(|kind| kind != spec);
            kinds.push_front(spec.clone());
            kinds.truncate(KINDS);
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        lock(&self.ready).len()
    }

    /// Takes one that waits.
    fn take(&self, spec: &SandboxSpec) -> Option<Warm> {
        let mut ready = lock(&self.ready);
        let at = ready.iter().position(|warm| warm.spec == *spec)?;
        Some(ready.remove(at))
    }

    /// Lets go of what was held for an instance.
    pub(super) fn release(&self, id: &InstanceId) {
        lock(&self.held).remove(id);
    }

    /// A kind of which fewer than `size` wait.
    fn lacking(&self, size: usize) -> Option<SandboxSpec> {
        let (kinds, ready) = (lock(&self.kinds), lock(&self.ready));
        let waiting = |kind: &SandboxSpec| ready.iter().filter(|warm| warm.spec == *kind).count();
        kinds.iter().find(|kind| waiting(kind) < size).cloned()
    }

    /// Takes those of kinds that are not asked for any more.
    fn take_unwanted(&self) -> Vec<String> {
        let (kinds, mut ready) = (lock(&self.kinds), lock(&self.ready));
        let unwanted = ready.extract_if(.., |warm| !kinds.contains(&warm.spec));
        unwanted.map(|warm| warm.name).collect()
    }

    fn take_all(&self) -> Vec<String> {
        lock(&self.ready).drain(..).map(|warm| warm.name).collect()
    }
}

impl Namespace {
    /// Keeps sandboxes ready until told to stop, and then ends those that wait. With `usual`, some
    /// wait before anybody has asked for one.
    pub async fn keep_warm(self, usual: bool, stop: CancellationToken) {
        let size = self.0.options.warm;
        if size == 0 {
            return;
        }
        if usual && let Ok(spec) = self.asked("make a sandbox", &serde_json::Value::Null, None) {
            self.0.pool.note(&spec);
        }
        while !stop.is_cancelled() {
            for name in self.0.pool.take_unwanted() {
                self.cool_down(&name).await;
            }
            let pause = match self.0.pool.lacking(size) {
                Some(spec) => match self.warm_up(spec).await {
                    Ok(()) => continue,
                    Err(error) => {
                        tracing::warn!(%error, "cannot keep a sandbox ready");
                        AGAIN
                    }
                },
                None => {
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = self.0.pool.changed.notified() => AFTER,
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        for name in self.0.pool.take_all() {
            self.cool_down(&name).await;
        }
    }

    async fn warm_up(&self, spec: SandboxSpec) -> Result<(), ProviderError> {
        let id = InstanceId::fresh().to_string();
        let name = format!("{MARK}{}", id.trim_start_matches("inst_"));
        let dir = self.0.sandboxes.join(&name);
        let failed = |source| ProviderError::failed("make a sandbox", source);
        make::make_dir(&dir.join(launch::TERMINALS)).map_err(failed)?;
        let disk = self.warm_disk(&name);
        let made = async {
            self.bring_up(&name, "", spec.clone(), disk, &dir).await?;
            greet(&dir).await.map_err(failed)
        };
        match made.await {
            Ok(held) => lock(&self.0.pool.ready).push(Warm { name, spec, held: Some(held) }),
            Err(error) => {
                self.cool_down(&name).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends one that waits, with its disk.
    async fn cool_down(&self, name: &str) {
        let (dir, disk) = (self.0.sandboxes.join(name), self.warm_disk(name));
        let (path, terminals) = (format!("{}/{name}", launch::CGROUP), self.0.terminals.clone());
        let ended = blocking("end a sandbox", move || {
            end(&dir, &super::Cgroups::new(&path)?, &terminals)?;
            snapshot::remove(&disk)
        });
        if let Err(error) = ended.await {
            tracing::warn!(%error, "cannot end a sandbox that waits");
        }
    }

    fn warm_disk(&self, name: &str) -> PathBuf {
        disk::of_lease(&self.0.options.home, name)
    }

    /// Gives one that waits to an instance that is to be made; answers whether there was one.
    pub(super) async fn claim(
        &self,
        intent: &Intent,
        spec: &SandboxSpec,
    ) -> Result<bool, ProviderError> {
        if self.0.options.warm == 0 {
            return Ok(false);
        }
        self.0.pool.note(spec);
        self.0.pool.changed.notify_one();
        let disk = disk::of_lease(&self.0.options.home, intent.lease_id.as_str());
        // A lease that had an instance has files of its own.
        if disk.exists() {
            return Ok(false);
        }
        let failed = |source| ProviderError::failed("look at a sandbox", source);
        while let Some(Warm { name, held, .. }) = self.0.pool.take(spec) {
            let (from, to) = (self.0.sandboxes.join(&name), self.dir(&intent.instance_id));
            if !Host::lives(&from).await.map_err(failed)? {
                self.cool_down(&name).await;
                continue;
            }
            let label = Label {
                lease_id: intent.lease_id.clone(),
                generation: intent.generation,
                instance_id: intent.instance_id.clone(),
                name: name.clone(),
            };
            let warm_disk = self.warm_disk(&name);
            let image = spec.image.clone();
            blocking("give a sandbox away", move || {
                label.write(&from)?;
                if let Some(image) = image {
                    snapshot::note_image(&disk, &image)?;
                    disk::remove(&warm_disk.with_extension("json"))?;
                }
                fs::rename(warm_disk, disk)?;
                fs::rename(from, to)
            })
            .await?;
            if let Some(held) = held {
                lock(&self.0.pool.held).insert(intent.instance_id.clone(), held);
            }
            return Ok(true);
        }
        Ok(false)
    }
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
        let pool = Pool::default();
        assert_eq!(pool.lacking(1), None);
        pool.note(&one);
        pool.note(&two);
        assert_eq!(pool.lacking(1), Some(two.clone()));
        warm(&pool, "a", &two);
        assert_eq!(pool.lacking(1), Some(one.clone()));
        assert_eq!(pool.lacking(2), Some(two.clone()));
        let take = |kind| pool.take(kind).map(|warm| warm.name);
        assert_eq!(take(&one), None, "one of another kind is not given away");
        assert_eq!(take(&two).as_deref(), Some("a"));
        assert_eq!(take(&two), None);
    }

    #[test]
    fn kinds_that_nobody_asks_for_any_more_go() {
        let pool = Pool::default();
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
