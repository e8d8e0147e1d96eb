//! Creates and ends the sandboxes of other APIs. The engine decides what a sandbox is and when it expires.

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{
    build,
    egress::Network,
    home::{self, Account},
    new_sandbox::NewSandbox,
    vendor,
};
use crate::Adapter;
use api::error::Problem;
use model::{Env, Sandbox, SandboxState, SandboxStatus, ThreadId, Timestamp};
use store::{SandboxRecord, ThreadChoices};

/// Whether a sandbox runs only after a client resumes it.
pub fn is_paused(sandbox: &SandboxRecord) -> bool {
    match sandbox.status() {
        SandboxStatus::Paused | SandboxStatus::Suspended => true,
        SandboxStatus::Running | SandboxStatus::Stopped | SandboxStatus::Archived => false,
    }
}

impl Adapter {
    /// Creates a sandbox and starts its compute. Boxed, so that it is compiled once and not in each module that awaits it.
    pub fn create_sandbox(&self, new: NewSandbox) -> BoxFuture<'_, Result<SandboxRecord, Problem>> {
        Box::pin(async move {
            let volume_lock = self.lock_volumes(&new).await?;
            let (vendor, id) = (new.vendor, new.id.clone());
            let lease = match &new.fork {
                Some(lease) => self.store.lease(lease).await?,
                None => None,
            };
            let base = match &lease {
                Some(_) => None,
                None => self.template_base(vendor, &new.template).await?,
            };
            let from = base.as_ref().map_or(&new.template, |base| &base.snapshot);
            let (provider, spec) = match lease {
                Some(lease) => (lease.provider, None),
                None => self.compute_for(from, &new.network, new.settings).await?,
            };
            let home = home_on(&provider, vendor::home(vendor)).await;
            let now = self.now().at;
            let mut env = Env::from([
                ("HOME".to_owned(), home.clone()),
                ("USER".to_owned(), vendor.user().to_owned()),
                ("LOGNAME".to_owned(), vendor.user().to_owned()),
            ]);
            if let Some(path) = self.path_inside(&provider) {
                env.insert("PATH".to_owned(), format!("{home}/{}:{path}", home::PROGRAMS));
            }
            let (mut template, mut extra, mut cwd) = (new.template, new.extra, home.clone());
            if let Some(base) = &base {
                base.apply(&mut template, &mut env, &mut extra, &mut cwd);
            }
            env.extend(new.env);
            let sandbox = Sandbox {
                thread_id: id.clone(),
                project_id: model::ProjectId::default_project(),
                name: new.name,
                origin: vendor.origin().to_owned(),
                template,
                build_id: new.build_id,
                user: vendor.user().to_owned(),
                home,
                state: SandboxState::Active,
                started_at: now,
                lifetime: None,
                expires_at: new.timeout.map(|it| now.checked_add(it).unwrap_or(Timestamp::MAX)),
                on_expiry: new.on_expiry,
                expires_while_paused: vendor.expires_while_paused(),
                delete_after_stop: new.delete_after_stop,
                auto_resume: new.auto_resume,
                port_access: new.port_access,
                labels: new.labels,
                extra,
                created_at: now,
                updated_at: now,
                revision: 0,
            };
            let choices = ThreadChoices {
                provider: Some(provider),
                spec,
                fork: new.fork,
                policy: Some(new.policy),
                env: Some(env),
                cwd: Some(cwd),
                ..ThreadChoices::default()
            };
            let sandbox = self.sandboxes.create(self.first_use(&id, choices), sandbox).await?;
            drop(volume_lock);
            self.state.index.add(id.clone());
            let started = async {
                self.set_up_sandbox(&sandbox).await?;
                self.start_template(&sandbox, base.as_ref()).await
            };
            match started.await {
                Ok(()) => Ok(sandbox),
                Err(problem) => {
                    self.delete_sandbox(&id).await?;
                    Err(problem)
                }
            }
        })
    }

    /// The provider of a template, and its settings. A template is the name of a provider, a snapshot or
    /// [an image](build::image_of); any other name means the default provider.
    async fn compute_for(
        &self,
        template: &str,
        network: &Network,
        mut spec: serde_json::Map<String, Value>,
    ) -> Result<(String, Option<Value>), Problem> {
        let providers = self.leases.providers();
        let mut name = self.provider.clone();
        if let Some((provider, image)) = build::image_of(template) {
            name = provider.to_owned();
            spec.insert("image".to_owned(), image.into());
        } else if providers.named(template).is_ok() {
            name = template.to_owned();
        } else {
            for provider in providers.all() {
                // A provider that cannot list its snapshots has none to start from.
                let Some(disks) = provider.disks() else { continue };
                let found = disks.snapshots().await.unwrap_or_default();
                if found.iter().any(|snapshot| snapshot.name == template) {
                    name = provider.name().to_owned();
                    spec.insert("snapshot".to_owned(), template.into());
                }
            }
        }
        let spec = self.with_egress(&name, spec, network)?;
        Ok((name, spec))
    }

    /// Starts the compute of a new sandbox and sets up the account of its user.
    async fn set_up_sandbox(&self, sandbox: &SandboxRecord) -> Result<(), Problem> {
        self.leases.running(&sandbox.thread.lease_id).await?;
        let files = self.sandbox_files(sandbox).await?;
        let account = Account { name: sandbox.row.user.clone(), home: sandbox.row.home.clone() };
        // On this machine itself, only the home directory is created: the other files belong to the system.
        let is_local = sandbox.lease.provider == "local";
        files
            .act(move |directory| match is_local {
                true => account.make_home(directory),
                false => account.set_up(directory),
            })
            .await?;
        Ok(())
    }

    /// The `PATH` of a provider whose sandboxes have a root file system of their own.
    fn path_inside(&self, provider: &str) -> Option<String> {
        let provider = self.leases.providers().named(provider).ok()?;
        provider.profile().environment?.remove("PATH")
    }

    /// Ends the programs of a sandbox and keeps its files; a client resumes it.
    pub async fn suspend_sandbox(&self, sandbox: &SandboxRecord) -> Result<SandboxRecord, Problem> {
        let suspended = self.sandboxes.suspend(sandbox).await?;
        self.forget_programs(sandbox.id());
        Ok(suspended)
    }

    /// Ends the programs of a sandbox and keeps its files; the next use starts it.
    pub async fn stop_sandbox(&self, sandbox: &SandboxRecord) -> Result<SandboxRecord, Problem> {
        let stopped = self.sandboxes.stop(sandbox).await?;
        self.forget_programs(sandbox.id());
        Ok(stopped)
    }

    /// Deletes a sandbox with its content; `false` if it does not exist.
    pub async fn delete_sandbox(&self, id: &ThreadId) -> Result<bool, Problem> {
        let deleted = self.sandboxes.delete(id).await?;
        self.forget_sandbox(id);
        Ok(deleted)
    }

    fn forget_programs(&self, id: &ThreadId) {
        self.state.contexts.forget(id);
        self.state.processes.forget(id);
    }

    /// Drops the in-memory state of a deleted sandbox.
    pub fn forget_sandbox(&self, id: &ThreadId) {
        self.forget_programs(id);
        self.state.index.remove(id);
        self.state.watchers.forget(id);
        self.state.usage.forget(id);
    }
}

/// The home directory on a provider. On this machine itself it is the server's own, if the usual one cannot be
/// created.
async fn home_on(provider: &str, home: String) -> String {
    if provider != "local" {
        return home;
    }
    match tokio::fs::create_dir_all(&home).await {
        Ok(()) => home,
        Err(_) => std::env::var("HOME").unwrap_or_else(|_| "/tmp".to_owned()),
    }
}
