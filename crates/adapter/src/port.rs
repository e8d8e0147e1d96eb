//! Proxies HTTP requests and their upgrades to programs that listen inside a sandbox.
//!
//! The sandbox's row says which clients may connect (`is_admitted`): all, or those with its traffic token. Our
//! own keys and cookies are removed from a request before a program inside can read it.

use std::{net::IpAddr, pin::pin, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, uri::Authority},
    response::{IntoResponse, Response},
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::time::timeout;

use super::vendor::VendorApi;
use crate::Adapter;
use api::{
    error::Problem,
    slow_body::{self, Rate, ReceivedBytes},
};
use config::Scheme;
use model::{PortAccess, ThreadId};
use provider::{Connection, ProviderError};
use store::SandboxRecord;

/// The name under which a sandbox records the `Host` header that its programs expect.
pub const HOST_MASK: &str = "host";

/// Headers that carry a traffic token.
const TOKEN_HEADERS: [&str; 2] = ["e2b-traffic-access-token", "x-daytona-preview-token"];
/// The query parameter that carries a traffic token.
const TOKEN_PARAMETER: &str = "DAYTONA_SANDBOX_AUTH_KEY";
/// Headers between the client and this server, which programs must not see.
const SERVER_HEADERS: [&str; 5] =
    ["x-api-key", "x-access-token", "e2b-sandbox-id", "e2b-sandbox-port", "proxy-authorization"];
/// Hop-by-hop headers (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
];

/// Forwards a request to the program that listens on a port of a sandbox.
pub async fn serve(
    app: &Adapter,
    vendors: &[&'static dyn VendorApi],
    id: &ThreadId,
    port: u16,
    request: Request,
) -> Response {
    match forward(app, vendors, id, port, request).await {
        Ok(mut response) => {
            response.extensions_mut().insert(api::door::Proxied);
            response
        }
        Err(response) => response,
    }
}

async fn forward(
    app: &Adapter,
    vendors: &[&'static dyn VendorApi],
    id: &ThreadId,
    port: u16,
    request: Request,
) -> Result<Response, Response> {
    let limits = &app.settings.limits;
    let rate = Rate { time: limits.proxy_time, bytes_per_second: Some(limits.body_rate as u64) };
    let (parts, body) = request.into_parts();
    let (body, sent) = slow_body::timed(body, rate);
    let mut request = Request::from_parts(parts, body);
    let failed = |problem: Problem| problem.into_response();
    let now = app.now().at.as_second();
    let signed = app.state.keys.opens_port(id.as_str(), port, now);
    let found = app.sandboxes.get(signed.as_ref().unwrap_or(id)).await;
    let found = found.map_err(|error| failed(error.into()))?;
    let Some(sandbox) = found else {
        return Err(unreachable(id.as_str(), "The sandbox was not found", None));
    };
    let vendor = vendors.iter().find(|vendor| vendor.origin() == sandbox.row.origin);
    let Some(vendor) = vendor.copied() else {
        return Err(unreachable(id.as_str(), "The sandbox was not found", None));
    };
    let is_admitted = match signed {
        Some(_) => !vendor.is_revoked(&sandbox, id.as_str()),
        None => is_admitted(app, &sandbox, &request),
    };
    if !is_admitted {
        return Err(unauthorized(vendor));
    }
    let on_timeout = || timed_out(id.as_str(), port);
    timeout(limits.proxy_time, vendor.wake(app, &sandbox)).await.map_err(|_| on_timeout())??;
    let closed = || {
        let message = "The sandbox is running but port is not open";
        unreachable(id.as_str(), message, Some(port))
    };
    let dialled = timeout(limits.proxy_time, dial(app, &sandbox, port)).await;
    let stream = match dialled.map_err(|_| on_timeout())?.map_err(failed)? {
        Ok(stream) => stream,
        Err(error) => {
            if let Some(answer) = vendor.built_in(app, &sandbox, port) {
                return Err(answer(request).await);
            }
            tracing::debug!(sandbox = %id, port, %error, "cannot connect to the port");
            return Err(closed());
        }
    };
    clean(app, request.headers_mut());
    if let Some(cleaned) = without_key(request.uri()) {
        *request.uri_mut() = cleaned.map_err(|_| closed())?;
    }
    if let Some(mask) = sandbox.row.extra.get(HOST_MASK)
        && let Ok(host) = HeaderValue::from_str(&mask.replace("${PORT}", &port.to_string()))
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let waiting = upgrade_of(request.headers()).map(|_| hyper::upgrade::on(&mut request));
    // A request to an origin server has a path as its target, not an absolute URI.
    if let Some(path) = request.uri().path_and_query() {
        *request.uri_mut() = path.as_str().parse().map_err(|_| closed())?;
    }
    // Like our listener, the connection preserves the case of header names: some programs compare them as bytes.
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| closed())?;
    app.tasks.spawn(async move {
        // A failed connection also fails the response.
        let _ = connection.with_upgrades().await;
    });
    let answer = answer_in_time(sender.send_request(request), &sent, limits.proxy_time).await;
    let mut answer = answer.ok_or_else(on_timeout)?.map_err(|error| {
        tracing::debug!(sandbox = %id, port, %error, "the program on a port did not respond");
        closed()
    })?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(waiting) = waiting
    {
        let inside = hyper::upgrade::on(&mut answer);
        let stopping = app.stopping.clone();
        app.tasks.spawn(async move {
            let (Ok(outside), Ok(inside)) = tokio::join!(waiting, inside) else { return };
            let (mut outside, mut inside) = (TokioIo::new(outside), TokioIo::new(inside));
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut outside, &mut inside) => {}
                () = stopping.cancelled() => {}
            }
        });
        return Ok(answer.map(Body::new));
    }
    remove_hop_by_hop(answer.headers_mut());
    Ok(answer.map(Body::new))
}

