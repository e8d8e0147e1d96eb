//! Python that remembers: each context is a program inside that runs one piece of code after the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    extract::{
        Path, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{Asked, Guest, Refusal};
use crate::{
    api::{
        App,
        compat::{
            instance::absolute,
            process::{Process, Said, Start},
            sandbox::Sandbox,
            wrap::Config,
        },
        error::Problem,
    },
    model::{Env, ThreadId, Timestamp},
};

/// What runs inside.
const PROGRAM: &str = include_str!("interpreter.py");
/// The context of whoever names none.
const DEFAULT: &str = "default";
/// How long a piece of code may take, where nobody says.
const USUAL: Duration = Duration::from_secs(600);
/// How long a piece that is interrupted may still take.
const GRACE: Duration = Duration::from_secs(5);
/// How long the first message may take.
const ASKED: Duration = Duration::from_secs(30);
/// The code of a close that tells of a time-out.
const TIMED_OUT: u16 = 4008;
/// Contexts of a sandbox.
const MOST: usize = 32;
/// Pieces of output that wait.
const WAITING: usize = 64;
/// The longest line that the program inside says; of a longer one nothing is told.
const LONGEST: usize = 16 << 20;

/// The contexts of all sandboxes, while the server runs.
#[derive(Default)]
pub struct Contexts(Mutex<HashMap<(ThreadId, String), Arc<Context>>>);

/// One of them.
struct Context {
    cwd: String,
    made: Timestamp,
    /// One piece of code at a time.
    live: tokio::sync::Mutex<Option<Live>>,
}

/// Its program, and what that says.
struct Live {
    process: Arc<Process>,
    said: mpsc::Receiver<Said>,
    /// What was said of a line that has not ended.
    rest: Vec<u8>,
}

impl Contexts {
    fn all(&self) -> MutexGuard<'_, HashMap<(ThreadId, String), Arc<Context>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox is gone.
    pub fn forget(&self, sandbox: &ThreadId) {
        self.all().retain(|(of, _), _| of != sandbox);
    }
}

impl Live {
    /// Whether its program has ended; what it said since it was last asked is nobody's.
    fn has_ended(&mut self) -> bool {
        loop {
            match self.said.try_recv() {
                Ok(Said::Stdout(bytes)) => drop(lines(&mut self.rest, &bytes, "")),
                Ok(Said::Stderr(_) | Said::Pty(_)) => {}
                Ok(Said::End(_)) | Err(mpsc::error::TryRecvError::Disconnected) => return true,
                Err(mpsc::error::TryRecvError::Empty) => return false,
            }
        }
    }
}

