//! PTY sessions of the toolbox, by names that clients choose.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{
        Path, Query, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;
use adapter::{
    instance::absolute,
    process::{PTY_NAME, ProcessEnd, ProcessOutput, SandboxProcess, Start},
    wrap::Config,
};
use model::Env;
use store::SandboxRecord;

/// The subprotocol of clients that want the exit code in a message.
const EXIT_CONTROL: &str = "X-Daytona-Pty-Exit-Control";
/// The prefix of the subprotocol that carries environment variables, because an upgrade request has no body.
const ENVS_PREFIX: &str = "X-Daytona-Pty-Envs~";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreatePty {
    id: String,
    cols: Option<u16>,
    rows: Option<u16>,
    cwd: Option<String>,
    envs: Option<Env>,
}

async fn start(
    app: &Adapter,
    sandbox: &SandboxRecord,
    request: CreatePty,
) -> Result<Arc<SandboxProcess>, DaytonaRefusal> {
    if request.id.is_empty() || request.id.contains('\0') {
        return Err(DaytonaRefusal::bad("id is missing"));
    }
    if find(app, sandbox, &request.id).await.is_ok() {
        let message = format!("PTY session {} already exists", request.id);
        return Err(DaytonaRefusal::new(StatusCode::CONFLICT, message));
    }
    let mut envs = Env::from([("TERM".to_owned(), "xterm-256color".to_owned())]);
    envs.extend(request.envs.unwrap_or_default());
    api::check_env(Some(&envs), "/envs")?;
    envs.insert(PTY_NAME.to_owned(), request.id.clone());
    let start = Start {
        config: Config {
            cmd: "/bin/bash".to_owned(),
            args: vec!["-i".to_owned(), "-l".to_owned()],
            envs,
            cwd: Some(absolute(request.cwd.as_deref().unwrap_or(""), &sandbox.row.home)),
        },
        tag: Some(request.id),
        stdin: true,
        timeout: None,
        pty: Some((request.cols.unwrap_or(80).max(1), request.rows.unwrap_or(24).max(1))),
    };
    Ok(app.start_process(sandbox, start).await?)
}

async fn find(
    app: &Adapter,
    sandbox: &SandboxRecord,
    name: &str,
) -> Result<Arc<SandboxProcess>, DaytonaRefusal> {
    let processes = app.processes(sandbox).await?;
    let missing = || DaytonaRefusal::missing(format!("PTY session {name} not found"));
    processes.running(None, Some(name)).ok_or_else(missing)
}

async fn session_view(app: &Adapter, process: &SandboxProcess) -> Value {
    let facts = app.terminals.facts(&process.terminal).await;
    json!({
        "id": process.tag,
        "cwd": process.config.cwd,
        "envs": process.config.envs,
        "cols": facts.cols,
        "rows": facts.rows,
        "createdAt": process.terminal.created_at.to_string(),
        "active": facts.exit.is_none(),
        "lazyStart": false,
    })
}

pub(super) async fn create(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CreatePty>,
) -> Result<Response, DaytonaRefusal> {
    let name = request.id.clone();
    start(&app, &sandbox, request).await?;
    Ok((StatusCode::CREATED, axum::Json(json!({"sessionId": name}))).into_response())
}

pub(super) async fn list(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let mut sessions = Vec::new();
    for process in app.processes(&sandbox).await?.all() {
        if process.is_pty() {
            sessions.push(session_view(&app, &process).await);
        }
    }
    Ok(axum::Json(json!({"sessions": sessions})))
}

#[derive(Debug, Deserialize)]
pub(super) struct PtyName {
    pty: String,
}

pub(super) async fn show(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<PtyName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let process = find(&app, &sandbox, &names.pty).await?;
    Ok(axum::Json(session_view(&app, &process).await))
}

