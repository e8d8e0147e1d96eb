//! Sessions: each is a live shell in which commands run one after the other and keep their state.
//!
//! A session is a terminal whose environment has a variable with the session's name, so that it is found after a
//! restart.

use std::collections::BTreeMap;

use axum::{
    extract::{
        Path, Query, State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection,
        },
    },
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use wire::Stream;

use super::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;
use adapter::process::SESSION_NAME;
use engine::terminal::{
    BusyPolicy, ExecOptions, Execution, IfAbandoned, MAX_OUTPUT, NewTerminal, OutputDelivery,
    Resume, Stdin, StdinAfterWrite, TerminalError,
};
use model::{Command, CommandId, Env, ShellKind, Terminal};
use store::SandboxRecord;
use store::{CommandQuery, PageRequest};

/// The prefix of a chunk of standard output in combined output.
const STDOUT_PREFIX: &[u8] = b"\x01\x01\x01";
/// The prefix of a chunk of standard error in combined output.
const STDERR_PREFIX: &[u8] = b"\x02\x02\x02";
/// The limit of listed commands per session.
const MAX_LISTED_COMMANDS: u32 = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CreateSession {
    session_id: String,
}

async fn all(
    app: &Adapter,
    sandbox: &SandboxRecord,
) -> Result<Vec<(String, Terminal)>, DaytonaRefusal> {
    let terminals = app.store.thread_terminals(sandbox.id()).await?;
    let named = terminals.into_iter().filter_map(|terminal| {
        let name = terminal.env.get(SESSION_NAME)?.clone();
        Some((name, terminal))
    });
    Ok(named.collect())
}

async fn find(
    app: &Adapter,
    sandbox: &SandboxRecord,
    name: &str,
) -> Result<Terminal, DaytonaRefusal> {
    let found = all(app, sandbox).await?.into_iter().find(|(known, _)| known == name);
    let missing = || DaytonaRefusal::missing("not found: session not found");
    found.map(|(_, terminal)| terminal).ok_or_else(missing)
}

pub(super) async fn create(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CreateSession>,
) -> Result<StatusCode, DaytonaRefusal> {
    let name = request.session_id;
    if name.is_empty() || name.contains('\0') {
        return Err(DaytonaRefusal::bad("sessionId is missing"));
    }
    if find(&app, &sandbox, &name).await.is_ok() {
        return Err(DaytonaRefusal::new(StatusCode::CONFLICT, "conflict: session already exists"));
    }
    app.terminals
        .open(NewTerminal {
            thread_id: sandbox.id().clone(),
            lease_id: sandbox.thread.lease_id.clone(),
            argv: vec![],
            shell: Some(ShellKind::Bash),
            size: (80, 24),
            cwd: String::new(),
            env: Env::from([(SESSION_NAME.to_owned(), name)]),
        })
        .await?;
    Ok(StatusCode::CREATED)
}

fn command_view(command: &Command) -> Value {
    let mut view = json!({"id": command.command_id, "command": command.text});
    if let Some(code) = command.exit_code {
        view["exitCode"] = code.into();
    }
    view
}

async fn session_view(
    app: &Adapter,
    name: &str,
    terminal: &Terminal,
) -> Result<Value, DaytonaRefusal> {
    let page = PageRequest::first(MAX_LISTED_COMMANDS);
    let commands = app.store.commands(&terminal.terminal_id, CommandQuery::default(), page).await?;
    let commands: Vec<Value> = commands.items.iter().rev().map(command_view).collect();
    Ok(json!({"sessionId": name, "commands": commands}))
}

pub(super) async fn list(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let mut sessions = Vec::new();
    for (name, terminal) in all(&app, &sandbox).await? {
        sessions.push(session_view(&app, &name, &terminal).await?);
    }
    Ok(axum::Json(json!(sessions)))
}

#[derive(Debug, Deserialize)]
pub(super) struct CommandPath {
    session: String,
    command: Option<String>,
}

