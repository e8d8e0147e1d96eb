//! Changes of what a lease has: copies of its files, its limits and its egress rules.

use serde_json::{Map, Value};

use super::LeaseWorker;
use crate::lease::error::LeaseError;
use model::{Desired, Lease, LeaseState};
use provider::{CopyTo, ProviderError};

impl LeaseWorker {
    /// Copies the files of the lease. No instance is created or ended meanwhile.
    pub(super) async fn copy(&mut self, to: &CopyTo) -> Result<Lease, LeaseError> {
        let lease = self.reconcile(None).await?;
        let provider = self.provider(&lease)?;
        let instance = match &lease.state {
            LeaseState::Destroyed => {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
            LeaseState::Running(instance) | LeaseState::Paused(instance) => Some(instance),
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Dead { .. } => None,
        };
        let copied = match provider.disks() {
            Some(disks) => self.with_retries(|| disks.copy(&self.id, instance, to)).await,
            None => Err(ProviderError::unsupported(provider.name(), "copy a lease's files")),
        };
        copied.map_err(|source| LeaseError::provider(&self.id, "copy", source))?;
        Ok(lease)
    }

    /// Applies other settings. A disk grows only while no instance uses it. The instance gets the settings
    /// before they are recorded, so that a repeated request starts from the old record.
    pub(super) async fn resize(
        &mut self,
        settings: Map<String, Value>,
    ) -> Result<Lease, LeaseError> {
        let mut lease = self.reconcile(None).await?;
        let of = |source| LeaseError::provider(&self.id, "resize", source);
        let provider = self.provider(&lease)?;
        let mut spec = lease.spec.as_object().cloned().unwrap_or_default();
        spec.extend(settings);
        let spec = Value::Object(spec);
        provider.accepts(&spec).map_err(of)?;
        let disk = |spec: &Value| provider.limits()?.limits_of(spec, Some(&self.id))?.disk_bytes;
        let (has, wanted) = (disk(&lease.spec), disk(&spec));
        match &lease.state {
            LeaseState::Running(instance) | LeaseState::Paused(instance) => {
                if has != wanted {
                    let provider = provider.name().to_owned();
                    let what = "change the size of a disk that is in use; stop it first";
                    return Err(of(ProviderError::Unsupported { provider, what }));
                }
                let what = "change the limits of a running instance; stop it first";
                let unsupported = || of(ProviderError::unsupported(provider.name(), what));
                let limits = provider.limits().ok_or_else(unsupported)?;
                let changed = self.with_retries(|| limits.resize(&self.id, instance, &spec)).await;
                changed.map_err(of)?;
            }
            LeaseState::Idle | LeaseState::Creating { .. } | LeaseState::Dead { .. } => {
                if let Some(bytes) = wanted.filter(|_| has != wanted) {
                    let what = "change the size of a disk";
                    let unsupported = || of(ProviderError::unsupported(provider.name(), what));
                    let disks = provider.disks().ok_or_else(unsupported)?;
                    self.with_retries(|| disks.grow(&self.id, bytes)).await.map_err(of)?;
                }
            }
            LeaseState::Destroyed => {
                return Err(LeaseError::Destroyed { lease: self.id.clone() });
            }
        }
        lease.spec = spec;
        self.save(lease).await
    }

    /// Replaces the settings by others that differ only in egress rules, and applies them to the instance.
    /// Recorded first: later instances get them even if this one fails.
    pub(super) async fn set_egress(&mut self, spec: &Value) -> Result<Lease, LeaseError> {
        let lease = self.load().await?;
        let provider = self.provider(&lease)?;
        let of = |source| LeaseError::provider(&self.id, "change", source);
        provider.accepts(spec).map_err(of)?;
        if lease.desired == Desired::Destroyed || lease.state == LeaseState::Destroyed {
            return Err(LeaseError::Destroyed { lease: self.id.clone() });
        }
        let lease = self.save(Lease { spec: spec.clone(), ..lease }).await?;
        if let LeaseState::Running(instance) | LeaseState::Paused(instance) = &lease.state {
            let what = "change the egress of a running instance";
            let unsupported = || of(ProviderError::unsupported(provider.name(), what));
            let egress = provider.egress().ok_or_else(unsupported)?;
            match self.with_retries(|| egress.set_egress(instance, spec)).await {
                // The next instance is created with them.
                Ok(()) | Err(ProviderError::Gone { .. }) => {}
                Err(source) => return Err(of(source)),
            }
        }
        Ok(lease)
    }
}
