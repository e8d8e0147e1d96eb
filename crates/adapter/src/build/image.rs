//! Images built from Dockerfiles, for the native API.

use std::{collections::BTreeMap, time::Duration};

use api::{
    error::{Code, Problem},
    images::{ImageBuildLine, ImageBuildStatus, ImageBuildView, ImageBuilder, NewImageBuild},
};
use axum::body::Body;
use futures_util::future::BoxFuture;
use machine::{BaseImage, ImageBuildError, PullStage, inside::archived_file};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    dockerfile::{self, BuildInputs, BuildStage, Dockerfile, ImageRecord},
    log::{BuildLog, Level},
    plan::{Base, MAX_SOURCE_BYTES, MAX_STEPS, Plan, StepSettings},
    run::{BASE, BuildRun, StepHost},
    target::{BUILD_TIMEOUT, BuildTarget, ImageTarget, failed, sandbox_of, sandbox_of_stage},
    template::snapshot_of,
    upload,
};
use crate::{Adapter, origin::IMAGE_ORIGIN};
use engine::sandbox::UNLIMITED_SESSION;
use model::{
    Build, BuildId, BuildStatus, Env, ExpiryAction, Failure, Made, PortAccess, Sandbox,
    SandboxState, Template, ThreadId, Timestamp,
};
use store::{SandboxRecord, ThreadChoices};

/// Variables of the image's user, which shells get from its account.
const ACCOUNT_VARIABLES: [&str; 3] = ["HOME", "USER", "LOGNAME"];
/// How long a reader of a log waits for a line before it looks whether the build has ended.
const LINE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_READ_LINES: usize = 500;
const MIB: u64 = 1 << 20;
/// The provider of the sandboxes that images are built in. The disk of a container lies over an image of its engine, so it
/// is no layer of ours; without a sandbox, steps would run on this machine itself.
const IMAGE_PROVIDER: &str = "namespace";

/// What a stage takes from its base.
struct StageBase {
    settings: StepSettings,
    /// The configuration of the image.
    config: Value,
}

/// The name of the files that were uploaded for a build.
pub(super) fn uploaded(build: &BuildId) -> String {
    build.as_str().chars().filter(char::is_ascii_hexdigit).collect()
}

fn problem(error: ImageBuildError) -> Problem {
    match error {
        ImageBuildError::NoImage(_) | ImageBuildError::Imported(_) => {
            Problem::new(Code::InvalidRequest, error.to_string())
        }
        ImageBuildError::NotOurs(_) => Problem::new(Code::Unprocessable, error.to_string()),
        ImageBuildError::Pull(pull) if pull.is_refusal() => {
            Problem::new(Code::Unprocessable, pull.to_string())
        }
        ImageBuildError::Pull(_) | ImageBuildError::Copy(_) | ImageBuildError::Failed { .. } => {
            Problem::internal("build an image", &error)
        }
    }
}

/// The reason of a failure, with its causes.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

impl Adapter {
    async fn start_image_build(
        &self,
        new: NewImageBuild,
        files: Body,
    ) -> Result<ImageBuildView, Problem> {
        let reference = self.state.images.target(&new.name).map_err(problem)?;
        self.image_provider()?;
        let id: BuildId = uuid::Uuid::now_v7().to_string().parse().expect("a uuid is an id");
        let hash = uploaded(&id);
        upload::receive(self, &hash, files).await?;
        let started = async {
            let (source, parsed) = self.uploaded_dockerfile(&new, &hash).await?;
            let build =
                Build { source: Some(source), ..Build::new(id.clone(), vec![], self.now().at) };
            let template = self.record_build(IMAGE_ORIGIN, &reference.to_string(), build).await?;
            let needed = parsed.needed();
            let Dockerfile { plan, record, stages } = parsed;
            let target = ImageTarget { reference, record, stages, needed, files: hash.clone() };
            let target = BuildTarget::Image(Box::new(target));
            self.start_build_of(target, &template.template_id, &id, plan, None).await
        };
        if let Err(problem) = started.await {
            upload::remove(&self.settings.home, &hash);
            return Err(problem);
        }
        self.image_build(&id).await
    }

