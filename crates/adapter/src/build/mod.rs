//! Templates of the vendor APIs, built here step by step.
//!
//! ```text
//!   e2b, daytona ─▶ plan, dockerfile   what is to be done. Pure
//!                ─▶ Builds             those that run
//!                     ├─▶ run          in a sandbox of their own, which is in no list
//!                     ├─▶ log          what they say
//!                     ├─▶ sweep        what they leave, and what a crash left of them
//!                     └─▶ upload       files that were sent for them
//! ```
//! A build that went well is a snapshot of its sandbox's files, `build-<id>`, and what the template's row
//! says of it. The row comes first and last: a sandbox of a build that does not run here, and a snapshot
//! that no row calls ready, are what a crash left, and go at the next start. A build is never
//! continued, for its steps may have done things elsewhere that must not be done twice: it is reported as
//! failed.

pub mod dockerfile;
pub mod log;
pub mod plan;
mod run;
mod running;
mod sweep;
pub mod upload;

use std::{collections::BTreeMap, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use running::Builds;

use crate::{Adapter, new_sandbox::NewSandbox, vendor::VendorApi};
use api::error::{Code, Problem};
use log::{BuildLog, Level, LogLine};
use machine::is_image_name;
use model::{Build, BuildEvent, BuildId, Env, Failure, Made, Template, TemplateId, USUAL_TAG};
use plan::{Base, Chosen, Plan};
use provider::Fidelity;
use run::{BASE, BuildRun};
use running::RunningBuild;
use store::SandboxRecord;

/// Builds that run or wait.
const MAX_BUILDS: usize = 32;
/// Templates of all APIs.
const MAX_TEMPLATES: usize = 2000;
/// How long a build may take.
const BUILD_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// How long a new sandbox waits for the start command of its template to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The prefix of the snapshot of a build.
const SNAPSHOT_PREFIX: &str = "build-";
/// The image that a client of E2B who chose none names.
const DEFAULT_IMAGE: &str = "e2bdev/base";

/// The prefix of a template name that stands for an image of a provider; no client's template has it.
const IMAGE_PREFIX: &str = "image ";
/// Notes of a sandbox that was made from a template: where its programs start, and the name of that.
pub const CWD: &str = "cwd";
pub const ALIAS: &str = "alias";

/// The template name that stands for an image of a provider.
fn of_image(provider: &str, image: &str) -> String {
    format!("{IMAGE_PREFIX}{provider} {image}")
}

/// The provider and the image that a template's name stands for, if it is such a name.
pub fn image_of(template: &str) -> Option<(&str, &str)> {
    template.strip_prefix(IMAGE_PREFIX)?.split_once(' ')
}

/// What a sandbox gets from its template.
#[derive(Debug, Clone)]
pub struct TemplateBase {
    pub template: TemplateId,
    pub name: String,
    pub snapshot: String,
    /// What else it gets.
    pub made: Made,
}

impl TemplateBase {
    /// Gives a new sandbox what its template says of it: its id, variables, notes and directory.
    pub fn shape(
        &self,
        template: &mut String,
        env: &mut Env,
        more: &mut BTreeMap<String, String>,
        cwd: &mut String,
    ) {
        if self.made.user.as_deref() == Some("root") {
            let own = [("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root")];
            env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        env.extend(self.made.env.clone());
        if let Some(chosen) = &self.made.cwd {
            *cwd = chosen.clone();
            more.insert(CWD.to_owned(), chosen.clone());
        }
        more.insert(ALIAS.to_owned(), self.name.clone());
        *template = self.template.to_string();
    }
}

/// A name as clients write it, with the tag behind it if there is one.
pub fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (name, None),
    }
}

/// Whether a snapshot is one of a build.
pub fn is_of_build(snapshot: &str) -> bool {
    snapshot.strip_prefix(SNAPSHOT_PREFIX).is_some_and(|id| uuid::Uuid::try_parse(id).is_ok())
}

fn snapshot_of(build: &BuildId) -> String {
    format!("{SNAPSHOT_PREFIX}{build}")
}

fn failed(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), step: None }
}

impl Adapter {
    /// What a sandbox gets from the template of this name; `None` if there is none.
    pub async fn template_base(
        &self,
        vendor: &dyn VendorApi,
        named: &str,
    ) -> Result<Option<TemplateBase>, Problem> {
        let (plain, tag) = match vendor.names_have_tags() {
            true => split_tag(named),
            false => (named, None),
        };
        let owner = vendor.origin();
        let (template, tag) = match self.store.template(owner, named).await? {
            Some(template) => (Some(template), USUAL_TAG),
            None => (self.store.template(owner, plain).await?, tag.unwrap_or(USUAL_TAG)),
        };
        let Some(template) = template else { return Ok(None) };
        let build = template.tagged(tag).and_then(|build| Some((build, build.made()?)));
        let Some((build, made)) = build else {
            let detail = format!("template '{}' has no build with the tag '{tag}'", template.name);
            return Err(Problem::new(Code::NotFound, detail));
        };
        Ok(Some(TemplateBase {
            snapshot: snapshot_of(&build.build_id),
            made: made.clone(),
            template: template.template_id,
            name: template.name,
        }))
    }

