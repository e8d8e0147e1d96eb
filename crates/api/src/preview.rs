//! Preview links: host names below the server's domain, each of which opens one port of one thread.
//!
//! A program behind a link has an origin of its own, so that its absolute paths, cookies and WebSockets work as on
//! any web site. The link itself is the credential; `preview_label` signs and checks it.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, uri::Authority},
    response::{IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    budget::ClientConnection,
    error::{Code, Problem},
    extract::{OptionalJson, Path},
    idempotency::{Keyed, NotStored},
    preview_label::{LabelError, PreviewTarget, is_preview},
    proxy::{self, ProxyError, UpgradeLimit},
    sign_in_page, threads,
};
use engine::lease::IfPaused;
use model::{LeaseState, Thread, ThreadId};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create))
}

/// Default lifetime of a link: a day.
const DEFAULT_LIFETIME_MS: u64 = 24 * 3600 * 1000;
/// Shortest lifetime of a link: a second, the resolution of its expiry.
const MIN_LIFETIME_MS: u64 = 1000;
/// Longest lifetime of a link: 30 days.
const MAX_LIFETIME_MS: u64 = 30 * DEFAULT_LIFETIME_MS;

/// A port of a thread.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct PortPath {
    /// Id of the thread
    #[param(value_type = String)]
    tid: ThreadId,
    /// Number of the TCP port
    port: u16,
}

/// A preview link to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"expires_in_ms": 3_600_000}))]
struct NewPortLink {
    /// Lifetime in milliseconds, 1000 to 2592000000 (30 days); a day by default. The expiry is rounded up to a
    /// full second.
    expires_in_ms: Option<u64>,
}

/// A link that opens one port of a thread in a browser.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "url": "http://p-agjn7tlzwb3orzrm3kyo2yzqdqpuaa3i2jqbtqk7m6o3b2cyqzkxlwtg4u2a.localhost:7832/",
    "expires_at": "2026-11-18T09:00:00Z",
}))]
struct PortLink {
    /// URL of the link. Everyone who has it can use the port.
    url: String,
    /// Time of its expiry.
    #[schema(value_type = String)]
    expires_at: Timestamp,
}

/// Create a link that opens a port of a thread without a token.
///
/// The host of the link opens this port of this thread until the link expires or the thread is deleted, and nothing
/// else. A request through a link resumes a paused thread. The server needs a domain name: `localhost` on a loopback
/// address, otherwise the first of the setting `names`.
#[utoipa::path(post, path = "/api/threads/{tid}/ports/{port}/links", tag = "threads",
    operation_id = "threads.link_port", params(PortPath), request_body = NewPortLink,
    responses((status = 201, description = "The link", body = PortLink)))]
async fn create(
    State(app): State<App>,
    Path(PortPath { tid, port }): Path<PortPath>,
    keyed: Option<axum::Extension<Keyed>>,
    OptionalJson(new): OptionalJson<NewPortLink>,
) -> Result<Response, Problem> {
    if port == 0 {
        return Err(Problem::field(Code::InvalidPath, "/port", "must be 1 to 65535"));
    }
    let lifetime = new.expires_in_ms.unwrap_or(DEFAULT_LIFETIME_MS);
    if !(MIN_LIFETIME_MS..=MAX_LIFETIME_MS).contains(&lifetime) {
        let detail = format!("must be {MIN_LIFETIME_MS} to {MAX_LIFETIME_MS}");
        return Err(Problem::body("/expires_in_ms", detail));
    }
    let thread = threads::find(&app, &tid).await?;
    let (scheme, domain) = proxy::domain(&app).ok_or_else(|| {
        Problem::new(
            Code::Conflict,
            "this server has no domain name for links; add one to the setting `names`",
        )
    })?;
    let mut until = expiry(app.now().at, lifetime).ok_or_else(|| {
        Problem::new(Code::Internal, "the server's clock is outside the range of links")
    })?;
    // The URL is a secret and is not stored. The expiry is: a repetition makes the same link of it.
    if let Some(axum::Extension(keyed)) = keyed {
        match keyed.begun().and_then(|begun| begun.parse().ok()) {
            Some(begun) => until = begun,
            None => keyed.name(&app.store, &until.to_string()).await?,
        }
    }
    let label = app.keys.preview(&thread.thread_id, &thread.lease_id, port, until);
    let link = PortLink {
        url: format!("{scheme}://{label}.{domain}/"),
        expires_at: Timestamp::from_second(until.into()).unwrap_or(Timestamp::MAX),
    };
    let mut response = (StatusCode::CREATED, axum::Json(link)).into_response();
    response.extensions_mut().insert(NotStored);
    Ok(response)
}

/// The end of a lifetime in seconds since 1970, rounded up.
fn expiry(now: Timestamp, lifetime_ms: u64) -> Option<u32> {
    let lifetime = SignedDuration::from_millis(i64::try_from(lifetime_ms).ok()?);
    let until = now.checked_add(lifetime).ok()?.as_millisecond();
    u32::try_from(until.checked_add(999)?.div_euclid(1000)).ok()
}

/// Splits a host `LABEL.DOMAIN` of a preview link, valid or not.
pub(super) fn split_host(host: &Authority) -> Option<(&str, Authority)> {
    let (label, rest) = host.as_str().split_once('.')?;
    if !is_preview(label) {
        return None;
    }
    Some((label, rest.parse().ok()?))
}

