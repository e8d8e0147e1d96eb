//! What every provider does, and the abilities that only some have.
//!
//! An optional ability is a trait of its own: [`Provider::disks`] and its siblings return it, or `None`.
//! [`bounded`](super::bounded) gives every call of these traits a deadline; a test fails on a method that
//! it does not cover.

use std::path::PathBuf;

use serde_json::Value;

use super::error::ProviderError;
use super::instance::{
    Capabilities, Connection, CopyTo, Created, Exceeded, Found, HostConnection, Intent, Metrics,
    MountedPaths, Observed, Profile, Reply, ResourceLimits, Snapshot, TerminalMounts,
};
use model::{Instance, LeaseId};

/// A kind of compute.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// The name by which clients choose it.
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// What its instances have in common.
    fn profile(&self) -> Profile {
        Profile::default()
    }

    /// What has to be installed or configured before it can be used, in words; empty if it is ready.
    fn missing(&self) -> Reply<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }

    /// Checks the settings of a lease.
    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        let empty = spec.is_null() || spec.as_object().is_some_and(serde_json::Map::is_empty);
        if empty {
            return Ok(());
        }
        let reason = format!("provider {} has no settings", self.name());
        Err(ProviderError::Refused { doing: "take the settings", reason })
    }

    /// Creates the instance and starts it. Returns the existing one if it was created before.
    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created>;

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed>;

    /// Pauses every process of an instance.
    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Ends an instance and all its processes. One that does not exist is a success.
    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Opens a stream to the host inside an instance.
    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection>;

    /// Finds everything that carries our label, or only what was created for one lease.
    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>>;

    /// Measures what an instance uses.
    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics>;

    /// Files that outlive instances; `None` if the provider keeps nothing between them.
    fn disks(&self) -> Option<&dyn Disks> {
        None
    }

    /// Resource limits; `None` if nothing limits its instances.
    fn limits(&self) -> Option<&dyn Limits> {
        None
    }

    /// Egress rules; `None` if they cannot change while an instance runs.
    fn egress(&self) -> Option<&dyn Egress> {
        None
    }

    /// Ports of programs inside; `None` if they cannot be reached.
    fn ports(&self) -> Option<&dyn Ports> {
        None
    }

    /// Paths inside; `None` if they are this machine's.
    fn mounts(&self) -> Option<&dyn Mounts> {
        None
    }
}

/// Files that a provider keeps for a lease between its instances, and copies of them.
pub trait Disks: Send + Sync {
    /// The leases for which something is kept.
    fn kept(&self) -> Reply<'_, Vec<LeaseId>>;

    /// Removes everything that is kept for a lease.
    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()>;

    /// Copies the files of a lease, including everything its instance has written so far.
    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()>;

    /// Grows the disk of a lease, which no instance may use, and keeps its content.
    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()>;

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>>;

    /// Removes a snapshot. Returns whether it existed.
    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool>;
}

/// Resource limits of instances.
pub trait Limits: Send + Sync {
    /// The limits under these settings, or under those of the lease's existing disk; `None` if the
    /// settings are refused.
    fn limits_of(&self, spec: &Value, lease: Option<&LeaseId>) -> Option<ResourceLimits>;

    /// How often an instance reached its limits; `None` if that is unknown.
    fn exceeded(&self, instance: &Instance) -> Option<Exceeded>;

    /// Applies the limits of these settings to a running instance. Its disk keeps its size.
    fn resize<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: &'a Instance,
        spec: &'a Value,
    ) -> Reply<'a, ()>;
}

/// Network egress of running instances.
pub trait Egress: Send + Sync {
    /// Applies the egress rules of these settings. No program inside ends.
    fn set_egress<'a>(&'a self, instance: &'a Instance, spec: &'a Value) -> Reply<'a, ()>;
}

/// Ports that programs inside an instance listen on.
pub trait Ports: Send + Sync {
    /// Opens a stream to a port.
    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection>;
}

/// Directories of this machine inside an instance.
pub trait Mounts: Send + Sync {
    /// Makes the directories of a terminal available inside an instance. Returns their paths there.
    fn mount<'a>(
        &'a self,
        instance: &'a Instance,
        mounts: &'a TerminalMounts,
    ) -> Reply<'a, MountedPaths>;

    /// The path of an instance's root directory on this machine; `None` if it has none here.
    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>>;
}