/// Waits for the head of a response. Returns `None` if none arrives within the timeout, which starts again while
/// the request body is still being sent.
async fn answer_in_time<T>(
    answer: impl Future<Output = T>,
    sent: &ReceivedBytes,
    idle_timeout: Duration,
) -> Option<T> {
    let mut answer = pin!(answer);
    loop {
        let before = sent.bytes();
        match timeout(idle_timeout, answer.as_mut()).await {
            Ok(answer) => return Some(answer),
            Err(_) if sent.bytes() > before => {}
            Err(_) => return None,
        }
    }
}

/// The response to a request that lacks the token of a private port.
fn unauthorized(vendor: &dyn VendorApi) -> Response {
    let status = vendor.port_refusal();
    let message = "a private port needs the traffic token of its sandbox";
    (status, axum::Json(json!({"code": status.as_u16(), "message": message}))).into_response()
}

/// Whether a request may connect to the ports of a sandbox.
fn is_admitted(app: &Adapter, sandbox: &SandboxRecord, request: &Request) -> bool {
    match sandbox.row.port_access {
        PortAccess::Public => return true,
        PortAccess::Token => {}
    }
    let keys = &app.state.keys;
    let is_valid = |given: &str| keys.opens_traffic(given).as_ref() == Some(sandbox.id());
    let header = |name: &&str| request.headers().get(*name).and_then(|value| value.to_str().ok());
    let query = request.uri().query().unwrap_or_default();
    let mut given = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| is_key(name));
    TOKEN_HEADERS.iter().filter_map(header).any(is_valid) || given.any(|(_, key)| is_valid(&key))
}

fn is_key(parameter: &str) -> bool {
    parameter == TOKEN_PARAMETER
}

/// The URI without the token in its query and otherwise unchanged; `None` if its query has no token.
fn without_key(uri: &Uri) -> Option<Result<Uri, axum::http::Error>> {
    let query = uri.query()?;
    // Each piece is decoded as in `is_admitted`, so that both see the same name.
    let has_key = |piece: &&str| {
        form_urlencoded::parse(piece.as_bytes()).next().is_some_and(|(name, _)| is_key(&name))
    };
    if !query.split('&').any(|piece| has_key(&piece)) {
        return None;
    }
    let kept: Vec<&str> = query.split('&').filter(|piece| !has_key(piece)).collect();
    let target = match kept.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), kept.join("&")),
    };
    let mut parts = uri.clone().into_parts();
    Some(target.parse().map_err(axum::http::Error::from).and_then(|target| {
        parts.path_and_query = Some(target);
        Ok(Uri::from_parts(parts)?)
    }))
}

/// Connects to a port.
async fn dial(
    app: &Adapter,
    sandbox: &SandboxRecord,
    port: u16,
) -> Result<Result<Connection, ProviderError>, Problem> {
    let lease = &sandbox.thread.lease_id;
    let running = app.leases.running_if(lease, engine::lease::IfPaused::Refuse).await?;
    let provider = match app.leases.providers().named(&running.provider) {
        Ok(provider) => provider,
        Err(error) => return Ok(Err(error)),
    };
    Ok(match provider.ports() {
        Some(ports) => ports.dial(&running.instance, port).await,
        None => Err(ProviderError::unsupported(provider.name(), "connect to a port")),
    })
}

/// Removes our keys and cookies and the hop-by-hop headers from a request.
fn clean(app: &Adapter, headers: &mut HeaderMap) {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.split_once(' ')).map(|(_, token)| token.trim());
    if token.is_some_and(|token| is_ours(app, token)) {
        headers.remove(header::AUTHORIZATION);
    }
    for name in SERVER_HEADERS.iter().chain(&TOKEN_HEADERS) {
        headers.remove(*name);
    }
    remove_cookies(headers, &[&app.cookie, &app.share_cookie()]);
    let upgrade = upgrade_of(headers);
    remove_hop_by_hop(headers);
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
}

