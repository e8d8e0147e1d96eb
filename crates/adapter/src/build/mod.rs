//! Templates of the vendor APIs, built step by step.
//!
//! ```text
//!   e2b, daytona ─▶ plan, dockerfile   the steps of a build. Pure
//!                ─▶ Builds             the running builds
//!                     ├─▶ base_files   the files that a build starts from
//!                     ├─▶ image        images from Dockerfiles, of the native API
//!                     ├─▶ run          runs the steps in an unlisted sandbox
//!                     ├─▶ log          the output of a build
//!                     ├─▶ sweep        removes leftovers
//!                     ├─▶ target       what a build makes
//!                     ├─▶ upload       files that clients sent
//!                     └─▶ template     the base of a sandbox
//! ```
//! The result of a build is a snapshot of its sandbox's files, `build-<id>`, and an entry in the template's row.
//! The row is written first and last: a sandbox of a build that does not run, and a snapshot that no row calls
//! ready, were left by a crash and are removed at the next start. An image is copied from such a snapshot and replaces
//! the one of its name in one step; no tag points to its build, so the snapshot is removed afterwards. An interrupted build is never continued,
//! because its steps may have effects elsewhere that must not be repeated: it is reported as failed.

mod base_files;
pub mod dockerfile;
mod image;
pub mod log;
pub mod plan;
mod run;
mod running;
mod sweep;
mod target;
mod template;
pub mod upload;

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use running::Builds;
pub use template::{ALIAS, CWD, TemplateBase, image_of, is_of_build, split_tag};

use crate::{Adapter, new_sandbox::NewSandbox, vendor::VendorApi};
use api::error::{Code, Problem};
use log::{BuildLog, Level, LogLine};
use model::{Build, BuildEvent, BuildId, Env, Failure, Made, Template, TemplateId};
use plan::{Plan, StepSettings};
use provider::Fidelity;
use run::{BASE, BuildRun, StepHost};
use running::RunningBuild;
use target::{BUILD_TIMEOUT, BuildTarget, failed, sandbox_of};
use template::snapshot_of;

/// The limit of builds that run or wait.
const MAX_BUILDS: usize = 32;
/// The limit of templates, of all APIs together.
const MAX_TEMPLATES: usize = 2000;

impl Adapter {
    /// Records a build that has not started, and its template if that does not exist.
    pub async fn request_build(
        &self,
        vendor: &'static dyn VendorApi,
        name: &str,
        build: Build,
    ) -> Result<Template, Problem> {
        self.record_build(vendor.origin(), name, build).await
    }

    async fn record_build(
        &self,
        owner: &'static str,
        name: &str,
        build: Build,
    ) -> Result<Template, Problem> {
        let now = self.now().at;
        if self.store.template(owner, name).await?.is_none()
            && self.store.templates().await?.len() >= MAX_TEMPLATES
        {
            let detail = format!("there are {MAX_TEMPLATES} templates; delete one first");
            return Err(Problem::new(Code::TooManyRequests, detail));
        }
        self.build_provider()?;
        let (id, template_name) = (random_id()?, name.to_owned());
        let changed = self.store.put_template(owner, name, move |old| {
            let new = || Template::new(id.clone(), owner, &template_name, now);
            let mut template = old.unwrap_or_else(new);
            template.add(build.clone());
            (template.clone(), template)
        });
        Ok(changed.await?)
    }

    /// The provider that builds run on: the default one, or else another that can keep files.
    fn build_provider(&self) -> Result<String, Problem> {
        let can_keep_files = |name: &str| {
            let found = self.leases.providers().named(name);
            found.is_ok_and(|provider| provider.profile().suspend != Fidelity::None)
        };
        let names = [self.provider.as_str(), "namespace", "docker"];
        let found = names.into_iter().find(|name| can_keep_files(name)).map(str::to_owned);
        found.ok_or_else(|| {
            let detail = "builds need a provider whose sandboxes have files of their own \
                          (namespace, docker); this server has no such provider";
            Problem::new(Code::NotSupported, detail)
        })
    }

