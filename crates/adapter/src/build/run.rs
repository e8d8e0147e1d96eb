//! Runs the steps of a build in its sandbox, one after the other.

use std::{collections::BTreeMap, fs::File, io::Read, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    log::{BuildLog, Level, LineBuffer},
    plan::{CopiedArchives, CopyFrom, CopyStep, Plan, Step, StepSettings, expand},
    upload,
};
use crate::Adapter;
use crate::{
    home::PROGRAMS,
    instance::{absolute, home_of, relative},
    process::{ProcessEnd, ProcessOutput, SandboxProcess, Start},
    wrap::Config,
};
use api::error::Problem;
use files::{Above, FileError, memory::Expect};
use model::{Env, Failure, Made};
use store::SandboxRecord;

const STEP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long a build waits until its start command is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How often the ready command runs.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// The directory inside the sandbox where archives are unpacked; it is removed before the snapshot.
const BUILD_DIRECTORY: &str = "/var/tmp/.stead-build";
/// The clients' name for the step before the first one.
pub const BASE: &str = "base";
/// The clients' name for the step after the last one.
const FINALIZE: &str = "finalize";
const COPY_BUFFER_BYTES: usize = 256 << 10;

/// The kind of sandbox in which the steps of a build run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepHost {
    /// A sandbox with the account of a vendor's API, and with bash.
    Account,
    /// The files of an image, with its own users and its own shell.
    Image,
}

/// The directories of a project, which are mounted in every sandbox.
const PROJECT_MOUNTS: [&str; 2] = ["/workspace", "/memories"];

/// The directory of a project that a path is in.
fn mount_above(path: &str) -> Option<&'static str> {
    let is_above = |mount: &&str| {
        path.strip_prefix(*mount).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    PROJECT_MOUNTS.into_iter().find(is_above)
}

/// The path of our program in a sandbox.
fn helper() -> Result<String, String> {
    let path = machine::program_inside();
    let path = path.map_err(|error| format!("cannot find the program for files: {error}"))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Turns the end of a command into a result, with the reason of a failure.
fn check_end(end: ProcessEnd) -> Result<(), String> {
    match end {
        ProcessEnd::Exit(0) => Ok(()),
        ProcessEnd::Exit(code) => Err(format!("exit code {code}")),
        ProcessEnd::Signal(signal) => Err(format!("ended by signal {signal}")),
        ProcessEnd::TimedOut => {
            Err(format!("took more than {} minutes", STEP_TIMEOUT.as_secs() / 60))
        }
        ProcessEnd::Lost => Err("the end of the command is unknown".to_owned()),
    }
}

/// The request that starts a command of a build, or of a sandbox created from it.
pub fn program(
    sandbox: &SandboxRecord,
    settings: &StepSettings,
    user: &str,
    command: &str,
) -> Start {
    let mut envs = settings.args.clone();
    envs.extend(settings.env.clone());
    let command = if user == sandbox.row.user {
        command.to_owned()
    } else if user == "root" {
        let home = home_of(sandbox, Some(user)).unwrap_or("/");
        let account = [("HOME", home), ("USER", user), ("LOGNAME", user)];
        // This directory contains the `whoami` of root.
        let path = settings.env.get("PATH").or_else(|| sandbox.thread.env.get("PATH"));
        if let Some(path) = path {
            envs.insert("PATH".to_owned(), format!("{home}/{PROGRAMS}:{path}"));
        }
        envs.extend(account.map(|(name, value)| (name.to_owned(), value.to_owned())));
        command.to_owned()
    } else {
        format!("export HOME=~{user} USER={user} LOGNAME={user}\n{command}")
    };
    let args = vec!["-c".to_owned(), command];
    let config =
        Config { cmd: "/bin/bash".to_owned(), args, envs, cwd: Some(settings.cwd.clone()) };
    Start { config, tag: None, stdin: false, timeout: Some(STEP_TIMEOUT), pty: None }
}

/// A running build and its state.
pub struct BuildRun<'a> {
    pub app: &'a Adapter,
    pub host: StepHost,
    /// The sandbox that the steps run in.
    pub sandbox: &'a SandboxRecord,
    /// The sandboxes of the stages before this one, by the places of the stages.
    pub stages: &'a BTreeMap<usize, SandboxRecord>,
    pub log: &'a mut BuildLog,
    pub settings: StepSettings,
}

