//! Records as active each native sandbox that a use has resumed.
//!
//! A use starts the lease and knows nothing of sandboxes. The row follows here: it becomes active, with a new
//! lifetime.

use super::{NATIVE_ORIGIN, SandboxError, Sandboxes};
use base::event::{Delivery, EventKind, EventSubscription};
use model::{SandboxEvent, Timestamp};

impl Sandboxes {
    /// Records as active every sandbox whose compute was started by a use.
    pub(super) async fn wake_used(&self) -> Result<(), SandboxError> {
        for id in self.shared.store.woken_sandboxes(NATIVE_ORIGIN).await? {
            let now = self.now();
            let woken = self.decide(&id, |sandbox| {
                let mut next = sandbox.apply(SandboxEvent::Resumed)?;
                if let Some(lifetime) = sandbox.lifetime {
                    let ends = now.checked_add(lifetime);
                    next = next.apply(SandboxEvent::Extended(ends.unwrap_or(Timestamp::MAX)))?;
                }
                Ok(next)
            });
            woken.await?;
            tracing::info!(sandbox = %id, "the sandbox was resumed by a use");
        }
        Ok(())
    }
}

/// Waits until an instance may have started.
pub(super) async fn instance_started(events: &mut EventSubscription) {
    loop {
        match events.next().await {
            Some(Delivery::Event(event)) => match event.kind {
                EventKind::InstanceCreated { .. } | EventKind::InstanceResumed { .. } => return,
                _ => {}
            },
            Some(Delivery::Missed(_)) => return,
            None => std::future::pending().await,
        }
    }
}
