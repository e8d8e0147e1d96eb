//! The one stack in front of every route. It denies by default.
//!
//! In order: room to answer at all, `Host`, `Origin`, who is asking, size of the body; around it
//! all, panics become problems and every answer gets the security headers. A route is open only if
//! `open` below says so; a test walks all others without a token.

use std::{
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Instant,
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;

use super::{
    App,
    auth::Principal,
    compat::{self, e2b::Door},
    error::{Code, Problem},
    extract::{BodyLimits, too_large},
    pass::Pass,
    web,
};

/// Both ends of the connection a request came over.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The client's.
    pub peer: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
}

/// What every answer carries. Scripts and styles are files of ours, never inline.
const HEADERS: [(&str, &str); 6] = [
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
];

/// The stack itself.
pub async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let e2b = compat::e2b::is_path(request.uri().path());
    let daytona = compat::daytona::is_path(request.uri().path());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let request = if e2b || daytona { request.map(compat::read_away) } else { request };

    let mut response = match AssertUnwindSafe(admit(&app, request, next)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) if e2b => compat::e2b::Refusal::from(problem).into_response(),
        Ok(Err(problem)) if daytona => compat::daytona::Refusal::from(problem).into_response(),
        Ok(Err(problem)) => problem.into_response(),
        // The panic hook has written where and why.
        Err(_) => Problem::new(Code::Internal, "the request met a bug of ours; see the log")
            .into_response(),
    };
    let status = response.status();
    app.metrics.request(&method, route, status.as_u16(), started.elapsed());
    tracing::debug!(%method, route, status = status.as_u16(), elapsed = ?started.elapsed());

    if response.extensions().get::<compat::port::Passed>().is_some() {
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

async fn admit(app: &App, mut request: Request, next: Next) -> Result<Response, Problem> {
    let Ok(_room) = app.room.try_acquire() else {
        return Err(Problem::new(Code::Overloaded, "too many requests are being answered"));
    };
    let ends = *request.extensions().get::<Ends>().expect("the listener says who is connected");
    let host = host(request.uri(), request.headers())?;
    let below = compat::e2b::split_host(&host).map(|(_, _, rest)| rest);
    let allowed = |host: &Authority| host_allowed(host, ends.local, &app.settings.names);
    if !allowed(&host) && !below.as_ref().is_some_and(allowed) {
        return Err(Problem::new(
            Code::HostNotAllowed,
            format!(
                "{:?} is not this server; a name it has is put into the setting `names`",
                host.as_str()
            ),
        ));
    }
    // A program inside a sandbox has its own door; nothing of ours answers there.
    if let Some((sandbox, port)) = compat::e2b::to_program(&host, request.headers()) {
        return Ok(compat::port::serve(app, &sandbox, port, request).await);
    }
    let origin = origin(request.headers(), &host)?;
    let public = open(request.method(), request.uri().path())
        || compat::e2b::may_upload(app, request.method(), request.uri());
    let link = compat::daytona::Link::of(&request);
    let (addressed, has_key) = match compat::e2b::knock(app, &request, &host) {
        Door::Elsewhere => match link {
            None => (None, false),
            Some(link) => match link.opens(app).await {
                Ok(()) => (None, true),
                Err(detail) => return Err(unauthorized(app, detail)),
            },
        },
        Door::Opened(sandbox) => (Some(sandbox), true),
        Door::Content => (None, true),
        Door::Owner(sandbox) => (sandbox, false),
        Door::Refused(detail) => return Err(unauthorized(app, detail)),
    };
    let who = match has_key {
        true => None,
        false => identify(app, &request, origin)?,
    };
    if who.is_none() && !public && !has_key {
        return Err(unauthorized(app, "no valid token was given"));
    }
    if let Some(sandbox) = addressed {
        request.extensions_mut().insert(sandbox);
    }
    if let Some(Who::Guest(pass)) = &who
        && !public
        && !pass.shows(request.method(), request.uri().path())
    {
        return Err(Problem::new(
            Code::Forbidden,
            "a share link shows one terminal and opens nothing else",
        ));
    }
    // A page of another site may link to our pages, but not load from us or post to us.
    if !public && !has_key && site(request.headers()) == Some("other") {
        return Err(Problem::new(Code::OriginNotAllowed, "this request is from another site"));
    }

    let bytes = match super::is_file_upload(request.method(), request.uri().path()) {
        true => app.settings.limits.file_bytes,
        false => app.settings.limits.body_bytes,
    };
    let limits = BodyLimits { bytes, time: app.settings.limits.body_time };
    if declared_length(request.headers()).is_some_and(|length| length > limits.bytes as u64) {
        return Err(too_large(limits.bytes));
    }
    request.extensions_mut().insert(limits);
    match who {
        Some(Who::Owner(principal)) => drop(request.extensions_mut().insert(principal)),
        Some(Who::Guest(pass)) => drop(request.extensions_mut().insert(pass)),
        None => {}
    }
    if *request.method() == Method::POST && request.headers().contains_key("idempotency-key") {
        return super::idempotency::once(app, request, next).await;
    }
    if !public && super::detach::outlives_client(&request) {
        return super::detach::run(app, request, next).await;
    }
    Ok(next.run(request).await)
}

/// Everything that needs no token.
fn open(method: &Method, path: &str) -> bool {
    match path {
        "/api/shares/open" => *method == Method::POST,
        // Whoever connects there says who they are in the first message, and hears nothing before.
        "/daytona/socket.io/" | "/daytona/api/socket.io/" => *method == Method::GET,
        "/healthz" | "/readyz" | "/login" => *method == Method::GET || *method == Method::HEAD,
        _ => (*method == Method::GET || *method == Method::HEAD) && web::has(path),
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

fn host_allowed(host: &Authority, local: SocketAddr, names: &[String]) -> bool {
    let name = host.host();
    let named = names.iter().any(|allowed| {
        allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host.as_str())
    });
    if named {
        return true;
    }
    if host.port_u16().unwrap_or(80) != local.port() {
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
fn origin(headers: &HeaderMap, host: &Authority) -> Result<Source, Problem> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(Source::Unsaid);
    };
    let refused = Problem::new(Code::OriginNotAllowed, "requests of other pages are refused");
    let authority = origin
        .to_str()
        .ok()
        .and_then(|text| text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")));
    let same = authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()));
    if same && origins.next().is_none() { Ok(Source::Own) } else { Err(refused) }
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

fn identify(app: &App, request: &Request, origin: Source) -> Result<Option<Who>, Problem> {
    if app.auth.is_open() {
        return Ok(Some(Who::Owner(Principal::Anyone)));
    }
    let headers = request.headers();
    // What clients of E2B call their key is our token.
    if let Some(value) = headers.get("x-api-key") {
        let right = value.to_str().is_ok_and(|given| app.auth.token(given.trim()));
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

    #[test]
    fn a_host_is_an_address_we_listen_on_or_a_name_of_ours() {
        let loopback: SocketAddr = "127.0.0.1:7832".parse().unwrap();
        let outside: SocketAddr = "10.1.2.3:80".parse().unwrap();
        let names = ["stead.example".to_owned(), "front:444".to_owned()];
        let check = |host: &str, local, expected: bool| {
            let host: Authority = host.parse().unwrap();
            assert_eq!(host_allowed(&host, local, &names), expected, "{host} at {local}");
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
    fn only_our_own_origin_passes() {
        let host: Authority = "localhost:7832".parse().unwrap();
        let check = |value: Option<&str>, expected: Option<Source>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::ORIGIN, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(origin(&headers, &host).ok(), expected, "{value:?}");
        };
        check(None, Some(Source::Unsaid));
        check(Some("http://localhost:7832"), Some(Source::Own));
        check(Some("https://localhost:7832"), Some(Source::Own));
        check(Some("http://localhost:7833"), None);
        check(Some("http://127.0.0.1:7832"), None);
        check(Some("http://localhost:7832.evil.example"), None);
        check(Some("http://evil.example"), None);
        check(Some("null"), None);
        check(Some(""), None);
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
