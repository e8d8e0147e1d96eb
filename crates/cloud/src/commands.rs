//! Connects the in-process host ([`crate::remote`]) to a vendor's sandbox: commands, files and PTYs.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::http::VendorFault;
use super::vendor::VendorSandbox;
use super::{Cloud, Connection, Env, Execute, Instance, InstanceId, Metrics, ProviderError, Reply};
use crate::remote::{CALL_TIMEOUT, CommandRunner, PtyRequest, RemotePty, Remotes};

/// A sandbox that runs commands for the in-process host.
#[derive(Debug)]
struct SandboxCommands {
    cloud: Cloud,
    instance: InstanceId,
    /// The latest description of the sandbox.
    sandbox: Mutex<VendorSandbox>,
}

impl SandboxCommands {
    fn sandbox(&self) -> VendorSandbox {
        self.sandbox.lock().clone()
    }

    /// Converts a fault. After an error status the sandbox is looked up: vendors report a missing one in
    /// more than one way, and the daemon of a paused or moved one fails, too.
    async fn error(&self, doing: &'static str, fault: VendorFault) -> ProviderError {
        if fault.status().is_none() || matches!(fault, VendorFault::Busy { .. }) {
            return fault.of(doing);
        }
        let id = self.sandbox().id;
        match self.cloud.0.vendor.get(&id).await {
            Ok(None) => ProviderError::Gone { instance: self.instance.clone() },
            Ok(Some(found)) => {
                *self.sandbox.lock() = found;
                fault.of(doing)
            }
            Err(fault) => ProviderError::failed(doing, fault),
        }
    }
}

impl CommandRunner for SandboxCommands {
    fn run(&self, script: String) -> Reply<'_, Vec<u8>> {
        Box::pin(async move {
            let (sandbox, env) = (self.sandbox(), Env::new());
            let command = Execute { command: script, env, cwd: None, timeout: CALL_TIMEOUT };
            match self.cloud.0.vendor.run(&sandbox, &command).await {
                Ok(ran) => Ok(ran.stdout),
                Err(fault) => Err(self.error("run a command in a sandbox", fault).await),
            }
        })
    }

    fn open_pty<'a>(&'a self, request: &'a PtyRequest) -> Reply<'a, Option<RemotePty>> {
        Box::pin(async move {
            let sandbox = self.sandbox();
            match self.cloud.0.vendor.open_pty(&sandbox, request).await {
                Ok(pty) => Ok(pty),
                Err(fault) => Err(self.error("open a PTY in a sandbox", fault).await),
            }
        })
    }

    fn put<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Reply<'a, ()> {
        Box::pin(async move {
            let sandbox = self.sandbox();
            let sent = self.cloud.0.vendor.upload(&sandbox, path, Bytes::from(bytes), None).await;
            match sent {
                Ok(()) => Ok(()),
                Err(fault) => Err(self.error("write a file in a sandbox", fault).await),
            }
        })
    }
}

impl Cloud {
    fn commands(&self, instance: &InstanceId, sandbox: VendorSandbox) -> SandboxCommands {
        let (cloud, instance) = (self.clone(), instance.clone());
        SandboxCommands { cloud, instance, sandbox: Mutex::new(sandbox) }
    }

    /// Checks that a sandbox has the programs our scripts need, and creates our directory in it.
    pub(super) async fn prepare(
        &self,
        sandbox: VendorSandbox,
        instance: &InstanceId,
    ) -> Result<(), ProviderError> {
        Remotes::prepare(&self.commands(instance, sandbox), &self.root(instance)).await
    }

    /// Measures a sandbox by its `/proc`, and by the vendor's numbers where it reports them.
    pub(super) async fn measure_remote(
        &self,
        instance: &InstanceId,
        sandbox: VendorSandbox,
        previous_cpu_us: u64,
    ) -> Result<Metrics, ProviderError> {
        let commands = self.commands(instance, sandbox.clone());
        let mut metrics = Remotes::measure(&commands, &self.root(instance)).await?;
        // The CPU time of a killed command is not recorded inside; the total must not decrease.
        metrics.cpu_us = metrics.cpu_us.max(previous_cpu_us);
        match self.0.vendor.usage(&sandbox).await {
            Ok(Some(usage)) => {
                (metrics.memory_bytes, metrics.disk_bytes) = (usage.mem_used, usage.disk_used);
            }
            Ok(None) => {}
            Err(fault) => tracing::debug!(%fault, "the vendor does not report a sandbox's usage"),
        }
        Ok(metrics)
    }

    /// Returns a stream to the in-process host of an instance.
    pub(super) fn connect_remote(&self, instance: &Instance, sandbox: VendorSandbox) -> Connection {
        let id = &instance.instance_id;
        let closed = CancellationToken::new();
        let commands = Arc::new(self.commands(id, sandbox.clone()));
        let guard = closed.clone().drop_guard();
        let stream = self.0.remotes.connect(id, &self.root(id), commands, guard);
        tokio::spawn(self.clone().keep_alive(sandbox, closed));
        stream
    }
}