    /// Reads the Dockerfile among uploaded files.
    async fn uploaded_dockerfile(
        &self,
        new: &NewImageBuild,
        hash: &str,
    ) -> Result<(String, Dockerfile), Problem> {
        let refused = |detail: String| Problem::new(Code::Unprocessable, detail);
        let (path, name) = (upload::path(&self.settings.home, hash)?, new.file.clone());
        let read = move || archived_file(&path, &name, MAX_SOURCE_BYTES as u64);
        let read = base::task::blocking(read).await;
        let read = read.map_err(|error| Problem::internal("read a Dockerfile", &error))?;
        let text = read
            .map_err(|error| refused(format!("cannot read the uploaded files: {error}")))?
            .ok_or_else(|| refused(format!("{} is not among the uploaded files", new.file)))?;
        let text =
            String::from_utf8(text).map_err(|_| refused(format!("{} is not UTF-8", new.file)))?;
        let inputs = BuildInputs { files: Some(hash.to_owned()), args: new.args.clone() };
        let parsed = dockerfile::parse(&text, &inputs)
            .map_err(|error| refused(format!("Dockerfile, {error}")))?;
        if parsed.steps() > MAX_STEPS {
            return Err(refused(format!("a Dockerfile may have up to {MAX_STEPS} steps")));
        }
        Ok((text, parsed))
    }

    /// Runs the steps of an image, and makes it from their result.
    pub(super) async fn run_image_plan(
        &self,
        target: &ImageTarget,
        build: &BuildId,
        plan: &Plan,
        log: &mut BuildLog,
    ) -> Result<Made, Failure> {
        let done = self.make_image(target, build, plan, log).await;
        upload::remove(&self.settings.home, &target.files);
        done.map(|()| Made::default())
    }

    async fn make_image(
        &self,
        target: &ImageTarget,
        build: &BuildId,
        plan: &Plan,
        log: &mut BuildLog,
    ) -> Result<(), Failure> {
        let mut stages = BTreeMap::new();
        for at in &target.needed {
            let BuildStage { name, plan } = &target.stages[*at];
            log.add(Level::Info, &format!("stage {name}"));
            let id = sandbox_of_stage(build, *at);
            let (stage, base) = self.stage_sandbox(build, id, plan, log).await?;
            let mut run = BuildRun {
                app: self,
                host: StepHost::Image,
                sandbox: &stage,
                stages: &stages,
                log,
                settings: base.settings,
            };
            run.run_steps(plan).await?;
            stages.insert(*at, stage);
        }
        let (sandbox, base) = self.stage_sandbox(build, sandbox_of(build), plan, log).await?;
        let document = base.config;
        let mut run = BuildRun {
            app: self,
            host: StepHost::Image,
            sandbox: &sandbox,
            stages: &stages,
            log,
            settings: base.settings,
        };
        run.run_steps(plan).await?;
        let BuildRun { settings, log, .. } = run;
        log.add(Level::Info, "storing the image");
        let snapshot = snapshot_of(build);
        let taken = self.leases.snapshot(&sandbox.thread.lease_id, &snapshot).await;
        taken.map_err(|error| failed(Problem::from(error).detail()))?;
        let config = image_config(document, &settings, &target.record, build, self.now().at);
        let config = serde_json::to_vec(&config).expect("JSON is plain data");
        let stored = self.state.images.commit(&snapshot, &target.reference, config).await;
        stored.map_err(|error| failed(reason(&error)))
    }

    /// Creates the sandbox that the steps of a stage run in, from its base.
    async fn stage_sandbox(
        &self,
        build: &BuildId,
        id: ThreadId,
        plan: &Plan,
        log: &mut BuildLog,
    ) -> Result<(SandboxRecord, StageBase), Failure> {
        let at_base = |message: String| Failure { message, step: Some(BASE.to_owned()) };
        let (Base::Image(name) | Base::Template(name)) = &plan.base;
        log.add(Level::Info, &format!("FROM {name}"));
        let base = self.base_image(name, log).await;
        let base = base.map_err(|error| at_base(reason(&error)))?;
        let sandbox = self.image_sandbox(build, id, &base).await;
        let sandbox = sandbox.map_err(|problem| at_base(problem.detail().to_owned()))?;
        let config = base.config.get("config").cloned().unwrap_or_default();
        let mut env: Env = base.settings.env.clone();
        // Those of the configuration are kept, those of the account are not.
        let own = |name: &str| {
            let prefix = format!("{name}=");
            let pairs = config["Env"].as_array().into_iter().flatten();
            pairs.filter_map(Value::as_str).any(|pair| pair.starts_with(&prefix))
        };
        env.retain(|name, _| !ACCOUNT_VARIABLES.contains(&name.as_str()) || own(name));
        let user = config["User"].as_str().filter(|user| !user.is_empty()).unwrap_or(&plan.user);
        let directory = base.settings.directory.as_ref();
        let settings = StepSettings {
            env,
            args: Env::new(),
            cwd: directory.map_or("/".to_owned(), |path| path.to_string_lossy().into_owned()),
            user: user.to_owned(),
        };
        // The disk of the sandbox names the base from now on, so the base is not removed.
        Ok((sandbox, StageBase { settings, config: base.config.clone() }))
    }

