//! Running commands: one call that answers when the command has ended, or streams it.

use std::time::Duration;

use axum::{
    extract::{Extension, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use host::wire::Stream;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, Path},
    idempotency::Keyed,
    params::TerminalPath,
    receipt::{self, CommandReceipt},
    sse,
    target::Target,
};
use engine::terminal::{ExecOptions, Execution, IfAbandoned, IfBusy, Naming, Resume, Stdin, utf8};
use model::{Env, SessionId, Terminal, ThreadId};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(in_thread)).routes(routes!(in_terminal))
}

/// The longest a command may be given.
const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;
/// Output an answer carries of each stream when the client does not say.
const DEFAULT_OUTPUT: u64 = 1 << 20;

/// A command to run.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    /// Shell text; several lines are fine.
    command: String,
    /// Ends it after so long, with everything it started.
    timeout_ms: Option<u64>,
    /// Answers `running` after so long; the command goes on, and its standard input stays open.
    yield_ms: Option<u64>,
    /// What it reads; nothing by default.
    stdin: Option<String>,
    /// Variables for this command alone.
    #[serde(default)]
    env: Option<Env>,
    /// A directory for this command alone.
    cwd: Option<String>,
    /// How much of each stream the answer carries at most.
    max_output_bytes: Option<u64>,
    /// `wait` (default) or `fail`.
    if_busy: Option<Busy>,
    /// Whether a paused instance is resumed for it; true by default.
    resume: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Busy {
    Wait,
    Fail,
}

/// Run a command in the thread's default terminal. The thread comes into being if it is not there.
#[utoipa::path(post, path = "/api/threads/{tid}/exec", tag = "exec",
    params(("tid" = String, Path, description = "The thread; its id is the client's choice")),
    request_body = Exec,
    responses((status = 200, description = "How it went; with `Accept: text/event-stream`, \
        `started`, `stdout`, `stderr` and `exit` as they happen", body = CommandReceipt)))]
async fn in_thread(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    keyed: Option<Extension<Keyed>>,
    headers: HeaderMap,
    Json(exec): Json<Exec>,
) -> Result<Response, Problem> {
    exec.check()?;
    let chain = app.open_chain(&thread).await?;
    let _work = app.projects.work(&chain.thread.project_id).await;
    let session = chain.session.session_id;
    run(app, chain.terminal, session, exec, keyed, &headers).await
}

/// Run a command in a terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/exec", tag = "exec",
    params(TerminalPath), request_body = Exec,
    responses((status = 200, description = "How it went; with `Accept: text/event-stream`, \
        `started`, `stdout`, `stderr` and `exit` as they happen", body = CommandReceipt)))]
async fn in_terminal(
    State(app): State<App>,
    Target(terminal): Target,
    keyed: Option<Extension<Keyed>>,
    headers: HeaderMap,
    Json(exec): Json<Exec>,
) -> Result<Response, Problem> {
    exec.check()?;
    let chain = app.open_chain(&terminal.thread_id).await?;
    let _work = app.projects.work(&chain.thread.project_id).await;
    run(app, terminal, chain.session.session_id, exec, keyed, &headers).await
}

impl Exec {
    fn check(&self) -> Result<(), Problem> {
        if self.command.contains('\0') {
            return Err(Problem::body("/command", "may not contain NUL"));
        }
        if self.timeout_ms.is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS) {
            return Err(Problem::body("/timeout_ms", format!("must be 1 to {MAX_TIMEOUT_MS}")));
        }
        if self.max_output_bytes.is_some_and(|most| most > engine::terminal::MAX_OUTPUT) {
            let most = engine::terminal::MAX_OUTPUT;
            return Err(Problem::body("/max_output_bytes", format!("must be at most {most}")));
        }
        if self.cwd.as_deref().is_some_and(|cwd| cwd.is_empty() || cwd.contains('\0')) {
            return Err(Problem::body("/cwd", "must be a path"));
        }
        super::terminals::check_env(self.env.as_ref(), "/env")
    }
}