impl BuildRun<'_> {
    /// Runs all steps, and waits for the start command. Returns the settings that the build gives to sandboxes.
    pub async fn run_plan(mut self, plan: &Plan) -> Result<Made, Failure> {
        self.run_steps(plan).await?;
        if plan.start.is_some() || plan.ready.is_some() {
            let ready = self.start(plan.start.as_deref(), plan.ready.as_deref()).await;
            ready.map_err(|reason| self.failure(reason))?;
        }
        Ok(self.settings.made(plan))
    }

    /// Runs all steps, and removes what they needed.
    pub async fn run_steps(&mut self, plan: &Plan) -> Result<(), Failure> {
        let count = plan.steps.len();
        for (index, step) in plan.steps.iter().enumerate() {
            let number = index + 1;
            self.log.set_step(number.to_string());
            self.log.add(Level::Info, &format!("[{number}/{count}] {}", step.summary()));
            let result = self.step(step).await;
            let line =
                plan.lines.get(index).map(|line| format!("line {line}: ")).unwrap_or_default();
            result.map_err(|reason| self.failure(format!("{line}{}: {reason}", step.summary())))?;
        }
        self.log.set_step(FINALIZE);
        let removed = self.run(&[("rm", &["-rf", BUILD_DIRECTORY][..])]).await;
        removed.map_err(|reason| self.failure(format!("cannot clean up: {reason}")))
    }

    fn failure(&self, message: String) -> Failure {
        Failure { message, step: self.log.step() }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let outside = &self.sandbox.thread.env;
        match step {
            Step::Run { command, user } => {
                let user = match user {
                    Some(user) => self.existing_user(user).await?,
                    None => self.settings.user.clone(),
                };
                let start = match self.host {
                    StepHost::Account => program(self.sandbox, &self.settings, &user, command),
                    StepHost::Image => self.image_program(&user, command)?,
                };
                self.run_logged(self.sandbox, start).await
            }
            Step::Env(pairs) => {
                self.settings.set(pairs, outside);
                Ok(())
            }
            Step::Arg(name, value) => {
                let value = self.expanded(value);
                self.settings.args.insert(name.clone(), value);
                Ok(())
            }
            Step::Workdir(path) => {
                let path = absolute(&self.expanded(path), &self.settings.cwd);
                self.run(&[("mkdir", &["-p", "--", &path][..])]).await?;
                self.settings.cwd = path;
                Ok(())
            }
            Step::User(name) => {
                self.settings.user = self.existing_user(&self.expanded(name)).await?;
                Ok(())
            }
            Step::Copy(copy) => self.copy(copy).await,
        }
    }

    /// The program of a step in an image, as one of its users.
    fn image_program(&self, user: &str, command: &str) -> Result<Start, String> {
        let mut envs = self.settings.args.clone();
        envs.extend(self.settings.env.clone());
        let shell = ["/bin/sh", "-c", command].map(str::to_owned);
        let (cmd, args) = match user {
            "root" | "0" => {
                envs.entry("HOME".to_owned()).or_insert_with(|| "/root".to_owned());
                (shell[0].clone(), shell[1..].to_vec())
            }
            user => {
                let words = ["inside", "as", user].map(str::to_owned);
                (helper()?, words.into_iter().chain(shell).collect())
            }
        };
        let config = Config { cmd, args, envs, cwd: Some(self.settings.cwd.clone()) };
        Ok(Start { config, tag: None, stdin: false, timeout: Some(STEP_TIMEOUT), pty: None })
    }

    /// Checks that a user exists in the sandbox. A group after the name is ignored.
    async fn existing_user(&mut self, name: &str) -> Result<String, String> {
        if self.host == StepHost::Image {
            // The first step of the user says whether it exists.
            return match name.is_empty() || name.starts_with('-') {
                true => Err(format!("{name:?} is not a valid user")),
                false => Ok(name.to_owned()),
            };
        }
        let name = name.split(':').next().unwrap_or_default().to_owned();
        if name == "root" || name == self.sandbox.row.user {
            return Ok(name);
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_allowed) {
            return Err(format!("{name:?} is not a valid user name"));
        }
        self.run(&[("/bin/bash", &["-c", "id -u -- \"$1\" > /dev/null", "id", &name][..])]).await?;
        let warning = format!(
            "a sandbox has one account: programs that run as {name} only get its name and home directory"
        );
        self.log.add(Level::Warn, &warning);
        Ok(name)
    }

    fn expanded(&self, text: &str) -> String {
        let StepSettings { env, args, .. } = &self.settings;
        expand(text, |name| env.get(name).or_else(|| args.get(name)).cloned())
    }

    /// Copies files to their target.
    async fn copy(&mut self, copy: &CopyStep) -> Result<(), String> {
        let source = absolute(&self.expanded(&copy.source), "/");
        let source = match source.trim_start_matches('/') {
            "" => ".",
            source => source,
        };
        let archive = match &copy.from {
            CopyFrom::Upload(hash) => self.archive(hash).await?,
            CopyFrom::Stage(at) => self.archive_of_stage(*at, source).await?,
        };
        let target = self.expanded(&copy.target);
        let is_below = target.ends_with('/') || target.ends_with("/.") || target == ".";
        let mut target = absolute(&target, &self.settings.cwd);
        if let (StepHost::Image, Some(mount)) = (self.host, mount_above(&target)) {
            return Err(format!(
                "{mount} is a directory of the project in every sandbox, and no part of an image"
            ));
        }
        if is_below && target != "/" {
            target.push('/');
        }
        let owner = copy.owner.as_deref().map(|owner| self.expanded(owner));
        let owner = owner.filter(|owner| *owner != self.sandbox.row.user).unwrap_or_default();
        let mode = copy.mode.clone().unwrap_or_default();
        let archives = match copy.archives {
            CopiedArchives::Keep => "keep",
            CopiedArchives::Extract => "extract",
        };
        let words = ["inside", "copy", &archive, source, &target, &owner, &mode, archives];
        self.run(&[(&helper()?, &words[..])]).await
    }

    /// Writes an uploaded archive into the sandbox, unless an earlier step did. Returns its path.
    async fn archive(&self, hash: &str) -> Result<String, String> {
        let reason = |problem: Problem| problem.detail().to_owned();
        let from = upload::path(&self.app.settings.home, hash).map_err(reason)?;
        let file = File::open(&from)
            .map_err(|_| "the files were not uploaded or have been removed; upload them again")?;
        self.write_archive(hash, file).await
    }

    /// Packs files of an earlier stage, and writes the archive into the sandbox. Returns its path.
    async fn archive_of_stage(&mut self, at: usize, source: &str) -> Result<String, String> {
        let stage = self.stages.get(&at).ok_or("the stage was not built")?;
        // No two steps copy from the same archive.
        let name = format!("stage-{at}-{}", self.log.step().unwrap_or_default());
        let packed = format!("{BUILD_DIRECTORY}/{name}");
        self.run_in(stage, &helper()?, &["inside", "pack", source, &packed]).await?;
        let path = relative(&packed).map_err(|error| error.to_string())?;
        let files = self.app.sandbox_files(stage).await.map_err(|it| it.detail().to_owned())?;
        let file = files.act(move |directory| Ok(directory.read(&path)?.0));
        let file = file.await.map_err(|error| error.to_string())?;
        self.write_archive(&name, file).await
    }

    /// Writes an archive into the sandbox, unless an earlier step did. Returns its path.
    async fn write_archive(&self, name: &str, mut file: File) -> Result<String, String> {
        let reason = |problem: Problem| problem.detail().to_owned();
        let archive = format!("{BUILD_DIRECTORY}/{name}");
        let path = relative(&archive).map_err(|error| error.to_string())?;
        let files = self.app.sandbox_files(self.sandbox).await.map_err(reason)?;
        let written = files.act(move |directory| {
            if directory.stat(&path).is_ok() {
                return Ok(());
            }
            let mut part = directory.write(&path, Above::Make, Expect::Anything)?;
            let mut bytes = vec![0; COPY_BUFFER_BYTES];
            loop {
                let read = file.read(&mut bytes);
                match read.map_err(|error| FileError::from_io("read", "the archive", error))? {
                    0 => return part.finish().map(drop),
                    count => part.write(&bytes[..count])?,
                }
            }
        });
        written.await.map_err(|error| error.to_string())?;
        Ok(archive)
    }

    /// Runs programs as root in the root directory, each only if the one before succeeded.
    async fn run(&mut self, programs: &[(&str, &[&str])]) -> Result<(), String> {
        for (cmd, args) in programs {
            self.run_in(self.sandbox, cmd, args).await?;
        }
        Ok(())
    }

    /// Runs a program as root in the root directory of a sandbox.
    async fn run_in(
        &mut self,
        sandbox: &SandboxRecord,
        cmd: &str,
        args: &[&str],
    ) -> Result<(), String> {
        let config = Config {
            cmd: cmd.to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            envs: Env::new(),
            cwd: Some("/".to_owned()),
        };
        let start =
            Start { config, tag: None, stdin: false, timeout: Some(STEP_TIMEOUT), pty: None };
        self.run_logged(sandbox, start).await
    }

    /// Runs a program to its end and writes its output to the log.
    async fn run_logged(&mut self, sandbox: &SandboxRecord, start: Start) -> Result<(), String> {
        let reason = |problem: Problem| problem.detail().to_owned();
        let process = self.app.start_process(sandbox, start).await.map_err(reason)?;
        let mut output = StepOutput::of(self.app, process);
        while let Some(piece) = output.next().await {
            if let Some(end) = output.log(self.log, piece) {
                return check_end(end).map_err(|reason| match output.last_error.as_str() {
                    "" => reason,
                    last => format!("{reason}: {last}"),
                });
            }
        }
        check_end(ProcessEnd::Lost)
    }

    /// Starts the start command and waits until the ready command succeeds.
    async fn start(&mut self, start: Option<&str>, ready: Option<&str>) -> Result<(), String> {
        let reason = |problem: Problem| problem.detail().to_owned();
        let user = self.settings.user.clone();
        let mut output = match start {
            Some(command) => {
                self.log.add(Level::Info, &format!("starting: {command}"));
                let mut start = program(self.sandbox, &self.settings, &user, command);
                start.timeout = None;
                let process = self.app.start_process(self.sandbox, start).await.map_err(reason)?;
                Some(StepOutput::of(self.app, process))
            }
            None => None,
        };
        let Some(ready) = ready else { return Ok(()) };
        self.log.add(Level::Info, &format!("waiting for the ready command: {ready}"));
        let until = until_ready(self.app, self.sandbox, &self.settings, ready);
        let limit = tokio::time::sleep(READY_TIMEOUT);
        tokio::pin!(until, limit);
        loop {
            let piece = async {
                match &mut output {
                    Some(output) => output.next().await,
                    None => None,
                }
            };
            tokio::select! {
                ready = &mut until => return ready.map_err(reason),
                () = &mut limit => {
                    return Err(format!("not ready after {} s: {ready}", READY_TIMEOUT.as_secs()));
                }
                Some(piece) = piece => {
                    let Some(running) = &mut output else { continue };
                    if let Some(end) = running.log(self.log, piece) {
                        let failed = |reason| format!("the start command failed: {reason}");
                        check_end(end).map_err(failed)?;
                        // A start command may end successfully before the ready command succeeds.
                        output = None;
                    }
                }
            }
        }
    }
}

