//! The id of a request, which is on each of its log lines, and its span in a trace.
//!
//! A client may choose the id (`x-request-id`), and continue its own trace (`traceparent` of W3C Trace Context). Spans
//! with the target `trace` are for traces alone: without a receiver they are disabled and cost a comparison.

use std::time::Duration;

use axum::extract::Request;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tracing::{Instrument, Span, debug_span, error_span, field::Empty};

/// The header with the id of a request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over from a client.
const MAX_ID_BYTES: usize = 128;

/// The spans of one request.
pub(super) struct RequestSpans {
    id: HeaderValue,
    /// Adds the id to log lines of every level.
    log: Span,
    trace: Span,
}

impl RequestSpans {
    /// `route` is the pattern of the path, so that a trace contains no secret of a path or query.
    pub(super) fn new(request: &Request, route: &str) -> RequestSpans {
        let given = request.headers().get(REQUEST_ID).filter(|id| is_id(id.as_bytes()));
        let id = given.cloned().unwrap_or_else(|| {
            let id = format!("req_{}", uuid::Uuid::now_v7().simple());
            HeaderValue::try_from(id).expect("hexadecimal digits are a header value")
        });
        let request_id = id.to_str().unwrap_or_default();
        // A span below the minimum log level would be missing on the lines above it.
        let log = error_span!("request", request_id);
        let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        let method = request.method();
        let trace = debug_span!(
            target: "trace",
            "request",
            otel.name = %format_args!("{method} {route}"),
            otel.kind = "server",
            traceparent = parent,
            http.request.method = %method,
            http.route = route,
            http.response.status_code = Empty,
            request_id,
        );
        RequestSpans { id, log, trace }
    }

    pub(super) fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Runs the work of the request inside its spans.
    pub(super) fn instrument<F: Future>(
        &self,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        work.instrument(self.trace.clone()).instrument(self.log.clone())
    }

    /// Records the status of the response.
    pub(super) fn end(&self, method: &Method, route: &str, status: StatusCode, elapsed: Duration) {
        self.trace.record("http.response.status_code", status.as_u16());
        let _inside = self.log.enter();
        tracing::debug!(%method, route, status = status.as_u16(), ?elapsed);
    }
}

/// Whether an id is short and cannot change the form of a log line.
fn is_id(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    !id.is_empty() && id.len() <= MAX_ID_BYTES && id.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_client_is_taken_over_if_it_fits_a_log_line() {
        let request = |id: &[u8]| {
            let mut request = Request::new(axum::body::Body::empty());
            request.headers_mut().insert(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
            request
        };
        let id = |given: &[u8]| {
            RequestSpans::new(&request(given), "/x").id().to_str().unwrap().to_owned()
        };
        assert_eq!(id(b"7b1c-A.9"), "7b1c-A.9");
        for refused in ["", "a b", "\u{e9}", &"a".repeat(MAX_ID_BYTES + 1)] {
            assert!(id(refused.as_bytes()).starts_with("req_"), "{refused:?}");
        }
    }
}
