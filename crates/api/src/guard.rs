//! The middleware in front of every route. It denies by default.
//!
//! In order: `Host` (a preview link is forwarded to its port), repeated headers and parameters, `Origin`, authentication, the budget of the caller's
//! class (see `budget`), size and rate of the body. Nothing is stored or waited for before authentication.
//! Panics become problems, and every response gets the security headers. A route needs no token only if
//! `open_route` lists it; a test requests all others without one.

use std::{
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;

use super::{
    app::App,
    auth::Principal,
    budget::{ClientConnection, Room},
    cookie,
    detach::outlives_client,
    door::{Credential, Doors, Proxied},
    drain,
    error::{Code, Problem},
    extract::{BodyLimits, too_large},
    forwarded::client_address,
    header_rules,
    idempotency::Scope,
    origin::{FetchSite, RequestOrigin, fetch_site, host, host_allowed, origin},
    pass::Pass,
    preview, query,
    request_span::{REQUEST_ID, RequestSpans},
    sign_in_page,
    slow_body::{self, Rate},
};

/// Largest body of an unauthenticated request, such as the secret of a share link.
const MAX_UNAUTHENTICATED_BODY_BYTES: usize = 4 << 10;
/// Longest time without data in a body that is streamed for the duration of its call.
const STREAMED_INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// The headers of every response. Scripts and styles are files of this server, never inline. A frame shows what the app
/// made itself: a PDF.
const SECURITY_HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         font-src 'self'; connect-src 'self'; frame-src blob:; manifest-src 'self'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), display-capture=(), geolocation=(), microphone=(), midi=(), payment=(), \
         serial=(), usb=()",
    ),
];

/// The files of the web app, which the binary embeds.
#[derive(Clone, Copy)]
pub struct Assets {
    /// Whether there is a file at a path.
    pub has: fn(&str) -> bool,
    /// Serves a file; returns `None` if there is none at the path.
    pub serve: fn(&Request) -> Option<Response>,
}

/// What the guard protects: the native API, other APIs, and the files of the web app.
#[derive(Clone)]
pub struct GuardState {
    pub app: App,
    pub doors: Doors,
    pub assets: Assets,
}

