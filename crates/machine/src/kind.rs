//! The differences between sandboxes and containers.
//!
//! [`Hosted`](crate::hosted::Hosted) implements the provider traits once, on top of this trait.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use images::ImageSettings;
use serde_json::Value;

use crate::disk_governor::DiskGovernor;
use crate::instances::Instances;
use crate::label::InstanceLabel;
use crate::spec::SandboxSpec;
use cgroup::Cgroups;
use model::LeaseId;
use provider::{Observed, ProviderError};

/// A kind of sandbox on this machine. A sandbox is identified by its directory.
pub(crate) trait SandboxKind: Send + Sync + Debug + 'static {
    const NAME: &'static str;

    fn instances(&self) -> &Instances;

    /// The mechanisms that isolate a sandbox, as text.
    fn isolation(&self) -> Vec<String>;

    /// The programs and modules that are missing to start sandboxes, as text.
    fn missing(&self) -> impl Future<Output = Vec<String>> + Send;

    /// The settings of a lease, completed with the defaults.
    fn settings(&self, spec: &Value, lease: Option<&LeaseId>)
    -> Result<SandboxSpec, ProviderError>;

    /// Checks that the image of these settings exists, where that is known without starting a sandbox.
    fn check_image(&self, spec: &SandboxSpec) -> Result<(), ProviderError>;

    /// The name of the cgroup or container that is created for a directory of this name.
    fn runtime_name(&self, directory: &str) -> String;

    /// The provider's name for a sandbox, as clients see it; empty if that is our id.
    fn reference(&self, runtime_name: String) -> String;

    /// Starts a sandbox in the existing directory of this name. One without a label is warm.
    fn start(
        &self,
        directory: &str,
        label: Option<&InstanceLabel>,
        spec: SandboxSpec,
        disk: PathBuf,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Ends a sandbox, and removes its directory last.
    fn end(
        &self,
        runtime_name: &str,
        dir: PathBuf,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Pauses a sandbox that is running or paused.
    fn pause(
        &self,
        dir: &Path,
        observed: Observed,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Resumes a sandbox that is running or paused.
    fn resume(
        &self,
        dir: &Path,
        observed: Observed,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Applies the limits of these settings to a running sandbox.
    fn resize(
        &self,
        dir: PathBuf,
        spec: SandboxSpec,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// The labels of sandboxes that exist without a directory.
    fn without_directory(&self) -> impl Future<Output = Vec<InstanceLabel>> + Send;

    /// The cgroups of a started sandbox.
    fn cgroups(&self, dir: &Path) -> Option<Cgroups>;

    /// The settings that a sandbox was started with.
    fn started_with(&self, dir: &Path) -> io::Result<SandboxSpec>;

    /// What the image of a started sandbox says about programs.
    fn image_settings(&self, dir: &Path) -> io::Result<ImageSettings>;

    /// The governor that limits the writes to the disks of these sandboxes, if there is one.
    fn disk_governor(&self) -> Option<&Arc<DiskGovernor>>;
}