    /// Finds or pulls the base of an image, and logs how far the pull is.
    async fn base_image(
        &self,
        name: &str,
        log: &mut BuildLog,
    ) -> Result<BaseImage, ImageBuildError> {
        let log = Mutex::new((log, None));
        let report = |stage| {
            let (log, reported) = &mut *log.lock();
            let (text, tenths) = match stage {
                PullStage::Fetching { done_bytes, total_bytes } => {
                    let (done, total) = (done_bytes / MIB, total_bytes.div_ceil(MIB));
                    let tenths = (done_bytes * 10).checked_div(total_bytes);
                    (format!("pulling: {done} of {total} MiB"), tenths)
                }
                PullStage::Unpacking { .. } => ("unpacking".to_owned(), None),
            };
            if *reported != Some(tenths) {
                *reported = Some(tenths);
                log.add(Level::Info, &text);
            }
        };
        self.state.images.base(name, &report).await
    }

    /// The provider whose sandboxes the steps run in, if this server has it.
    fn image_provider(&self) -> Result<String, Problem> {
        if !rustix::process::geteuid().is_root() {
            let detail = "only a server that runs as root builds images";
            return Err(Problem::new(Code::NotSupported, detail));
        }
        self.leases.providers().named(IMAGE_PROVIDER).map(|_| IMAGE_PROVIDER.to_owned()).map_err(|_| {
            let detail = "images are built in sandboxes of the provider namespace, which this server has not";
            Problem::new(Code::NotSupported, detail)
        })
    }

    /// Creates a sandbox that steps of an image run in. Its timeout deletes it in any case.
    async fn image_sandbox(
        &self,
        build: &BuildId,
        id: ThreadId,
        base: &BaseImage,
    ) -> Result<SandboxRecord, Problem> {
        let now = self.now().at;
        let sandbox = Sandbox {
            thread_id: id.clone(),
            project_id: model::ProjectId::default_project(),
            name: None,
            origin: IMAGE_ORIGIN.to_owned(),
            template: base.name.clone(),
            build_id: Some(build.clone()),
            user: "root".to_owned(),
            home: "/root".to_owned(),
            state: SandboxState::Active,
            started_at: now,
            lifetime: None,
            expires_at: now.checked_add(2 * BUILD_TIMEOUT).ok(),
            on_expiry: ExpiryAction::Delete,
            expires_while_paused: true,
            delete_after_stop: None,
            auto_resume: false,
            port_access: PortAccess::Token,
            labels: Default::default(),
            extra: Default::default(),
            created_at: now,
            updated_at: now,
            revision: 0,
        };
        let choices = ThreadChoices {
            provider: Some(self.image_provider()?),
            spec: Some(json!({"image": base.name})),
            policy: Some(UNLIMITED_SESSION),
            cwd: Some("/".to_owned()),
            ..ThreadChoices::default()
        };
        let sandbox = self.sandboxes.create(self.first_use(&id, choices), sandbox).await?;
        self.leases.running(&sandbox.thread.lease_id).await?;
        Ok(sandbox)
    }

    async fn find_image_build(&self, id: &BuildId) -> Result<(Template, usize), Problem> {
        for template in self.store.templates().await? {
            let found = template.builds.iter().position(|build| build.build_id == *id);
            if let Some(at) = found.filter(|_| template.owner == IMAGE_ORIGIN) {
                return Ok((template, at));
            }
        }
        Err(Problem::missing("build", id))
    }

    async fn image_build(&self, id: &BuildId) -> Result<ImageBuildView, Problem> {
        let (template, at) = self.find_image_build(id).await?;
        Ok(view(&template.name, &template.builds[at]))
    }

    async fn image_build_lines(
        &self,
        id: &BuildId,
        from: u64,
    ) -> Result<Vec<ImageBuildLine>, Problem> {
        loop {
            let live = self.state.builds.lines(id);
            let lines = self.build_log(id, from, MAX_READ_LINES, Level::Debug).await?;
            let Some(mut live) = live.filter(|_| lines.is_empty()) else {
                let line = |line: super::log::LogLine| ImageBuildLine {
                    at: line.timestamp,
                    level: format!("{:?}", line.level).to_lowercase(),
                    text: line.message,
                };
                return Ok(lines.into_iter().map(line).collect());
            };
            // The sender is dropped with the build. A build whose log is full writes no further lines.
            let more = live.wait_for(|count| *count > from);
            let _ = tokio::time::timeout(LINE_TIMEOUT, more).await;
        }
    }
}

