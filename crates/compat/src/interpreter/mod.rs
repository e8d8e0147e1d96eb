//! Code contexts: each is a program inside that runs one piece of code after the other and keeps its
//! variables.
//!
//! The program is one of the sandbox's and outlives the server; its tag names the context, by which it is
//! found again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{
    instance::absolute,
    process::{Process, ProcessOutput, Start},
    wrap::Config,
};
use crate::Compat;
use api::error::{Code, Problem};
use model::{Env, ThreadId, Timestamp};
use store::SandboxRecord;

/// How long a piece that is interrupted may still take.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Contexts of a sandbox.
const MAX_CONTEXTS: usize = 32;
/// Pieces of output that wait.
pub const OUTPUT_QUEUE: usize = 64;
/// Bytes of a line of the program inside; a longer line is dropped.
const MAX_LINE_BYTES: usize = 16 << 20;
/// The prefix of the tag of a context's program.
const TAG: &str = "stead:context ";

/// What code is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    JavaScript,
    /// TypeScript, by a node that strips types.
    TypeScript,
}

impl Language {
    /// By its name, or by none.
    pub fn named(name: &str) -> Option<Language> {
        match name {
            "" | "python" | "python3" => Some(Language::Python),
            "javascript" | "js" => Some(Language::JavaScript),
            "typescript" | "ts" => Some(Language::TypeScript),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::TypeScript => "typescript",
        }
    }

    /// The program that runs it.
    fn program(self) -> (&'static str, Vec<String>) {
        let (cmd, args) = match self {
            Language::Python => ("python3", ["-u", "-c", include_str!("python.py")].as_slice()),
            // What else writes to the standard output must not come between its own lines.
            Language::JavaScript | Language::TypeScript => (
                "/bin/sh",
                ["-c", "exec node -e \"$1\" 3>&1 1>&2", "sh", include_str!("javascript.js")]
                    .as_slice(),
            ),
        };
        (cmd, args.iter().map(|arg| (*arg).to_owned()).collect())
    }
}

/// The contexts of all sandboxes.
#[derive(Default)]
pub struct Contexts(Mutex<HashMap<(ThreadId, String), Arc<Context>>>);

pub struct Context {
    pub id: String,
    /// What its code is written in.
    pub language: Language,
    pub cwd: String,
    /// Since when it is known.
    pub made: Timestamp,
    /// One piece of code at a time.
    live: tokio::sync::Mutex<Option<ContextProgram>>,
}

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
pub enum Outcome {
    /// It ran to its end, possibly with an error event.
    Done,
    /// It timed out, or its client is gone.
    Interrupted,
    /// The program is gone, and with it what the context remembered.
    Ended,
}

/// The program of a context, and what that says.
struct ContextProgram {
    process: Arc<Process>,
    said: mpsc::Receiver<ProcessOutput>,
    /// The beginning of a line that is not complete.
    rest: Vec<u8>,
}

impl Contexts {
    fn all(&self) -> MutexGuard<'_, HashMap<(ThreadId, String), Arc<Context>>> {
        self.0.lock()
    }

    /// A sandbox is gone.
    pub fn forget(&self, sandbox: &ThreadId) {
        self.all().retain(|(of, _), _| of != sandbox);
    }
}

impl Context {
    fn tag(&self) -> String {
        format!("{TAG}{} {} {}", self.id, self.language.name(), self.cwd)
    }

    fn parse(tag: &str) -> Option<Context> {
        let mut words = tag.strip_prefix(TAG)?.splitn(3, ' ');
        let (id, language, cwd) = (words.next()?, words.next()?, words.next()?);
        let language = Language::named(language)?;
        Some(Context::new(id, language, cwd))
    }

    /// One that has no program yet.
    pub fn new(id: &str, language: Language, cwd: &str) -> Context {
        let live = tokio::sync::Mutex::default();
        Context { id: id.to_owned(), language, cwd: cwd.to_owned(), made: Timestamp::now(), live }
    }
}

/// Whether a program is a context's and none that a client asked for.
pub fn is_context(process: &Process) -> bool {
    process.tag.as_deref().is_some_and(|tag| tag.starts_with(TAG))
}

impl ContextProgram {
    /// Listens to a program from its beginning.
    fn of(app: &Compat, process: Arc<Process>) -> ContextProgram {
        let (sender, said) = mpsc::channel(OUTPUT_QUEUE);
        let (listener, heard) = (app.clone(), process.clone());
        app.tasks.spawn(async move {
            tokio::select! {
                _ = listener.stream_output(&heard, &sender) => {}
                () = listener.stopping.cancelled() => {}
            }
        });
        ContextProgram { process, said, rest: Vec::new() }
    }

