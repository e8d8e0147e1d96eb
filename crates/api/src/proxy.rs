//! Forwards HTTP requests and their upgrades to programs that listen inside an instance.
//!
//! The caller decides who may connect. Our own keys and cookies are removed from a request before a program inside
//! can read it.

use std::{net::IpAddr, pin::pin, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, uri::Authority},
    response::Response,
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};

use super::{
    App,
    door::Proxied,
    error::Problem,
    slow_body::{self, Rate, ReceivedBytes},
};
use config::Scheme;
use engine::lease::IfPaused;
use model::LeaseId;
use provider::{Connection, ProviderError};

/// Headers that may carry a key of this server.
const CREDENTIAL_HEADERS: [HeaderName; 4] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-access-token"),
];
/// Hop-by-hop headers (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
];

/// Why there is no response of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("the program on the port closed the connection without a response")]
    Closed,
    #[error("the program on the port did not respond in time")]
    TimedOut,
}

/// How long an upgraded connection, such as a WebSocket, may stay open.
#[derive(Debug, Clone, Copy)]
pub enum UpgradeLimit {
    None,
    Until(Instant),
}

/// Bounds the time in which the body of a request arrives. Also returns the count of its bytes.
pub fn bound_body(app: &App, request: Request) -> (Request, ReceivedBytes) {
    let limits = &app.settings.limits;
    let rate = Rate { time: limits.proxy_time, bytes_per_second: Some(limits.body_rate as u64) };
    let (parts, body) = request.into_parts();
    let (body, sent) = slow_body::timed(body, rate);
    (Request::from_parts(parts, body), sent)
}

/// Connects to a port of the instance of a lease. The inner error is that of the provider: usually, no program
/// listens on the port.
pub async fn dial(
    app: &App,
    lease: &LeaseId,
    port: u16,
    if_paused: IfPaused,
) -> Result<Result<Connection, ProviderError>, Problem> {
    let running = app.leases.running_if(lease, if_paused).await?;
    let provider = match app.leases.providers().named(&running.provider) {
        Ok(provider) => provider,
        Err(error) => return Ok(Err(error)),
    };
    Ok(match provider.ports() {
        Some(ports) => ports.dial(&running.instance, port).await,
        None => Err(ProviderError::unsupported(provider.name(), "connect to a port")),
    })
}

/// Sends a request to a program over `stream` and returns its response. `sent` counts the bytes of the request's
/// body.
pub async fn exchange(
    app: &App,
    stream: Connection,
    mut request: Request,
    sent: &ReceivedBytes,
    limit: UpgradeLimit,
) -> Result<Response, ProxyError> {
    let upgrade = upgrade_of(request.headers());
    remove_hop_by_hop(request.headers_mut());
    let waiting = upgrade.map(|protocol| {
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
        hyper::upgrade::on(&mut request)
    });
    // A request to an origin server has a path as its target, not an absolute URI.
    if let Some(path) = request.uri().path_and_query() {
        *request.uri_mut() = path.as_str().parse().map_err(|_| ProxyError::Closed)?;
    }
    // Like our listener, the connection preserves the case of header names: some programs compare them as bytes.
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| ProxyError::Closed)?;
    app.tasks.spawn(async move {
        // A failed connection also fails the response.
        let _ = connection.with_upgrades().await;
    });
    let idle_timeout = app.settings.limits.proxy_time;
    let answer = answer_in_time(sender.send_request(request), sent, idle_timeout).await;
    let mut answer = answer.ok_or(ProxyError::TimedOut)?.map_err(|error| {
        tracing::debug!(%error, "the program on a port did not respond");
        ProxyError::Closed
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
                () = reached(limit) => {}
                () = stopping.cancelled() => {}
            }
        });
    } else {
        remove_hop_by_hop(answer.headers_mut());
    }
    let mut answer = answer.map(Body::new);
    answer.extensions_mut().insert(Proxied);
    Ok(answer)
}

async fn reached(limit: UpgradeLimit) {
    match limit {
        UpgradeLimit::None => std::future::pending().await,
        UpgradeLimit::Until(at) => tokio::time::sleep_until(at).await,
    }
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

/// Removes the keys and cookies of this server from the headers of a request.
pub fn remove_credentials(app: &App, headers: &mut HeaderMap) {
    for name in CREDENTIAL_HEADERS {
        let value = headers.get(&name).and_then(|value| value.to_str().ok());
        let given = value.map(|value| value.split_once(' ').map_or(value, |(_, token)| token));
        if given.is_some_and(|token| is_ours(app, token.trim())) {
            headers.remove(name);
        }
    }
    remove_cookies(headers, &[&app.cookie, &app.share_cookie()]);
}

/// Whether a token is one of this server's.
fn is_ours(app: &App, token: &str) -> bool {
    app.auth.token(token)
        || app.shares.pass(token).is_some()
        || app.keys.opens(token).is_some()
        || app.keys.opens_traffic(token).is_some()
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

/// The scheme and the domain below which ports have host names; `None` if the server has no domain name.
pub fn domain(app: &App) -> Option<(&'static str, String)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
