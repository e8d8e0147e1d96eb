//! Share links: each shows one terminal to its holder.
//!
//! The secret of a link is its URL fragment, which browsers do not send. The page at the link exchanges it for
//! an HttpOnly cookie that is limited to the routes of its terminal.

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
    App, cookie,
    error::{Code, Problem},
    extract::{Json, OptionalJson, Path, Query},
    idempotency::{Keyed, NotStored},
    page::{self, List},
    params::TerminalPath,
    pass::{Guest, Pass, ShareError},
    target::TargetTerminal,
};
use base::event::EventKind;
use model::{Moment, ShareId, Timestamp};
use store::Share;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_of_terminal, create))
        .routes(routes!(list))
        .routes(routes!(revoke))
        .routes(routes!(open))
        .routes(routes!(mine))
}

/// Default lifetime of a link: a day.
const DEFAULT_LIFETIME_S: u64 = 24 * 3600;
/// Longest lifetime of a link: 30 days.
const MAX_LIFETIME_S: u64 = 30 * DEFAULT_LIFETIME_S;

/// A share link to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"name": "review", "expires_in_s": 3600}))]
struct NewShare {
    /// Name of the link, of at most 64 characters.
    name: String,
    /// Lifetime in seconds, 1 to 2592000 (30 days); a day by default.
    expires_in_s: Option<u64>,
}

/// A share link, without its secret.
#[derive(Debug, Serialize, ToSchema)]
struct ShareView {
    /// Id of the link.
    share_id: String,
    /// Id of the terminal.
    terminal_id: String,
    /// Name of the link.
    name: String,
    /// `active`, `expired` or `revoked`.
    status: &'static str,
    /// Creation time.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// Time of its expiry.
    #[schema(value_type = String)]
    expires_at: Timestamp,
    /// Time of its revocation.
    #[schema(value_type = Option<String>)]
    revoked_at: Option<Timestamp>,
    /// URL of the link. Only present in the response that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl ShareView {
    fn new(share: &Share, now: &Moment) -> ShareView {
        let status = match share.revoked_at {
            Some(_) => "revoked",
            None if share.left(now).is_zero() => "expired",
            None => "active",
        };
        ShareView {
            share_id: share.share_id.to_string(),
            terminal_id: share.terminal_id.to_string(),
            name: share.name.clone(),
            status,
            created_at: share.created.at,
            expires_at: share.expires_at,
            revoked_at: share.revoked_at,
            url: None,
        }
    }
}

/// Create a read-only link to a terminal.
#[utoipa::path(post, path = "/api/terminals/{id}/shares", tag = "shares",
    operation_id = "shares.create", params(TerminalPath), request_body = NewShare,
    responses((status = 201, description = "The link. Its URL is returned only here", body = ShareView)))]
async fn create(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    keyed: Option<axum::Extension<Keyed>>,
    OptionalJson(new): OptionalJson<NewShare>,
) -> Result<Response, Problem> {
    if new.name.chars().count() > 64 || new.name.chars().any(char::is_control) {
        return Err(Problem::body(
            "/name",
            "must have at most 64 characters and no control characters",
        ));
    }
    let seconds = new.expires_in_s.unwrap_or(DEFAULT_LIFETIME_S);
    if !(1..=MAX_LIFETIME_S).contains(&seconds) {
        return Err(Problem::body("/expires_in_s", format!("must be 1 to {MAX_LIFETIME_S}")));
    }
    let created = app.now();
    let lifetime = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    let mut share = Share {
        share_id: ShareId::fresh(),
        terminal_id: terminal.terminal_id,
        name: new.name,
        created,
        expires_at: created.at.checked_add(lifetime).unwrap_or(Timestamp::MAX),
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
        (StatusCode::CREATED, axum::Json(ShareView { url, ..ShareView::new(&share, &app.now()) }))
            .into_response();
    response.extensions_mut().insert(NotStored);
    Ok(response)
}

/// Selects a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SharesQuery {
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the share links of a terminal, newest first.
///
/// Includes expired and revoked links.
#[utoipa::path(get, path = "/api/terminals/{id}/shares", tag = "shares",
    operation_id = "terminals.list_shares", params(TerminalPath, SharesQuery),
    responses((status = 200, description = "A page of links", body = List<ShareView>)))]
