//! The server of E2B's code interpreter, which listens on a port of each sandbox.

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{E2bJson, E2bRefusal};
use adapter::{
    Adapter,
    interpreter::{CellOutcome, CodeCell, Context, Language, OUTPUT_QUEUE},
    sandbox::is_paused,
};
use api::extract::BodyLimits;
use model::Env;
use store::SandboxRecord;

/// The port that clients know it by.
pub const PORT: u16 = 49_999;

/// The languages that have a context from the start.
const DEFAULTS: [Language; 2] = [Language::Python, Language::JavaScript];

/// The id of the context that code of a language runs in by default.
fn default_id(language: Language) -> String {
    format!("default-{}", language.name())
}

/// Answers a request to it.
pub async fn serve(app: &Adapter, sandbox: &SandboxRecord, request: Request) -> Response {
    route(app, sandbox, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn route(
    app: &Adapter,
    sandbox: &SandboxRecord,
    request: Request,
) -> Result<Response, E2bRefusal> {
    let path = request.uri().path().to_owned();
    let words: Vec<&str> = path.split('/').skip(1).collect();
    let (method, headers) = (request.method().clone(), request.headers());
    match words.as_slice() {
        ["health"] => {}
        ["contexts", ..] => {
            admit(app, sandbox, headers, &[InterpreterKey::Access, InterpreterKey::Traffic])?
        }
        _ => admit(app, sandbox, headers, &[InterpreterKey::Access])?,
    }
    match (&method, words.as_slice()) {
        (&Method::GET, ["health"]) => Ok("OK".into_response()),
        (&Method::POST, ["execute"]) => execute(app, sandbox, asked(app, request).await?).await,
        (&Method::GET, ["contexts"]) => {
            let known = app.contexts(sandbox).await?;
            let mut shown: Vec<_> = known.iter().map(|context| told(context)).collect();
            // Those that every sandbox has are made when they are first used.
            let missing = DEFAULTS.into_iter().rev().filter(|language| {
                !known.iter().any(|context| context.id == default_id(*language))
            });
            for language in missing {
                shown.insert(
                    0,
                    told(&Context::new(&default_id(language), language, &sandbox.row.home)),
                );
            }
            Ok(axum::Json(shown).into_response())
        }
        (&Method::POST, ["contexts"]) => {
            let asked: CreateContextRequest = asked(app, request).await?;
            let language = language(asked.language.as_deref())?;
            let id = uuid::Uuid::now_v7().to_string();
            let context = app.create_context(sandbox, &id, language, asked.cwd.as_deref()).await?;
            Ok(axum::Json(told(&context)).into_response())
        }
        (&Method::DELETE, ["contexts", id]) => {
            app.end_context(sandbox, &*context(app, sandbox, id).await?).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::POST, ["contexts", id, "restart"]) => {
            app.restart_context(sandbox, &*context(app, sandbox, id).await?).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(E2bRefusal::new(StatusCode::NOT_FOUND, "the code interpreter has no such route")),
    }
}

/// A key of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterpreterKey {
    /// Runs programs and opens files.
    Access,
    /// Shows ports. Clients send no other with the calls that manage contexts.
    Traffic,
}

/// Refuses a request without one of these keys of the sandbox, or the owner's. Finding the port is not
/// enough, and a page of another site has no key.
fn admit(
    app: &Adapter,
    sandbox: &SandboxRecord,
    headers: &HeaderMap,
    taken: &[InterpreterKey],
) -> Result<(), E2bRefusal> {
    let given = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let keys = &app.keys();
    let opens = |key: &InterpreterKey| match key {
        InterpreterKey::Access => {
            let id = given("x-access-token").and_then(|key| keys.opens(key));
            id.as_ref() == Some(sandbox.id())
        }
        InterpreterKey::Traffic => {
            let id = given("e2b-traffic-access-token").and_then(|key| keys.opens_traffic(key));
            id.as_ref() == Some(sandbox.id())
        }
    };
    let owner = ["x-access-token", "x-api-key"].into_iter().filter_map(given);
    let open = app.auth.is_open() && !headers.contains_key(header::ORIGIN);
    if open || taken.iter().any(opens) || owner.into_iter().any(|key| app.auth.token(key)) {
        return Ok(());
    }
    let message = "the code interpreter needs the access token of its sandbox";
    Err(E2bRefusal::new(StatusCode::UNAUTHORIZED, message))
}

async fn asked<T: DeserializeOwned + Default>(
    app: &Adapter,
    mut request: Request,
) -> Result<T, E2bRefusal> {
    let limits = &app.settings.limits;
    let limits = BodyLimits { bytes: limits.body_bytes, time: limits.body_time };
    request.extensions_mut().insert(limits);
    let E2bJson(asked) = E2bJson::from_request(request, app).await?;
    Ok(asked)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CreateContextRequest {
    cwd: Option<String>,
    language: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExecuteRequest {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<Env>,
}

fn told(context: &Context) -> Value {
    json!({"id": context.id, "language": context.language.name(), "cwd": context.cwd})
}

fn language(name: Option<&str>) -> Result<Language, E2bRefusal> {
    let name = name.unwrap_or_default();
    Language::named(&name.to_lowercase()).ok_or_else(|| {
        let message = format!("{name:?} is not understood: python, javascript or typescript are");
        E2bRefusal::new(StatusCode::BAD_REQUEST, message)
    })
}

async fn context(
    app: &Adapter,
    sandbox: &SandboxRecord,
    id: &str,
) -> Result<std::sync::Arc<Context>, E2bRefusal> {
    if let Some(found) = app.context(sandbox, id).await? {
        return Ok(found);
    }
    let Some(language) = DEFAULTS.into_iter().find(|language| default_id(*language) == id) else {
        return Err(E2bRefusal::new(StatusCode::NOT_FOUND, format!("Context {id} not found")));
    };
    Ok(app.create_context(sandbox, id, language, None).await?)
}

async fn execute(
    app: &Adapter,
    sandbox: &SandboxRecord,
    asked: ExecuteRequest,
) -> Result<Response, E2bRefusal> {
    let context = match asked.context_id.as_deref() {
        Some(id) if !id.is_empty() => context(app, sandbox, id).await?,
        _ => {
            let language = language(asked.language.as_deref())?;
            app.create_context(sandbox, &default_id(language), language, None).await?
        }
    };
    let piece = CodeCell {
        code: asked.code,
        envs: asked.env_vars.unwrap_or_default(),
        timeout: None,
        rich: true,
        ends_with_client: true,
    };
    let (events, heard) = mpsc::channel::<Value>(OUTPUT_QUEUE);
    let (ends, ended) = oneshot::channel();
    let (runner, sandbox) = (app.clone(), sandbox.clone());
    app.tasks.spawn(async move {
        let failed = events.clone();
        let ran = tokio::select! {
            ran = runner.run_cell(&sandbox, &context, &piece, events) => ran,
            () = runner.stopping.cancelled() => return,
        };
        let value = match &ran {
            Ok(CellOutcome::Done | CellOutcome::Interrupted) => {
                let _ = ends.send(Completion::Whole);
                return;
            }
            Ok(CellOutcome::Ended) => "the program that ran the code has ended; variables are lost",
            Err(problem) => problem.detail(),
        };
        // A client that is cut off asks whether the sandbox still runs, and raises if not.
        if is_gone(&runner, &sandbox).await {
            return;
        }
        let error =
            json!({"type": "error", "name": "ContextEnded", "value": value, "traceback": ""});
        let _ = failed.send(error).await;
        let _ = ends.send(Completion::Whole);
    });
    let lines = futures_util::stream::unfold(Some((heard, ended)), async |state| {
        let (mut heard, ended) = state?;
        loop {
            match heard.recv().await {
                Some(event) if event["type"] == "control" => {}
                Some(event) => {
                    let line = Bytes::from(format!("{event}\n"));
                    return Some((Ok(line), Some((heard, ended))));
                }
                None => break,
            }
        }
        match ended.await {
            Ok(Completion::Whole) => None,
            Err(_) => Some((Err(std::io::Error::other("the sandbox is gone")), None)),
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Sent when all output of a piece of code was sent. Without it the
/// answer is cut off.
enum Completion {
    Whole,
}

/// Whether a sandbox is deleted or paused. Its row is deleted before its programs end.
async fn is_gone(app: &Adapter, sandbox: &SandboxRecord) -> bool {
    match app.sandboxes.get(sandbox.id()).await {
        Ok(found) => found.is_none_or(|sandbox| is_paused(&sandbox)),
        // The store cannot say; the error of the context can.
        Err(_) => false,
    }
}
