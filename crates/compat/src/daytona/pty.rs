//! Terminals of the toolbox, by names that their clients choose.

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

use super::{DaytonaGuest, DaytonaJson, DaytonaRefusal};
use adapter::Adapter;
use adapter::{
    instance::absolute,
    process::{PTY_NAME, ProcessEnd, ProcessOutput, SandboxProcess, Start},
    wrap::Config,
};
use model::Env;
use store::SandboxRecord;

/// Sent by clients that want the end reported in a message.
const EXIT_CONTROL: &str = "X-Daytona-Pty-Exit-Control";
/// Before the variables that clients send where they can send no body.
const ENVS: &str = "X-Daytona-Pty-Envs~";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreatePty {
    id: String,
    cols: Option<u16>,
    rows: Option<u16>,
    cwd: Option<String>,
    envs: Option<Env>,
}

async fn make(
    app: &Adapter,
    sandbox: &SandboxRecord,
    asked: CreatePty,
) -> Result<Arc<SandboxProcess>, DaytonaRefusal> {
    if asked.id.is_empty() || asked.id.contains('\0') {
        return Err(DaytonaRefusal::bad("id is missing"));
    }
    if find(app, sandbox, &asked.id).await.is_ok() {
        let message = format!("PTY session {} already exists", asked.id);
        return Err(DaytonaRefusal::new(StatusCode::CONFLICT, message));
    }
    let mut envs = Env::from([("TERM".to_owned(), "xterm-256color".to_owned())]);
    envs.extend(asked.envs.unwrap_or_default());
    api::check_env(Some(&envs), "/envs")?;
    envs.insert(PTY_NAME.to_owned(), asked.id.clone());
    let start = Start {
        config: Config {
            cmd: "/bin/bash".to_owned(),
            args: vec!["-i".to_owned(), "-l".to_owned()],
            envs,
            cwd: Some(absolute(asked.cwd.as_deref().unwrap_or(""), &sandbox.row.home)),
        },
        tag: Some(asked.id),
        stdin: true,
        timeout: None,
        pty: Some((asked.cols.unwrap_or(80).max(1), asked.rows.unwrap_or(24).max(1))),
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

async fn shown(app: &Adapter, process: &SandboxProcess) -> Value {
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
    DaytonaGuest(sandbox): DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<CreatePty>,
) -> Result<Response, DaytonaRefusal> {
    let name = asked.id.clone();
    make(&app, &sandbox, asked).await?;
    Ok((StatusCode::CREATED, axum::Json(json!({"sessionId": name}))).into_response())
}

pub(super) async fn list(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let mut sessions = Vec::new();
    for process in app.processes(&sandbox).await?.all() {
        if process.is_pty() {
            sessions.push(shown(&app, &process).await);
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
    DaytonaGuest(sandbox): DaytonaGuest,
    Path(named): Path<PtyName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let process = find(&app, &sandbox, &named.pty).await?;
    Ok(axum::Json(shown(&app, &process).await))
}

pub(super) async fn delete(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Path(named): Path<PtyName>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let process = find(&app, &sandbox, &named.pty).await?;
    app.signal_process(&sandbox, &process, 9).await?;
    Ok(axum::Json(json!({"message": "PTY session deleted"})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PtySize {
    cols: u16,
    rows: u16,
}

/// Gives a terminal another size.
pub(super) async fn resize(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Path(named): Path<PtyName>,
    DaytonaJson(size): DaytonaJson<PtySize>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if size.cols == 0 || size.rows == 0 {
        return Err(DaytonaRefusal::bad("cols and rows must be at least 1"));
    }
    let process = find(&app, &sandbox, &named.pty).await?;
    app.resize_process(&process, (size.cols, size.rows)).await?;
    let mut shown = shown(&app, &process).await;
    (shown["cols"], shown["rows"]) = (size.cols.into(), size.rows.into());
    Ok(axum::Json(shown))
}

/// Connects to a terminal.
pub(super) async fn connect(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Path(named): Path<PtyName>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, DaytonaRefusal> {
    let process = find(&app, &sandbox, &named.pty).await?;
    Ok(open(app, process, &headers, upgrade))
}

/// Creates a terminal and connects to it.
pub(super) async fn create_connect(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(mut asked): Query<CreatePty>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, DaytonaRefusal> {
    let sent = protocols(&headers).find_map(|word| word.strip_prefix(ENVS).map(str::to_owned));
    if let Some(sent) = sent {
        let bytes = URL_SAFE_NO_PAD.decode(sent.trim_end_matches('=')).ok();
        let envs = bytes.and_then(|bytes| serde_json::from_slice::<Env>(&bytes).ok());
        asked.envs = Some(envs.ok_or_else(|| DaytonaRefusal::bad("the variables cannot be read"))?);
    }
    let process = make(&app, &sandbox, asked).await?;
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
    let in_a_message = protocols(headers).any(|word| word == EXIT_CONTROL);
    let limit = app.settings.limits.frame_bytes;
    let tasks = app.tasks.clone();
    let upgrade = upgrade.protocols([EXIT_CONTROL]).max_message_size(limit).max_frame_size(limit);
    upgrade.on_upgrade(move |socket| {
        tasks.track_future(async move { serve(&app, &process, socket, in_a_message).await })
    })
}

async fn serve(app: &Adapter, process: &SandboxProcess, mut socket: WebSocket, in_a_message: bool) {
    let connected = json!({"type": "control", "status": "connected"});
    if socket.send(Message::Text(connected.to_string().into())).await.is_err() {
        return;
    }
    let (sender, mut said) = mpsc::channel(8);
    let hear = app.stream_output(process, &sender);
    tokio::pin!(hear);
    let mut heard = false;
    let end = loop {
        tokio::select! {
            _ = &mut hear, if !heard => heard = true,
            told = said.recv() => match told {
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
                    // Its end is on its way.
                    continue;
                }
            }
            () = app.stopping.cancelled() => {
                let _ = socket.send(Message::Close(Some(CloseFrame {
                    code: 1012,
                    reason: "the server is stopping; the terminal goes on".into(),
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
    let mut told = json!({"exitCode": code});
    if let Some(reason) = reason {
        told["exitReason"] = reason.into();
    }
    if in_a_message {
        told["type"] = "control".into();
        told["status"] = "exited".into();
        let _ = socket.send(Message::Text(told.to_string().into())).await;
        told = json!({});
    }
    let reason = if in_a_message { String::new() } else { told.to_string() };
    let _ =
        socket.send(Message::Close(Some(CloseFrame { code: 1000, reason: reason.into() }))).await;
}