async fn run(
    app: App,
    terminal: Terminal,
    session: SessionId,
    exec: Exec,
    keyed: Option<Extension<Keyed>>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let keyed = keyed.map(|Extension(keyed)| keyed);
    let yield_after = exec.yield_ms.map(Duration::from_millis);
    if let Some(begun) = keyed.as_ref().and_then(Keyed::begun)
        && let Some(answer) = receipt::of_started(&app, begun, &terminal, yield_after).await?
    {
        return Ok(answer);
    }
    let options = ExecOptions {
        stdin: match (exec.stdin, yield_after) {
            (Some(text), _) => Stdin::Given(text.into_bytes()),
            (None, Some(_)) => Stdin::Open,
            (None, None) => Stdin::Null,
        },
        text: exec.command,
        timeout: exec.timeout_ms.map(Duration::from_millis),
        env: exec.env.unwrap_or_default(),
        cwd: exec.cwd,
        max_output: exec.max_output_bytes.unwrap_or(DEFAULT_OUTPUT),
        if_busy: match exec.if_busy {
            None | Some(Busy::Wait) => IfBusy::Wait,
            Some(Busy::Fail) => IfBusy::Fail,
        },
        resume: if exec.resume == Some(false) { Resume::No } else { Resume::Yes },
        touch: Some((session, app.now())),
        keyed: keyed.is_some(),
        if_abandoned: match (&keyed, yield_after) {
            (None, None) => IfAbandoned::Withdraw,
            (Some(_), _) | (_, Some(_)) => IfAbandoned::Keep,
        },
    };
    let name = keyed.map(|keyed| -> Naming {
        let store = app.store.clone();
        Box::new(move |id| Box::pin(async move { keyed.name(&store, id.as_str()).await }))
    });
    let mut execution = app.terminals.exec(&terminal, options, name).await?;
    let accepts = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains("text/event-stream")));
    if accepts {
        return follow(app, terminal, execution).await;
    }
    let began = std::time::Instant::now();
    let receipt = receipt::wait(&mut execution, yield_after).await?;
    app.metrics.commands.inc();
    app.metrics.command_seconds.observe(began.elapsed().as_secs_f64());
    Ok(axum::Json(CommandReceipt::new(receipt, &terminal)).into_response())
}

/// The command as events. Once it has begun, it runs on if the client leaves.
async fn follow(
    app: App,
    terminal: Terminal,
    mut execution: Execution,
) -> Result<Response, Problem> {
    execution.put_on_record().await?;
    execution.listen().await?;
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    app.tasks.spawn(async move {
        let left = sender.clone();
        let events = async {
            let started =
                json!({"command_id": execution.id(), "terminal_id": terminal.terminal_id});
            let _ = sender.send(sse::event("started", &started)).await;
            let last = match tell(&mut execution, &sender).await {
                Ok(()) => match execution.finished().await {
                    Ok(receipt) => sse::event("exit", &CommandReceipt::new(receipt, &terminal)),
                    Err(error) => problem(error.into()),
                },
                Err(error) => problem(error),
            };
            let _ = sender.send(last).await;
        };
        // Dropped when the client leaves: a command that has not begun is withdrawn by that.
        tokio::select! {
            () = events => {}
            () = left.closed() => {}
        }
    });
    let events = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|event| (event, receiver))
    });
    Ok(sse::stream(&app, events))
}

fn problem(problem: Problem) -> sse::Event {
    let body = json!({"code": problem.code().name(), "detail": problem.detail()});
    sse::event("error", &body)
}

/// Sends the output as it comes, each stream in order, until the command has ended.
async fn tell(
    execution: &mut Execution,
    sender: &tokio::sync::mpsc::Sender<sse::Event>,
) -> Result<(), Problem> {
    let mut cursors = [
        ("stdout", Stream::Stdout, 0u64, utf8::Cutter::default()),
        ("stderr", Stream::Stderr, 0u64, utf8::Cutter::default()),
    ];
    loop {
        let over = execution.is_over();
        execution.progress().mark_unchanged();
        for (name, stream, offset, cutter) in &mut cursors {
            loop {
                let chunk = execution.read(*stream, *offset, host::wire::MAX_DATA as u32).await;
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    // Over, and it wrote nothing that was kept.
                    Err(engine::terminal::TerminalError::NotKept) => break,
                    Err(error) => return Err(error.into()),
                };
                if chunk.bytes.is_empty() {
                    break;
                }
                if chunk.offset > *offset {
                    let gap = json!({"stream": name, "from": *offset, "to": chunk.offset});
                    let _ = sender.send(sse::event("gap", &gap)).await;
                    *cutter = utf8::Cutter::default();
                }
                let start = chunk.offset - cutter.held() as u64;
                *offset = chunk.next;
                let Some(piece) = cutter.cut(&chunk.bytes) else { continue };
                let data = match piece {
                    utf8::Piece::Text(text) => json!({"offset": start, "data": text}),
                    utf8::Piece::Binary(bytes) => {
                        json!({"offset": start, "data_base64": BASE64_STANDARD.encode(bytes)})
                    }
                };
                if sender.send(sse::event(name, &data)).await.is_err() {
                    return Err(Problem::new(Code::Gone, "the client is gone"));
                }
            }
        }
        if over {
            for (name, _, offset, cutter) in &mut cursors {
                let rest = cutter.rest();
                if !rest.is_empty() {
                    let start = *offset - rest.len() as u64;
                    let data =
                        json!({"offset": start, "data_base64": BASE64_STANDARD.encode(rest)});
                    let _ = sender.send(sse::event(name, &data)).await;
                }
            }
            return Ok(());
        }
        execution.more().await?;
    }
}
