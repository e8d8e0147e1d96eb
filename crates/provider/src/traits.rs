//! The trait of all providers, and traits for optional abilities.
//!
//! An optional ability is a trait of its own: [`Provider::disks`] and its siblings return it, or `None`.
//! [`bounded`](super::bounded) gives every call of these traits a deadline; a test fails on a method that
//! it does not cover.

use std::path::PathBuf;

use serde_json::Value;

use super::error::ProviderError;
use super::instance::{
    Capabilities, Connection, CopyTo, Created, EgressLog, Exceeded, Found, HostConnection,
    ImageShell, Intent, Metrics, MountedPaths, Observed, Profile, Reply, ResourceLimits,
    ScriptOutput, Snapshot, TerminalMounts,
};
use model::{Instance, LeaseId};

/// A source of compute, such as containers or a vendor's sandboxes.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// The name by which clients select the provider.
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// Properties that all of its instances share.
    fn profile(&self) -> Profile {
        Profile::default()
    }

    /// Returns what has to be installed or configured before the provider can be used, as text. Empty if it
    /// is ready.
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
        Err(ProviderError::Refused { doing: "accept the settings", reason })
    }

    /// Creates the instance and starts it. Returns the existing one if it was created before.
    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created>;

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed>;

    /// Pauses every process of an instance.
    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Destroys an instance with all of its processes. Succeeds if it does not exist.
    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()>;

    /// Opens a stream to the host inside an instance.
    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection>;

    /// Finds all instances with our label, or only those of one lease.
    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>>;

    /// Measures the resource usage of an instance.
    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics>;

    /// Files that outlive instances, or `None` if the provider keeps nothing between them.
    fn disks(&self) -> Option<&dyn Disks> {
        None
    }

    /// Resource limits, or `None` if its instances have no limits.
    fn limits(&self) -> Option<&dyn Limits> {
        None
    }

    /// Egress rules, or `None` if they cannot change while an instance runs.
    fn egress(&self) -> Option<&dyn Egress> {
        None
    }

    /// Ports of programs inside, or `None` if they cannot be reached.
    fn ports(&self) -> Option<&dyn Ports> {
        None
    }

    /// Scripts inside, or `None` if the files of its instances are on this machine.
    fn scripts(&self) -> Option<&dyn Scripts> {
        None
    }

    /// Mounted directories, or `None` if paths inside equal those of this machine.
    fn mounts(&self) -> Option<&dyn Mounts> {
        None
    }
}

/// Files that a provider keeps for a lease between its instances, and copies of them.
pub trait Disks: Send + Sync {
    /// Returns the leases for which files are kept.
    fn kept(&self) -> Reply<'_, Vec<LeaseId>>;

    /// Removes all files that are kept for a lease.
    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()>;

    /// Copies the files of a lease, including all writes of its instance so far.
    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()>;

    /// Grows the disk of a lease and keeps its content. No instance may be using the disk.
    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()>;

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>>;

    /// Removes a snapshot. Returns whether it existed.
    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool>;
}

/// Resource limits of instances.
pub trait Limits: Send + Sync {
    /// Returns the limits for these settings and the lease's existing disk, or `None` if the settings are
    /// refused.
    fn limits_of(&self, spec: &Value, lease: Option<&LeaseId>) -> Option<ResourceLimits>;

    /// Returns how often an instance reached its limits, or `None` if that is unknown.
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
    /// Applies the egress rules of these settings without ending programs inside.
    fn set_egress<'a>(&'a self, instance: &'a Instance, spec: &'a Value) -> Reply<'a, ()>;

    /// Returns the destinations that programs inside connected to, and those that were refused.
    fn egress_log<'a>(&'a self, instance: &'a Instance) -> Reply<'a, EgressLog>;
}

/// Ports that programs inside an instance listen on.
pub trait Ports: Send + Sync {
    /// Opens a stream to a port.
    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection>;
}

/// Short scripts inside an instance that is not on this machine, through which its files are used.
pub trait Scripts: Send + Sync {
    /// Returns a directory inside for temporary files. The first script may have to create it.
    fn script_directory(&self, instance: &Instance) -> String;

    /// Returns how many bytes of standard output one script may print.
    fn max_output_bytes(&self) -> usize;

    /// Runs a script by `sh`, as the user of the instance's shells. After an error it may have run.
    fn run_script<'a>(&'a self, instance: &'a Instance, script: &'a str)
    -> Reply<'a, ScriptOutput>;

    /// Writes a file, and creates its directory.
    fn put_file<'a>(
        &'a self,
        instance: &'a Instance,
        path: &'a str,
        bytes: Vec<u8>,
    ) -> Reply<'a, ()>;
}

/// Directories of this machine inside an instance.
pub trait Mounts: Send + Sync {
    /// Makes the directories of a terminal available inside an instance. Returns their paths there.
    fn mount<'a>(
        &'a self,
        instance: &'a Instance,
        mounts: &'a TerminalMounts,
    ) -> Reply<'a, MountedPaths>;

    /// Returns the path of an instance's root directory on this machine, or `None` if there is none.
    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>>;

    /// Returns what the image of an instance says about shells.
    fn image<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ImageShell>;
}
