//! The one stack in front of every route. It denies by default.
//!
//! In order: `Host`, headers and parameters that must not be repeated, `Origin`, who is asking, room
//! in the budget of that class of caller (see `budget`), size and pace of the body. Nothing is stored
//! or waited for before it is known who asks. Around it all, panics become problems and every answer
//! gets the security headers. A route is open only if `open` below says so; a test walks all others
//! without a token.

use std::{
    net::{IpAddr, SocketAddr},
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
    App, Assets,
    auth::Principal,
    budget::{Connection, Room},
    door::{Credential, Doors, Proxied},
    drain,
    error::{Code, Problem},
    extract::{BodyLimits, too_large},
    header_rules,
    idempotency::Scope,
    pass::Pass,
    query,
    slow_body::{self, Rate},
};
use config::{Scheme, Settings};

/// Largest body of a request without a token: what opens a share link.
const MAX_UNAUTHENTICATED_BODY_BYTES: usize = 4 << 10;
/// Longest silence within a body that is sent for as long as its call lasts.
const STREAMED_INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// What every answer carries. Scripts and styles are files of ours, never inline.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
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

/// What the guard asks: the server, the APIs beside the native one, and the files of the web app.
#[derive(Clone)]
pub struct Entrance {
    pub app: App,
    pub doors: Doors,
    pub assets: Assets,
}

