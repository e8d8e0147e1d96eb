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
use tokio::sync::mpsc;

use super::{Asked, Refusal};
use crate::{
    api::{
        App,
        compat::{
            interpreter::{Context, Language, Outcome, Piece, WAITING},
            sandbox::Sandbox,
        },
        extract::BodyLimits,
    },
    model::Env,
};

/// The port that clients know it by.
pub const PORT: u16 = 49_999;

/// Answers a request to it.
pub async fn serve(app: &App, sandbox: &Sandbox, request: Request) -> Response {
    route(app, sandbox, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn route(app: &App, sandbox: &Sandbox, request: Request) -> Result<Response, Refusal> {
    let path = request.uri().path().to_owned();
    let words: Vec<&str> = path.split('/').skip(1).collect();
    match (request.method(), words.as_slice()) {
        (&Method::GET, ["health"]) => Ok("OK".into_response()),
        (&Method::POST, ["execute"]) => {
            if !has_key(app, sandbox, request.headers()) {
                let message = "running code needs the sandbox's access token";
                return Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
            }
            execute(app, sandbox, asked(app, request).await?).await
        }
        (&Method::GET, ["contexts"]) => {
            let contexts = app.contexts(sandbox).await?;
            let told: Vec<_> = contexts.iter().map(|context| told(context)).collect();
            Ok(axum::Json(told).into_response())
        }
        (&Method::POST, ["contexts"]) => {
            let asked: Create = asked(app, request).await?;
            let language = language(asked.language.as_deref())?;
            let id = uuid::Uuid::now_v7().to_string();
            let context = app.make_context(sandbox, &id, language, asked.cwd.as_deref()).await?;
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
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, "the code interpreter has no such route")),
    }
}

/// Whether a request has the sandbox's key, or the owner's; that it found the port is not enough to run
/// code.
fn has_key(app: &App, sandbox: &Sandbox, headers: &HeaderMap) -> bool {
    let given = ["x-access-token", "e2b-traffic-access-token", "x-api-key"];
    let mut given = given.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
    app.auth.is_open()
        || given.any(|key| {
            app.sandboxes.keys.opens(key).as_ref() == Some(sandbox.id()) || app.auth.token(key)
        })
}

async fn asked<T: DeserializeOwned + Default>(
    app: &App,
    mut request: Request,
) -> Result<T, Refusal> {
    let limits = &app.settings.limits;
    let limits = BodyLimits { bytes: limits.body_bytes, time: limits.body_time };
    request.extensions_mut().insert(limits);
    let Asked(asked) = Asked::from_request(request, app).await?;
    Ok(asked)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Create {
    cwd: Option<String>,
    language: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Execute {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<Env>,
}

fn told(context: &Context) -> Value {
    json!({"id": context.id, "language": context.language.name(), "cwd": context.cwd})
}

fn language(name: Option<&str>) -> Result<Language, Refusal> {
    let name = name.unwrap_or_default();
    Language::named(&name.to_lowercase()).ok_or_else(|| {
        let message = format!("{name:?} is not understood: python, javascript or typescript are");
        Refusal::new(StatusCode::BAD_REQUEST, message)
    })
}

async fn context(
    app: &App,
    sandbox: &Sandbox,
    id: &str,
) -> Result<std::sync::Arc<Context>, Refusal> {
    let found = app.context(sandbox, id).await?;
    found.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("Context {id} not found")))
}

async fn execute(app: &App, sandbox: &Sandbox, asked: Execute) -> Result<Response, Refusal> {
    let context = match asked.context_id.as_deref() {
        Some(id) if !id.is_empty() => context(app, sandbox, id).await?,
        _ => {
            let language = language(asked.language.as_deref())?;
            let id = format!("default-{}", language.name());
            app.make_context(sandbox, &id, language, None).await?
        }
    };
    let piece = Piece {
        code: asked.code,
        envs: asked.env_vars.unwrap_or_default(),
        allowed: None,
        rich: true,
        for_listener: true,
    };
    let (events, heard) = mpsc::channel::<Value>(WAITING);
    let (runner, sandbox) = (app.clone(), sandbox.clone());
    app.tasks.spawn(async move {
        let failed = events.clone();
        let ran = tokio::select! {
            ran = runner.run_piece(&sandbox, &context, &piece, events) => ran,
            () = runner.stopping.cancelled() => return,
        };
        let value = match &ran {
            Ok(Outcome::Done | Outcome::Interrupted) => return,
            Ok(Outcome::Ended) => "the program that ran the code has ended; variables are lost",
            Err(problem) => problem.detail(),
        };
        let error =
            json!({"type": "error", "name": "ContextEnded", "value": value, "traceback": ""});
        let _ = failed.send(error).await;
    });
    let lines = futures_util::stream::unfold(heard, async |mut heard| {
        let mut event = heard.recv().await?;
        if event["type"] == "control" {
            event = heard.recv().await?;
        }
        Some((Ok::<_, std::io::Error>(Bytes::from(format!("{event}\n"))), heard))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}