    /// Starts a build in a task. Then creates the sandbox that waits for it, if there is one.
    pub async fn start_build(
        &self,
        vendor: &'static dyn VendorApi,
        template: &TemplateId,
        build: &BuildId,
        plan: Plan,
        then: Option<NewSandbox>,
    ) -> Result<(), Problem> {
        self.start_build_of(BuildTarget::Template(vendor), template, build, plan, then).await
    }

    async fn start_build_of(
        &self,
        target: BuildTarget,
        template: &TemplateId,
        build: &BuildId,
        plan: Plan,
        then: Option<NewSandbox>,
    ) -> Result<(), Problem> {
        let (stop, (count, lines)) = (CancellationToken::new(), watch::channel(0));
        {
            let mut running = self.state.builds.running();
            if running.len() >= MAX_BUILDS {
                let detail = format!("{MAX_BUILDS} builds run or wait; try again later");
                return Err(Problem::new(Code::TooManyRequests, detail));
            }
            if running.contains_key(build) {
                return Err(Problem::new(Code::Conflict, "the build was already started"));
            }
            running.insert(build.clone(), RunningBuild { stop: stop.clone(), lines });
        }
        let path = log::path(&self.settings.home, build.as_str());
        let started = async {
            self.record_build_event(template, build, BuildEvent::Start).await?;
            BuildLog::open(&path, count)
                .map_err(|error| Problem::internal("open the log of a build", &error))
        };
        let log = match started.await {
            Ok(log) => log,
            Err(problem) => {
                self.state.builds.running().remove(build);
                return Err(problem);
            }
        };
        let (app, template, build) = (self.clone(), template.clone(), build.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = app.build(target, (&template, &build), plan, then, log, stop) => {}
                // The next start reports it as failed and removes its leftovers.
                () = app.stopping.cancelled() => {}
            }
        });
        Ok(())
    }

    /// Runs a build and records its end.
    async fn build(
        &self,
        target: BuildTarget,
        (template, build): (&TemplateId, &BuildId),
        plan: Plan,
        then: Option<NewSandbox>,
        mut log: BuildLog,
        stop: CancellationToken,
    ) {
        let result = tokio::select! {
            result = self.run_plan(&target, build, &plan, &mut log) => result,
            () = tokio::time::sleep(BUILD_TIMEOUT) => {
                Err(failed(format!("the build took more than {} minutes", BUILD_TIMEOUT.as_secs() / 60)))
            }
            () = stop.cancelled() => Err(failed("the build was cancelled: its template was deleted")),
        };
        let sandbox = sandbox_of(build);
        if let Err(problem) = self.delete_sandbox(&sandbox).await {
            tracing::warn!(%sandbox, detail = problem.detail(), "cannot delete the sandbox of a build");
        }
        let event = match result {
            Ok(made) => {
                log.add(Level::Info, "the build is ready");
                BuildEvent::Finish(made)
            }
            Err(failure) => {
                log.add(Level::Error, &failure.message);
                BuildEvent::Fail(failure)
            }
        };
        let is_ready = matches!(event, BuildEvent::Finish(_));
        let mut outcome = self.record_build_event(template, build, event).await.map(drop);
        if let (Ok(()), Some(new), true) = (&outcome, then, is_ready) {
            outcome = self.create_sandbox(new).await.map(drop);
            if outcome.is_ok() {
                outcome = self.forget_waiter(template, build).await;
            }
        }
        if let Err(problem) = outcome {
            log.add(Level::Error, problem.detail());
            tracing::warn!(%build, detail = problem.detail(), "cannot finish a build");
        }
        self.state.builds.running().remove(build);
        drop(log);
        self.sweep_builds().await;
    }

    /// Records that no sandbox waits for a build.
    pub async fn forget_waiter(
        &self,
        template: &TemplateId,
        build: &BuildId,
    ) -> Result<(), Problem> {
        let build = build.clone();
        let changed = self.store.change_template(template, move |template| {
            let found = template.builds.iter_mut().find(|it| it.build_id == build);
            found.map(|build| build.waiter = None)
        });
        changed.await?;
        Ok(())
    }

    /// Records an event of a build in its template's row.
    async fn record_build_event(
        &self,
        template: &TemplateId,
        build: &BuildId,
        event: BuildEvent,
    ) -> Result<Template, Problem> {
        let (build, now) = (build.clone(), self.now().at);
        let changed = self.store.change_template(template, move |template| {
            *template = template.apply(&build, event.clone(), now)?;
            Ok::<_, model::Refused>(template.clone())
        });
        match changed.await? {
            Some(Ok(template)) => Ok(template),
            Some(Err(refused)) => Err(Problem::new(Code::Conflict, refused.to_string())),
            None => Err(Problem::missing("template", template)),
        }
    }

    async fn run_plan(
        &self,
        target: &BuildTarget,
        build: &BuildId,
        plan: &Plan,
        log: &mut BuildLog,
    ) -> Result<Made, Failure> {
        log.set_step(BASE);
        let _slot = match self.state.builds.slots.try_acquire() {
            Ok(slot) => slot,
            Err(_) => {
                log.add(Level::Info, "waiting for other builds");
                let slot = self.state.builds.slots.acquire().await;
                slot.map_err(|_| failed("the server is stopping"))?
            }
        };
        for remark in &plan.remarks {
            log.add(Level::Warn, remark);
        }
        let at_base = |problem: Problem| {
            let step = Some(BASE.to_owned());
            Failure { message: problem.detail().to_owned(), step }
        };
        let vendor = match target {
            BuildTarget::Template(vendor) => *vendor,
            BuildTarget::Image(target) => {
                return self.run_image_plan(target, build, plan, log).await;
            }
        };
        let base = self.build_sandbox(vendor, build, &plan.base, log).await;
        let (sandbox, base) = base.map_err(at_base)?;
        let Made { env, cwd, user, start, ready } = base;
        let run = BuildRun {
            app: self,
            host: StepHost::Account,
            sandbox: &sandbox,
            stages: &BTreeMap::new(),
            settings: StepSettings {
                env,
                args: Env::new(),
                cwd: cwd.unwrap_or_else(|| plan.cwd.clone()),
                user: user.unwrap_or_else(|| plan.user.clone()),
            },
            log,
        };
        let mut made = run.run_plan(plan).await?;
        if made.start.is_none() {
            (made.start, made.ready) = (start, made.ready.or(ready));
        }
        log.add(Level::Info, "creating the snapshot");
        let snapshot = self.leases.snapshot(&sandbox.thread.lease_id, &snapshot_of(build)).await;
        snapshot.map_err(|error| failed(Problem::from(error).detail()))?;
        Ok(made)
    }

    /// Reads lines of a build's log from a line on.
    pub async fn build_log(
        &self,
        build: &BuildId,
        from: u64,
        limit: usize,
        min_level: Level,
    ) -> Result<Vec<LogLine>, Problem> {
        let path = log::path(&self.settings.home, build.as_str());
        let read = move || log::read(&path, from, limit, min_level);
        let lines = base::task::blocking(read).await;
        let lines = lines.map_err(|error| Problem::internal("read the log of a build", &error))?;
        lines.map_err(|error| Problem::internal("read the log of a build", &error))
    }
}

/// The sandbox of a build. Its timeout deletes it in any case.
fn new_sandbox(vendor: &'static dyn VendorApi, build: &BuildId, template: String) -> NewSandbox {
    NewSandbox {
        build_id: Some(build.clone()),
        timeout: Some(2 * BUILD_TIMEOUT),
        ..NewSandbox::new(vendor, sandbox_of(build), template)
    }
}

fn random_id() -> Result<TemplateId, Problem> {
    let mut random = [0; 20];
    getrandom::fill(&mut random)
        .map_err(|error| Problem::internal("generate the id of a template", &error))?;
    let letters = b"abcdefghijklmnopqrstuvwxyz012345";
    let id: String =
        random.iter().map(|byte| char::from(letters[usize::from(byte % 32)])).collect();
    Ok(id.parse().expect("letters and digits are an id"))
}
