//! A provider whose every answer has a deadline.
//!
//! [`Providers`](super::Providers) wraps each provider in one, so that no caller can wait for a vendor,
//! an engine or a host without a limit. A call that meets its deadline may still be carried out later;
//! that is safe, because every call asks for a state and names the instance.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Capabilities, Connection, CopyTo, Created, Entry, Exceeded, Execute, Executed, Fidelity, Found,
    Intent, Limits, Metrics, Observed, Place, Placed, Provider, ProviderError, Reply, Snapshot,
};
use base::outbound::bounded;
use model::{Env, Instance, LeaseId, Money};

/// Calls that only look at something.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls that change what is there.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(90);
/// Calls that may fetch or copy gigabytes.
const COPY_TIMEOUT: Duration = Duration::from_secs(900);

/// The wrapper.
#[derive(Debug)]
pub(super) struct Bounded(pub(super) Arc<dyn Provider>);

/// Gives one call its deadline.
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

impl Provider for Bounded {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn lacks(&self) -> Reply<'_, Vec<String>> {
        within("provider.lacks", INSPECT_TIMEOUT, self.0.lacks())
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        within("provider.create", COPY_TIMEOUT, self.0.create(intent))
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

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Connection> {
        within("provider.connect", CHANGE_TIMEOUT, self.0.connect(instance))
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        within("provider.find", CHANGE_TIMEOUT, self.0.find_by_label(lease))
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        within("provider.metrics", INSPECT_TIMEOUT, self.0.metrics(instance))
    }

    fn environment(&self) -> Option<Env> {
        self.0.environment()
    }

    fn place<'a>(&'a self, instance: &'a Instance, place: &'a Place) -> Reply<'a, Placed> {
        within("provider.place", CHANGE_TIMEOUT, self.0.place(instance, place))
    }

    fn price(&self) -> Money {
        self.0.price()
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }

    fn accepts(&self, spec: &serde_json::Value) -> Result<(), ProviderError> {
        self.0.accepts(spec)
    }

    fn reach<'a>(&'a self, instance: &'a Instance, spec: &'a serde_json::Value) -> Reply<'a, ()> {
        within("provider.reach", CHANGE_TIMEOUT, self.0.reach(instance, spec))
    }

    fn exceeded(&self, instance: &Instance) -> Option<Exceeded> {
        self.0.exceeded(instance)
    }

    fn limits_of(&self, spec: &serde_json::Value, lease: Option<&LeaseId>) -> Option<Limits> {
        self.0.limits_of(spec, lease)
    }

    fn resize<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: &'a Instance,
        spec: &'a serde_json::Value,
    ) -> Reply<'a, ()> {
        within("provider.resize", CHANGE_TIMEOUT, self.0.resize(lease, instance, spec))
    }

    fn grow<'a>(&'a self, lease: &'a LeaseId, bytes: u64) -> Reply<'a, ()> {
        within("provider.grow", COPY_TIMEOUT, self.0.grow(lease, bytes))
    }

    fn ready(&self) -> Option<usize> {
        self.0.ready()
    }

    fn forget<'a>(&'a self, lease: &'a LeaseId) -> Reply<'a, ()> {
        within("provider.forget", CHANGE_TIMEOUT, self.0.forget(lease))
    }

    fn keeps(&self) -> Fidelity {
        self.0.keeps()
    }

    fn copy<'a>(
        &'a self,
        lease: &'a LeaseId,
        instance: Option<&'a Instance>,
        to: &'a CopyTo,
    ) -> Reply<'a, ()> {
        within("provider.copy", COPY_TIMEOUT, self.0.copy(lease, instance, to))
    }

    fn snapshots(&self) -> Reply<'_, Vec<Snapshot>> {
        within("provider.snapshots", INSPECT_TIMEOUT, self.0.snapshots())
    }

    fn remove_snapshot<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        within("provider.remove_snapshot", CHANGE_TIMEOUT, self.0.remove_snapshot(name))
    }

    fn kept(&self) -> Reply<'_, Vec<LeaseId>> {
        within("provider.kept", INSPECT_TIMEOUT, self.0.kept())
    }

    fn root<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Option<PathBuf>> {
        within("provider.root", INSPECT_TIMEOUT, self.0.root(instance))
    }

    fn dial<'a>(&'a self, instance: &'a Instance, port: u16) -> Reply<'a, Connection> {
        within("provider.dial", INSPECT_TIMEOUT, self.0.dial(instance, port))
    }

    fn execute<'a>(&'a self, instance: &'a Instance, run: &'a Execute) -> Reply<'a, Executed> {
        within("provider.execute", COPY_TIMEOUT, self.0.execute(instance, run))
    }

    fn read_file<'a>(&'a self, instance: &'a Instance, path: &'a str) -> Reply<'a, Vec<u8>> {
        within("provider.read_file", COPY_TIMEOUT, self.0.read_file(instance, path))
    }

    fn write_file<'a>(
        &'a self,
        instance: &'a Instance,
        path: &'a str,
        bytes: &'a [u8],
    ) -> Reply<'a, ()> {
        within("provider.write_file", COPY_TIMEOUT, self.0.write_file(instance, path, bytes))
    }

    fn list_dir<'a>(&'a self, instance: &'a Instance, path: &'a str) -> Reply<'a, Vec<Entry>> {
        within("provider.list_dir", INSPECT_TIMEOUT, self.0.list_dir(instance, path))
    }
}
