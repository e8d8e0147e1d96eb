//! The stateful Python interpreter, over a WebSocket.

use std::time::Duration;

use axum::{
    extract::{
        Path, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;
use adapter::interpreter::{CellOutcome, CodeCell, Context, Language, OUTPUT_QUEUE};
use model::Env;
use store::SandboxRecord;

/// The id of the default context.
const DEFAULT_CONTEXT: &str = "default";
/// The default timeout of a cell.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The WebSocket close code of a timeout.
const TIMED_OUT_CODE: u16 = 4008;

fn context_view(context: &Context) -> Value {
    json!({
        "id": context.id,
        "cwd": context.cwd,
        "createdAt": context.created_at.to_string(),
        "active": true,
        "language": context.language.name(),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreateContext {
    cwd: Option<String>,
    language: Option<String>,
}

pub(super) async fn create(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CreateContext>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if !matches!(request.language.as_deref(), None | Some("" | "python")) {
        return Err(DaytonaRefusal::bad("only Python is supported"));
    }
    let id = uuid::Uuid::now_v7().to_string();
    let context =
        app.create_context(&sandbox, &id, Language::Python, request.cwd.as_deref()).await?;
    Ok(axum::Json(context_view(&context)))
}

/// Lists the contexts that clients created.
pub(super) async fn list(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let contexts = app.contexts(&sandbox).await?;
    let created = contexts.iter().filter(|context| context.id != DEFAULT_CONTEXT);
    let contexts: Vec<_> = created.map(|context| context_view(context)).collect();
    Ok(axum::Json(json!({"contexts": contexts})))
}

#[derive(Debug, Deserialize)]
pub(super) struct ContextPath {
    context: String,
}

/// Deletes a context with its variables.
pub(super) async fn delete(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Path(names): Path<ContextPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if names.context == DEFAULT_CONTEXT {
        return Err(DaytonaRefusal::bad("the default context cannot be deleted"));
    }
    let context = app.context(&sandbox, &names.context).await?;
    let context = context.ok_or_else(|| DaytonaRefusal::missing("context not found"))?;
    app.end_context(&sandbox, &context).await?;
    Ok(axum::Json(json!({"message": "context deleted"})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecuteCode {
    code: String,
    context_id: Option<String>,
    envs: Option<Env>,
    timeout: Option<u64>,
}

/// Runs code and sends its output.
pub(super) async fn execute(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    upgrade: WebSocketUpgrade,
) -> Response {
    let limit = app.settings.limits.frame_bytes;
    let tasks = app.tasks.clone();
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit);
    upgrade.on_upgrade(move |mut socket| {
        tasks.track_future(async move {
            let end = tokio::select! {
                end = serve(&app, &sandbox, &mut socket) => end,
                () = app.stopping.cancelled() => Some((1012, "the server is stopping".to_owned())),
            };
            if let Some((code, reason)) = end {
                let close = CloseFrame { code, reason: reason.into() };
                let _ = socket.send(Message::Close(Some(close))).await;
            }
        })
    })
}

/// Serves one request. Returns the close code and reason, or `None` if the client has closed the connection.
async fn serve(
    app: &Adapter,
    sandbox: &SandboxRecord,
    socket: &mut WebSocket,
) -> Option<(u16, String)> {
    let request: ExecuteCode = loop {
        match tokio::time::timeout(REQUEST_TIMEOUT, socket.recv()).await.ok()?? {
            Ok(Message::Text(text)) => match serde_json::from_str(&text) {
                Ok(request) => break request,
                Err(error) => return Some((1003, format!("invalid request: {error}"))),
            },
            Ok(Message::Binary(_)) => return Some((1003, "a request must be text".to_owned())),
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    };
    let found = match request.context_id.as_deref() {
        None | Some("") => {
            app.create_context(sandbox, DEFAULT_CONTEXT, Language::Python, None).await.map(Some)
        }
        Some(id) => app.context(sandbox, id).await,
    };
    let context = match found {
        Ok(Some(context)) => context,
        Ok(None) => return Some((1008, "context not found".to_owned())),
        Err(problem) => return Some((1008, problem.detail().to_owned())),
    };
    let cell = CodeCell {
        code: request.code,
        envs: request.envs.unwrap_or_default(),
        timeout: match request.timeout {
            None => Some(DEFAULT_TIMEOUT),
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
        },
        ..CodeCell::default()
    };
    let (sender, mut events) = mpsc::channel::<Value>(OUTPUT_QUEUE);
    let forward = async {
        while let Some(event) = events.recv().await {
            // The code keeps running after its client disconnects.
            let _ = socket.send(Message::Text(event.to_string().into())).await;
        }
    };
    let run = app.run_cell(sandbox, &context, &cell, sender);
    let (outcome, ()) = tokio::join!(run, forward);
    Some(match outcome {
        Ok(CellOutcome::Done) => (1000, String::new()),
        Ok(CellOutcome::Interrupted) => (TIMED_OUT_CODE, "execution timed out".to_owned()),
        Ok(CellOutcome::Ended) => (1011, "the interpreter ended".to_owned()),
        Err(problem) => (1011, problem.detail().to_owned()),
    })
}
