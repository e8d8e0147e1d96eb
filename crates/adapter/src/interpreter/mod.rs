//! Code contexts: each is a program inside a sandbox that runs cells of code one after the other and keeps their
//! variables.
//!
//! The program is a process of the sandbox and outlives the server. After a restart the context is found by the
//! program's tag.

mod context;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

pub use context::{Context, Contexts, Language, is_context};

use crate::{
    Adapter,
    instance::absolute,
    process::{ProcessOutput, SandboxProcess, Start},
    wrap::Config,
};
use api::error::{Code, Problem};
use context::{ContextProgram, events_of};
use model::{Env, Timestamp};
use store::SandboxRecord;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
/// How long an interrupted cell may take to end before its program is killed.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit of contexts per sandbox.
const MAX_CONTEXTS: usize = 32;
/// The number of queued chunks of output before the reader of a program waits.
pub const OUTPUT_QUEUE: usize = 64;

/// A piece of code and how to run it.
#[derive(Debug, Default)]
pub struct CodeCell {
    pub code: String,
    /// Variables in addition to the context's environment.
    pub envs: Env,
    pub timeout: Option<Duration>,
    /// Whether values are separate events, as in a notebook.
    pub rich: bool,
    /// Whether the cell is interrupted when its client disconnects.
    pub ends_with_client: bool,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellOutcome {
    /// The code ran to its end, possibly with an error event.
    Done,
    /// The code timed out, or its client disconnected.
    Interrupted,
    /// The program ended, and the variables of the context are lost.
    Ended,
}

impl Adapter {
    /// Streams the output of a program from its beginning.
    fn context_program(&self, process: Arc<SandboxProcess>) -> ContextProgram {
        let (sender, output) = mpsc::channel(OUTPUT_QUEUE);
        let (app, source) = (self.clone(), process.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                _ = app.stream_output(&source, &sender) => {}
                () = app.stopping.cancelled() => {}
            }
        });
        ContextProgram { process, output, rest: Vec::new() }
    }

    /// The contexts of a sandbox, the oldest first.
    pub async fn contexts(&self, sandbox: &SandboxRecord) -> Result<Vec<Arc<Context>>, Problem> {
        let running = self.processes(sandbox).await?.all();
        let mut all = self.state.contexts.all();
        // Adds the contexts that an earlier server started.
        let running = running.iter().filter(|it| !it.is_killed());
        for context in running.filter_map(|it| Context::parse(it.tag.as_deref()?)) {
            let key = (sandbox.id().clone(), context.id.clone());
            all.entry(key).or_insert_with(|| Arc::new(context));
        }
        let own = all.iter().filter(|((of, _), _)| of == sandbox.id());
        let mut contexts: Vec<_> = own.map(|(_, context)| context.clone()).collect();
        contexts
            .sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(contexts)
    }

    pub async fn context(
        &self,
        sandbox: &SandboxRecord,
        id: &str,
    ) -> Result<Option<Arc<Context>>, Problem> {
        Ok(self.contexts(sandbox).await?.into_iter().find(|context| context.id == id))
    }

    /// Creates a context, or returns the existing one with this id.
    pub async fn create_context(
        &self,
        sandbox: &SandboxRecord,
        id: &str,
        language: Language,
        cwd: Option<&str>,
    ) -> Result<Arc<Context>, Problem> {
        let known = self.contexts(sandbox).await?;
        if let Some(context) = known.iter().find(|context| context.id == id) {
            return Ok(context.clone());
        }
        if known.len() >= MAX_CONTEXTS {
            let detail = format!("a sandbox may have {MAX_CONTEXTS} contexts; delete one first");
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let cwd = absolute(cwd.unwrap_or_default(), &sandbox.row.home);
        let new = Arc::new(Context::new(id, language, &cwd));
        let key = (sandbox.id().clone(), id.to_owned());
        let context = self.state.contexts.all().entry(key.clone()).or_insert(new).clone();
        // The program is started at once: the row of its command is the durable record of the context.
        let mut live = context.live().await?;
        if live.is_none() {
            match self.start_context(sandbox, &context, None).await {
                Ok(started) => *live = Some(started),
                Err(problem) => {
                    self.state.contexts.all().remove(&key);
                    return Err(problem);
                }
            }
        }
        drop(live);
        Ok(context)
    }

    /// Removes a context and ends its program.
    pub async fn end_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
    ) -> Result<(), Problem> {
        let key = (sandbox.id().clone(), context.id.clone());
        self.state.contexts.all().remove(&key);
        self.kill_context(sandbox, context).await
    }

    /// Replaces the program of a context, so that its variables are lost.
    pub async fn restart_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
    ) -> Result<(), Problem> {
        self.kill_context(sandbox, context).await?;
        let mut live = context.live().await?;
        *live = Some(self.start_context(sandbox, context, None).await?);
        Ok(())
    }

    /// Kills the program of a context, even while it runs a cell.
    async fn kill_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
    ) -> Result<(), Problem> {
        let running = self.processes(sandbox).await?.running(None, Some(&context.tag()));
        if let Some(process) = running {
            self.signal_process(sandbox, &process, SIGKILL).await?;
            let mut ended = self.context_program(process);
            while let Some(chunk) = ended.output.recv().await {
                if let ProcessOutput::End(_) = chunk {
                    break;
                }
            }
        }
        *context.live().await? = None;
        Ok(())
    }

    /// Returns the running program of a context, unless it is `ended` or was killed; else starts another.
    async fn start_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        ended: Option<&Arc<SandboxProcess>>,
    ) -> Result<ContextProgram, Problem> {
        let tag = context.tag();
        let is_usable = |it: &Arc<SandboxProcess>| {
            it.tag.as_ref() == Some(&tag)
                && !it.is_killed()
                && !ended.is_some_and(|ended| Arc::ptr_eq(it, ended))
        };
        if let Some(process) = self.processes(sandbox).await?.all().into_iter().find(is_usable) {
            return Ok(self.context_program(process));
        }
        let (cmd, args) = context.language.program();
        let cwd = Some(context.cwd.clone());
        let start = Start {
            config: Config { cmd: cmd.to_owned(), args, envs: Env::new(), cwd },
            tag: Some(tag),
            stdin: true,
            timeout: None,
            pty: None,
        };
        Ok(self.context_program(self.start_process(sandbox, start).await?))
    }

    /// Runs a cell and sends its events, each an object with a `type`.
    pub async fn run_cell(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        cell: &CodeCell,
        events: mpsc::Sender<Value>,
    ) -> Result<CellOutcome, Problem> {
        let mut live = context.live().await?;
        // The client may have disconnected while this cell waited for others.
        if cell.ends_with_client && events.is_closed() {
            return Ok(CellOutcome::Interrupted);
        }
        let outcome = self.run_live(sandbox, context, &mut live, cell, events).await;
        if outcome.is_err() {
            *live = None;
        }
        outcome
    }

    async fn run_live(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        live: &mut Option<ContextProgram>,
        cell: &CodeCell,
        events: mpsc::Sender<Value>,
    ) -> Result<CellOutcome, Problem> {
        if live.as_mut().is_none_or(ContextProgram::has_ended) {
            let ended = live.take().map(|live| live.process);
            *live = Some(self.start_context(sandbox, context, ended.as_ref()).await?);
        }
        let Some(ContextProgram { process, output, rest }) = live else {
            return Ok(CellOutcome::Ended);
        };
        let id = uuid::Uuid::now_v7().to_string();
        let mut line = json!({
            "for": id,
            "code": cell.code,
            "envs": cell.envs,
            "rich": cell.rich,
            "language": context.language.name(),
        })
        .to_string();
        line.push('\n');
        self.write_stdin(process, line.into_bytes()).await?;
        let mut deadline = cell.timeout.map(|timeout| Instant::now() + timeout);
        let mut interrupted = false;
        loop {
            let timed_out = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let chunk = tokio::select! {
                chunk = output.recv() => chunk,
                () = timed_out => {
                    let signal = if interrupted { SIGKILL } else { SIGINT };
                    self.signal_process(sandbox, process, signal).await?;
                    if interrupted {
                        *live = None;
                        return Ok(CellOutcome::Interrupted);
                    }
                    (deadline, interrupted) = (Some(Instant::now() + INTERRUPT_TIMEOUT), true);
                    continue;
                }
                () = events.closed(), if cell.ends_with_client && !interrupted => {
                    self.signal_process(sandbox, process, SIGINT).await?;
                    (deadline, interrupted) = (Some(Instant::now() + INTERRUPT_TIMEOUT), true);
                    continue;
                }
            };
            let received = match chunk {
                Some(ProcessOutput::Stdout(bytes)) => events_of(rest, &bytes, &id),
                // Output of child processes of the code.
                Some(ProcessOutput::Stderr(bytes)) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let now = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default();
                    vec![json!({"type": "stdout", "text": text, "timestamp": now})]
                }
                Some(ProcessOutput::Pty(_)) => vec![],
                Some(ProcessOutput::End(_)) | None => return Ok(CellOutcome::Ended),
            };
            for event in received {
                let is_last = event["type"] == "control";
                // A disconnected client receives no events.
                let _ = events.send(event).await;
                if is_last {
                    return Ok(if interrupted {
                        CellOutcome::Interrupted
                    } else {
                        CellOutcome::Done
                    });
                }
            }
        }
    }
}