/// Admits or refuses a request, and completes the response.
pub async fn guard(State(state): State<GuardState>, request: Request, next: Next) -> Response {
    let (started, app) = (Instant::now(), &state.app);
    let method = request.method().clone();
    let door = state.doors.of_path(request.uri().path()).cloned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let wants_page = sign_in_page::is_wanted(&method, request.uri().path(), request.headers());
    let request = if door.is_some() { request.map(drain::on_drop) } else { request };
    let spans = RequestSpans::new(&request, route);

    let admitted = AssertUnwindSafe(admit(&state, request, next)).catch_unwind();
    let mut response = match spans.instrument(admitted).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => match door {
            Some(door) => door.refuse(problem),
            None if wants_page => sign_in_page::respond(problem),
            None => problem.into_response(),
        },
        // The panic hook has logged the location and the message.
        Err(_) => {
            Problem::new(Code::Internal, "internal error; see the server's log").into_response()
        }
    };
    let status = response.status();
    app.metrics.request(&method, route, status.as_u16(), started.elapsed());
    spans.end(&method, route, status, started.elapsed());

    if response.extensions().get::<Proxied>().is_some() {
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, spans.id().clone());
    for (name, value) in SECURITY_HEADERS {
        // A route may set a policy of its own.
        headers
            .entry(HeaderName::from_static(name))
            .or_insert_with(|| HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn admit(
    GuardState { app, doors, assets }: &GuardState,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let connection = request.extensions().get::<Arc<ClientConnection>>().cloned();
    let connection = connection.expect("the listener sets the connection");
    let host = host(request.uri(), request.headers())?;
    let allowed = |host: &Authority| host_allowed(host, connection.local, &app.settings);
    if let Some((label, _)) = preview::split_host(&host).filter(|(_, domain)| allowed(domain)) {
        return Ok(preview::serve(app, &connection, label, request).await);
    }
    let derived = || doors.iter().find_map(|door| door.server_host(&host));
    if !allowed(&host) && !derived().as_ref().is_some_and(allowed) {
        return Err(Problem::new(
            Code::HostNotAllowed,
            format!(
                "{:?} is not a name of this server; add it to the setting `names`",
                host.as_str()
            ),
        ));
    }
    // A program inside a sandbox authenticates its own callers.
    let program = doors.iter().find_map(|door| door.program(&host, request.headers()));
    if let Some(program) = program {
        let _room = app.budgets.proxied(&connection, program.sandbox.as_str())?;
        return Ok((program.answer)(request).await);
    }
    header_rules::check(request.headers(), doors)?;
    query::check(request.uri(), doors)?;
    let origin = origin(request.headers(), &host, app.settings.origin_schemes())?;
    let open = open_route(request.method(), request.uri().path(), doors, *assets);
    let credential = doors.credential(&mut request, &host);
    let client = client_address(&app.settings, request.headers(), connection.peer);
    let holder = check_credential(credential, app, &connection, client).await?;
    let who = match &holder {
        Some(_) => None,
        None => identify(app, doors, &request, origin)?,
    };
    if who.is_none() && open.is_none() && holder.is_none() {
        return Err(unauthorized(app, "no valid token"));
    }
    if let Some(Identity::Guest(pass)) = &who
        && open.is_none()
        && !pass.permits(request.method(), request.uri().path())
    {
        return Err(Problem::new(
            Code::Forbidden,
            "a share link only gives read access to its terminal",
        ));
    }
    // Another site may link to pages of this server, but not load or post anything.
    if open.is_none() && holder.is_none() && fetch_site(request.headers()) == Some(FetchSite::Other)
    {
        return Err(Problem::new(Code::OriginNotAllowed, "requests from other sites are refused"));
    }

    let caller = match (&who, holder) {
        (Some(Identity::Owner(_)), _) => Caller::Owner,
        (Some(Identity::Guest(pass)), _) => {
            Caller::Holder(format!("share {}", pass.share().share_id))
        }
        (None, Some(name)) => Caller::Holder(name),
        (None, None) => Caller::Unauthenticated,
    };
    let room = match (&caller, open) {
        (Caller::Owner, Some(OpenRoute::Free)) => {
            connection.becomes_owner();
            Room::Free
        }
        (_, Some(OpenRoute::Free)) => Room::Free,
        (Caller::Owner, _) => app.budgets.owner(&connection)?,
        (Caller::Holder(name), _) => app.budgets.holder(&connection, name)?,
        (Caller::Unauthenticated, _) => app.budgets.unauthenticated(&connection, client),
    };
    let request = bound_body(app, doors, request, &caller)?;
    let request = with_caller(request, who);
    let keyed =
        *request.method() == Method::POST && request.headers().contains_key("idempotency-key");
    let replacement = doors.iter().find_map(|door| door.replacement(&request));
    let answer = async {
        if let Some(replacement) = replacement {
            return Ok(replacement(request).await);
        }
        match caller.idempotency_scope() {
            Some(scope) if keyed => {
                app.keyed.once((&app.store, &app.tasks), scope, request, next).await
            }
            Some(_) if open.is_none() && outlives_client(&request) => {
                app.detached.run(&app.tasks, request, next).await
            }
            Some(_) | None => Ok(next.run(request).await),
        }
    };
    tokio::select! {
        answer = answer => answer,
        problem = room.evicted() => Err(problem),
    }
}

/// The class of a caller, for budgets and idempotency keys.
enum Caller {
    Owner,
    /// The holder of a credential for one resource, by its name.
    Holder(String),
    Unauthenticated,
}

impl Caller {
    /// Returns the scope of the caller's idempotency keys; `None` for an unauthenticated caller.
    fn idempotency_scope(&self) -> Option<Scope<'_>> {
        match self {
            Caller::Owner => Some(Scope::Owner),
            Caller::Holder(name) => Some(Scope::Holder(name)),
            Caller::Unauthenticated => None,
        }
    }
}

/// Checks the credential of another API; returns the name of its resource.
async fn check_credential(
    credential: Credential,
    app: &App,
    connection: &ClientConnection,
    client: IpAddr,
) -> Result<Option<String>, Problem> {
    let (holder, check) = match credential {
        Credential::Unclaimed | Credential::None => return Ok(None),
        Credential::Holder(name) => return Ok(Some(name)),
        Credential::Refused(detail) => return Err(unauthorized(app, detail)),
        Credential::Signature { holder, check } => (holder, check),
    };
    let room = app.budgets.unauthenticated(connection, client);
    let checked = tokio::select! {
        checked = check => checked,
        problem = room.evicted() => return Err(problem),
    };
    checked.map_err(|detail| unauthorized(app, detail))?;
    Ok(Some(holder))
}

/// Limits the size and the rate of a request's body.
fn bound_body(
    app: &App,
    doors: &Doors,
    mut request: Request,
    caller: &Caller,
) -> Result<Request, Problem> {
    let (limits, path) = (&app.settings.limits, request.uri().path());
    let streams = doors.iter().any(|door| door.streams_input(path));
    let bytes = match caller {
        Caller::Unauthenticated => MAX_UNAUTHENTICATED_BODY_BYTES,
        _ if is_file_upload(request.method(), path, doors) => limits.file_bytes,
        Caller::Owner | Caller::Holder(_) => limits.body_bytes,
    };
    let time = if streams { STREAMED_INPUT_TIMEOUT } else { limits.body_time };
    let bounds = BodyLimits { bytes, time };
    if declared_length(request.headers()).is_some_and(|length| length > bounds.bytes as u64) {
        return Err(too_large(bounds.bytes));
    }
    request.extensions_mut().insert(bounds);
    if streams {
        return Ok(request);
    }
    let bytes_per_second = match caller {
        Caller::Unauthenticated => None,
        Caller::Owner | Caller::Holder(_) => Some(limits.body_rate as u64),
    };
    let rate = Rate { time, bytes_per_second };
    Ok(request.map(|body| slow_body::timed(body, rate).0))
}

/// Whether the body is a file, which is streamed and may be large.
fn is_file_upload(method: &Method, path: &str, doors: &Doors) -> bool {
    let native = match *method {
        Method::PUT => path.ends_with("/fs/write") || path.contains("/memories/"),
        Method::POST => matches!(path, "/api/projects/import" | "/api/images/builds"),
        _ => false,
    };
    native || doors.iter().any(|door| door.is_file_upload(method, path))
}

fn with_caller(mut request: Request, who: Option<Identity>) -> Request {
    match who {
        Some(Identity::Owner(principal)) => drop(request.extensions_mut().insert(principal)),
        Some(Identity::Guest(pass)) => drop(request.extensions_mut().insert(pass)),
        None => {}
    }
    request
}

/// A route that needs no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenRoute {
    /// Costs nothing more per caller: responds from memory, or from checks that all callers share.
    Free,
    /// Reads a body, or queries the store.
    Waits,
}

