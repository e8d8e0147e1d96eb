//! Every periodic loop the server runs, in one list.

use std::{future::Future, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use crate::{
    clock::Clock,
    lease::Leases,
    session::Sessions,
    store::{Pruned, Retention, Store},
};

/// How often what no lease knows is looked for.
const REAP: Duration = Duration::from_secs(60);

/// How often what is no longer kept is let go.
const PRUNE: Duration = Duration::from_secs(60 * 60);

/// What the loops work on.
#[derive(Debug, Clone)]
pub struct Background {
    /// The rows.
    pub store: Store,
    /// The leases.
    pub leases: Leases,
    /// The sessions.
    pub sessions: Sessions,
    /// The time.
    pub clock: Clock,
    /// How much history is kept.
    pub retention: Retention,
}

impl Background {
    /// Starts every loop; they end when `stop` is cancelled. `forget` is told which commands went, so
    /// that their output can go too.
    pub fn start<F>(
        self,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        forget: impl Fn(Pruned) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let sessions = self.sessions.clone();
        let until = stop.clone();
        tasks.spawn(async move { sessions.run(until).await });

        let leases = self.leases.clone();
        tasks.spawn(every(REAP, stop.clone(), move || {
            let leases = leases.clone();
            async move {
                leases.reap().await;
            }
        }));

        let Self { store, clock, retention, .. } = self;
        let forget = std::sync::Arc::new(forget);
        tasks.spawn(every(PRUNE, stop.clone(), move || {
            let (store, clock, forget) = (store.clone(), clock.clone(), forget.clone());
            async move {
                match store.prune(retention, clock.wall()).await {
                    Ok(pruned) => forget(pruned).await,
                    Err(error) => warn!(%error, "cannot let go of old history yet"),
                }
            }
        }));
    }
}

/// Does something again and again, first after one period.
async fn every<F: Future<Output = ()>>(
    period: Duration,
    stop: CancellationToken,
    act: impl Fn() -> F,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = act() => {}
        }
    }
}