async fn list_of_terminal(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    Query(query): Query<SharesQuery>,
) -> Result<axum::Json<List<ShareView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = app.store.shares(Some(&terminal.terminal_id), request).await?;
    let now = app.now();
    Ok(axum::Json(page.map(|share| ShareView::new(&share, &now)).into()))
}

/// List all share links, newest first.
///
/// Includes expired and revoked links.
#[utoipa::path(get, path = "/api/shares", tag = "shares",
    operation_id = "shares.list", params(SharesQuery),
    responses((status = 200, description = "A page of links", body = List<ShareView>)))]
async fn list(
    State(app): State<App>,
    Query(query): Query<SharesQuery>,
) -> Result<axum::Json<List<ShareView>>, Problem> {
    let request = page::request(query.limit, query.cursor.as_deref())?;
    let page = app.store.shares(None, request).await?;
    let now = app.now();
    Ok(axum::Json(page.map(|share| ShareView::new(&share, &now)).into()))
}

/// Revoke a share link.
///
/// Current viewers are disconnected.
#[utoipa::path(delete, path = "/api/shares/{share_id}", tag = "shares",
    operation_id = "shares.revoke", params(("share_id" = String, Path, description = "Id of the link")),
    responses((status = 204, description = "The link is revoked")))]
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
#[schema(example = json!({"secret": "Q2hhbmdlIG1lLCBJIGFtIGFuIGV4YW1wbGU"}))]
struct OpenShare {
    /// The fragment of the link, after the `#`.
    secret: String,
}

/// Exchange the secret of a share link for a cookie.
///
/// The cookie gives read-only access to the terminal of the link.
#[utoipa::path(post, path = "/api/shares/open", tag = "shares",
    operation_id = "shares.open", security(()),
    request_body = OpenShare,
    responses((status = 200, description = "The share; the cookie is set", body = ShareView)))]
async fn open(
    State(app): State<App>,
    headers: HeaderMap,
    Json(opening): Json<OpenShare>,
) -> Result<Response, Problem> {
    let Some(pass) = app.shares.pass(&opening.secret) else {
        if app.auth.failed(Instant::now()) {
            return Err(Problem::new(Code::TooManyFailures, "too many invalid share links"));
        }
        return Err(Problem::new(Code::Unauthorized, "this share link has expired or was revoked"));
    };
    let cookie = cookie(&app, &headers, &pass, &opening.secret);
    let mut response = axum::Json(ShareView::new(pass.share(), &app.now())).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response.extensions_mut().insert(NotStored);
    Ok(response)
}

/// Limits the cookie to the routes of the terminal.
fn cookie(app: &App, headers: &HeaderMap, pass: &Pass, secret: &str) -> HeaderValue {
    let left = pass.share().left(&app.now()).as_secs();
    let text = format!(
        "{}={secret}; Path=/api/terminals/{}; Max-Age={left}; HttpOnly; SameSite=Strict{}",
        app.share_cookie(),
        pass.share().terminal_id,
        cookie::secure_attribute(&app.settings, headers),
    );
    HeaderValue::try_from(text).expect("our secrets and ids are plain ASCII")
}

/// Get the share link that this request is authenticated with.
#[utoipa::path(get, path = "/api/terminals/{id}/share", tag = "shares",
    operation_id = "shares.current", params(TerminalPath),
    responses((status = 200, description = "The share", body = ShareView)))]
async fn mine(
    State(app): State<App>,
    TargetTerminal(terminal): TargetTerminal,
    guest: Guest,
    headers: HeaderMap,
) -> Result<axum::Json<ShareView>, Problem> {
    // The owner may open a share link, too.
    let cookie = || cookie::value(&headers, &app.share_cookie()).and_then(|it| app.shares.pass(it));
    let pass: Option<Arc<Pass>> = guest.0.or_else(cookie);
    pass.filter(|pass| pass.share().terminal_id == terminal.terminal_id)
        .map(|pass| axum::Json(ShareView::new(pass.share(), &app.now())))
        .ok_or_else(|| {
            Problem::new(Code::NotFound, "this request is not authenticated with a share link")
        })
}
