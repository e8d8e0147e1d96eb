//! Background work for the other APIs.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::usage;
use crate::Adapter;
use base::event::{Delivery, EventKind};
use store::{SandboxFilter, SandboxPurpose, StoreError};

/// How long to wait after a failed read of the store.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Loads the sandboxes and builds of the store, then measures sandboxes and forgets deleted ones, until `stop`
/// is cancelled.
pub async fn run(app: Adapter, stop: CancellationToken) {
    let work = async {
        // Subscribed before the index is loaded, so that a deletion in between is not missed.
        let events = app.events.subscribe(None);
        while let Err(error) = index(&app).await {
            tracing::warn!(%error, "cannot list the sandboxes");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        if let Err(problem) = app.recover_builds().await {
            tracing::warn!(
                detail = problem.detail(),
                "cannot mark the interrupted builds as failed"
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

/// Drops the in-memory state of sandboxes that were deleted or have expired.
async fn forget_deleted(app: &Adapter, mut events: base::event::EventSubscription) {
    while let Some(delivery) = events.next().await {
        match delivery {
            Delivery::Event(event) => {
                if let EventKind::ThreadDeleted { thread_id } = &event.kind {
                    app.forget_sandbox(thread_id);
                }
            }
            Delivery::Missed(_) => {
                let known = app.state.index.ids();
                if let Err(error) = index(app).await {
                    tracing::warn!(%error, "cannot list the sandboxes");
                    continue;
                }
                let existing = app.state.index.ids();
                for deleted in known.iter().filter(|id| !existing.contains(id)) {
                    app.forget_sandbox(deleted);
                }
            }
        }
    }
}
