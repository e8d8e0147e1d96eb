//! The interface that each vendor of sandboxes implements.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::http::{UploadProgress, VendorFault, VendorKey};
use super::pipe::Channel;
use crate::remote::{PtyRequest, RemotePty};
use model::Env;
use provider::{Fidelity, Observed};

/// How long a sandbox may take to reach the requested state.
pub(super) const TRANSITION_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The labels of everything that we create at a vendor.
pub(super) const HOME_LABEL: &str = "stead_home";
pub(super) const LEASE_LABEL: &str = "stead_lease";
pub(super) const GENERATION_LABEL: &str = "stead_generation";
pub(super) const INSTANCE_LABEL: &str = "stead_instance";

pub(super) type VendorReply<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, VendorFault>> + Send + 'a>>;

pub(super) type VendorLabels = BTreeMap<String, String>;

/// A sandbox as its vendor describes it.
#[derive(Debug, Clone)]
pub(super) struct VendorSandbox {
    /// The vendor's id of the sandbox.
    pub(super) id: String,
    pub(super) labels: VendorLabels,
    pub(super) observed: Observed,
    /// The base URL of the daemon in the sandbox.
    pub(super) url: String,
    /// The daemon's token, if it is not the vendor's key.
    pub(super) token: Option<VendorKey>,
    /// The MCP server that has the shell tool (AgentBay).
    pub(super) server: Option<String>,
    /// The URL of the PTY server (AgentBay).
    pub(super) pty_url: Option<String>,
    /// The path of our executable, if the vendor puts it into its sandboxes.
    pub(super) program: Option<String>,
}

/// One command for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Execute {
    /// Run by a POSIX shell.
    pub(super) command: String,
    /// Added to the sandbox's own environment.
    pub(super) env: Env,
    pub(super) cwd: Option<String>,
    pub(super) timeout: Duration,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Executed {
    /// `None` if it timed out.
    pub(super) exit_code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// The resource usage of a sandbox as its vendor reports it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub(super) struct VendorUsage {
    pub(super) mem_used: u64,
    pub(super) disk_used: u64,
}

/// A vendor of sandboxes. Every operation may be repeated; one on a sandbox that does not exist fails with
/// status 404.
pub(super) trait Vendor: Send + Sync + fmt::Debug {
    /// The name of the provider.
    fn name(&self) -> &'static str;
    /// The user that programs run as, and its home directory.
    fn user(&self) -> (&'static str, &'static str);
    /// What a paused sandbox preserves.
    fn pauses(&self) -> Fidelity;
    /// Checks the settings of a lease; the error is the reason of a refusal.
    fn accepts(&self, spec: &serde_json::Value) -> Result<(), String>;
    fn create<'a>(
        &'a self,
        name: &'a str,
        labels: &'a VendorLabels,
        spec: &'a serde_json::Value,
    ) -> VendorReply<'a, VendorSandbox>;
    /// Lists the sandboxes with these labels.
    fn find<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorSandbox>>;
    fn get<'a>(&'a self, id: &'a str) -> VendorReply<'a, Option<VendorSandbox>>;
    /// Waits until an existing sandbox has started, where a killed server may have left one that has not.
    fn wait_until_started<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        let _ = id;
        Box::pin(std::future::ready(Ok(())))
    }
    fn pause<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()>;
    fn resume<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()>;
    /// Deletes a sandbox; succeeds if it does not exist.
    fn delete<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()>;
    /// Restarts the vendor's idle timer of a sandbox.
    fn keep_alive<'a>(&'a self, sandbox: &'a VendorSandbox) -> VendorReply<'a, ()>;
    fn keep_alive_interval(&self) -> Duration;
    /// Runs a command to its end.
    fn run<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        command: &'a Execute,
    ) -> VendorReply<'a, Executed>;
    /// Writes a file, and creates its directory.
    fn upload<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<UploadProgress>,
    ) -> VendorReply<'a, ()>;
    /// Returns how many bytes of output a command should print at most.
    fn max_output_bytes(&self) -> usize {
        4 << 20
    }
    /// Returns the usage of the whole sandbox, if the vendor reports it.
    fn usage<'a>(&'a self, sandbox: &'a VendorSandbox) -> VendorReply<'a, Option<VendorUsage>> {
        let _ = sandbox;
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Disks that outlive sandboxes, or `None` if files are lost with the sandbox.
    fn disks(&self) -> Option<&dyn VendorDisks> {
        None
    }
    /// The mechanisms that isolate sandboxes, as text.
    fn isolation(&self) -> Vec<String> {
        vec!["sandboxes of the vendor, outside this machine".to_owned()]
    }
    /// What has to be done before the vendor can be used, as text.
    fn missing(&self) -> VendorReply<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }
    /// Opens a PTY without our host; `None` if the vendor has none, or if that PTY no longer exists.
    fn open_pty<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        request: &'a PtyRequest,
    ) -> VendorReply<'a, Option<RemotePty>> {
        let _ = (sandbox, request);
        Box::pin(std::future::ready(Ok(None)))
    }
    /// Starts a program that reads and writes lines of text. A vendor that only runs commands has no such
    /// channel.
    fn attach<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        argv: &'a [String],
    ) -> VendorReply<'a, Channel> {
        let _ = (sandbox, argv);
        let reason = "it has no streams to programs".to_owned();
        Box::pin(std::future::ready(Err(VendorFault::Transport { vendor: self.name(), reason })))
    }
}

/// Disks of leases at a vendor. A new sandbox of a lease gets the disk of the one before.
pub(super) trait VendorDisks: Send + Sync {
    /// Returns the labels of all disks with these labels.
    fn disks_with<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorLabels>>;
    /// Removes the disks with these labels.
    fn remove_disks<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, ()>;
}

/// Parses the settings of a lease; `null` means the defaults.
pub(super) fn settings<T: DeserializeOwned + Default>(
    spec: &serde_json::Value,
) -> Result<T, String> {
    if spec.is_null() {
        return Ok(T::default());
    }
    T::deserialize(spec).map_err(|error| error.to_string())
}

/// Calls `poll` until it returns a value, for at most [`TRANSITION_TIMEOUT`].
pub(super) async fn poll_until<T, F>(
    vendor: &'static str,
    mut poll: impl FnMut() -> F,
) -> Result<T, VendorFault>
where
    F: Future<Output = Result<Option<T>, VendorFault>>,
{
    let deadline = Instant::now() + TRANSITION_TIMEOUT;
    loop {
        if let Some(value) = poll().await? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            let limit = TRANSITION_TIMEOUT.as_secs();
            let reason = format!("the sandbox did not change its state within {limit} s");
            return Err(VendorFault::Transport { vendor, reason });
        }
        sleep(POLL_INTERVAL).await;
    }
}
