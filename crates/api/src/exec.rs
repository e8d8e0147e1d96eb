//! Runs commands: responds when the command has ended, or streams its output.

use std::time::Duration;

use axum::{
    extract::{Extension, State},
    http::{HeaderMap, header},
    response::Response,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};
use wire::Stream;

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, Path},
    idempotency::Keyed,
    params::TerminalPath,
    receipt::{self, CommandReceipt},
    secrets::Secrets,
    sse,
    target::TargetTerminal,
    terminals::check_env,
};
use base::utf8;
use engine::terminal::{
    BusyPolicy, ExecOptions, Execution, IfAbandoned, Naming, OutputDelivery, Resume, Stdin,
};
use model::{Env, SessionId, Terminal, ThreadId};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(in_thread)).routes(routes!(in_terminal))
}

/// Longest `timeout_ms` that a request may have.
const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3600 * 1000;
/// Default of `max_output_bytes` for each stream.
const DEFAULT_OUTPUT_BYTES: u64 = 1 << 20;

/// A command to run.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"command": "make test", "timeout_ms": 120000}))]
pub(super) struct ExecRequest {
    /// Shell command; may have several lines.
    command: String,
    /// Ends the command and all its processes after this time, in milliseconds.
    timeout_ms: Option<u64>,
    /// Responds with status `running` after this time, in milliseconds. The command continues, and its
    /// standard input stays open.
    yield_ms: Option<u64>,
    /// Standard input; empty by default.
    stdin: Option<String>,
    /// Environment variables for this command only.
    #[serde(default)]
    env: Option<Env>,
    /// Working directory for this command only.
    cwd: Option<String>,
    /// Maximum number of bytes of each stream in the response; 1 MiB by default.
    max_output_bytes: Option<u64>,
    /// What to do if another command is running: `wait` (default) or `fail` with 409 `busy`.
    if_busy: Option<BusyAction>,
    /// Whether to resume a paused instance; true by default. Otherwise the response is 409 `lease_paused`.
    resume: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum BusyAction {
    Wait,
    Fail,
}

/// Run a command in a thread's default terminal.
///
/// Creates the thread if it does not exist.
#[utoipa::path(post, path = "/api/threads/{tid}/exec", tag = "exec",
    operation_id = "threads.exec", params(("tid" = String, Path, description = "Id of the thread, chosen by the client")),
    request_body = ExecRequest,
    responses((status = 200, description = "The receipt. With `Accept: text/event-stream`: the events `started`, `stdout`, `stderr`, \
        `gap` and `exit` as they happen", body = CommandReceipt)))]
async fn in_thread(
    State(app): State<App>,
    Path(thread): Path<ThreadId>,
    keyed: Option<Extension<Keyed>>,
    headers: HeaderMap,
    Json(exec): Json<ExecRequest>,
) -> Result<Response, Problem> {
    exec.check()?;
    let chain = app.open_chain(&thread).await?;
    let _work = app.projects.work(&chain.thread.project_id).await;
    let session = chain.session.session_id;
    run(app, chain.terminal, session, exec, keyed, &headers).await
}

/// Run a command in a terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/exec", tag = "exec",
    operation_id = "terminals.exec", params(TerminalPath), request_body = ExecRequest,
    responses((status = 200, description = "The receipt. With `Accept: text/event-stream`: the events `started`, `stdout`, `stderr`, \
        `gap` and `exit` as they happen", body = CommandReceipt)))]
async fn in_terminal(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    keyed: Option<Extension<Keyed>>,
    headers: HeaderMap,
    Json(exec): Json<ExecRequest>,
) -> Result<Response, Problem> {
    exec.check()?;
    let chain = app.open_chain(&terminal.thread_id).await?;
    let _work = app.projects.work(&chain.thread.project_id).await;
    run(app, terminal, chain.session.session_id, exec, keyed, &headers).await
}

impl ExecRequest {
    fn check(&self) -> Result<(), Problem> {
        if self.command.contains('\0') {
            return Err(Problem::body("/command", "must not contain NUL"));
        }
        if self.timeout_ms.is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS) {
            return Err(Problem::body("/timeout_ms", format!("must be 1 to {MAX_TIMEOUT_MS}")));
        }
        if self.max_output_bytes.is_some_and(|bytes| bytes > engine::terminal::MAX_OUTPUT) {
            let max = engine::terminal::MAX_OUTPUT;
            return Err(Problem::body("/max_output_bytes", format!("must be at most {max}")));
        }
        if self.cwd.as_deref().is_some_and(|cwd| cwd.is_empty() || cwd.contains('\0')) {
            return Err(Problem::body("/cwd", "must be a path"));
        }
        check_env(self.env.as_ref(), "/env")
    }
}

async fn run(
    app: App,
    terminal: Terminal,
    session: SessionId,
    exec: ExecRequest,
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
    let accepts = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains("text/event-stream")));
    let delivery = if accepts { OutputDelivery::Stream } else { OutputDelivery::Receipt };
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
        max_output: exec.max_output_bytes.unwrap_or(DEFAULT_OUTPUT_BYTES),
        delivery,
        if_busy: match exec.if_busy {
            None | Some(BusyAction::Wait) => BusyPolicy::Wait,
            Some(BusyAction::Fail) => BusyPolicy::Fail,
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
    match delivery {
        OutputDelivery::Stream => follow(app, terminal, execution).await,
        OutputDelivery::Receipt => {
            let receipt = receipt::wait(&mut execution, yield_after).await?;
            receipt::respond(receipt, &terminal).await
        }
    }
}

/// Streams a command as events. Once it has started, it continues if the client disconnects.
async fn follow(
    app: App,
    terminal: Terminal,
    mut execution: Execution,
) -> Result<Response, Problem> {
    execution.put_on_record().await?;
    execution.listen().await?;
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    app.tasks.spawn(async move {
        let disconnected = sender.clone();
        let events = async {
            let started =
                json!({"command_id": execution.id(), "terminal_id": terminal.terminal_id});
            let _ = sender.send(sse::event("started", &started)).await;
            let last = match send_output(&mut execution, &sender).await {
                Ok(()) => match execution.finished().await {
                    Ok(receipt) => {
                        let receipt = CommandReceipt::new(receipt, &terminal, Secrets::Masked);
                        sse::event("exit", &receipt)
                    }
                    Err(error) => problem(error.into()),
                },
                Err(error) => problem(error),
            };
            let _ = sender.send(last).await;
        };
        // Dropped when the client disconnects, which withdraws a command that has not started.
        tokio::select! {
            () = events => {}
            () = disconnected.closed() => {}
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

/// Sends the output as it arrives, each stream in order, until the command has ended.
async fn send_output(
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
                let chunk = execution.read(*stream, *offset, wire::MAX_DATA as u32).await;
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    // The command has ended and no output was kept.
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
                    utf8::Utf8Piece::Text(text) => json!({"offset": start, "data": text}),
                    utf8::Utf8Piece::Binary(bytes) => {
                        json!({"offset": start, "data_base64": BASE64_STANDARD.encode(bytes)})
                    }
                };
                if sender.send(sse::event(name, &data)).await.is_err() {
                    return Err(Problem::new(Code::Gone, "the client disconnected"));
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
