//! Ends or pauses sandboxes whose time is over: all that are due at once, so many of each provider.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::Compat;
use api::error::{Code, Problem};
use model::{ThreadId, Timestamp};

/// How long an expiry that failed waits for its next try.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Sandboxes of one provider that are ended or paused at the same time because their time is over.
const CONCURRENT_EXPIRIES: usize = 16;
/// How long one of them may take before another gets its turn.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Finds the sandboxes that the store remembers, and ends or pauses each when its time is over.
pub async fn expire(app: Compat, stop: CancellationToken) {
    while let Err(error) = app.load_sandboxes().await {
        tracing::warn!(%error, "cannot look for the sandboxes yet");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TRY_AGAIN) => {}
        }
    }
    if let Err(problem) = app.recover_builds().await {
        tracing::warn!(detail = problem.detail(), "cannot tell of the builds that were given up");
    }
    let mut expiring = Expiring::default();
    loop {
        let now = app.now().at;
        let mut next = Timestamp::MAX;
        for (id, at) in app.sandboxes.known().iter() {
            if *at <= now {
                expiring.begin(&app, id);
            } else {
                next = next.min(*at);
            }
        }
        let wait = Duration::try_from(next.duration_since(app.now().at)).unwrap_or_default();
        tokio::select! {
            () = stop.cancelled() => return,
            () = app.sandboxes.changed.notified() => {}
            () = expiring.ended() => {}
            // The clock may be set meanwhile.
            () = tokio::time::sleep(wait.min(Duration::from_secs(60))) => {}
        }
    }
}

/// The sandboxes that are being ended or paused because their time is over. Each has a task of its own;
/// a provider is asked for so many at once, so that a slow one delays only its own.
#[derive(Default)]
struct Expiring {
    tasks: JoinSet<ThreadId>,
    ids: HashSet<ThreadId>,
    providers: HashMap<String, Arc<Semaphore>>,
}

impl Expiring {
    fn begin(&mut self, app: &Compat, id: &ThreadId) {
        if !self.ids.insert(id.clone()) {
            return;
        }
        let (app, id) = (app.clone(), id.clone());
        let turns = self.turns_by_provider(&app);
        self.tasks.spawn(async move {
            let expired = async {
                let _turn = match turns.get(&app.provider_of(&id).await?) {
                    Some(turns) => turns.acquire().await.ok(),
                    None => None,
                };
                match tokio::time::timeout(EXPIRY_TIMEOUT, app.expire_sandbox(&id)).await {
                    Ok(expired) => expired,
                    Err(_) => Err(Problem::new(Code::Internal, "its provider takes too long")),
                }
            };
            if let Err(problem) = expired.await {
                tracing::warn!(sandbox = %id, detail = problem.detail(), "cannot end a sandbox yet");
                let later = app.now().at.checked_add(TRY_AGAIN).unwrap_or(Timestamp::MAX);
                app.sandboxes.note(&id, later);
            }
            id
        });
    }

    fn turns_by_provider(&mut self, app: &Compat) -> HashMap<String, Arc<Semaphore>> {
        for provider in app.leases.providers().all() {
            let turns = || Arc::new(Semaphore::new(CONCURRENT_EXPIRIES));
            self.providers.entry(provider.name().to_owned()).or_insert_with(turns);
        }
        self.providers.clone()
    }

    /// Waits until one of them is over; for ever if there is none.
    async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(id)) => drop(self.ids.remove(&id)),
            // It panicked, which is in the log. Which it was is not known: all others are let go of too,
            // for an expiry that is begun twice does nothing the second time.
            Some(Err(_)) => self.ids.clear(),
            None => std::future::pending().await,
        }
    }
}
