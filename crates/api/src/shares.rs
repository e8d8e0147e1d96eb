//! Links that show one terminal to whoever has them.
//!
//! The secret of a link stands behind its `#`, which a browser sends to nobody. The page at the link
//! exchanges it for a cookie that no script can read and that goes to that terminal's routes only.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::{Code, Problem},
    extract::{Json, OptionalJson, Path, Query},
    guard,
    idempotency::{Keyed, Unkept},
    page::{self, List},
    params::OfTerminal,
    pass::{Guest, Pass, ShareError},
    target::Target,
};
use base::event::EventKind;
use model::{ShareId, Timestamp};
use store::Share;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_of_terminal, create))
        .routes(routes!(list))
        .routes(routes!(revoke))
        .routes(routes!(open))
        .routes(routes!(mine))
}

/// Seconds a link works when its maker does not say: a day.
const LIFETIME_S: u64 = 24 * 3600;
/// The longest: thirty days.
const MAX_LIFETIME_S: u64 = 30 * LIFETIME_S;

/// A link to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct New {
    /// Whom or what it is for; at most 64 characters.
    name: String,
    /// Seconds until it stops working, 1 to 2592000 (thirty days); a day if it is not said.
    expires_in_s: Option<u64>,
}

/// A link, without its secret.
#[derive(Debug, Serialize, ToSchema)]
struct Shared {
    /// Its id.
    share_id: String,
    /// The terminal it shows.
    terminal_id: String,
    /// What its maker calls it.
    name: String,
    /// `active`, `expired` or `revoked`.
    status: &'static str,
    /// When it was made.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// When it stops working.
    #[schema(value_type = String)]
    expires_at: Timestamp,
    /// When it was taken back.
    #[schema(value_type = Option<String>)]
    revoked_at: Option<Timestamp>,
    /// The link itself. Only the answer that made it has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl Shared {
    fn new(share: &Share) -> Shared {
        let status = match share.revoked_at {
            Some(_) => "revoked",
            None if share.expires_at <= Timestamp::now() => "expired",
            None => "active",
        };
        Shared {
            share_id: share.share_id.to_string(),
            terminal_id: share.terminal_id.to_string(),
            name: share.name.clone(),
            status,
            created_at: share.created_at,
            expires_at: share.expires_at,
            revoked_at: share.revoked_at,
            url: None,
        }
    }
}

/// Make a link that shows the terminal, read-only, to whoever has it.
#[utoipa::path(post, path = "/api/terminals/{id}/shares", tag = "shares",
    params(OfTerminal), request_body = New,
    responses((status = 201, description = "The link, told this once", body = Shared)))]
async fn create(
    State(app): State<App>,
    Target(terminal): Target,
    keyed: Option<axum::Extension<Keyed>>,
    OptionalJson(new): OptionalJson<New>,
) -> Result<Response, Problem> {
    if new.name.chars().count() > 64 || new.name.chars().any(char::is_control) {
        return Err(Problem::body("/name", "may have 64 characters, none of them control"));
    }
    let seconds = new.expires_in_s.unwrap_or(LIFETIME_S);
    if !(1..=MAX_LIFETIME_S).contains(&seconds) {
        return Err(Problem::body("/expires_in_s", format!("must be 1 to {MAX_LIFETIME_S}")));
    }
    let created_at = Timestamp::now();
    let lifetime = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    let mut share = Share {
        share_id: ShareId::fresh(),
        terminal_id: terminal.terminal_id,
        name: new.name,
        created_at,
        expires_at: created_at.checked_add(lifetime).unwrap_or(Timestamp::MAX),
        revoked_at: None,
    };
    // The answer holds a secret and is not kept; asked again with the same key, the same share gets
    // another secret.
    if let Some(axum::Extension(keyed)) = keyed {
        match keyed.begun().and_then(|id| id.parse().ok()) {
            Some(begun) => share = app.store.share(&begun).await?.unwrap_or(share),
            None => keyed.name(&app.store, share.share_id.as_str()).await?,
        }
    }
    let secret = app.shares.add(&share).await.map_err(|error| match error {
        ShareError::Full => Problem::new(Code::QuotaExceeded, error.to_string()),
        ShareError::Auth(error) => Problem::internal("cannot make a share", &error),
    })?;
    app.events.publish(EventKind::ShareCreated {
        terminal_id: share.terminal_id.clone(),
        share_id: share.share_id.clone(),
    });
    let url = Some(format!("{}/ui/share#{secret}", app.url));
    let mut response =
        (StatusCode::CREATED, axum::Json(Shared { url, ..Shared::new(&share) })).into_response();
    response.extensions_mut().insert(Unkept);
    Ok(response)
}

