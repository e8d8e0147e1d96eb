//! Proxies HTTP requests and their upgrades to programs that listen inside a sandbox.
//!
//! The sandbox's row says which clients may connect (`is_admitted`): all, or those with its traffic token. Our
//! own keys and cookies are removed from a request before a program inside can read it.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::time::timeout;

use super::vendor::VendorApi;
use crate::Adapter;
pub use api::proxy::domain;
use api::{
    error::Problem,
    proxy::{self, ProxyError, UpgradeLimit},
};
use engine::lease::IfPaused;
use model::{PortAccess, ThreadId};
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

/// Forwards a request to the program that listens on a port of a sandbox.
pub async fn serve(
    app: &Adapter,
    vendors: &[&'static dyn VendorApi],
    id: &ThreadId,
    port: u16,
    request: Request,
) -> Response {
    forward(app, vendors, id, port, request).await.unwrap_or_else(|refused| refused)
}

async fn forward(
    app: &Adapter,
    vendors: &[&'static dyn VendorApi],
    id: &ThreadId,
    port: u16,
    request: Request,
) -> Result<Response, Response> {
    let limits = &app.settings.limits;
    let (mut request, sent) = proxy::bound_body(app, request);
    let failed = |problem: Problem| problem.into_response();
    let now = app.now().at.as_second();
    let signed = app.keys.opens_port(id.as_str(), port, now);
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
    let dialled = proxy::dial(app, &sandbox.thread.lease_id, port, IfPaused::Refuse);
    let dialled = timeout(limits.proxy_time, dialled).await;
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
    let answer = proxy::exchange(app, stream, request, &sent, UpgradeLimit::None).await;
    answer.map_err(|error| match error {
        ProxyError::Closed => closed(),
        ProxyError::TimedOut => on_timeout(),
    })
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
    let keys = &app.keys;
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

/// Removes our keys and cookies from a request.
fn clean(app: &Adapter, headers: &mut HeaderMap) {
    proxy::remove_credentials(app, headers);
    for name in SERVER_HEADERS.iter().chain(&TOKEN_HEADERS) {
        headers.remove(*name);
    }
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
}