/// Runs the ready command repeatedly until it succeeds.
pub async fn until_ready(
    app: &Adapter,
    sandbox: &SandboxRecord,
    settings: &StepSettings,
    ready: &str,
) -> Result<(), Problem> {
    loop {
        let start = program(sandbox, settings, &settings.user, ready);
        if app.run_process(sandbox, start).await?.end == ProcessEnd::Exit(0) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The output of a step, split into lines.
struct StepOutput {
    output: mpsc::Receiver<ProcessOutput>,
    /// The buffers of standard output and standard error.
    buffers: [LineBuffer; 2],
    /// The last line of standard error.
    last_error: String,
}

impl StepOutput {
    fn of(app: &Adapter, process: Arc<SandboxProcess>) -> StepOutput {
        let (sender, output) = mpsc::channel(8);
        let app = app.clone();
        app.tasks.clone().spawn(async move {
            tokio::select! {
                result = app.stream_output(&process, &sender) => {
                    if let Err(problem) = result {
                        tracing::warn!(detail = problem.detail(), "cannot read the output of a build step");
                    }
                }
                () = app.stopping.cancelled() => {}
            }
        });
        StepOutput { output, buffers: Default::default(), last_error: String::new() }
    }

    async fn next(&mut self) -> Option<ProcessOutput> {
        self.output.recv().await
    }

    /// Writes a piece of output to the log. Returns the end of the program if the piece is the end.
    fn log(&mut self, log: &mut BuildLog, piece: ProcessOutput) -> Option<ProcessEnd> {
        let (index, level, bytes) = match &piece {
            ProcessOutput::Stdout(bytes) => (0, Level::Info, bytes.as_slice()),
            ProcessOutput::Pty(bytes) => (0, Level::Info, bytes.as_ref()),
            ProcessOutput::Stderr(bytes) => (1, Level::Warn, bytes.as_slice()),
            ProcessOutput::End(end) => {
                let [out, err] = std::mem::take(&mut self.buffers);
                log.add(Level::Info, &out.rest());
                let rest = err.rest();
                log.add(Level::Warn, &rest);
                self.note_error(&rest);
                return Some(*end);
            }
        };
        if let Some(lines) = self.buffers[index].take(bytes) {
            log.add(level, &lines);
            if level == Level::Warn {
                self.note_error(&lines);
            }
        }
        None
    }

    /// Keeps the last line of standard error for the reason of a failure.
    fn note_error(&mut self, lines: &str) {
        if let Some(line) = lines.lines().rfind(|line| !line.trim().is_empty()) {
            self.last_error = line.trim().to_owned();
        }
    }
}
