//! Signs browsers in with one-time links, and out.

use std::time::Instant;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    auth::{CODE_LIFETIME, SESSION_LIFETIME},
    cookie,
    error::{Code, Problem},
    extract::Query,
    sign_in_page,
};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(login)).routes(routes!(new_link)).routes(routes!(logout))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct CodeParameter {
    /// The code of the sign-in link.
    code: String,
}

/// Exchange the one-time code of a sign-in link for a session cookie.
#[utoipa::path(get, path = "/login", tag = "server",
    operation_id = "server.sign_in", security(()), params(CodeParameter),
    responses((status = 303, description = "Signed in; the cookie is set")))]
async fn login(
    State(app): State<App>,
    headers: HeaderMap,
    method: axum::http::Method,
    query: Query<CodeParameter>,
) -> Result<Response, Problem> {
    match sign_in(&app, &headers, &method, query).await {
        Err(problem) if sign_in_page::is_wanted(&method, "/login", &headers) => {
            Ok(sign_in_page::respond(problem))
        }
        result => result,
    }
}

async fn sign_in(
    app: &App,
    headers: &HeaderMap,
    method: &axum::http::Method,
    query: Query<CodeParameter>,
) -> Result<Response, Problem> {
    // A prefetch or a HEAD request must not use the code up.
    let prefetch = ["sec-purpose", "purpose"].iter().any(|name| headers.contains_key(*name));
    if prefetch || *method == axum::http::Method::HEAD {
        return Err(Problem::new(Code::Forbidden, "a sign-in link cannot be prefetched"));
    }
    let session = app
        .auth
        .sign_in(&query.0.code, Instant::now())
        .await
        .map_err(|error| Problem::internal("cannot create a session", &error))?;
    let Some(session) = session else {
        if app.auth.failed(Instant::now()) {
            return Err(Problem::new(Code::TooManyFailures, "too many wrong sign-in codes"));
        }
        return Err(Problem::new(
            Code::Unauthorized,
            "this sign-in link was used or has expired; run `stead login` for a new one",
        ));
    };
    let cookie = set_cookie(app, headers, &session, SESSION_LIFETIME.as_secs());
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// A sign-in link.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SignInLink {
    /// The URL. It works once.
    pub url: String,
    /// Seconds until the link expires.
    pub expires_in_s: u64,
}

/// Create a link that signs one browser in.
#[utoipa::path(post, path = "/api/login-links", tag = "server",
    operation_id = "server.create_sign_in_link", responses((status = 201, description = "The link", body = SignInLink)))]
async fn new_link(State(app): State<App>) -> Result<Response, Problem> {
    let url = app
        .sign_in_link()
        .map_err(|error| Problem::internal("cannot create a sign-in link", &error))?;
    let link = SignInLink { url, expires_in_s: CODE_LIFETIME.as_secs() };
    Ok((StatusCode::CREATED, axum::Json(link)).into_response())
}

/// Sign this browser out.
#[utoipa::path(post, path = "/api/logout", tag = "server",
    operation_id = "server.sign_out", responses((status = 204, description = "Signed out; the cookie is removed")))]
async fn logout(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    if let Some(session) = cookie::value(&headers, &app.cookie) {
        let ended = app.auth.sign_out(session).await;
        ended.map_err(|error| Problem::internal("cannot end the session", &error))?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::SET_COOKIE, set_cookie(&app, &headers, "", 0));
    Ok(response)
}

fn set_cookie(app: &App, headers: &HeaderMap, value: &str, age_seconds: u64) -> HeaderValue {
    let (name, secure) = (&app.cookie, cookie::secure_attribute(&app.settings, headers));
    let text =
        format!("{name}={value}; Path=/; Max-Age={age_seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).expect("our secrets are plain ASCII")
}