/// Forwards a request that is addressed to a preview link, or responds with a page that says why not.
pub(super) async fn serve(
    app: &App,
    connection: &ClientConnection,
    label: &str,
    request: Request,
) -> Response {
    let wants_page = sign_in_page::accepts_html(request.headers());
    let problem = match forward(app, connection, label, request).await {
        Ok(response) => return response,
        Err(problem) => problem,
    };
    match wants_page {
        true => error_page(problem),
        false => problem.into_response(),
    }
}

async fn forward(
    app: &App,
    connection: &ClientConnection,
    label: &str,
    request: Request,
) -> Result<Response, Problem> {
    let now = app.now().at;
    let target = app.keys.opens_preview(label, now.as_second()).map_err(|error| match error {
        LabelError::Invalid => Problem::new(Code::NotFound, error.to_string()),
        LabelError::Expired => Problem::new(Code::Gone, error.to_string()),
    })?;
    if has_passed(request.headers(), label) {
        return Err(Problem::new(Code::PortClosed, "this preview link leads back to itself"));
    }
    let _room = app.budgets.proxied(connection, target.lease.as_str())?;
    let (mut request, sent) = proxy::bound_body(app, request);
    let thread = thread_of(app, &target).await?;
    let port = target.port;
    let closed = || {
        let detail = format!("no program listens on port {port} of this thread");
        Problem::new(Code::PortClosed, detail)
    };
    if !may_listen(app, &thread).await? {
        return Err(closed());
    }
    let late = || {
        let detail = format!("the program on port {port} did not respond in time");
        Problem::new(Code::PortTimeout, detail)
    };
    let dialled = async {
        app.wake(&thread).await?;
        proxy::dial(app, &thread.lease_id, port, IfPaused::Resume).await
    };
    let dialled = timeout(app.settings.limits.proxy_time, dialled).await.map_err(|_| late())??;
    let stream = dialled.map_err(|error| {
        tracing::debug!(thread = %thread.thread_id, port, %error, "cannot connect to the port");
        closed()
    })?;
    proxy::remove_credentials(app, request.headers_mut());
    if let Ok(via) = HeaderValue::try_from(format!("1.1 {label}")) {
        request.headers_mut().append(header::VIA, via);
    }
    let limit = UpgradeLimit::Until(Instant::now() + target.left(now));
    proxy::exchange(app, stream, request, &sent, limit).await.map_err(|error| match error {
        ProxyError::Closed => closed(),
        ProxyError::TimedOut => late(),
    })
}

/// Whether a request has already passed through a link. Without this check a link to the server's own port, which
/// is a port of the machine for a thread without a sandbox, would be forwarded without end.
fn has_passed(headers: &HeaderMap, label: &str) -> bool {
    let lines = headers.get_all(header::VIA).iter().filter_map(|line| line.to_str().ok());
    let mut hops = lines.flat_map(|line| line.split(','));
    hops.any(|hop| hop.trim().rsplit(' ').next().is_some_and(|it| it.eq_ignore_ascii_case(label)))
}

/// Returns the thread that a link was made for.
async fn thread_of(app: &App, target: &PreviewTarget) -> Result<Thread, Problem> {
    let missing = || Problem::new(Code::NotFound, "the thread of this preview link was deleted");
    let ids = app.store.lease_threads(&target.lease).await?;
    let id = ids.iter().find(|id| app.keys.is_preview_of(target, id)).ok_or_else(missing)?;
    let thread = app.store.thread(id).await?.ok_or_else(missing)?;
    match thread.lease_id == target.lease {
        true => Ok(thread),
        false => Err(missing()),
    }
}

/// Whether a program of a thread may listen on a port. A thread without an instance is not started, except for a
/// sandbox: resuming it may bring its programs back.
async fn may_listen(app: &App, thread: &Thread) -> Result<bool, Problem> {
    Ok(match app.store.lease(&thread.lease_id).await?.map(|lease| lease.state) {
        Some(LeaseState::Running(_) | LeaseState::Paused(_) | LeaseState::Creating { .. }) => true,
        Some(LeaseState::Idle | LeaseState::Dead { .. }) => {
            app.sandboxes.get(&thread.thread_id).await?.is_some()
        }
        None | Some(LeaseState::Destroyed) => false,
    })
}

/// Responds to a browser with a page instead of a problem as JSON.
fn error_page(problem: Problem) -> Response {
    let (_, title) = problem.code().status();
    let hint = match problem.code() {
        Code::NotFound | Code::Gone => "Ask the sender of the link for another one.",
        _ => "Reload the page when the program is running.",
    };
    let detail = problem.detail().to_owned();
    sign_in_page::page(problem, (title, &detail), &format!("<p>{hint}</p>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_rounded_up_to_a_full_second() {
        let check = |now: &str, lifetime_ms, expected| {
            assert_eq!(expiry(now.parse().unwrap(), lifetime_ms), expected, "{now}");
        };
        check("1970-01-01T00:00:10Z", 1000, Some(11));
        check("1970-01-01T00:00:10.001Z", 1000, Some(12));
        check("2200-01-01T00:00:00Z", 1000, None);
    }

    #[test]
    fn the_first_label_decides_whether_a_host_is_a_link() {
        let check = |host: &str, expected: Option<(&str, &str)>| {
            let host: Authority = host.parse().unwrap();
            let found = split_host(&host);
            let found = found.as_ref().map(|(label, rest)| (*label, rest.as_str()));
            assert_eq!(found, expected, "{host}");
        };
        check("p-abc.localhost:7832", Some(("p-abc", "localhost:7832")));
        check("P-abc.stead.example", Some(("P-abc", "stead.example")));
        check("p-abc", None);
        check("localhost:7832", None);
        check("8000-iabc.localhost:7832", None);
        check("stead.p-abc.example", None);
    }
}