    /// Notes a build that is to come, under the template of this name.
    pub async fn request_build(
        &self,
        vendor: &'static dyn VendorApi,
        name: &str,
        build: Build,
    ) -> Result<Template, Problem> {
        let (owner, now) = (vendor.origin(), self.now().at);
        if self.store.template(owner, name).await?.is_none()
            && self.store.templates().await?.len() >= MAX_TEMPLATES
        {
            let detail = format!("there are {MAX_TEMPLATES} templates; delete one first");
            return Err(Problem::new(Code::TooManyRequests, detail));
        }
        self.builder()?;
        let (id, named) = (fresh_id()?, name.to_owned());
        let changed = self.store.put_template(owner, name, move |old| {
            let new = || Template::new(id, owner, &named, now);
            let mut template = old.unwrap_or_else(new);
            template.add(build);
            (template.clone(), template)
        });
        Ok(changed.await?)
    }

    /// The provider that builds stand on: the server's own, or another that has files to keep.
    fn builder(&self) -> Result<String, Problem> {
        let keeps = |name: &str| {
            let found = self.leases.providers().named(name);
            found.is_ok_and(|provider| provider.profile().suspend != Fidelity::None)
        };
        let names = [self.provider.as_str(), "namespace", "docker"];
        let found = names.into_iter().find(|name| keeps(name)).map(str::to_owned);
        found.ok_or_else(|| {
            let detail = "templates are built where sandboxes have files of their own (namespace, \
                          docker); this server has no such provider";
            Problem::new(Code::NotSupported, detail)
        })
    }