/// The stack itself.
pub async fn guard(State(entrance): State<Entrance>, request: Request, next: Next) -> Response {
    let (started, app) = (Instant::now(), &entrance.app);
    let method = request.method().clone();
    let door = entrance.doors.of_path(request.uri().path()).cloned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let request = if door.is_some() { request.map(drain::on_drop) } else { request };

    let mut response = match AssertUnwindSafe(admit(&entrance, request, next)).catch_unwind().await
    {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => match door {
            Some(door) => door.refuse(problem),
            None => problem.into_response(),
        },
        // The panic hook has written where and why.
        Err(_) => {
            Problem::new(Code::Internal, "internal error; see the server's log").into_response()
        }
    };
    let status = response.status();
    app.metrics.request(&method, route, status.as_u16(), started.elapsed());
    tracing::debug!(%method, route, status = status.as_u16(), elapsed = ?started.elapsed());

    if response.extensions().get::<Proxied>().is_some() {
        return response;
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        // A page may bring a policy of its own.
        headers
            .entry(HeaderName::from_static(name))
            .or_insert_with(|| HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn admit(
    Entrance { app, doors, assets }: &Entrance,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let connection = connection.expect("the listener says who is connected");
    let host = host(request.uri(), request.headers())?;
    let allowed = |host: &Authority| host_allowed(host, connection.local, &app.settings);
    let derived = || doors.iter().find_map(|door| door.server_host(&host));
    if !allowed(&host) && !derived().as_ref().is_some_and(allowed) {
        return Err(Problem::new(
            Code::HostNotAllowed,
            format!(
                "{:?} is not this server; a name it has is put into the setting `names`",
                host.as_str()
            ),
        ));
    }
    // A program inside a sandbox checks its own callers; nothing of ours answers there.
    let program = doors.iter().find_map(|door| door.program(&host, request.headers()));
    if let Some(program) = program {
        let _room = app.budgets.proxied(&connection, program.sandbox.as_str())?;
        return Ok((program.answer)(request).await);
    }
    header_rules::check(request.headers())?;
    query::check(request.uri(), doors)?;
    let origin = origin(request.headers(), &host, app.settings.origin_schemes())?;
    let open = open(request.method(), request.uri().path(), doors, *assets);
    let credential = doors.credential(&mut request, &host);
    let key = checked(credential, app, &connection).await?;
    let who = match &key {
        Some(_) => None,
        None => identify(app, doors, &request, origin)?,
    };
    if who.is_none() && open.is_none() && key.is_none() {
        return Err(unauthorized(app, "no valid token was given"));
    }
    if let Some(Who::Guest(pass)) = &who
        && open.is_none()
        && !pass.shows(request.method(), request.uri().path())
    {
        return Err(Problem::new(
            Code::Forbidden,
            "a share link shows one terminal and opens nothing else",
        ));
    }
    // A page of another site may link to our pages, but not load from us or post to us.
    if open.is_none() && key.is_none() && site(request.headers()) == Some("other") {
        return Err(Problem::new(Code::OriginNotAllowed, "this request is from another site"));
    }

    let caller = match (&who, key) {
        (Some(Who::Owner(_)), _) => Caller::Owner,
        (Some(Who::Guest(pass)), _) => Caller::Holder(format!("share {}", pass.share().share_id)),
        (None, Some(name)) => Caller::Holder(name),
        (None, None) => Caller::Nobody,
    };
    let room = match (&caller, open) {
        (Caller::Owner, Some(Open::AtOnce)) => {
            connection.becomes_owner();
            Room::Free
        }
        (_, Some(Open::AtOnce)) => Room::Free,
        (Caller::Owner, _) => app.budgets.owner(&connection)?,
        (Caller::Holder(name), _) => app.budgets.holder(&connection, name)?,
        (Caller::Nobody, _) => app.budgets.unauthenticated(&connection),
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
            Some(scope) if keyed => super::idempotency::once(app, scope, request, next).await,
            Some(_) if open.is_none() && super::detach::outlives_client(&request) => {
                super::detach::run(app, request, next).await
            }
            Some(_) | None => Ok(next.run(request).await),
        }
    };
    tokio::select! {
        answer = answer => answer,
        problem = room.evicted() => Err(problem),
    }
}

/// Whose request it is, as far as budgets and idempotency keys are concerned.
enum Caller {
    Owner,
    /// The holder of a key that opens one thing, by its name.
    Holder(String),
    /// It proved nothing.
    Nobody,
}

impl Caller {
    /// Where its idempotency keys are its own; `None` for a caller of whom nothing is stored.
    fn idempotency_scope(&self) -> Option<Scope<'_>> {
        match self {
            Caller::Owner => Some(Scope::Owner),
            Caller::Holder(name) => Some(Scope::Holder(name)),
            Caller::Nobody => None,
        }
    }
}

/// The name of what a request's own credential opens, if it has one.
async fn checked(
    credential: Credential,
    app: &App,
    connection: &Connection,
) -> Result<Option<String>, Problem> {
    let (holder, check) = match credential {
        Credential::Unclaimed | Credential::None => return Ok(None),
        Credential::Holder(name) => return Ok(Some(name)),
        Credential::Refused(detail) => return Err(unauthorized(app, detail)),
        Credential::Signature { holder, check } => (holder, check),
    };
    let room = app.budgets.unauthenticated(connection);
    let opened = tokio::select! {
        opened = check => opened,
        problem = room.evicted() => return Err(problem),
    };
    opened.map_err(|detail| unauthorized(app, detail))?;
    Ok(Some(holder))
}

/// Gives a request's body its size and its deadlines.
fn bound_body(
    app: &App,
    doors: &Doors,
    mut request: Request,
    caller: &Caller,
) -> Result<Request, Problem> {
    let (limits, path) = (&app.settings.limits, request.uri().path());
    let streams = doors.iter().any(|door| door.streams_input(path));
    let bytes = match caller {
        Caller::Nobody => MAX_UNAUTHENTICATED_BODY_BYTES,
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
        Caller::Nobody => None,
        Caller::Owner | Caller::Holder(_) => Some(limits.body_rate as u64),
    };
    let rate = Rate { time, bytes_per_second };
    Ok(request.map(|body| slow_body::timed(body, rate).0))
}

/// Whether the body is a file, which is streamed and may be large.
fn is_file_upload(method: &Method, path: &str, doors: &Doors) -> bool {
    let native = match *method {
        Method::PUT => path.ends_with("/fs/write") || path.contains("/memories/"),
        Method::POST => path == "/api/projects/import",
        _ => false,
    };
    native || doors.iter().any(|door| door.is_file_upload(method, path))
}

fn with_caller(mut request: Request, who: Option<Who>) -> Request {
    match who {
        Some(Who::Owner(principal)) => drop(request.extensions_mut().insert(principal)),
        Some(Who::Guest(pass)) => drop(request.extensions_mut().insert(pass)),
        None => {}
    }
    request
}

/// What needs no token, by whether it can make us wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Answered at once, from memory.
    AtOnce,
    /// Reads a body, or asks the store.
    Waits,
}

/// Everything that needs no token.
fn open(method: &Method, path: &str, doors: &Doors, assets: Assets) -> Option<Open> {
    let reads = *method == Method::GET || *method == Method::HEAD;
    match path {
        "/api/shares/open" => (*method == Method::POST).then_some(Open::Waits),
        "/readyz" | "/login" => reads.then_some(Open::Waits),
        "/healthz" => reads.then_some(Open::AtOnce),
        _ if doors.iter().any(|door| door.is_open(method, path)) => Some(Open::Waits),
        _ => (reads && (assets.has)(path)).then_some(Open::AtOnce),
    }
}

/// What the request says about where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A page of ours says so.
    Own,
    /// It does not say.
    Unsaid,
}