/// Which part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Items of the page.
    limit: Option<u32>,
    /// Where the page begins.
    cursor: Option<String>,
}

/// The links to a terminal, newest first, ended ones too.
#[utoipa::path(get, path = "/api/terminals/{id}/shares", tag = "shares",
    params(OfTerminal, ListQuery),
    responses((status = 200, description = "A page of links", body = List<Shared>)))]
async fn list_of_terminal(
    State(app): State<App>,
    Target(terminal): Target,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<List<Shared>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = app.store.shares(Some(&terminal.terminal_id), request).await?;
    Ok(axum::Json(page.map(|share| Shared::new(&share)).into()))
}

/// The links to all terminals, newest first, ended ones too.
#[utoipa::path(get, path = "/api/shares", tag = "shares", params(ListQuery),
    responses((status = 200, description = "A page of links", body = List<Shared>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<List<Shared>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = app.store.shares(None, request).await?;
    Ok(axum::Json(page.map(|share| Shared::new(&share)).into()))
}

/// Take a link back. Who looks by it sees no more.
#[utoipa::path(delete, path = "/api/shares/{share_id}", tag = "shares",
    params(("share_id" = String, Path, description = "The link's id")),
    responses((status = 204, description = "It no longer works")))]
async fn revoke(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let missing = || Problem::missing("share", &name);
    let id: ShareId = name.parse().map_err(|_| missing())?;
    let share = app.store.share(&id).await?.ok_or_else(missing)?;
    app.shares.revoke(&id).await?;
    app.events.publish(EventKind::ShareRevoked { terminal_id: share.terminal_id, share_id: id });
    Ok(StatusCode::NO_CONTENT)
}

/// The secret of a link.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Opening {
    /// What stands behind the `#`.
    secret: String,
}

/// Exchange the secret of a link for a cookie that shows its terminal.
#[utoipa::path(post, path = "/api/shares/open", tag = "shares", security(()),
    request_body = Opening,
    responses((status = 200, description = "What it shows; the cookie is set", body = Shared)))]
async fn open(
    State(app): State<App>,
    headers: HeaderMap,
    Json(opening): Json<Opening>,
) -> Result<Response, Problem> {
    let Some(pass) = app.shares.pass(&opening.secret) else {
        if app.auth.failed(Instant::now()) {
            return Err(Problem::new(Code::TooManyFailures, "too many links that do not work"));
        }
        return Err(Problem::new(Code::Unauthorized, "this link is no longer good"));
    };
    let cookie = cookie(&app, &headers, &pass, &opening.secret);
    let mut response = axum::Json(Shared::new(pass.share())).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response.extensions_mut().insert(Unkept);
    Ok(response)
}

/// The cookie goes where the link leads and nowhere else.
fn cookie(app: &App, headers: &HeaderMap, pass: &Pass, secret: &str) -> HeaderValue {
    let left = pass.share().expires_at.duration_since(Timestamp::now()).as_secs().max(0);
    let text = format!(
        "{}={secret}; Path=/api/terminals/{}; Max-Age={left}; HttpOnly; SameSite=Strict{}",
        app.share_cookie(),
        pass.share().terminal_id,
        guard::cookie_security(&app.settings, headers),
    );
    HeaderValue::try_from(text).expect("our secrets and ids are plain ASCII")
}

/// The link that this request came by.
#[utoipa::path(get, path = "/api/terminals/{id}/share", tag = "shares",
    params(OfTerminal),
    responses((status = 200, description = "It", body = Shared)))]
async fn mine(
    State(app): State<App>,
    Target(terminal): Target,
    guest: Guest,
    headers: HeaderMap,
) -> Result<axum::Json<Shared>, Problem> {
    // The owner may look at a link of theirs, too.
    let cookie = || guard::cookie(&headers, &app.share_cookie()).and_then(|it| app.shares.pass(it));
    let pass: Option<Arc<Pass>> = guest.0.or_else(cookie);
    pass.filter(|pass| pass.share().terminal_id == terminal.terminal_id)
        .map(|pass| axum::Json(Shared::new(pass.share())))
        .ok_or_else(|| Problem::new(Code::NotFound, "this request came by no link"))
}