/// A session and its commands.
pub(super) async fn show(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<CommandPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let terminal = find(&app, &sandbox, &names.session).await?;
    Ok(axum::Json(session_view(&app, &names.session, &terminal).await?))
}

/// Deletes a session and ends its processes.
pub(super) async fn delete(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<CommandPath>,
) -> Result<StatusCode, DaytonaRefusal> {
    let terminal = find(&app, &sandbox, &names.session).await?;
    app.delete_terminal(&terminal).await?.wait().await;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionCommand {
    command: String,
    run_async: Option<bool>,
    #[serde(rename = "async")]
    older_async: Option<bool>,
}

/// Runs a command in the session's shell. Waits for its end unless the client requests otherwise.
pub(super) async fn exec(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<CommandPath>,
    DaytonaJson(request): DaytonaJson<SessionCommand>,
) -> Result<Response, DaytonaRefusal> {
    if request.command.is_empty() || request.command.contains('\0') {
        return Err(DaytonaRefusal::bad("command is missing"));
    }
    let terminal = find(&app, &sandbox, &names.session).await?;
    let is_sync = !(request.run_async.unwrap_or(false) || request.older_async.unwrap_or(false));
    let options = ExecOptions {
        text: request.command,
        timeout: None,
        stdin: if is_sync { Stdin::Null } else { Stdin::Open },
        env: BTreeMap::new(),
        cwd: None,
        max_output: MAX_OUTPUT,
        delivery: OutputDelivery::Receipt,
        if_busy: BusyPolicy::Wait,
        resume: Resume::Yes,
        touch: None,
        keyed: false,
        if_abandoned: if is_sync { IfAbandoned::Withdraw } else { IfAbandoned::Keep },
    };
    let mut execution = app.terminals.exec(&terminal, options, None).await?;
    let id = execution.id().to_string();
    if !is_sync {
        execution.put_on_record().await?;
        let none = Value::Null;
        let started = json!({"cmdId": id, "output": none, "stdout": none, "stderr": none,
            "exitCode": none});
        return Ok((StatusCode::ACCEPTED, axum::Json(started)).into_response());
    }
    let receipt = execution.finished().await?;
    let mut answer = streams(&receipt.stdout, &receipt.stderr);
    answer["cmdId"] = id.into();
    answer["exitCode"] = receipt.command.exit_code.unwrap_or(-1).into();
    Ok(axum::Json(answer).into_response())
}

fn streams(stdout: &[u8], stderr: &[u8]) -> Value {
    let mut both = Vec::new();
    for (prefix, bytes) in [(STDOUT_PREFIX, stdout), (STDERR_PREFIX, stderr)] {
        if !bytes.is_empty() {
            both.extend_from_slice(prefix);
            both.extend_from_slice(bytes);
        }
    }
    let text = String::from_utf8_lossy;
    json!({"output": text(&both), "stdout": text(stdout), "stderr": text(stderr)})
}

async fn find_command(
    app: &Adapter,
    sandbox: &SandboxRecord,
    names: &CommandPath,
) -> Result<(Terminal, Command), DaytonaRefusal> {
    let terminal = find(app, sandbox, &names.session).await?;
    let missing = || DaytonaRefusal::missing("not found: command not found");
    let id: CommandId =
        names.command.as_deref().and_then(|id| id.parse().ok()).ok_or_else(missing)?;
    let command = match app.terminals.running(&id) {
        Some(command) => Some(command),
        None => app.store.command(&id).await?,
    };
    let command = command.filter(|command| command.terminal_id == terminal.terminal_id);
    Ok((terminal, command.ok_or_else(missing)?))
}

/// A command of a session.
pub(super) async fn command(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<CommandPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let (_, command) = find_command(&app, &sandbox, &names).await?;
    Ok(axum::Json(command_view(&command)))
}

/// The session of the sandbox's entrypoint, which has no commands here.
pub(super) async fn entrypoint(ToolboxSandbox(_): ToolboxSandbox) -> axum::Json<Value> {
    axum::Json(json!({"sessionId": "entrypoint", "commands": []}))
}

pub(super) async fn entrypoint_logs(
    ToolboxSandbox(_): ToolboxSandbox,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Ok(upgrade) => upgrade.on_upgrade(|mut socket| async move {
            let end = CloseFrame { code: 1000, reason: "".into() };
            let _ = socket.send(Message::Close(Some(end))).await;
        }),
        Err(_) => axum::Json(streams(&[], &[])).into_response(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FollowQuery {
    follow: Option<String>,
}

/// The output of a command; over a WebSocket it is streamed.
pub(super) async fn logs(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<CommandPath>,
    Query(query): Query<FollowQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, DaytonaRefusal> {
    let (terminal, command) = find_command(&app, &sandbox, &names).await?;
    let follows = query.follow.is_some_and(|follow| follow != "false");
    if let (true, Ok(upgrade)) = (follows, upgrade) {
        let tasks = app.tasks.clone();
        return Ok(upgrade.on_upgrade(move |socket| {
            tasks.track_future(async move { stream_output(&app, &terminal, command, socket).await })
        }));
    }
    let mut outputs = [Vec::new(), Vec::new()];
    for (stream, all) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&mut outputs) {
        loop {
            let (from, limit) = (all.len() as u64, wire::MAX_DATA as u32);
            let read = app.terminals.output(&terminal, &command, stream, from, limit).await;
            let chunk = match read {
                Ok(chunk) => chunk,
                Err(TerminalError::NotKept) => break,
                Err(error) => return Err(error.into()),
            };
            if chunk.bytes.is_empty() || chunk.offset != from || from >= MAX_OUTPUT {
                break;
            }
            all.extend_from_slice(&chunk.bytes);
        }
    }
    Ok(axum::Json(streams(&outputs[0], &outputs[1])).into_response())
}

/// Sends the output of a command until it has ended.
async fn stream_output(
    app: &Adapter,
    terminal: &Terminal,
    command: Command,
    mut socket: WebSocket,
) {
    let mut execution = app.terminals.follow(terminal, &command.command_id).await;
    if let Some(execution) = &execution {
        let _ = execution.listen().await;
    }
    let mut cursors = [(Stream::Stdout, STDOUT_PREFIX, 0), (Stream::Stderr, STDERR_PREFIX, 0)];
    loop {
        let over = execution.as_ref().is_none_or(Execution::is_over);
        if let Some(execution) = &mut execution {
            execution.progress().mark_unchanged();
        }
        for (stream, prefix, from) in &mut cursors {
            let limit = wire::MAX_DATA as u32 / 2;
            while let Ok(chunk) =
                app.terminals.output(terminal, &command, *stream, *from, limit).await
            {
                if chunk.bytes.is_empty() {
                    break;
                }
                *from = chunk.next;
                let frame = [*prefix, &chunk.bytes].concat();
                if socket.send(Message::Binary(frame.into())).await.is_err() {
                    return;
                }
            }
        }
        if over {
            break;
        }
        if let Some(execution) = &mut execution {
            tokio::select! {
                more = execution.more() => if more.is_err() { break },
                () = app.stopping.cancelled() => break,
                message = socket.recv() => if !matches!(message, Some(Ok(_))) { return },
            }
        }
    }
    let _ = socket.send(Message::Close(Some(CloseFrame { code: 1000, reason: "".into() }))).await;
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CommandInput {
    data: String,
}

/// Writes to the standard input of a command.
pub(super) async fn input(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<CommandPath>,
    DaytonaJson(request): DaytonaJson<CommandInput>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (terminal, command) = find_command(&app, &sandbox, &names).await?;
    if command.status.is_end() {
        let (status, code) = (StatusCode::GONE, "COMMAND_ALREADY_COMPLETED");
        return Err(DaytonaRefusal::coded(status, code, "the command has already completed"));
    }
    let (data, after) = (request.data.into_bytes(), StdinAfterWrite::KeepOpen);
    app.terminals.feed(&terminal, &command.command_id, String::new(), data, after).await?;
    Ok(StatusCode::NO_CONTENT)
}
