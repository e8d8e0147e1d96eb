//! What a vendor's sandbox offers to terminals where no host runs in it: commands, and files.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::http::Fault;
use super::vendor::Sandbox;
use super::{Cloud, Connection, Env, Execute, Instance, InstanceId, Metrics, ProviderError, Reply};
use crate::remote::{CALL, Commands, Remotes, Screen, Wish};

/// A sandbox that runs commands for us.
#[derive(Debug)]
struct Within {
    cloud: Cloud,
    instance: InstanceId,
    /// As it was last told.
    sandbox: Mutex<Sandbox>,
}

impl Within {
    fn sandbox(&self) -> Sandbox {
        self.sandbox.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a fault means. A sandbox that answers with an error is looked for: vendors say that one is not
    /// there in more than one way, and where it is paused or moves, its daemon is away, too.
    async fn meaning(&self, doing: &'static str, fault: Fault) -> ProviderError {
        if let Fault::Busy { .. } | Fault::Broken { .. } = fault {
            return fault.of(doing);
        }
        let id = self.sandbox().id;
        match self.cloud.0.vendor.look(&id).await {
            Ok(None) => ProviderError::Gone { instance: self.instance.clone() },
            Ok(Some(found)) => {
                *self.sandbox.lock().unwrap_or_else(PoisonError::into_inner) = found;
                fault.of(doing)
            }
            Err(fault) => ProviderError::failed(doing, fault),
        }
    }
}

impl Commands for Within {
    fn run(&self, text: String) -> Reply<'_, Vec<u8>> {
        Box::pin(async move {
            let (sandbox, env) = (self.sandbox(), Env::new());
            let command = Execute { command: text, env, cwd: None, timeout: CALL };
            match self.cloud.0.vendor.run(&sandbox, &command).await {
                Ok(ran) => Ok(ran.stdout),
                Err(fault) => Err(self.meaning("run a command in a sandbox", fault).await),
            }
        })
    }

    fn screen<'a>(&'a self, wish: &'a Wish) -> Reply<'a, Option<Screen>> {
        Box::pin(async move {
            let sandbox = self.sandbox();
            match self.cloud.0.vendor.screen(&sandbox, wish).await {
                Ok(screen) => Ok(screen),
                Err(fault) => Err(self.meaning("open a PTY in a sandbox", fault).await),
            }
        })
    }

    fn put<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Reply<'a, ()> {
        Box::pin(async move {
            let sandbox = self.sandbox();
            let sent = self.cloud.0.vendor.upload(&sandbox, path, Bytes::from(bytes), None).await;
            match sent {
                Ok(()) => Ok(()),
                Err(fault) => Err(self.meaning("write a file of a sandbox", fault).await),
            }
        })
    }
}

impl Cloud {
    fn within(&self, instance: &InstanceId, sandbox: Sandbox) -> Within {
        let (cloud, instance) = (self.clone(), instance.clone());
        Within { cloud, instance, sandbox: Mutex::new(sandbox) }
    }

    /// Makes a sandbox be fit to run our commands.
    pub(super) async fn prepare(
        &self,
        sandbox: Sandbox,
        instance: &InstanceId,
    ) -> Result<(), ProviderError> {
        Remotes::prepare(&self.within(instance, sandbox), &self.root(instance)).await
    }

    /// What a sandbox uses, as its own processes tell and, where it does, its vendor.
    pub(super) async fn count(
        &self,
        instance: &InstanceId,
        sandbox: Sandbox,
        before: u64,
    ) -> Result<Metrics, ProviderError> {
        let within = self.within(instance, sandbox.clone());
        let mut metrics = Remotes::measure(&within, &self.root(instance)).await?;
        // What a command took that was ended is not written down; time does not go back for that.
        metrics.cpu_us = metrics.cpu_us.max(before);
        match self.0.vendor.usage(&sandbox).await {
            Ok(Some(usage)) => {
                (metrics.memory_bytes, metrics.disk_bytes) = (usage.mem_used, usage.disk_used);
            }
            Ok(None) => {}
            Err(fault) => tracing::debug!(%fault, "a vendor does not tell what a sandbox uses"),
        }
        Ok(metrics)
    }

    /// A stream to a host in this process that stands in for one inside.
    pub(super) fn stand_in(&self, instance: &Instance, sandbox: Sandbox) -> Connection {
        let id = &instance.instance_id;
        let over = CancellationToken::new();
        let commands = Arc::new(self.within(id, sandbox.clone()));
        let until = over.clone().drop_guard();
        let stream = self.0.remotes.connect(id, &self.root(id), commands, until);
        tokio::spawn(self.clone().attend_to(sandbox, over));
        stream
    }
}