/// The one `Host`; the target's authority, if it has one, must agree.
fn host(uri: &axum::http::Uri, headers: &HeaderMap) -> Result<Authority, Problem> {
    let bad = |detail: &str| Problem::field(Code::InvalidHeader, "/host", detail);
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(bad("there must be exactly one Host header"));
    };
    let host = host.to_str().map_err(|_| bad("not readable"))?;
    let host: Authority = host.parse().map_err(|_| bad("not a host name or address"))?;
    if host.as_str().contains('@') || uri.authority().is_some_and(|target| *target != host) {
        return Err(bad("not the host of this request"));
    }
    Ok(host)
}

fn host_allowed(host: &Authority, local: SocketAddr, settings: &Settings) -> bool {
    let name = host.host();
    let named = settings.names.iter().any(|allowed| {
        allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host.as_str())
    });
    if named {
        return true;
    }
    if host.port_u16().unwrap_or(settings.scheme().default_port()) != local.port() {
        return false;
    }
    let local = local.ip().to_canonical();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) => ip == local || (ip.is_loopback() && local.is_loopback()),
        Err(_) => name.eq_ignore_ascii_case("localhost") && local.is_loopback(),
    }
}

/// Refuses any `Origin` but our own.
fn origin(headers: &HeaderMap, host: &Authority, schemes: &[Scheme]) -> Result<Source, Problem> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(Source::Unsaid);
    };
    let refused = Problem::new(Code::OriginNotAllowed, "requests of other pages are refused");
    let same = origin.to_str().ok().and_then(|text| text.split_once("://")).is_some_and(
        |(scheme, authority)| {
            schemes.iter().any(|ours| ours.name() == scheme)
                && authority.eq_ignore_ascii_case(host.as_str())
        },
    );
    if same && origins.next().is_none() { Ok(Source::Own) } else { Err(refused) }
}

/// What a cookie carries that must not cross the network in clear text: `Secure`, where the browser
/// came over TLS.
pub(super) fn cookie_security(settings: &Settings, headers: &HeaderMap) -> &'static str {
    let forwarded = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    match settings.scheme() {
        Scheme::Https => "; Secure",
        Scheme::Http if settings.behind_proxy && forwarded => "; Secure",
        Scheme::Http => "",
    }
}

/// `Sec-Fetch-Site`, which only the browser itself can set.
fn site(headers: &HeaderMap) -> Option<&'static str> {
    let value = headers.get("sec-fetch-site")?;
    Some(match value.as_bytes() {
        b"same-origin" => "own",
        b"none" => "person",
        _ => "other",
    })
}

/// Who a request is from.
enum Who {
    /// Whose server it is.
    Owner(Principal),
    /// Whoever has a share link.
    Guest(Arc<Pass>),
}

