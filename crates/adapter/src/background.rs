//! What runs beside the requests of other APIs.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::usage;
use crate::Adapter;
use base::event::{Delivery, EventKind};
use store::{SandboxFilter, SandboxPurpose, StoreError};

/// How long a failed read of the store waits for its next try.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Finds the sandboxes and builds that the store knows, then measures sandboxes and forgets deleted ones,
/// until `stop` is cancelled.
pub async fn run(app: Adapter, stop: CancellationToken) {
    let work = async {
        // Before the index is read, so that a deletion in between is not missed.
        let events = app.events.subscribe(None);
        while let Err(error) = index(&app).await {
            tracing::warn!(%error, "cannot read the sandboxes yet");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        if let Err(problem) = app.recover_builds().await {
            tracing::warn!(
                detail = problem.detail(),
                "cannot report the builds that were cut short"
            );
        }
        tokio::join!(usage::measure(&app), forget_deleted(&app, events));
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

async fn index(app: &Adapter) -> Result<(), StoreError> {
    let filter = SandboxFilter { purpose: SandboxPurpose::Any, ..SandboxFilter::default() };
    let all = app.sandboxes.all(filter).await?;
    app.state.index.replace(all.into_iter().map(|sandbox| sandbox.row.thread_id).collect());
    Ok(())
}

/// Drops what is kept in memory of sandboxes that were deleted, expired ones among them.
async fn forget_deleted(app: &Adapter, mut events: base::event::EventSubscription) {
    while let Some(heard) = events.next().await {
        match heard {
            Delivery::Event(event) => {
                if let EventKind::ThreadDeleted { thread_id } = &event.kind {
                    app.forget_sandbox(thread_id);
                }
            }
            Delivery::Missed(_) => {
                let known = app.state.index.ids();
                if let Err(error) = index(app).await {
                    tracing::warn!(%error, "cannot read the sandboxes yet");
                    continue;
                }
                let left = app.state.index.ids();
                for gone in known.iter().filter(|id| !left.contains(id)) {
                    app.forget_sandbox(gone);
                }
            }
        }
    }
}
