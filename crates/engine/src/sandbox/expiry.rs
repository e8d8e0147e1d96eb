//! Deletes, pauses or suspends each sandbox whose lifetime is over.
//!
//! The store is queried for due sandboxes every time: there is no list in memory that a crash could lose. Due
//! sandboxes are handled in parallel with a limit for each provider, so that a slow provider delays only its
//! own sandboxes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{SandboxError, Sandboxes, wake};
use model::{Expiry, ExpiryAction, ThreadId};

/// How long after an attempt the same sandbox is tried again, if it is still due.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How often the store is queried although no sandbox is known to be due: the clock may be set, and a session
/// that ends stops a sandbox without a change of its row.
const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// Sandboxes of one provider that are expired at the same time.
const CONCURRENT_EXPIRIES: usize = 16;
/// How long one expiry may take before the next sandbox of its provider is handled.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(60);

impl Sandboxes {
    /// Expires sandboxes until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changed = self.shared.changed.subscribe();
        let mut started = self.shared.events.subscribe(None);
        let mut expiries = Expiries::default();
        loop {
            changed.mark_unchanged();
            // Before anything expires: a sandbox in use has a new lifetime.
            if let Err(error) = self.wake_used().await {
                tracing::warn!(%error, "cannot record yet that a use resumed sandboxes");
            }
            let wait = self.expire_due(&mut expiries).await;
            tokio::select! {
                () = stop.cancelled() => return,
                _ = changed.changed() => {}
                () = wake::instance_started(&mut started) => {}
                () = expiries.ended() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Starts the expiry of every sandbox that is due. Returns the time until the next check.
    async fn expire_due(&self, expiries: &mut Expiries) -> Duration {
        let now = self.now();
        let found = match self.shared.store.due_sandboxes(now).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot list the expired sandboxes yet");
                return RETRY_INTERVAL;
            }
        };
        let is_due: HashSet<_> = found.due.iter().map(|(id, _)| id.clone()).collect();
        expiries.retry_at.retain(|id, _| is_due.contains(id));
        for (id, provider) in found.due {
            let (sandboxes, due) = (self.clone(), id.clone());
            expiries.begin(id, provider, async move { sandboxes.expire(&due).await });
        }
        let until_next = found.next.map_or(POLL_INTERVAL, |next| {
            Duration::try_from(next.duration_since(now)).unwrap_or_default()
        });
        until_next.min(expiries.until_retry()).min(POLL_INTERVAL)
    }

    /// Deletes, pauses or suspends a sandbox, if it is still due.
    async fn expire(&self, id: &ThreadId) -> Result<(), SandboxError> {
        let Some(sandbox) = self.get(id).await? else { return Ok(()) };
        match sandbox.row.expiry(&sandbox.lease, self.now()) {
            Expiry::At(_) | Expiry::Never => {}
            Expiry::Due(ExpiryAction::Delete) => {
                tracing::info!(sandbox = %id, "the sandbox has expired and is deleted");
                self.delete(id).await?;
            }
            Expiry::Due(ExpiryAction::Pause) => {
                tracing::info!(sandbox = %id, "the sandbox has expired and is paused");
                self.pause(&sandbox).await?;
            }
            Expiry::Due(ExpiryAction::Suspend) => {
                tracing::info!(sandbox = %id, "the sandbox has expired and is suspended");
                self.suspend(&sandbox).await?;
            }
        }
        Ok(())
    }
}

/// The expiries under way, each in a task of its own.
#[derive(Default)]
struct Expiries {
    tasks: JoinSet<ThreadId>,
    running: HashSet<ThreadId>,
    /// When a sandbox that is still due may be tried again.
    retry_at: HashMap<ThreadId, Instant>,
    limits: HashMap<String, Arc<Semaphore>>,
}

impl Expiries {
    fn begin(
        &mut self,
        id: ThreadId,
        provider: String,
        expire: impl Future<Output = Result<(), SandboxError>> + Send + 'static,
    ) {
        let is_early = self.retry_at.get(&id).is_some_and(|at| *at > Instant::now());
        if is_early || !self.running.insert(id.clone()) {
            return;
        }
        let limit = self.limits.entry(provider.clone());
        let limit = limit.or_insert_with(|| Arc::new(Semaphore::new(CONCURRENT_EXPIRIES))).clone();
        self.tasks.spawn(async move {
            let _permit = limit.acquire().await;
            let expired = match tokio::time::timeout(EXPIRY_TIMEOUT, expire).await {
                Ok(expired) => expired,
                Err(_) => {
                    Err(SandboxError::TimedOut { provider, seconds: EXPIRY_TIMEOUT.as_secs() })
                }
            };
            if let Err(error) = expired {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(sandbox = %id, error, "cannot expire the sandbox yet");
            }
            id
        });
    }

    /// Waits until an expiry is over; never returns if there is none.
    async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(id)) => {
                self.running.remove(&id);
                self.retry_at.insert(id, Instant::now() + RETRY_INTERVAL);
            }
            // A task panicked, which is logged, and its sandbox is unknown. An expiry that is started twice does
            // nothing the second time.
            Some(Err(_)) => self.running.clear(),
            None => std::future::pending().await,
        }
    }

    fn until_retry(&self) -> Duration {
        let next = self.retry_at.values().min();
        next.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_provider_does_not_delay_the_expiry_of_others() {
        let mut expiries = Expiries::default();
        let id = |name: String| name.parse::<ThreadId>().unwrap();
        for number in 0..=CONCURRENT_EXPIRIES {
            expiries.begin(id(format!("slow-{number}")), "slow".to_owned(), pending());
        }
        let began = Instant::now();
        expiries.begin(id("quick".to_owned()), "quick".to_owned(), ready(Ok(())));
        expiries.ended().await;
        assert!(!expiries.running.contains(&id("quick".to_owned())));
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Nor does a call that never ends take the place of the next sandbox for good.
        let last = id(format!("late-{CONCURRENT_EXPIRIES}"));
        expiries.begin(last.clone(), "slow".to_owned(), ready(Ok(())));
        while expiries.running.contains(&last) {
            expiries.ended().await;
        }
        assert!(began.elapsed() <= EXPIRY_TIMEOUT * 2, "{:?}", began.elapsed());
    }
}
