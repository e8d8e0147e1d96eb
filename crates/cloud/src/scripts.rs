//! Scripts of our own in a vendor's sandbox, which use its files.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::http::VendorFault;
use super::vendor::{Execute, VendorSandbox};
use super::{Cloud, Env, Instance, Observed, ProviderError, Reply, Scripts};
use provider::ScriptOutput;

/// The deadline of one script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(45);
impl Cloud {
    /// Returns a running sandbox; some vendors would resume a paused one.
    async fn running(
        &self,
        instance: &Instance,
        doing: &'static str,
    ) -> Result<VendorSandbox, ProviderError> {
        if let Some(sandbox) = self.0.reached.get(&instance.instance_id) {
            return Ok(sandbox);
        }
        let sandbox = self.sandbox(instance, doing).await?;
        if sandbox.observed != Observed::Running {
            return Err(ProviderError::failed(doing, io::Error::other("the sandbox is paused")));
        }
        self.0.reached.insert(&instance.instance_id, &sandbox);
        Ok(sandbox)
    }

    fn script_fault(
        &self,
        instance: &Instance,
        doing: &'static str,
        fault: VendorFault,
    ) -> ProviderError {
        self.0.reached.forget(&instance.instance_id);
        self.of_sandbox(instance, doing, fault)
    }
}

impl Scripts for Cloud {
    fn script_directory(&self, instance: &Instance) -> String {
        format!("{}/files", self.root(&instance.instance_id))
    }

    fn max_output_bytes(&self) -> usize {
        self.0.vendor.max_output_bytes()
    }

    fn run_script<'a>(
        &'a self,
        instance: &'a Instance,
        script: &'a str,
    ) -> Reply<'a, ScriptOutput> {
        Box::pin(async move {
            let doing = "use the files of a sandbox";
            let sandbox = self.running(instance, doing).await?;
            let (command, env) = (script.to_owned(), Env::new());
            let command = Execute { command, env, cwd: None, timeout: SCRIPT_TIMEOUT };
            match self.0.vendor.run(&sandbox, &command).await {
                Ok(ran) => Ok(ScriptOutput {
                    exit_code: ran.exit_code,
                    stdout: ran.stdout,
                    stderr: ran.stderr,
                }),
                Err(fault) => Err(self.script_fault(instance, doing, fault)),
            }
        })
    }

    fn put_file<'a>(
        &'a self,
        instance: &'a Instance,
        path: &'a str,
        bytes: Vec<u8>,
    ) -> Reply<'a, ()> {
        Box::pin(async move {
            let doing = "write a file in a sandbox";
            let sandbox = self.running(instance, doing).await?;
            let sent = self.0.vendor.upload(&sandbox, path, Bytes::from(bytes), None).await;
            sent.map_err(|fault| self.script_fault(instance, doing, fault))
        })
    }
}
