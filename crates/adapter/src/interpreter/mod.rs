//! Code contexts: each is a program inside that runs one piece of code after the other and keeps its
//! variables.
//!
//! The program is one of the sandbox's and outlives the server; its tag names the context, by which it is
//! found again.

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
use context::{ContextProgram, lines};
use model::{Env, Timestamp};
use store::SandboxRecord;

/// How long a piece that is interrupted may still take.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Contexts of a sandbox.
const MAX_CONTEXTS: usize = 32;
/// Pieces of output that wait.
pub const OUTPUT_QUEUE: usize = 64;

/// A piece of code.
#[derive(Debug, Default)]
pub struct CodeCell {
    pub code: String,
    /// What its environment has beyond the context's.
    pub envs: Env,
    /// How long it may take.
    pub allowed: Option<Duration>,
    /// Whether values are events of their own beside output, as in a notebook.
    pub rich: bool,
    /// Whether it ends when its client is gone.
    pub for_listener: bool,
}

/// How a piece went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellOutcome {
    /// It ran to its end, possibly with an error event.
    Done,
    /// It timed out, or its client is gone.
    Interrupted,
    /// The program is gone, and with it what the context remembered.
    Ended,
}

impl Adapter {
    /// Receives the output of a program from its beginning.
    fn context_program(&self, process: Arc<SandboxProcess>) -> ContextProgram {
        let (sender, said) = mpsc::channel(OUTPUT_QUEUE);
        let (listener, heard) = (self.clone(), process.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                _ = listener.stream_output(&heard, &sender) => {}
                () = listener.stopping.cancelled() => {}
            }
        });
        ContextProgram { process, said, rest: Vec::new() }
    }

    /// The contexts of a sandbox, the oldest first.
    pub async fn contexts(&self, sandbox: &SandboxRecord) -> Result<Vec<Arc<Context>>, Problem> {
        let running = self.processes(sandbox).await?.all();
        let mut all = self.state.contexts.all();
        // Those of an earlier server.
        let running = running.iter().filter(|it| !it.is_killed());
        for context in running.filter_map(|it| Context::parse(it.tag.as_deref()?)) {
            let key = (sandbox.id().clone(), context.id.clone());
            all.entry(key).or_insert_with(|| Arc::new(context));
        }
        let own = all.iter().filter(|((of, _), _)| of == sandbox.id());
        let mut contexts: Vec<_> = own.map(|(_, context)| context.clone()).collect();
        contexts.sort_by(|one, other| (one.made, &one.id).cmp(&(other.made, &other.id)));
        Ok(contexts)
    }

    /// The context of this name.
    pub async fn context(
        &self,
        sandbox: &SandboxRecord,
        id: &str,
    ) -> Result<Option<Arc<Context>>, Problem> {
        Ok(self.contexts(sandbox).await?.into_iter().find(|context| context.id == id))
    }

    /// Creates a context, or finds the one of this name.
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
        let made = Arc::new(Context::new(id, language, &cwd));
        let key = (sandbox.id().clone(), id.to_owned());
        let context = self.state.contexts.all().entry(key.clone()).or_insert(made).clone();
        // Its program puts it on record.
        let mut live = context.live.lock().await;
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

    /// Ends the program of a context, and with it all it remembers.
    pub async fn end_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
    ) -> Result<(), Problem> {
        let key = (sandbox.id().clone(), context.id.clone());
        self.state.contexts.all().remove(&key);
        self.kill_context(sandbox, context).await
    }

    /// Lets a context forget.
    pub async fn restart_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
    ) -> Result<(), Problem> {
        self.kill_context(sandbox, context).await?;
        let mut live = context.live.lock().await;
        *live = Some(self.start_context(sandbox, context, None).await?);
        Ok(())
    }

    /// Also while a piece of code is at work, which ends by it.
    async fn kill_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
    ) -> Result<(), Problem> {
        let running = self.processes(sandbox).await?.running(None, Some(&context.tag()));
        if let Some(process) = running {
            self.signal_process(sandbox, &process, 9).await?;
            let mut ended = self.context_program(process);
            while let Some(said) = ended.said.recv().await {
                if let ProcessOutput::End(_) = said {
                    break;
                }
            }
        }
        *context.live.lock().await = None;
        Ok(())
    }

    /// The program of a context: the one that runs, unless it has ended or is about to, or a new one.
    async fn start_context(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        ended: Option<&Arc<SandboxProcess>>,
    ) -> Result<ContextProgram, Problem> {
        let tag = context.tag();
        let runs = |it: &Arc<SandboxProcess>| {
            it.tag.as_ref() == Some(&tag)
                && !it.is_killed()
                && !ended.is_some_and(|ended| Arc::ptr_eq(it, ended))
        };
        if let Some(process) = self.processes(sandbox).await?.all().into_iter().find(runs) {
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

    /// Runs a piece of code and sends its events, each an object with a `type`.
    pub async fn run_cell(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        piece: &CodeCell,
        events: mpsc::Sender<Value>,
    ) -> Result<CellOutcome, Problem> {
        let mut live = context.live.lock().await;
        // Who went while others were at work wants nothing any more.
        if piece.for_listener && events.is_closed() {
            return Ok(CellOutcome::Interrupted);
        }
        let ran = self.run_live(sandbox, context, &mut live, piece, events).await;
        if ran.is_err() {
            *live = None;
        }
        ran
    }

    async fn run_live(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        live: &mut Option<ContextProgram>,
        piece: &CodeCell,
        events: mpsc::Sender<Value>,
    ) -> Result<CellOutcome, Problem> {
        if live.as_mut().is_none_or(ContextProgram::has_ended) {
            let ended = live.take().map(|live| live.process);
            *live = Some(self.start_context(sandbox, context, ended.as_ref()).await?);
        }
        let Some(ContextProgram { process, said, rest }) = live else {
            return Ok(CellOutcome::Ended);
        };
        let name = uuid::Uuid::now_v7().to_string();
        let mut line = json!({
            "for": name,
            "code": piece.code,
            "envs": piece.envs,
            "rich": piece.rich,
            "language": context.language.name(),
        })
        .to_string();
        line.push('\n');
        self.feed_process(process, line.into_bytes(), false).await?;
        let mut deadline = piece.allowed.map(|allowed| Instant::now() + allowed);
        let mut interrupted = false;
        loop {
            let over = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let told = tokio::select! {
                told = said.recv() => told,
                () = over => {
                    let signal = if interrupted { 9 } else { 2 };
                    self.signal_process(sandbox, process, signal).await?;
                    if interrupted {
                        *live = None;
                        return Ok(CellOutcome::Interrupted);
                    }
                    (deadline, interrupted) = (Some(Instant::now() + INTERRUPT_TIMEOUT), true);
                    continue;
                }
                () = events.closed(), if piece.for_listener && !interrupted => {
                    self.signal_process(sandbox, process, 2).await?;
                    (deadline, interrupted) = (Some(Instant::now() + INTERRUPT_TIMEOUT), true);
                    continue;
                }
            };
            let heard = match told {
                Some(ProcessOutput::Stdout(bytes)) => lines(rest, &bytes, &name),
                // What programs say that the code started.
                Some(ProcessOutput::Stderr(bytes)) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let now = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default();
                    vec![json!({"type": "stdout", "text": text, "timestamp": now})]
                }
                Some(ProcessOutput::Pty(_)) => vec![],
                Some(ProcessOutput::End(_)) | None => return Ok(CellOutcome::Ended),
            };
            for event in heard {
                let over = event["type"] == "control";
                // A client that is gone gets no end.
                let _ = events.send(event).await;
                if over {
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
