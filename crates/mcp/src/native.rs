//! Calls the native routes in the same process, on behalf of one request of an MCP client.
//!
//! The guard has authenticated and counted that request. Its extensions (principal, limits, idempotency key)
//! are those of every call made for it, so that a tool can do what its caller could do over HTTP and no more.

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    response::Response,
};
use http::{Extensions, HeaderMap, Method, Request, StatusCode, header, request::Parts};
use serde::Serialize;
use serde_json::Value;
use tower::ServiceExt;

pub(crate) use base::uri::escape;

/// Largest response that is read into memory; the largest that a tool requests is 4 MiB.
const MAX_RESPONSE_BYTES: usize = 8 << 20;
/// The thread of a client that names none.
const DEFAULT_THREAD: &str = "main";

/// A refusal of the native API.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail} ({code})")]
pub(crate) struct NativeProblem {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) detail: String,
}

/// A successful response, read to its end.
#[derive(Debug)]
pub(crate) struct NativeReply {
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl NativeReply {
    /// Returns a header that contains a number or a word; empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The native routes, as one caller may use them. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct NativeApi {
    router: Router,
    extensions: Extensions,
    default_thread: String,
}

impl NativeApi {
    /// `caller` is the head of the HTTP request that carried the MCP message.
    pub(crate) fn new(router: Router, caller: &Parts) -> NativeApi {
        NativeApi {
            router,
            extensions: caller.extensions.clone(),
            default_thread: thread_parameter(caller.uri.query().unwrap_or_default())
                .unwrap_or_else(|| DEFAULT_THREAD.to_owned()),
        }
    }

    /// Returns the given thread, or the caller's default.
    pub(crate) fn thread<'a>(&'a self, given: Option<&'a str>) -> &'a str {
        given.unwrap_or(&self.default_thread)
    }

    pub(crate) async fn get(&self, target: &str) -> Result<NativeReply, NativeProblem> {
        read(self.send(Method::GET, target, HeaderMap::new(), Body::empty()).await?).await
    }

    pub(crate) async fn post(
        &self,
        target: &str,
        body: &impl Serialize,
    ) -> Result<NativeReply, NativeProblem> {
        read(self.send_json(Method::POST, target, HeaderMap::new(), body).await?).await
    }

    /// Writes a file; `headers` may state what the file must be before.
    pub(crate) async fn put_file(
        &self,
        target: &str,
        headers: HeaderMap,
        content: Vec<u8>,
    ) -> Result<NativeReply, NativeProblem> {
        read(self.send(Method::PUT, target, headers, Body::from(content)).await?).await
    }

    pub(crate) async fn put(&self, target: &str) -> Result<NativeReply, NativeProblem> {
        read(self.send(Method::PUT, target, HeaderMap::new(), Body::empty()).await?).await
    }

    /// Sends a request whose response is a stream of events. Some routes answer a repetition with JSON instead.
    pub(crate) async fn stream(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<Response, NativeProblem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("text/event-stream"));
        match body {
            Some(body) => self.send_json(method, target, headers, body).await,
            None => self.send(method, target, headers, Body::empty()).await,
        }
    }

    async fn send_json(
        &self,
        method: Method,
        target: &str,
        mut headers: HeaderMap,
        body: &impl Serialize,
    ) -> Result<Response, NativeProblem> {
        let body = serde_json::to_vec(body).map_err(|error| internal(&error))?;
        let json = header::HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        self.send(method, target, headers, Body::from(body)).await
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response, NativeProblem> {
        let request = Request::builder().method(method).uri(target).body(body);
        let mut request = request.map_err(|error| internal(&error))?;
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.extensions.clone();
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status().is_success() {
            return Ok(response);
        }
        Err(problem(response).await)
    }
}

/// Reads a whole response.
pub(crate) async fn read(response: Response) -> Result<NativeReply, NativeProblem> {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_RESPONSE_BYTES).await.map_err(|error| internal(&error))?;
    Ok(NativeReply { headers: parts.headers, body })
}

async fn problem(response: Response) -> NativeProblem {
    let status = response.status();
    let body = to_bytes(response.into_body(), MAX_RESPONSE_BYTES).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    let mut detail = text("detail").unwrap_or_else(|| format!("the server answered {status}"));
    for error in body["errors"].as_array().into_iter().flatten() {
        if let (Some(pointer), Some(reason)) = (error["pointer"].as_str(), error["detail"].as_str())
            && !detail.contains(reason)
        {
            detail.push_str(&format!("; {pointer}: {reason}"));
        }
    }
    NativeProblem { status, code: text("code").unwrap_or_else(|| "unknown".into()), detail }
}

fn internal(error: &dyn std::error::Error) -> NativeProblem {
    tracing::error!(%error, "cannot call a native route");
    NativeProblem {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        code: "internal".into(),
        detail: "internal error; see the server's log".into(),
    }
}

/// Returns the `thread` parameter of a query.
fn thread_parameter(query: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (_, value) = pairs.find(|(name, value)| name == "thread" && !value.is_empty())?;
    Some(value.into_owned())
}

/// Builds a target from a path and the query parameters that have a value.
pub(crate) fn target(path: String, parameters: &[(&str, Option<String>)]) -> String {
    let mut target = path;
    let mut separator = '?';
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        target.push(separator);
        target.push_str(&format!("{name}={}", escape(value)));
        separator = '&';
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_parameters_that_are_given() {
        let check = |parameters: &[(&str, Option<String>)], expected: &str| {
            assert_eq!(target("/a".into(), parameters), expected);
        };
        check(&[], "/a");
        check(&[("x", None), ("path", Some("/b c".into()))], "/a?path=%2Fb%20c");
        check(&[("x", Some("1".into())), ("y", Some("&".into()))], "/a?x=1&y=%26");
    }

    #[test]
    fn the_default_thread_comes_from_the_query() {
        assert_eq!(thread_parameter("thread=build"), Some("build".into()));
        assert_eq!(thread_parameter("a=1&thread=b"), Some("b".into()));
        assert_eq!(thread_parameter("thread=%C3%A9%3F"), Some("é?".into()));
        assert_eq!(thread_parameter("thread="), None);
        assert_eq!(thread_parameter(""), None);
    }
}
