//! A provider whose every call has a deadline.
//!
//! [`Providers`](super::Providers) wraps each provider in [`Bounded`], so no caller can wait for a vendor, an
//! engine or a host without a limit. A call that times out may still take effect later. That is safe,
//! because every call requests a state of a specific instance.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::ProviderError;
use super::instance::{
    Capabilities, Connection, CopyTo, Created, EgressLog, Exceeded, Found, HostConnection,
    ImageShell, Intent, Metrics, MountedPaths, Observed, Profile, Reply, ResourceLimits,
    ScriptOutput, Snapshot, TerminalMounts,
};
use super::traits::{Disks, Egress, Limits, Mounts, Ports, Provider, Scripts};
use base::outbound::bounded;
use model::{Instance, LeaseId};

/// Calls that only read.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls that change something.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(90);
/// Calls that may fetch or copy gigabytes.
const COPY_TIMEOUT: Duration = Duration::from_secs(900);
/// How long the creation of an instance may take, with its image.
pub const CREATION_LIMIT: Duration = COPY_TIMEOUT;

/// A provider with deadlines. It also implements every ability, for the abilities that the inner provider
/// has.
#[derive(Debug)]
pub(super) struct Bounded(pub(super) Arc<dyn Provider>);

fn within<'a, T: Send + 'a>(
    call: &'static str,
    limit: Duration,
    reply: Reply<'a, T>,
) -> Reply<'a, T> {
    Box::pin(async move {
        match bounded(call, limit, reply).await {
            Ok(result) => result,
            Err(late) => Err(ProviderError::TimedOut { call: late.call, limit: late.limit }),
        }
    })
}

/// Returns the inner ability. [`Bounded`] returns itself only for abilities that the inner provider has,
/// and those do not change.
fn inner<T: ?Sized>(ability: Option<&T>) -> &T {
    ability.expect("the wrapper was returned because the inner provider has the ability")
}

impl Provider for Bounded {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn profile(&self) -> Profile {
        self.0.profile()
    }

    fn missing(&self) -> Reply<'_, Vec<String>> {
        within("provider.missing", INSPECT_TIMEOUT, self.0.missing())
    }

    fn accepts(&self, spec: &Value) -> Result<(), ProviderError> {
        self.0.accepts(spec)
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        within("provider.create", CREATION_LIMIT, self.0.create(intent))
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        within("provider.inspect", INSPECT_TIMEOUT, self.0.inspect(instance))
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        within("provider.pause", CHANGE_TIMEOUT, self.0.pause(instance))
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        within("provider.resume", CHANGE_TIMEOUT, self.0.resume(instance))
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        within("provider.destroy", CHANGE_TIMEOUT, self.0.destroy(instance))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection> {
        within("provider.connect", CHANGE_TIMEOUT, self.0.connect(instance))
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        within("provider.find", CHANGE_TIMEOUT, self.0.find_by_label(lease))
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        within("provider.metrics", INSPECT_TIMEOUT, self.0.metrics(instance))
    }

    fn disks(&self) -> Option<&dyn Disks> {
        self.0.disks().map(|_| self as &dyn Disks)
    }

    fn limits(&self) -> Option<&dyn Limits> {
        self.0.limits().map(|_| self as &dyn Limits)
    }

    fn egress(&self) -> Option<&dyn Egress> {
        self.0.egress().map(|_| self as &dyn Egress)
    }

    fn ports(&self) -> Option<&dyn Ports> {
        self.0.ports().map(|_| self as &dyn Ports)
    }

    fn scripts(&self) -> Option<&dyn Scripts> {
        self.0.scripts().map(|_| self as &dyn Scripts)
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        self.0.mounts().map(|_| self as &dyn Mounts)
    }
}

impl Disks for Bounded {
    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        within("provider.kept", INSPECT_TIMEOUT, inner(self.0.disks()).kept())
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        within("provider.forget", CHANGE_TIMEOUT, inner(self.0.disks()).forget(lease))
    }

    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()> {
        within("provider.copy", COPY_TIMEOUT, inner(self.0.disks()).copy(lease, instance, to))
    }

    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()> {
        within("provider.grow", COPY_TIMEOUT, inner(self.0.disks()).grow(lease, bytes))
    }

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        within("provider.snapshots", INSPECT_TIMEOUT, inner(self.0.disks()).snapshots())
    }

    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        let reply = inner(self.0.disks()).remove_snapshot(name);
        within("provider.remove_snapshot", CHANGE_TIMEOUT, reply)
    }
}

impl Limits for Bounded {
    fn limits_of(&self, spec: &Value, lease: Option<&LeaseId>) -> Option<ResourceLimits> {
        inner(self.0.limits()).limits_of(spec, lease)
    }

    fn exceeded(&self, instance: &Instance) -> Option<Exceeded> {
        inner(self.0.limits()).exceeded(instance)
    }

    fn resize<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: &'a Instance,
        spec: &'a Value,
    ) -> Reply<'a, ()> {
        let reply = inner(self.0.limits()).resize(lease, instance, spec);
        within("provider.resize", CHANGE_TIMEOUT, reply)
    }
}

impl Egress for Bounded {
    fn set_egress<'a>(&'a self, instance: &'a Instance, spec: &'a Value) -> Reply<'a, ()> {
        let reply = inner(self.0.egress()).set_egress(instance, spec);
        within("provider.set_egress", CHANGE_TIMEOUT, reply)
    }

    fn egress_log<'a>(&'a self, instance: &'a Instance) -> Reply<'a, EgressLog> {
        let reply = inner(self.0.egress()).egress_log(instance);
        within("provider.egress_log", INSPECT_TIMEOUT, reply)
    }
}

impl Ports for Bounded {
    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection> {
        within("provider.dial", INSPECT_TIMEOUT, inner(self.0.ports()).dial(instance, port))
    }
}

impl Scripts for Bounded {
    fn script_directory(&self, instance: &Instance) -> String {
        inner(self.0.scripts()).script_directory(instance)
    }

    fn max_output_bytes(&self) -> usize {
        inner(self.0.scripts()).max_output_bytes()
    }

    fn run_script<'a>(
        &'a self,
        instance: &'a Instance,
        script: &'a str,
    ) -> Reply<'a, ScriptOutput> {
        let reply = inner(self.0.scripts()).run_script(instance, script);
        within("provider.run_script", CHANGE_TIMEOUT, reply)
    }

    fn put_file<'a>(
        &'a self,
        instance: &'a Instance,
        path: &'a str,
        bytes: Vec<u8>,
    ) -> Reply<'a, ()> {
        let reply = inner(self.0.scripts()).put_file(instance, path, bytes);
        within("provider.put_file", COPY_TIMEOUT, reply)
    }
}

impl Mounts for Bounded {
    fn mount<'a>(
        &'a self,
        instance: &'a Instance,
        mounts: &'a TerminalMounts,
    ) -> Reply<'a, MountedPaths> {
        within("provider.mount", COPY_TIMEOUT, inner(self.0.mounts()).mount(instance, mounts))
    }

    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        within("provider.root", INSPECT_TIMEOUT, inner(self.0.mounts()).root(instance))
    }

    fn image<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ImageShell> {
        within("provider.image", INSPECT_TIMEOUT, inner(self.0.mounts()).image(instance))
    }
}