fn identify(
    app: &App,
    doors: &Doors,
    request: &Request,
    origin: Source,
) -> Result<Option<Who>, Problem> {
    if app.auth.is_open() {
        return Ok(Some(Who::Owner(Principal::Anyone)));
    }
    let headers = request.headers();
    if let Some(given) = doors.iter().find_map(|door| door.token(headers)) {
        let right = str::from_utf8(given).is_ok_and(|given| app.auth.token(given.trim()));
        return match right {
            true => Ok(Some(Who::Owner(Principal::Token))),
            false => Err(unauthorized(app, "the API key is not this server's token")),
        };
    }
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        return match token {
            Some(token) if app.auth.token(token) => Ok(Some(Who::Owner(Principal::Token))),
            Some(token) => match app.shares.pass(token) {
                Some(pass) => Ok(Some(Who::Guest(pass))),
                None => Err(unauthorized(app, "the token is wrong")),
            },
            None => Err(unauthorized(app, "expected Authorization: Bearer TOKEN")),
        };
    }
    let signed_in = cookie(headers, &app.cookie).is_some_and(|given| app.auth.session(given));
    let who = if signed_in {
        Who::Owner(Principal::Browser)
    } else {
        let pass = cookie(headers, &app.share_cookie()).and_then(|given| app.shares.pass(given));
        match pass {
            Some(pass) => Who::Guest(pass),
            None => return Ok(None),
        }
    };
    // Browsers leave Origin out of their own plain GETs; there Sec-Fetch-Site stands for it.
    let upgrade = headers.contains_key(header::UPGRADE);
    let reading = matches!(*request.method(), Method::GET | Method::HEAD) && !upgrade;
    match origin {
        Source::Own => Ok(Some(who)),
        Source::Unsaid if reading && matches!(site(headers), Some("own" | "person")) => {
            Ok(Some(who))
        }
        Source::Unsaid => Err(Problem::new(
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

/// The cookie of that name.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ConfigSources, load};

    fn settings(flags: &[(&str, &str)]) -> Settings {
        let mut said = ConfigSources::default();
        said.flag("home", "/h", "--home");
        for (key, value) in flags {
            said.flag(key, *value, "--set");
        }
        load(&said).unwrap().settings
    }

    const TLS: [(&str, &str); 2] = [("tls.cert", "/c"), ("tls.key", "/k")];

    #[test]
    fn a_host_is_an_address_we_listen_on_or_a_name_of_ours() {
        let loopback: SocketAddr = "127.0.0.1:7832".parse().unwrap();
        let outside: SocketAddr = "10.1.2.3:80".parse().unwrap();
        let settings = settings(&[("names", "stead.example,front:444")]);
        let check = |host: &str, local, expected: bool| {
            let host: Authority = host.parse().unwrap();
            assert_eq!(host_allowed(&host, local, &settings), expected, "{host} at {local}");
        };
        check("127.0.0.1:7832", loopback, true);
        check("localhost:7832", loopback, true);
        check("LOCALHOST:7832", loopback, true);
        check("[::1]:7832", loopback, true);
        check("127.0.0.1:7833", loopback, false);
        check("127.0.0.1", loopback, false);
        check("10.1.2.3:7832", loopback, false);
        check("evil.example:7832", loopback, false);
        check("localhost.evil.example:7832", loopback, false);
        check("stead.example", loopback, true);
        check("stead.example:9", loopback, true);
        check("front:444", loopback, true);
        check("front:445", loopback, false);
        check("10.1.2.3", outside, true);
        check("10.1.2.3:80", outside, true);
        check("localhost:80", outside, false);
        check("127.0.0.1:80", outside, false);
        check("[::ffff:10.1.2.3]:80", outside, true);
    }

    #[test]
    fn a_host_without_a_port_is_on_the_port_of_the_scheme() {
        let (local, host) = ("10.1.2.3:443".parse().unwrap(), "10.1.2.3".parse().unwrap());
        assert!(host_allowed(&host, local, &settings(&TLS)));
        assert!(!host_allowed(&host, local, &settings(&[])));
    }

    #[test]
    fn only_our_own_origin_passes() {
        let host: Authority = "localhost:7832".parse().unwrap();
        let origin_of = |value: Option<&str>, settings: &Settings| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::ORIGIN, HeaderValue::from_str(value).unwrap());
            }
            origin(&headers, &host, settings.origin_schemes()).ok()
        };
        let (plain, tls) = (settings(&[]), settings(&TLS));
        let proxied = settings(&[("behind_proxy", "true")]);
        let check = |value: Option<&str>, expected: Option<Source>| {
            assert_eq!(origin_of(value, &plain), expected, "{value:?}");
        };
        check(None, Some(Source::Unsaid));
        check(Some("http://localhost:7832"), Some(Source::Own));
        check(Some("https://localhost:7832"), None);
        assert_eq!(origin_of(Some("https://localhost:7832"), &tls), Some(Source::Own));
        assert_eq!(origin_of(Some("http://localhost:7832"), &tls), None);
        assert_eq!(origin_of(Some("https://localhost:7832"), &proxied), Some(Source::Own));
        let named = settings(&[("names", "stead.example")]);
        assert_eq!(origin_of(Some("https://localhost:7832"), &named), Some(Source::Own));
        assert_eq!(origin_of(Some("ftp://localhost:7832"), &proxied), None);
        check(Some("http://localhost:7833"), None);
        check(Some("http://127.0.0.1:7832"), None);
        check(Some("http://localhost:7832.evil.example"), None);
        check(Some("http://evil.example"), None);
        check(Some("null"), None);
        check(Some(""), None);
    }

    #[test]
    fn a_cookie_is_secure_where_the_browser_came_over_tls() {
        let forwarded = HeaderMap::from_iter([(
            HeaderName::from_static("x-forwarded-proto"),
            HeaderValue::from_static("https"),
        )]);
        let proxied = settings(&[("behind_proxy", "true")]);
        let none = HeaderMap::new();
        assert_eq!(cookie_security(&settings(&TLS), &none), "; Secure");
        assert_eq!(cookie_security(&settings(&[]), &none), "");
        assert_eq!(cookie_security(&settings(&[]), &forwarded), "");
        assert_eq!(cookie_security(&proxied, &forwarded), "; Secure");
        assert_eq!(cookie_security(&proxied, &none), "");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; stead_1=x=y"));
        headers.append(header::COOKIE, HeaderValue::from_static("b=2"));
        assert_eq!(cookie(&headers, "stead_1"), Some("x=y"));
        assert_eq!(cookie(&headers, "b"), Some("2"));
        assert_eq!(cookie(&headers, "stead_2"), None);
    }
}