/// Whether a token is one of this server's.
fn is_ours(app: &Adapter, token: &str) -> bool {
    let keys = &app.state.keys;
    app.auth.token(token)
        || app.shares.pass(token).is_some()
        || keys.opens(token).is_some()
        || keys.opens_traffic(token).is_some()
}

/// Removes the cookies with these names; the others are unchanged.
fn remove_cookies(headers: &mut HeaderMap, ours: &[&str]) {
    let lines: Vec<_> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for line in lines {
        let is_kept = |pair: &&[u8]| {
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
            !ours.iter().any(|our| our.as_bytes() == name)
        };
        let kept: Vec<&[u8]> =
            line.as_bytes().split(|byte| *byte == b';').filter(is_kept).collect();
        let kept = kept.join(&b';');
        if let Ok(value) = HeaderValue::from_bytes(kept.trim_ascii())
            && !value.is_empty()
        {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Removes hop-by-hop headers: the standard ones, and those that `Connection` names (RFC 9110, 7.6.1).
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let named: Vec<HeaderName> = lines
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // A request without these headers is invalid or means something else.
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in named.into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The protocol that a request asks to upgrade to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut words = headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let asks =
        words.any(|line| line.split(',').any(|it| it.trim().eq_ignore_ascii_case("upgrade")));
    headers.get(header::UPGRADE).filter(|_| asks).cloned()
}

/// The scheme and the domain below which each port of each sandbox has a host name.
pub fn domain(app: &Adapter) -> Option<(&'static str, String)> {
    let scheme = app.settings.scheme();
    let (_, address) = app.url.split_once("://")?;
    if let Some(name) = app.settings.names.first() {
        // Without TLS of our own, a name belongs to a proxy that terminates TLS.
        return Some(match scheme {
            Scheme::Https => ("https", address.to_owned()),
            Scheme::Http => ("https", name.clone()),
        });
    }
    let authority: Authority = address.parse().ok()?;
    let ip: IpAddr = authority.host().trim_matches(['[', ']']).parse().ok()?;
    let port = authority.port_u16().unwrap_or(scheme.default_port());
    ip.is_loopback().then(|| (scheme.name(), format!("localhost:{port}")))
}

/// The response for a program that did not respond in time.
fn timed_out(id: &str, port: u16) -> Response {
    let message = "The program on this port did not answer in time";
    let body = json!({"sandboxId": id, "message": message, "code": 504, "port": port});
    (StatusCode::GATEWAY_TIMEOUT, axum::Json(body)).into_response()
}

/// The response for an unreachable sandbox; clients compare its texts.
pub fn unreachable(id: &str, message: &str, port: Option<u16>) -> Response {
    let mut body = json!({"sandboxId": id, "message": message, "code": 502});
    if let Some(port) = port {
        body["port"] = port.into();
    }
    (StatusCode::BAD_GATEWAY, axum::Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_in_a_query_is_removed_and_the_rest_is_unchanged() {
        let check = |target: &str, expected: Option<&str>| {
            let cleaned = without_key(&target.parse().unwrap()).map(|uri| uri.unwrap().to_string());
            assert_eq!(cleaned.as_deref(), expected, "{target}");
        };
        check("/a?x=1&DAYTONA_SANDBOX_AUTH_KEY=k&y=%20+", Some("/a?x=1&y=%20+"));
        check("/a?DAYTONA_SANDBOX_AUTH_KEY=k", Some("/a"));
        check("/a?DAYTONA_SANDBOX_AUTH_KEY=k&x&DAYTONA_SANDBOX%5FAUTH_KEY=l", Some("/a?x"));
        check("/a?x=DAYTONA_SANDBOX_AUTH_KEY", None);
        check("/a", None);
    }

    #[test]
    fn headers_named_by_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "h"),
            ("connection", "X-Secret, host"),
            ("connection", "close , x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("keep-alive", "1"),
            ("x-own", "1"),
        ] {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-own"]);
    }

    #[test]
    fn only_our_own_cookies_are_removed() {
        let check = |lines: &[&'static str], expected: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            remove_cookies(&mut headers, &["ours", "ours_share"]);
            let left: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
            assert_eq!(left, expected, "{lines:?}");
        };
        check(&["a=1; ours=2; b=\"3\""], &["a=1; b=\"3\""]);
        check(&["ours=2", "ours_share=1; c"], &["c"]);
        check(&["not_ours=1;ours=2"], &["not_ours=1"]);
    }
}
