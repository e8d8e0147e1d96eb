//! Sandboxes that were running a moment ago: each is looked up before the first script and then at most once per
//! [`LOOKUP_TTL`], because most operations on files are several scripts.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::vendor::VendorSandbox;
use model::InstanceId;

/// How long the description of a sandbox is reused.
const LOOKUP_TTL: Duration = Duration::from_secs(5);
/// Sandboxes whose description is kept.
const MAX_DESCRIPTIONS: usize = 1024;

/// Sandboxes that were running a moment ago.
#[derive(Debug, Default)]
pub(super) struct Reached(Mutex<HashMap<InstanceId, (Instant, VendorSandbox)>>);

impl Reached {
    /// Forgets a sandbox that is paused, deleted or does not answer.
    pub(super) fn forget(&self, instance: &InstanceId) {
        self.0.lock().remove(instance);
    }

    pub(super) fn get(&self, instance: &InstanceId) -> Option<VendorSandbox> {
        let known = self.0.lock();
        let (at, sandbox) = known.get(instance)?;
        (at.elapsed() < LOOKUP_TTL).then(|| sandbox.clone())
    }

    pub(super) fn insert(&self, instance: &InstanceId, sandbox: &VendorSandbox) {
        let mut known = self.0.lock();
        if known.len() >= MAX_DESCRIPTIONS {
            known.clear();
        }
        known.insert(instance.clone(), (Instant::now(), sandbox.clone()));
    }
}