fn told(id: &str, context: &Context) -> Value {
    json!({
        "id": id,
        "cwd": context.cwd,
        "createdAt": context.made.to_string(),
        "active": true,
        "language": "python",
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Create {
    cwd: Option<String>,
    language: Option<String>,
}

fn make(
    app: &App,
    sandbox: &Sandbox,
    id: &str,
    cwd: Option<&str>,
) -> Result<Arc<Context>, Refusal> {
    let mut all = app.sandboxes.contexts.all();
    if all.keys().filter(|(of, _)| of == sandbox.id()).count() >= MOST {
        return Err(Refusal::bad(format!("a sandbox may have {MOST} contexts; delete one first")));
    }
    let context = Arc::new(Context {
        cwd: absolute(cwd.unwrap_or_default(), &sandbox.home),
        made: Timestamp::now(),
        live: tokio::sync::Mutex::default(),
    });
    all.insert((sandbox.id().clone(), id.to_owned()), context.clone());
    Ok(context)
}

/// Makes a context.
pub(super) async fn create(
    State(app): State<App>,
    Guest(sandbox): Guest,
    Asked(asked): Asked<Create>,
) -> Result<axum::Json<Value>, Refusal> {
    if !matches!(asked.language.as_deref(), None | Some("" | "python")) {
        return Err(Refusal::bad("only python is understood"));
    }
    let id = uuid::Uuid::now_v7().to_string();
    let context = make(&app, &sandbox, &id, asked.cwd.as_deref())?;
    Ok(axum::Json(told(&id, &context)))
}

/// The contexts that were made.
pub(super) async fn list(State(app): State<App>, Guest(sandbox): Guest) -> axum::Json<Value> {
    let all = app.sandboxes.contexts.all();
    let own = all.iter().filter(|((of, id), _)| of == sandbox.id() && id != DEFAULT);
    let mut contexts: Vec<_> = own.map(|((_, id), context)| told(id, context)).collect();
    contexts.sort_by_key(|context| context["id"].to_string());
    axum::Json(json!({"contexts": contexts}))
}

/// What a path names.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    context: String,
}

/// Ends a context with all it remembers.
pub(super) async fn delete(
    State(app): State<App>,
    Guest(sandbox): Guest,
    Path(named): Path<Named>,
) -> Result<axum::Json<Value>, Refusal> {
    if named.context == DEFAULT {
        return Err(Refusal::bad("the default context is not deleted"));
    }
    let key = (sandbox.id().clone(), named.context);
    let removed = app.sandboxes.contexts.all().remove(&key);
    let context = removed.ok_or_else(|| Refusal::missing("context not found"))?;
    if let Some(live) = context.live.lock().await.take() {
        app.signal_process(&sandbox, &live.process, 9).await?;
    }
    Ok(axum::Json(json!({"message": "context deleted"})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Piece {
    code: String,
    context_id: Option<String>,
    envs: Option<Env>,
    timeout: Option<u64>,
}

/// Runs a piece of code and tells what it says.
pub(super) async fn execute(
    State(app): State<App>,
    Guest(sandbox): Guest,
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
async fn serve(app: &App, sandbox: &Sandbox, socket: &mut WebSocket) -> Option<(u16, String)> {
    let piece: Piece = loop {
        match tokio::time::timeout(ASKED, socket.recv()).await.ok()?? {
            Ok(Message::Text(text)) => match serde_json::from_str(&text) {
                Ok(piece) => break piece,
                Err(error) => return Some((1003, format!("not a request: {error}"))),
            },
            Ok(Message::Binary(_)) => return Some((1003, "a request is text".to_owned())),
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    };
    let id = piece.context_id.as_deref().filter(|id| !id.is_empty()).unwrap_or(DEFAULT);
    let known = app.sandboxes.contexts.all().get(&(sandbox.id().clone(), id.to_owned())).cloned();
    let context = match known {
        Some(context) => context,
        None if id == DEFAULT => match make(app, sandbox, DEFAULT, None) {
            Ok(context) => context,
            Err(refusal) => return Some((1008, refusal.message)),
        },
        None => return Some((1008, "context not found".to_owned())),
    };
    let mut live = context.live.lock().await;
    match run(app, sandbox, &context, &mut live, &piece, socket).await {
        Ok(end) => end,
        Err(problem) => {
            *live = None;
            Some((1011, problem.detail().to_owned()))
        }
    }
}

async fn start(app: &App, sandbox: &Sandbox, context: &Context) -> Result<Live, Problem> {
    let args = ["-u", "-c", PROGRAM].map(str::to_owned).to_vec();
    let cwd = Some(context.cwd.clone());
    let start = Start {
        config: Config { cmd: "python3".to_owned(), args, envs: Env::new(), cwd },
        tag: None,
        stdin: true,
        timeout: None,
        pty: None,
    };
    let process = app.start_process(sandbox, start).await?;
    let (sender, said) = mpsc::channel(WAITING);
    let (listener, heard) = (app.clone(), process.clone());
    app.tasks.spawn(async move {
        tokio::select! {
            _ = listener.hear(&heard, &sender) => {}
            () = listener.stopping.cancelled() => {}
        }
    });
    Ok(Live { process, said, rest: Vec::new() })
}

async fn run(
    app: &App,
    sandbox: &Sandbox,
    context: &Context,
    live: &mut Option<Live>,
    piece: &Piece,
    socket: &mut WebSocket,
) -> Result<Option<(u16, String)>, Problem> {
    if live.as_mut().is_none_or(Live::has_ended) {
        *live = Some(start(app, sandbox, context).await?);
    }
    let Some(Live { process, said, rest }) = live else { return Ok(None) };
    let name = uuid::Uuid::now_v7().to_string();
    let mut line = json!({"for": name, "code": piece.code, "envs": piece.envs}).to_string();
    line.push('\n');
    app.feed_process(process, line.into_bytes(), false).await?;
    let allowed = match piece.timeout {
        None => USUAL,
        // As long as it takes.
        Some(0) => Duration::from_secs(365 * 86_400),
        Some(seconds) => Duration::from_secs(seconds),
    };
    let (mut deadline, mut interrupted) = (Instant::now() + allowed, false);
    loop {
        let told = tokio::select! {
            told = said.recv() => told,
            () = tokio::time::sleep_until(deadline) => {
                let signal = if interrupted { 9 } else { 2 };
                app.signal_process(sandbox, process, signal).await?;
                if interrupted {
                    *live = None;
                    return Ok(Some((TIMED_OUT, "execution timed out".to_owned())));
                }
                (deadline, interrupted) = (Instant::now() + GRACE, true);
                continue;
            }
        };
        let events = match told {
            Some(Said::Stdout(bytes)) => lines(rest, &bytes, &name),
            // What programs say that the code started.
            Some(Said::Stderr(bytes)) => {
                let text = String::from_utf8_lossy(&bytes);
                vec![json!({"type": "stdout", "text": text})]
            }
            Some(Said::Pty(_)) => vec![],
            Some(Said::End(_)) | None => {
                *live = None;
                return Ok(Some((1011, "the interpreter ended".to_owned())));
            }
        };
        for event in events {
            let over = event["type"] == "control";
            // Who does not listen any more is no reason to stop.
            let _ = socket.send(Message::Text(event.to_string().into())).await;
            if over {
                let timed_out = (TIMED_OUT, "execution timed out".to_owned());
                let end = if interrupted { timed_out } else { (1000, String::new()) };
                return Ok(Some(end));
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
    if rest.len() > LONGEST {
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
            assert!(rest.len() <= LONGEST, "{}", rest.len());
        }
    }
}