pub(super) async fn delete(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<PtyName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let process = find(&app, &sandbox, &names.pty).await?;
    app.signal_process(&sandbox, &process, 9).await?;
    Ok(axum::Json(json!({"message": "PTY session deleted"})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PtySize {
    cols: u16,
    rows: u16,
}

pub(super) async fn resize(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<PtyName>,
    DaytonaJson(size): DaytonaJson<PtySize>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if size.cols == 0 || size.rows == 0 {
        return Err(DaytonaRefusal::bad("cols and rows must be at least 1"));
    }
    let process = find(&app, &sandbox, &names.pty).await?;
    app.resize_process(&process, (size.cols, size.rows)).await?;
    let mut view = session_view(&app, &process).await;
    (view["cols"], view["rows"]) = (size.cols.into(), size.rows.into());
    Ok(axum::Json(view))
}

pub(super) async fn connect(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<PtyName>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, DaytonaRefusal> {
    let process = find(&app, &sandbox, &names.pty).await?;
    Ok(open(app, process, &headers, upgrade))
}

/// Creates a terminal and connects to it.
pub(super) async fn create_connect(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(mut query): Query<CreatePty>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, DaytonaRefusal> {
    let encoded =
        protocols(&headers).find_map(|word| word.strip_prefix(ENVS_PREFIX).map(str::to_owned));
    if let Some(encoded) = encoded {
        let bytes = URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok();
        let envs = bytes.and_then(|bytes| serde_json::from_slice::<Env>(&bytes).ok());
        query.envs =
            Some(envs.ok_or_else(|| DaytonaRefusal::bad("invalid environment variables"))?);
    }
    let process = start(&app, &sandbox, query).await?;
    Ok(open(app, process, &headers, upgrade))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all("sec-websocket-protocol").iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

fn open(
    app: Adapter,
    process: Arc<SandboxProcess>,
    headers: &HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let exit_report = match protocols(headers).any(|word| word == EXIT_CONTROL) {
        true => ExitReport::Message,
        false => ExitReport::CloseReason,
    };
    let limit = app.settings.limits.frame_bytes;
    let tasks = app.tasks.clone();
    let upgrade = upgrade.protocols([EXIT_CONTROL]).max_message_size(limit).max_frame_size(limit);
    upgrade.on_upgrade(move |socket| {
        tasks.track_future(async move { serve(&app, &process, socket, exit_report).await })
    })
}

/// How a client receives the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExitReport {
    Message,
    CloseReason,
}

async fn serve(
    app: &Adapter,
    process: &SandboxProcess,
    mut socket: WebSocket,
    exit_report: ExitReport,
) {
    let connected = json!({"type": "control", "status": "connected"});
    if socket.send(Message::Text(connected.to_string().into())).await.is_err() {
        return;
    }
    let (sender, mut output) = mpsc::channel(8);
    let stream = app.stream_output(process, &sender);
    tokio::pin!(stream);
    let mut is_streamed = false;
    let end = loop {
        tokio::select! {
            _ = &mut stream, if !is_streamed => is_streamed = true,
            chunk = output.recv() => match chunk {
                Some(ProcessOutput::Pty(bytes)) => {
                    if socket.send(Message::Binary(bytes)).await.is_err() { return }
                }
                Some(ProcessOutput::End(end)) => break end,
                Some(ProcessOutput::Stdout(_) | ProcessOutput::Stderr(_)) => {}
                None => break ProcessEnd::Lost,
            },
            message = socket.recv() => {
                let bytes: Bytes = match message {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Text(text))) => text.into(),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                if app.write_stdin(process, bytes.to_vec()).await.is_err() {
                    // The program has ended; its end is the next output.
                    continue;
                }
            }
            () = app.stopping.cancelled() => {
                let _ = socket.send(Message::Close(Some(CloseFrame {
                    code: 1012,
                    reason: "the server is stopping; the terminal keeps running".into(),
                }))).await;
                return;
            }
        }
    };
    let (code, reason) = match end {
        ProcessEnd::Exit(code) => (code, None),
        ProcessEnd::Signal(signal) => (128 + signal, Some(format!("signal {signal}"))),
        ProcessEnd::TimedOut => (137, Some("timed out".to_owned())),
        ProcessEnd::Lost => (-1, Some("lost".to_owned())),
    };
    let mut report = json!({"exitCode": code});
    if let Some(reason) = reason {
        report["exitReason"] = reason.into();
    }
    let reason = match exit_report {
        ExitReport::Message => {
            report["type"] = "control".into();
            report["status"] = "exited".into();
            let _ = socket.send(Message::Text(report.to_string().into())).await;
            String::new()
        }
        ExitReport::CloseReason => report.to_string(),
    };
    let _ =
        socket.send(Message::Close(Some(CloseFrame { code: 1000, reason: reason.into() }))).await;
}