impl ImageBuilder for Adapter {
    fn start(
        &self,
        new: NewImageBuild,
        files: Body,
    ) -> BoxFuture<'_, Result<ImageBuildView, Problem>> {
        Box::pin(self.start_image_build(new, files))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ImageBuildView>, Problem>> {
        Box::pin(async move {
            let mut views = Vec::new();
            for template in self.store.templates().await? {
                if template.owner == IMAGE_ORIGIN {
                    views.extend(template.builds.iter().map(|build| view(&template.name, build)));
                }
            }
            views.sort_by_key(|view| std::cmp::Reverse(view.created_at));
            Ok(views)
        })
    }

    fn find<'a>(&'a self, id: &'a BuildId) -> BoxFuture<'a, Result<ImageBuildView, Problem>> {
        Box::pin(self.image_build(id))
    }

    fn lines<'a>(
        &'a self,
        id: &'a BuildId,
        from: u64,
    ) -> BoxFuture<'a, Result<Vec<ImageBuildLine>, Problem>> {
        Box::pin(self.image_build_lines(id, from))
    }
}

fn view(name: &str, build: &Build) -> ImageBuildView {
    let (status, error) = match &build.status {
        BuildStatus::Waiting | BuildStatus::Building => (ImageBuildStatus::Running, None),
        BuildStatus::Ready(_) => (ImageBuildStatus::Succeeded, None),
        BuildStatus::Failed(failure) => (ImageBuildStatus::Failed, Some(failure.message.clone())),
    };
    ImageBuildView {
        build_id: build.build_id.to_string(),
        image: name.to_owned(),
        status,
        error,
        created_at: build.created_at,
        updated_at: build.updated_at,
    }
}

/// The configuration of an image, from that of its base. It is different for each build.
fn image_config(
    mut document: Value,
    settings: &StepSettings,
    record: &ImageRecord,
    build: &BuildId,
    now: Timestamp,
) -> Value {
    if !document.is_object() {
        document = json!({});
    }
    let env: Vec<String> =
        settings.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let config = &mut document["config"];
    config["Env"] = json!(env);
    config["WorkingDir"] = json!(settings.cwd);
    config["User"] = json!(if settings.user == "root" { "" } else { &settings.user });
    if let Some(words) = &record.entrypoint {
        config["Entrypoint"] = json!(words);
    }
    if let Some(words) = &record.command {
        config["Cmd"] = if words.is_empty() { Value::Null } else { json!(words) };
    }
    for (name, value) in &record.labels {
        config["Labels"][name] = json!(value);
    }
    for port in &record.ports {
        config["ExposedPorts"][port] = json!({});
    }
    document["created"] = json!(now.to_string());
    // The files are one root without layers.
    document["rootfs"] = json!({"type": "layers", "diff_ids": []});
    document["history"] = json!([{"created_by": "stead image build", "comment": build.as_str()}]);
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_base_is_kept_where_the_dockerfile_says_nothing() {
        let base = json!({"architecture": "amd64", "config": {
            "Env": ["A=1"], "Cmd": ["sh"], "Labels": {"a": "1", "b": "1"}, "StopSignal": "SIGINT",
        }});
        let settings = StepSettings {
            env: Env::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())]),
            args: Env::new(),
            cwd: "/srv".to_owned(),
            user: "app".to_owned(),
        };
        let record = ImageRecord {
            labels: vec![("b".to_owned(), "2".to_owned())],
            ports: vec!["80/tcp".to_owned()],
            ..ImageRecord::default()
        };
        let build: BuildId = uuid::Uuid::nil().to_string().parse().unwrap();
        let made = image_config(base, &settings, &record, &build, Timestamp::UNIX_EPOCH);
        assert_eq!(made["architecture"], "amd64");
        let expected = json!({
            "Env": ["A=1", "B=2"], "Cmd": ["sh"], "Labels": {"a": "1", "b": "2"}, "StopSignal": "SIGINT",
            "WorkingDir": "/srv", "User": "app", "ExposedPorts": {"80/tcp": {}},
        });
        assert_eq!(made["config"], expected);
    }
}