/// Lists the routes that need no token.
fn open_route(method: &Method, path: &str, doors: &Doors, assets: Assets) -> Option<OpenRoute> {
    let read_only = *method == Method::GET || *method == Method::HEAD;
    match path {
        "/api/shares/open" => (*method == Method::POST).then_some(OpenRoute::Waits),
        "/login" => read_only.then_some(OpenRoute::Waits),
        "/healthz" | "/readyz" => read_only.then_some(OpenRoute::Free),
        _ if doors.iter().any(|door| door.is_open(method, path)) => Some(OpenRoute::Waits),
        _ => (read_only && (assets.has)(path)).then_some(OpenRoute::Free),
    }
}

/// The authenticated sender of a request.
enum Identity {
    Owner(Principal),
    /// The holder of a share link.
    Guest(Arc<Pass>),
}

fn identify(
    app: &App,
    doors: &Doors,
    request: &Request,
    origin: RequestOrigin,
) -> Result<Option<Identity>, Problem> {
    if app.auth.is_open() {
        return Ok(Some(Identity::Owner(Principal::Anyone)));
    }
    let headers = request.headers();
    if let Some(given) = doors.iter().find_map(|door| door.token(headers)) {
        let valid = str::from_utf8(given).is_ok_and(|given| app.auth.token(given.trim()));
        return match valid {
            true => Ok(Some(Identity::Owner(Principal::Token))),
            false => Err(unauthorized(app, "the API key is not this server's token")),
        };
    }
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        return match token {
            Some(token) if app.auth.token(token) => Ok(Some(Identity::Owner(Principal::Token))),
            Some(token) => match app.shares.pass(token) {
                Some(pass) => Ok(Some(Identity::Guest(pass))),
                None => Err(unauthorized(app, "the token is invalid")),
            },
            None => Err(unauthorized(app, "expected Authorization: Bearer TOKEN")),
        };
    }
    let signed_in =
        cookie::value(headers, &app.cookie).is_some_and(|given| app.auth.session(given));
    let who = if signed_in {
        Identity::Owner(Principal::Browser)
    } else {
        let pass =
            cookie::value(headers, &app.share_cookie()).and_then(|given| app.shares.pass(given));
        match pass {
            Some(pass) => Identity::Guest(pass),
            None => return Ok(None),
        }
    };
    // Browsers omit Origin from plain same-origin GET requests; Sec-Fetch-Site replaces it there.
    let upgrade = headers.contains_key(header::UPGRADE);
    let read_only = matches!(*request.method(), Method::GET | Method::HEAD) && !upgrade;
    let initiated_here =
        matches!(fetch_site(headers), Some(FetchSite::SameOrigin | FetchSite::User));
    match origin {
        RequestOrigin::Own => Ok(Some(who)),
        RequestOrigin::Absent if read_only && initiated_here => Ok(Some(who)),
        RequestOrigin::Absent => Err(Problem::new(
            Code::OriginNotAllowed,
            "a request with a cookie needs an Origin header of this server",
        )),
    }
}

fn unauthorized(app: &App, detail: &str) -> Problem {
    if app.auth.failed(Instant::now()) {
        return Problem::new(Code::TooManyFailures, "too many requests without a valid token");
    }
    Problem::new(Code::Unauthorized, detail)
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
