//! Python that remembers, by WebSocket.

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

use super::{DaytonaGuest, DaytonaJson, DaytonaRefusal};
use adapter::Adapter;
use adapter::interpreter::{CellOutcome, CodeCell, Context, Language, OUTPUT_QUEUE};
use model::Env;
use store::SandboxRecord;

/// The default context.
const DEFAULT: &str = "default";
/// The default timeout of a piece of code.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the first message may take.
const ASKED: Duration = Duration::from_secs(30);
/// The close code for a timeout.
const TIMED_OUT: u16 = 4008;

fn told(context: &Context) -> Value {
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
    DaytonaGuest(sandbox): DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<CreateContext>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if !matches!(asked.language.as_deref(), None | Some("" | "python")) {
        return Err(DaytonaRefusal::bad("only python is understood"));
    }
    let id = uuid::Uuid::now_v7().to_string();
    let context = app.create_context(&sandbox, &id, Language::Python, asked.cwd.as_deref()).await?;
    Ok(axum::Json(told(&context)))
}

/// The contexts that were made.
pub(super) async fn list(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let contexts = app.contexts(&sandbox).await?;
    let own = contexts.iter().filter(|context| context.id != DEFAULT);
    let contexts: Vec<_> = own.map(|context| told(context)).collect();
    Ok(axum::Json(json!({"contexts": contexts})))
}

/// What a path names.
#[derive(Debug, Deserialize)]
pub(super) struct ContextPath {
    context: String,
}

/// Ends a context with all it remembers.
pub(super) async fn delete(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Path(named): Path<ContextPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if named.context == DEFAULT {
        return Err(DaytonaRefusal::bad("the default context is not deleted"));
    }
    let context = app.context(&sandbox, &named.context).await?;
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

/// Runs a piece of code and sends its output.
pub(super) async fn execute(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
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

/// How the connection is to be closed; `None` when it is.
async fn serve(
    app: &Adapter,
    sandbox: &SandboxRecord,
    socket: &mut WebSocket,
) -> Option<(u16, String)> {
    let asked: ExecuteCode = loop {
        match tokio::time::timeout(ASKED, socket.recv()).await.ok()?? {
            Ok(Message::Text(text)) => match serde_json::from_str(&text) {
                Ok(asked) => break asked,
                Err(error) => return Some((1003, format!("not a request: {error}"))),
            },
            Ok(Message::Binary(_)) => return Some((1003, "a request is text".to_owned())),
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    };
    let found = match asked.context_id.as_deref() {
        None | Some("") => {
            app.create_context(sandbox, DEFAULT, Language::Python, None).await.map(Some)
        }
        Some(id) => app.context(sandbox, id).await,
    };
    let context = match found {
        Ok(Some(context)) => context,
        Ok(None) => return Some((1008, "context not found".to_owned())),
        Err(problem) => return Some((1008, problem.detail().to_owned())),
    };
    let piece = CodeCell {
        code: asked.code,
        envs: asked.envs.unwrap_or_default(),
        timeout: match asked.timeout {
            None => Some(DEFAULT_TIMEOUT),
            // As long as it takes.
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
        },
        ..CodeCell::default()
    };
    let (events, mut heard) = mpsc::channel::<Value>(OUTPUT_QUEUE);
    let forward = async {
        while let Some(event) = heard.recv().await {
            // Who does not listen any more is no reason to stop.
            let _ = socket.send(Message::Text(event.to_string().into())).await;
        }
    };
    let run = app.run_cell(sandbox, &context, &piece, events);
    let (outcome, ()) = tokio::join!(run, forward);
    Some(match outcome {
        Ok(CellOutcome::Done) => (1000, String::new()),
        Ok(CellOutcome::Interrupted) => (TIMED_OUT, "execution timed out".to_owned()),
        Ok(CellOutcome::Ended) => (1011, "the interpreter ended".to_owned()),
        Err(problem) => (1011, problem.detail().to_owned()),
    })
}