    /// Whether its program has ended. Discards output since the last piece of code.
    fn has_ended(&mut self) -> bool {
        loop {
            match self.said.try_recv() {
                Ok(ProcessOutput::Stdout(bytes)) => drop(lines(&mut self.rest, &bytes, "")),
                Ok(ProcessOutput::Stderr(_) | ProcessOutput::Pty(_)) => {}
                Ok(ProcessOutput::End(_)) | Err(mpsc::error::TryRecvError::Disconnected) => {
                    return true;
                }
                Err(mpsc::error::TryRecvError::Empty) => return false,
            }
        }
    }
}

impl Compat {
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
            let mut ended = ContextProgram::of(self, process);
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
        ended: Option<&Arc<Process>>,
    ) -> Result<ContextProgram, Problem> {
        let tag = context.tag();
        let runs = |it: &Arc<Process>| {
            it.tag.as_ref() == Some(&tag)
                && !it.is_killed()
                && !ended.is_some_and(|ended| Arc::ptr_eq(it, ended))
        };
        if let Some(process) = self.processes(sandbox).await?.all().into_iter().find(runs) {
            return Ok(ContextProgram::of(self, process));
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
        Ok(ContextProgram::of(self, self.start_process(sandbox, start).await?))
    }

    /// Runs a piece of code and sends its events, each an object with a `type`.
    pub async fn run_cell(
        &self,
        sandbox: &SandboxRecord,
        context: &Context,
        piece: &CodeCell,
        events: mpsc::Sender<Value>,
    ) -> Result<Outcome, Problem> {
        let mut live = context.live.lock().await;
        // Who went while others were at work wants nothing any more.
        if piece.for_listener && events.is_closed() {
            return Ok(Outcome::Interrupted);
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
    ) -> Result<Outcome, Problem> {
        if live.as_mut().is_none_or(ContextProgram::has_ended) {
            let ended = live.take().map(|live| live.process);
            *live = Some(self.start_context(sandbox, context, ended.as_ref()).await?);
        }
        let Some(ContextProgram { process, said, rest }) = live else { return Ok(Outcome::Ended) };
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
                        return Ok(Outcome::Interrupted);
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
                Some(ProcessOutput::End(_)) | None => return Ok(Outcome::Ended),
            };
            for event in heard {
                let over = event["type"] == "control";
                // A client that is gone gets no end.
                let _ = events.send(event).await;
                if over {
                    return Ok(if interrupted { Outcome::Interrupted } else { Outcome::Done });
                }
            }
        }
    }
}

/// The events about one piece of code in what the program says.
fn lines(rest: &mut Vec<u8>, bytes: &[u8], name: &str) -> Vec<Value> {
    rest.extend_from_slice(bytes);
    let mut events = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = rest.drain(..=end).collect();
        let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { continue };
        if event["for"] != name {
            continue;
        }
        if let Some(fields) = event.as_object_mut() {
            fields.remove("for");
        }
        events.push(event);
    }
    if rest.len() > MAX_LINE_BYTES {
        rest.clear();
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_line_by_line_and_only_those_that_were_asked_for() {
        let mut rest = Vec::new();
        let mut check = |bytes: &str, expected: Value| {
            assert_eq!(json!(lines(&mut rest, bytes.as_bytes(), "a")), expected, "{bytes}");
        };
        check("{\"type\":\"stdout\",\"for\":\"a\",\"te", json!([]));
        check("xt\":\"hi\"}\n", json!([{"type": "stdout", "text": "hi"}]));
        check("{\"type\":\"stdout\",\"for\":\"b\"}\nnoise\n", json!([]));
        check("{\"type\":\"control\",\"for\":\"a\"}\n{", json!([{"type": "control"}]));
        let endless = "x".repeat(1 << 20);
        for _ in 0..40 {
            lines(&mut rest, endless.as_bytes(), "a");
            assert!(rest.len() <= MAX_LINE_BYTES, "{}", rest.len());
        }
    }

    #[test]
    fn a_context_is_known_by_the_tag_of_its_program() {
        let context = Context::new("a1", Language::JavaScript, "/home/a b");
        let found = Context::parse(&context.tag()).unwrap();
        assert_eq!((found.id.as_str(), found.language), ("a1", Language::JavaScript));
        assert_eq!(found.cwd, "/home/a b");
        assert!(Context::parse("stead:context a1").is_none());
        assert!(Context::parse("context a1 python /").is_none());
    }
}
