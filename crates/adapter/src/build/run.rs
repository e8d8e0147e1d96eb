//! The steps of a build, run in its sandbox one after the other.

use std::{io::Read, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    log::{BuildLog, Level, Pieces},
    plan::{Chosen, CopyStep, Plan, Step, expand},
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

/// How long a step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long what is started has to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How often the ready command is run.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Where archives are unpacked inside; gone before the files are kept.
const BUILD_DIRECTORY: &str = "/var/tmp/.stead-build";
/// The step before the first and the one behind the last, as clients call them.
pub const BASE: &str = "base";
const FINALIZE: &str = "finalize";
/// Bytes copied at once.
const CHUNK: usize = 256 << 10;

/// Copies what is in an archive to its place: `ARCHIVE SOURCE TARGET OWNER MODE`. A directory's content
/// goes into the target; several files, and one for a target that is or looks like a directory, go
/// below it.
const COPY: &str = r#"
set -eu
archive=$1 source=$2 target=$3 owner=$4 mode=$5
mkdir "$archive.d" && cd "$archive.d"
tar -xf "$archive" --no-same-owner
shopt -s nullglob dotglob globstar
IFS=
found=($source)
for one in "${found[@]}"; do
  [ -e "$one" ] || [ -L "$one" ] || { echo "$source is not among the files that were sent" >&2; exit 1; }
done
[ ${#found[@]} -gt 0 ] || { echo "nothing that was sent matches $source" >&2; exit 1; }
for one in "${found[@]}"; do
  [ -z "$owner" ] || chown -R -h -- "$owner" "$one"
  [ -z "$mode" ] || [ -L "$one" ] || chmod -R -- "$mode" "$one"
  if [ -d "$one" ] && [ ! -L "$one" ]; then
    mkdir -p -- "$target"
    cp -a -- "$one/." "$target/"
  elif [ ${#found[@]} -gt 1 ] || [ -d "$target" ] || [ "${target%/}" != "$target" ]; then
    mkdir -p -- "$target"
    cp -a -- "$one" "$target/"
  else
    mkdir -p -- "$(dirname -- "$target")"
    cp -a -- "$one" "$target"
  fi
done
"#;

/// What a command of a build came to.
fn told(end: ProcessEnd) -> Result<(), String> {
    match end {
        ProcessEnd::Exit(0) => Ok(()),
        ProcessEnd::Exit(code) => Err(format!("exit code {code}")),
        ProcessEnd::Signal(signal) => Err(format!("ended by signal {signal}")),
        ProcessEnd::TimedOut => {
            Err(format!("took more than {} minutes", STEP_TIMEOUT.as_secs() / 60))
        }
        ProcessEnd::Lost => Err("its end was not seen".to_owned()),
    }
}

/// What a program of a sandbox is started with.
pub fn program(sandbox: &SandboxRecord, chosen: &Chosen, user: &str, command: &str) -> Start {
    let mut envs = chosen.args.clone();
    envs.extend(chosen.env.clone());
    let command = if user == sandbox.row.user {
        command.to_owned()
    } else if user == "root" {
        let home = home_of(sandbox, Some(user)).unwrap_or("/");
        let own = [("HOME", home), ("USER", user), ("LOGNAME", user)];
        // This directory holds the `whoami` of root.
        let path = chosen.env.get("PATH").or_else(|| sandbox.thread.env.get("PATH"));
        if let Some(path) = path {
            envs.insert("PATH".to_owned(), format!("{home}/{PROGRAMS}:{path}"));
        }
        envs.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        command.to_owned()
    } else {
        format!("export HOME=~{user} USER={user} LOGNAME={user}\n{command}")
    };
    let args = vec!["-c".to_owned(), command];
    let config = Config { cmd: "/bin/bash".to_owned(), args, envs, cwd: Some(chosen.cwd.clone()) };
    Start { config, tag: None, stdin: false, timeout: Some(STEP_TIMEOUT), pty: None }
}

/// A build at work.
pub struct BuildRun<'a> {
    pub app: &'a Adapter,
    /// Where its steps run.
    pub sandbox: &'a SandboxRecord,
    pub log: &'a mut BuildLog,
    /// What its steps chose so far.
    pub chosen: Chosen,
}

impl BuildRun<'_> {
    /// Does everything; what a sandbox gets of it.
    pub async fn run_plan(mut self, plan: &Plan) -> Result<Made, Failure> {
        let count = plan.steps.len();
        for (index, step) in plan.steps.iter().enumerate() {
            let number = index + 1;
            self.log.step(number.to_string());
            self.log.add(Level::Info, &format!("[{number}/{count}] {}", step.shown()));
            let done = self.step(number, step).await;
            done.map_err(|why| self.failure(format!("{}: {why}", step.shown())))?;
        }
        self.log.step(FINALIZE);
        let removed = self.run(&[("rm", &["-rf", BUILD_DIRECTORY][..])]).await;
        removed.map_err(|why| self.failure(format!("cannot clean up: {why}")))?;
        if plan.start.is_some() || plan.ready.is_some() {
            let ready = self.begin(plan.start.as_deref(), plan.ready.as_deref()).await;
            ready.map_err(|why| self.failure(why))?;
        }
        Ok(self.chosen.made(plan))
    }

    fn failure(&self, message: String) -> Failure {
        Failure { message, step: self.log.at() }
    }

    async fn step(&mut self, number: usize, step: &Step) -> Result<(), String> {
        let outside = &self.sandbox.thread.env;
        match step {
            Step::Run { command, user } => {
                let user = match user {
                    Some(user) => self.known(user).await?,
                    None => self.chosen.user.clone(),
                };
                self.watched(program(self.sandbox, &self.chosen, &user, command)).await
            }
            Step::Env(pairs) => {
                self.chosen.set(pairs, outside);
                Ok(())
            }
            Step::Arg(name, value) => {
                self.chosen.args.insert(name.clone(), value.clone());
                Ok(())
            }
            Step::Workdir(path) => {
                let path = absolute(&self.expanded(path), &self.chosen.cwd);
                self.run(&[("mkdir", &["-p", "--", &path][..])]).await?;
                self.chosen.cwd = path;
                Ok(())
            }
            Step::User(name) => {
                self.chosen.user = self.known(&self.expanded(name)).await?;
                Ok(())
            }
            Step::Copy(copy) => self.copy(number, copy).await,
        }
    }

    /// The user of this name, who must be there. A group behind the name says nothing more.
    async fn known(&mut self, name: &str) -> Result<String, String> {
        let name = name.split(':').next().unwrap_or_default().to_owned();
        if name == "root" || name == self.sandbox.row.user {
            return Ok(name);
        }
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_good) {
            return Err(format!("{name:?} is no name of a user"));
        }
        self.run(&[("/bin/bash", &["-c", "id -u -- \"$1\" > /dev/null", "id", &name][..])]).await?;
        let said =
            format!("a sandbox has one account: what runs as {name} has its home and its name");
        self.log.add(Level::Warn, &said);
        Ok(name)
    }

    fn expanded(&self, text: &str) -> String {
        let Chosen { env, args, .. } = &self.chosen;
        expand(text, |name| env.get(name).or_else(|| args.get(name)).cloned())
    }

    /// Unpacks what was sent and copies it to its place.
    async fn copy(&mut self, number: usize, copy: &CopyStep) -> Result<(), String> {
        let wrong = |problem: Problem| problem.detail().to_owned();
        let from = upload::path(&self.app.settings.home, &copy.hash).map_err(wrong)?;
        let mut file = std::fs::File::open(&from)
            .map_err(|_| "its files were not sent, or are kept no longer; send them again")?;
        let archive = format!("{BUILD_DIRECTORY}/{number}");
        let place = relative(&archive).map_err(|error| error.to_string())?;
        let files = self.app.sandbox_files(self.sandbox).await.map_err(wrong)?;
        let written = files.act(move |directory| {
            let mut part = directory.write(&place, Above::Make, Expect::Anything)?;
            let mut bytes = vec![0; CHUNK];
            loop {
                let read = file.read(&mut bytes);
                match read.map_err(|error| FileError::from_io("read", "the archive", error))? {
                    0 => return part.finish().map(drop),
                    count => part.write(&bytes[..count])?,
                }
            }
        });
        written.await.map_err(|error| error.to_string())?;
        let source = absolute(&copy.source, "/");
        let source = match source.trim_start_matches('/') {
            "" => ".",
            source => source,
        };
        let target = self.expanded(&copy.target);
        let is_below = target.ends_with('/') || target.ends_with("/.") || target == ".";
        let mut target = absolute(&target, &self.chosen.cwd);
        if is_below && target != "/" {
            target.push('/');
        }
        let owner = copy.owner.as_deref().filter(|owner| *owner != self.sandbox.row.user);
        let words = [
            "-c",
            COPY,
            "copy",
            &archive,
            source,
            &target,
            owner.unwrap_or_default(),
            copy.mode.as_deref().unwrap_or_default(),
        ];
        let unpacked = format!("{archive}.d");
        self.run(&[("/bin/bash", &words[..]), ("rm", &["-rf", &archive, &unpacked][..])]).await
    }

    /// Runs programs as root, in the root, each only if the one before went well.
    async fn run(&mut self, programs: &[(&str, &[&str])]) -> Result<(), String> {
        for (cmd, args) in programs {
            let config = Config {
                cmd: (*cmd).to_owned(),
                args: args.iter().map(|word| (*word).to_owned()).collect(),
                envs: Env::new(),
                cwd: Some("/".to_owned()),
            };
            let start =
                Start { config, tag: None, stdin: false, timeout: Some(STEP_TIMEOUT), pty: None };
            self.watched(start).await?;
        }
        Ok(())
    }

    /// Runs a program to its end and writes down what it says.
    async fn watched(&mut self, start: Start) -> Result<(), String> {
        let wrong = |problem: Problem| problem.detail().to_owned();
        let process = self.app.start_process(self.sandbox, start).await.map_err(wrong)?;
        let mut heard = StepOutput::of(self.app, process);
        while let Some(piece) = heard.next().await {
            if let Some(end) = heard.tell(self.log, piece) {
                return told(end).map_err(|why| match heard.last.as_str() {
                    "" => why,
                    last => format!("{why}: {last}"),
                });
            }
        }
        told(ProcessEnd::Lost)
    }

    /// Starts what is to be started and waits until it is ready.
    async fn begin(&mut self, start: Option<&str>, ready: Option<&str>) -> Result<(), String> {
        let wrong = |problem: Problem| problem.detail().to_owned();
        let user = self.chosen.user.clone();
        let mut heard = match start {
            Some(command) => {
                self.log.add(Level::Info, &format!("starting: {command}"));
                let mut start = program(self.sandbox, &self.chosen, &user, command);
                start.timeout = None;
                let process = self.app.start_process(self.sandbox, start).await.map_err(wrong)?;
                Some(StepOutput::of(self.app, process))
            }
            None => None,
        };
        let Some(ready) = ready else { return Ok(()) };
        self.log.add(Level::Info, &format!("waiting until it is ready: {ready}"));
        let until = until_ready(self.app, self.sandbox, &self.chosen, ready);
        let limit = tokio::time::sleep(READY_TIMEOUT);
        tokio::pin!(until, limit);
        loop {
            let piece = async {
                match &mut heard {
                    Some(heard) => heard.next().await,
                    None => None,
                }
            };
            tokio::select! {
                ready = &mut until => return ready.map_err(wrong),
                () = &mut limit => {
                    return Err(format!("it was not ready after {} s: {ready}", READY_TIMEOUT.as_secs()));
                }
                Some(piece) = piece => {
                    let Some(speaker) = &mut heard else { continue };
                    if let Some(end) = speaker.tell(self.log, piece) {
                        told(end).map_err(|why| format!("the start command failed: {why}"))?;
                        // One that did its work and ended may well have made everything ready.
                        heard = None;
                    }
                }
            }
        }
    }
}

/// Returns once a command succeeds.
pub async fn until_ready(
    app: &Adapter,
    sandbox: &SandboxRecord,
    chosen: &Chosen,
    ready: &str,
) -> Result<(), Problem> {
    loop {
        let start = program(sandbox, chosen, &chosen.user, ready);
        if app.run_process(sandbox, start).await?.end == ProcessEnd::Exit(0) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// What a program says, in lines.
struct StepOutput {
    said: mpsc::Receiver<ProcessOutput>,
    lines: [Pieces; 2],
    last: String,
}

impl StepOutput {
    fn of(app: &Adapter, process: Arc<SandboxProcess>) -> StepOutput {
        let (sender, said) = mpsc::channel(8);
        let app = app.clone();
        app.tasks.clone().spawn(async move {
            tokio::select! {
                heard = app.stream_output(&process, &sender) => {
                    if let Err(problem) = heard {
                        tracing::warn!(detail = problem.detail(), "cannot hear a step of a build");
                    }
                }
                () = app.stopping.cancelled() => {}
            }
        });
        StepOutput { said, lines: Default::default(), last: String::new() }
    }

    async fn next(&mut self) -> Option<ProcessOutput> {
        self.said.recv().await
    }

    /// Writes down a piece; how it ended, if it did.
    fn tell(&mut self, log: &mut BuildLog, piece: ProcessOutput) -> Option<ProcessEnd> {
        let (index, level, bytes) = match &piece {
            ProcessOutput::Stdout(bytes) => (0, Level::Info, bytes.as_slice()),
            ProcessOutput::Pty(bytes) => (0, Level::Info, bytes.as_ref()),
            ProcessOutput::Stderr(bytes) => (1, Level::Warn, bytes.as_slice()),
            ProcessOutput::End(end) => {
                let [out, err] = std::mem::take(&mut self.lines);
                log.add(Level::Info, &out.rest());
                let rest = err.rest();
                log.add(Level::Warn, &rest);
                self.note(&rest);
                return Some(*end);
            }
        };
        if let Some(lines) = self.lines[index].take(bytes) {
            log.add(level, &lines);
            if level == Level::Warn {
                self.note(&lines);
            }
        }
        None
    }

    /// Keeps the last line that it complained with.
    fn note(&mut self, lines: &str) {
        if let Some(line) = lines.lines().rfind(|line| !line.trim().is_empty()) {
            self.last = line.trim().to_owned();
        }
    }
}
