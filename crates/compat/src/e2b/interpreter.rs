//! The server of E2B's code interpreter, on a port of each sandbox.

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

/// The port of the code interpreter.
pub const PORT: u16 = 49_999;

/// The languages with a default context.
const DEFAULTS: [Language; 2] = [Language::Python, Language::JavaScript];

/// The id of the default context of a language.
fn default_id(language: Language) -> String {
    format!("default-{}", language.name())
}

/// Handles a request to the code interpreter.
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
            authorize(app, sandbox, headers, &[InterpreterKey::Access, InterpreterKey::Traffic])?
        }
        _ => authorize(app, sandbox, headers, &[InterpreterKey::Access])?,
    }
    match (&method, words.as_slice()) {
        (&Method::GET, ["health"]) => Ok("OK".into_response()),
        (&Method::POST, ["execute"]) => execute(app, sandbox, body(app, request).await?).await,
        (&Method::GET, ["contexts"]) => {
            let known = app.contexts(sandbox).await?;
            let mut views: Vec<_> = known.iter().map(|context| context_view(context)).collect();
            // Default contexts are listed always and created on first use.
            let missing = DEFAULTS.into_iter().rev().filter(|language| {
                !known.iter().any(|context| context.id == default_id(*language))
            });
            for language in missing {
                let context = Context::new(&default_id(language), language, &sandbox.row.home);
                views.insert(0, context_view(&context));
            }
            Ok(axum::Json(views).into_response())
        }
        (&Method::POST, ["contexts"]) => {
            let body: CreateContextRequest = body(app, request).await?;
            let language = language(body.language.as_deref())?;
            let id = uuid::Uuid::now_v7().to_string();
            let context = app.create_context(sandbox, &id, language, body.cwd.as_deref()).await?;
            Ok(axum::Json(context_view(&context)).into_response())
        }
        (&Method::DELETE, ["contexts", id]) => {
            app.end_context(sandbox, &*context(app, sandbox, id).await?).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (&Method::POST, ["contexts", id, "restart"]) => {
            app.restart_context(sandbox, &*context(app, sandbox, id).await?).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(E2bRefusal::new(
            StatusCode::NOT_FOUND,
            "the code interpreter does not have this route",
        )),
    }
}

/// A key of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterpreterKey {
    /// The access token, which runs programs and opens files.
    Access,
    /// The traffic token, which opens ports. Clients send only this one to manage contexts.
    Traffic,
}

/// Refuses a request without one of the accepted keys of the sandbox or the owner's token. An open port is not
/// enough, because a page of another site can reach it.
fn authorize(
    app: &Adapter,
    sandbox: &SandboxRecord,
    headers: &HeaderMap,
    accepted: &[InterpreterKey],
) -> Result<(), E2bRefusal> {
    let given = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let keys = &app.keys;
    let is_valid = |key: &InterpreterKey| match key {
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
    let is_open = app.auth.is_open() && !headers.contains_key(header::ORIGIN);
    if is_open || accepted.iter().any(is_valid) || owner.into_iter().any(|key| app.auth.token(key))
    {
        return Ok(());
    }
    let message = "the code interpreter needs the access token of its sandbox";
    Err(E2bRefusal::new(StatusCode::UNAUTHORIZED, message))
}

/// Parses the body of a request.
async fn body<T: DeserializeOwned + Default>(
    app: &Adapter,
    mut request: Request,
) -> Result<T, E2bRefusal> {
    let limits = &app.settings.limits;
    let limits = BodyLimits { bytes: limits.body_bytes, time: limits.body_time };
    request.extensions_mut().insert(limits);
    let E2bJson(body) = E2bJson::from_request(request, app).await?;
    Ok(body)
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

fn context_view(context: &Context) -> Value {
    json!({"id": context.id, "language": context.language.name(), "cwd": context.cwd})
}

fn language(name: Option<&str>) -> Result<Language, E2bRefusal> {
    let name = name.unwrap_or_default();
    Language::named(&name.to_lowercase()).ok_or_else(|| {
        let message =
            format!("unsupported language {name:?}; use python, javascript or typescript");
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
    request: ExecuteRequest,
) -> Result<Response, E2bRefusal> {
    let context = match request.context_id.as_deref() {
        Some(id) if !id.is_empty() => context(app, sandbox, id).await?,
        _ => {
            let language = language(request.language.as_deref())?;
            app.create_context(sandbox, &default_id(language), language, None).await?
        }
    };
    let cell = CodeCell {
        code: request.code,
        envs: request.env_vars.unwrap_or_default(),
        timeout: None,
        rich: true,
        ends_with_client: true,
    };
    let (sender, events) = mpsc::channel::<Value>(OUTPUT_QUEUE);
    let (completed, completion) = oneshot::channel();
    let (runner, sandbox) = (app.clone(), sandbox.clone());
    app.tasks.spawn(async move {
        let errors = sender.clone();
        let outcome = tokio::select! {
            outcome = runner.run_cell(&sandbox, &context, &cell, sender) => outcome,
            () = runner.stopping.cancelled() => return,
        };
        let value = match &outcome {
            Ok(CellOutcome::Done | CellOutcome::Interrupted) => {
                let _ = completed.send(AllSent);
                return;
            }
            Ok(CellOutcome::Ended) => "the program that ran the code has ended; variables are lost",
            Err(problem) => problem.detail(),
        };
        // After a truncated response, the client checks whether the sandbox runs and raises if not.
        if is_gone(&runner, &sandbox).await {
            return;
        }
        let error =
            json!({"type": "error", "name": "ContextEnded", "value": value, "traceback": ""});
        let _ = errors.send(error).await;
        let _ = completed.send(AllSent);
    });
    let lines = futures_util::stream::unfold(Some((events, completion)), async |state| {
        let (mut events, completion) = state?;
        loop {
            match events.recv().await {
                Some(event) if event["type"] == "control" => {}
                Some(event) => {
                    let line = Bytes::from(format!("{event}\n"));
                    return Some((Ok(line), Some((events, completion))));
                }
                None => break,
            }
        }
        match completion.await {
            Ok(AllSent) => None,
            Err(_) => Some((Err(std::io::Error::other("the sandbox was deleted or paused")), None)),
        }
    });
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((content_type, Body::from_stream(lines)).into_response())
}

/// Sent when all output of a cell was sent. Without it the response ends with an error.
struct AllSent;

/// Whether a sandbox is deleted or paused. Its row is deleted before its programs end.
async fn is_gone(app: &Adapter, sandbox: &SandboxRecord) -> bool {
    match app.sandboxes.get(sandbox.id()).await {
        Ok(found) => found.is_none_or(|sandbox| is_paused(&sandbox)),
        // The store does not answer; the error of the context is sent.
        Err(_) => false,
    }
}