    /// Begins with the steps of a build, and makes a sandbox from it if one waits for it.
    pub async fn start_build(
        &self,
        vendor: &'static dyn VendorApi,
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
                return Err(Problem::new(Code::Conflict, "the build has been started"));
            }
            running.insert(build.clone(), RunningBuild { stop: stop.clone(), lines });
        }
        let path = log::path(&self.settings.home, build.as_str());
        let begun = async {
            self.record_build_event(template, build, BuildEvent::Start).await?;
            BuildLog::begin(&path, count).map_err(|error| Problem::internal("begin a log", &error))
        };
        let log = match begun.await {
            Ok(log) => log,
            Err(problem) => {
                self.state.builds.running().remove(build);
                return Err(problem);
            }
        };
        let (app, template, build) = (self.clone(), template.clone(), build.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = app.build(vendor, (&template, &build), plan, then, log, stop) => {}
                // The next start reports it as failed and removes its leftovers.
                () = app.stopping.cancelled() => {}
            }
        });
        Ok(())
    }

    /// Carries a build out, and says how it went.
    async fn build(
        &self,
        vendor: &'static dyn VendorApi,
        (template, build): (&TemplateId, &BuildId),
        plan: Plan,
        then: Option<NewSandbox>,
        mut log: BuildLog,
        stop: CancellationToken,
    ) {
        let done = tokio::select! {
            done = self.run_plan(vendor, build, &plan, &mut log) => done,
            () = tokio::time::sleep(BUILD_TIMEOUT) => {
                Err(failed(format!("the build took more than {} minutes", BUILD_TIMEOUT.as_secs() / 60)))
            }
            () = stop.cancelled() => Err(failed("the build was given up: its template was deleted")),
        };
        let sandbox = sandbox_of(build);
        if let Err(problem) = self.delete_sandbox(&sandbox).await {
            tracing::warn!(%sandbox, detail = problem.detail(), "cannot end the sandbox of a build yet");
        }
        let event = match done {
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
        let mut told = self.record_build_event(template, build, event).await.map(drop);
        if let (Ok(()), Some(new), true) = (&told, then, is_ready) {
            told = self.create_sandbox(new).await.map(drop);
            if told.is_ok() {
                told = self.forget_waiter(template, build).await;
            }
        }
        if let Err(problem) = told {
            log.add(Level::Error, problem.detail());
            tracing::warn!(%build, detail = problem.detail(), "a build came to nothing");
        }
        self.state.builds.running().remove(build);
        drop(log);
        self.sweep_builds().await;
    }

    /// Notes that no sandbox waits for a build any more.
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

    /// Writes down what happens to a build.
    async fn record_build_event(
        &self,
        template: &TemplateId,
        build: &BuildId,
        event: BuildEvent,
    ) -> Result<Template, Problem> {
        let (build, now) = (build.clone(), self.now().at);
        let changed = self.store.change_template(template, move |template| {
            *template = template.apply(&build, event, now)?;
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
        vendor: &'static dyn VendorApi,
        build: &BuildId,
        plan: &Plan,
        log: &mut BuildLog,
    ) -> Result<Made, Failure> {
        log.step(BASE);
        let _turn = match self.state.builds.room.try_acquire() {
            Ok(turn) => turn,
            Err(_) => {
                log.add(Level::Info, "waiting for other builds");
                let turn = self.state.builds.room.acquire().await;
                turn.map_err(|_| failed("the server is stopping"))?
            }
        };
        for remark in &plan.remarks {
            log.add(Level::Warn, remark);
        }
        let at_base = |problem: Problem| {
            let step = Some(BASE.to_owned());
            Failure { message: problem.detail().to_owned(), step }
        };
        let (sandbox, before) = self.base(vendor, build, &plan.base, log).await.map_err(at_base)?;
        let Made { env, cwd, user, start, ready } = before;
        let works = BuildRun {
            app: self,
            sandbox: &sandbox,
            chosen: Chosen {
                env,
                args: Env::new(),
                cwd: cwd.unwrap_or_else(|| plan.cwd.clone()),
                user: user.unwrap_or_else(|| plan.user.clone()),
            },
            log,
        };
        let mut made = works.run_plan(plan).await?;
        if made.start.is_none() {
            (made.start, made.ready) = (start, made.ready.or(ready));
        }
        log.add(Level::Info, "keeping the files");
        let kept = self.leases.snapshot(&sandbox.thread.lease_id, &snapshot_of(build)).await;
        kept.map_err(|error| failed(Problem::from(error).detail()))?;
        Ok(made)
    }

    /// Creates the sandbox of a build; returns it with what its base template defines.
    async fn base(
        &self,
        vendor: &'static dyn VendorApi,
        build: &BuildId,
        base: &Base,
        log: &mut BuildLog,
    ) -> Result<(SandboxRecord, Made), Problem> {
        let own = self.builder()?;
        let (Base::Template(name) | Base::Image(name)) = base;
        log.add(Level::Info, &format!("FROM {name}"));
        let images_may_be_templates = vendor.images_may_be_templates();
        let begins = match base {
            Base::Template(_) => self.template_base(vendor, name).await?,
            Base::Image(_) if images_may_be_templates => {
                self.template_base(vendor, name).await.unwrap_or_default()
            }
            Base::Image(_) => None,
        };
        if let Some(begins) = begins {
            let sandbox = self.create_sandbox(new_sandbox(vendor, build, begins.snapshot)).await?;
            return Ok((sandbox, begins.made));
        }
        let is_known = self.leases.providers().named(name).is_ok()
            || (self.snapshots().await.unwrap_or_default().contains_key(name)
                && !is_of_build(name));
        let from = match base {
            Base::Template(name) if is_known => name.clone(),
            Base::Image(name) if is_known && images_may_be_templates => name.clone(),
            Base::Template(name) if name == "base" => own,
            Base::Template(name) => {
                let detail = format!("template '{name}' not found");
                return Err(Problem::new(Code::NotFound, detail));
            }
            Base::Image(image) => match self.image(image) {
                Some(found) => of_image(&own, &found),
                None if own == "docker" && image != DEFAULT_IMAGE => {
                    let new = new_sandbox(vendor, build, of_image(&own, image));
                    match self.create_sandbox(new).await {
                        Ok(sandbox) => return Ok((sandbox, Made::default())),
                        Err(problem) => log.add(Level::Warn, problem.detail()),
                    }
                    without(image, own, log)
                }
                None => without(image, own, log),
            },
        };
        let sandbox = self.create_sandbox(new_sandbox(vendor, build, from)).await?;
        Ok((sandbox, Made::default()))
    }

    /// The image that an operator imported under a name like this one.
    fn image(&self, name: &str) -> Option<String> {
        let (plain, _) = split_tag(name);
        let last = plain.rsplit('/').next().unwrap_or(plain);
        let names = [name, plain, last].map(|name| name.replace(['/', ':', '@'], "-"));
        let images = self.settings.home.join("images");
        let is_there =
            |name: &String| is_image_name(name) && images.join(name).join("rootfs").is_dir();
        names.into_iter().find(is_there)
    }

    /// Starts what the template of a new sandbox starts, and waits a while for it to be ready.
    pub async fn start_template(
        &self,
        sandbox: &SandboxRecord,
        begins: Option<&TemplateBase>,
    ) -> Result<(), Problem> {
        let Some(made) = begins.map(|begins| &begins.made) else { return Ok(()) };
        let Some(command) = &made.start else { return Ok(()) };
        let chosen = Chosen {
            env: made.env.clone(),
            args: Env::new(),
            cwd: made.cwd.clone().unwrap_or_else(|| sandbox.row.home.clone()),
            user: made.user.clone().unwrap_or_else(|| sandbox.row.user.clone()),
        };
        let mut start = run::program(sandbox, &chosen, &chosen.user, command);
        start.timeout = None;
        self.start_process(sandbox, start).await?;
        // Some only let time pass, for want of a condition; that was done when it was built.
        if let Some(ready) = made.ready.as_ref().filter(|ready| !ready.starts_with("sleep ")) {
            let until = run::until_ready(self, sandbox, &chosen, ready);
            match tokio::time::timeout(READY_TIMEOUT, until).await {
                Ok(ready) => ready?,
                Err(_) => {
                    tracing::warn!(sandbox = %sandbox.id(), "what it starts is not ready yet")
                }
            }
        }
        Ok(())
    }

    /// Lines of the log of a build, from this one on.
    pub async fn build_log(
        &self,
        build: &BuildId,
        from: u64,
        most: usize,
        least: Level,
    ) -> Result<Vec<LogLine>, Problem> {
        let path = log::path(&self.settings.home, build.as_str());
        let read = tokio::task::spawn_blocking(move || log::read(&path, from, most, least)).await;
        let read = read.map_err(|error| Problem::internal("read a log", &error))?;
        read.map_err(|error| Problem::internal("read a log", &error))
    }
}

/// Says that an image is not here.
fn without(image: &str, own: String, log: &mut BuildLog) -> String {
    let said = format!(
        "there is no image {image} here; the build begins with the files of provider {own} \
         (`stead image import` makes one)"
    );
    log.add(Level::Warn, &said);
    own
}

fn sandbox_of(build: &BuildId) -> model::ThreadId {
    snapshot_of(build).parse().expect("a uuid is an id")
}

/// The sandbox of a build. It ends by itself in any case.
fn new_sandbox(vendor: &'static dyn VendorApi, build: &BuildId, template: String) -> NewSandbox {
    NewSandbox {
        build_id: Some(build.clone()),
        timeout: Some(2 * BUILD_TIMEOUT),
        ..NewSandbox::new(vendor, sandbox_of(build), template)
    }
}

/// The id of a new template.
fn fresh_id() -> Result<TemplateId, Problem> {
    let mut random = [0; 20];
    getrandom::fill(&mut random)
        .map_err(|error| Problem::internal("cannot name a template", &error))?;
    let letters = b"abcdefghijklmnopqrstuvwxyz012345";
    let id: String =
        random.iter().map(|byte| char::from(letters[usize::from(byte % 32)])).collect();
    Ok(id.parse().expect("letters and digits are an id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_sandboxes_are_made_from() {
        assert_eq!(split_tag("team/name:v1"), ("team/name", Some("v1")));
        assert_eq!(split_tag("name"), ("name", None));
        assert_eq!(image_of(&of_image("docker", "python:3")), Some(("docker", "python:3")));
        assert_eq!(image_of("image:v1"), None);
        let build: BuildId = uuid::Uuid::nil().to_string().parse().unwrap();
        assert!(is_of_build(&snapshot_of(&build)));
        assert!(!is_of_build("build-tools"), "a client's own");
    }

    #[test]
    fn a_sandbox_gets_what_its_template_says_and_keeps_what_it_does_not() {
        let mut made = Made { env: Env::from([("A".into(), "1".into())]), ..Made::default() };
        let shaped = |made: &Made| {
            let begins = TemplateBase {
                template: "id".parse().unwrap(),
                name: "name".to_owned(),
                snapshot: String::new(),
                made: made.clone(),
            };
            let mut cwd = "/home/user".to_owned();
            let (mut template, mut env) = (String::new(), Env::from([("A".into(), "0".into())]));
            let mut more = BTreeMap::new();
            begins.shape(&mut template, &mut env, &mut more, &mut cwd);
            assert_eq!((template.as_str(), env["A"].as_str()), ("id", "1"));
            assert_eq!(more[ALIAS], "name");
            (cwd, env.remove("HOME"), more.remove(CWD))
        };
        assert_eq!(shaped(&made), ("/home/user".to_owned(), None, None));
        made.user = Some("root".to_owned());
        made.cwd = Some("/srv".to_owned());
        let expected = ("/srv".to_owned(), Some("/root".to_owned()), Some("/srv".to_owned()));
        assert_eq!(shaped(&made), expected);
    }
}
