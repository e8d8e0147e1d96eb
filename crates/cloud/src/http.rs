//! The HTTP client for vendor APIs: deadlines, retries, and the vendor's own error message.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::{Body, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::websocket::{UpgradeError, WebSocket, upgrade};
use base::backoff::Backoff;
use provider::ProviderError;

const MAX_ATTEMPTS: u32 = 4;
/// The delay after the first attempt; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
/// A vendor that asks for a longer delay than this gets no further attempt.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The default deadline of one attempt.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// AgentBay answers 400 with this prefix where it means 429.
const THROTTLING_PREFIX: &str = "Throttling";
/// How much of a vendor's error message is repeated in ours.
const MAX_MESSAGE_CHARS: usize = 600;
/// Size of the chunks of a large upload; progress is reported after each.
const UPLOAD_CHUNK_BYTES: usize = 256 << 10;

/// Called with the number of bytes of a request body that have been sent.
pub(super) type UploadProgress = Arc<dyn Fn(u64) + Send + Sync>;

/// A client of one vendor. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct VendorClient {
    vendor: &'static str,
    client: reqwest::Client,
}

/// A vendor's API key or token. `Debug` does not print it.
#[derive(Clone)]
pub struct VendorKey(String);

impl VendorKey {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the secret, for vendors that want it in a request body.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns a header value, marked as sensitive.
    pub(super) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for VendorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Key(none)" } else { "Key(…)" })
    }
}

/// Whether a request may be repeated when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The request is idempotent.
    Safe,
    /// The request is repeated only if the vendor certainly did not execute it.
    Once,
}

/// A request to a vendor.
pub(super) struct VendorRequest {
    doing: &'static str,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
    repeat: Repeat,
    timeout: Duration,
    progress: Option<UploadProgress>,
}

/// A successful response, read to its end.
#[derive(Debug)]
pub(super) struct VendorResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum VendorFault {
    /// The vendor answered with an error status.
    #[error("{vendor} answered {status}: {message}")]
    Status { vendor: &'static str, status: StatusCode, message: String },
    /// The vendor's rate limit; nothing was done.
    #[error("{vendor} answered {status}: {message}")]
    Busy {
        vendor: &'static str,
        status: StatusCode,
        message: String,
        retry_after: Option<Duration>,
    },
    /// What was requested cannot be done with these settings; nothing is left of it.
    #[error("{reason}")]
    Refused { reason: String },
    /// The image that the settings name cannot be used.
    #[error("{reason}")]
    BadImage { reason: String },
    /// There is no usable response; it is unknown whether the request was executed.
    #[error("no response from {vendor}: {reason}")]
    Transport { vendor: &'static str, reason: String },
}

impl VendorFault {
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } | Self::Busy { status, .. } => Some(*status),
            Self::Refused { .. } | Self::BadImage { .. } | Self::Transport { .. } => None,
        }
    }

    /// Whether the request may have been executed in spite of the fault.
    pub(super) fn is_unknown(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_server_error(),
            Self::Busy { .. } | Self::Refused { .. } | Self::BadImage { .. } => false,
            Self::Transport { .. } => true,
        }
    }

    /// Converts to the error of the operation `doing`.
    pub(super) fn of(self, doing: &'static str) -> ProviderError {
        match &self {
            Self::Status { status, .. } if status.is_client_error() => {
                ProviderError::Refused { doing, reason: self.to_string() }
            }
            Self::Busy { retry_after, .. } => {
                ProviderError::Busy { retry_after: *retry_after, reason: self.to_string() }
            }
            Self::Refused { reason } => ProviderError::Refused { doing, reason: reason.clone() },
            Self::BadImage { reason } => ProviderError::BadImage { reason: reason.clone() },
            Self::Status { .. } | Self::Transport { .. } => ProviderError::failed(doing, self),
        }
    }
}

impl VendorRequest {
    pub(super) fn new(doing: &'static str, method: Method, url: impl Into<String>) -> Self {
        let repeat = match method {
            Method::GET | Method::PUT | Method::DELETE => Repeat::Safe,
            _ => Repeat::Once,
        };
        Self {
            doing,
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            repeat,
            timeout: RESPONSE_TIMEOUT,
            progress: None,
        }
    }

    pub(super) fn header(mut self, name: &'static str, value: Option<HeaderValue>) -> Self {
        if let Some(value) = value {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(super) fn bearer(mut self, key: &VendorKey) -> Self {
        if let Some(value) = key.header("Bearer ") {
            self.headers.insert(AUTHORIZATION, value);
        }
        self
    }

    pub(super) fn text(self, name: &'static str, value: &str) -> Self {
        self.header(name, HeaderValue::from_str(value).ok())
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string().into())
    }

    pub(super) fn body(mut self, content_type: &str, body: Bytes) -> Self {
        if let Ok(content_type) = HeaderValue::from_str(content_type) {
            self.headers.insert(CONTENT_TYPE, content_type);
        }
        self.body = body;
        self
    }

    pub(super) fn repeat(self, repeat: Repeat) -> Self {
        Self { repeat, ..self }
    }

    /// Declares the request idempotent.
    pub(super) fn idempotent(self) -> Self {
        self.repeat(Repeat::Safe)
    }

    /// Sets the deadline of one attempt.
    pub(super) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(super) fn progress(self, progress: Option<UploadProgress>) -> Self {
        Self { progress, ..self }
    }
}

fn in_chunks(body: Bytes, progress: UploadProgress) -> Body {
    let chunks = stream::unfold((body, 0), move |(mut rest, sent)| {
        let progress = progress.clone();
        async move {
            if rest.is_empty() {
                return None;
            }
            let chunk = rest.split_to(rest.len().min(UPLOAD_CHUNK_BYTES));
            let sent = sent + chunk.len() as u64;
            progress(sent);
            Some((io::Result::Ok(chunk), (rest, sent)))
        }
    });
    Body::wrap_stream(chunks)
}

impl VendorClient {
    pub(super) fn new(vendor: &'static str) -> io::Result<Self> {
        Self::with_tls(vendor, base::outbound::tls::client_config()?)
    }

    /// Creates a client with TLS settings of its own, from `base::outbound::tls`.
    pub(super) fn with_tls(vendor: &'static str, tls: impl Any) -> io::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            // A redirect could carry the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(io::Error::other)?;
        Ok(Self { vendor, client })
    }

    /// Sends a request, and repeats it while that may help and is allowed. An error status is a fault.
    pub(super) async fn send(
        &self,
        request: &VendorRequest,
    ) -> Result<VendorResponse, VendorFault> {
        let mut attempts = 0;
        loop {
            let fault = match self.attempt(request).await {
                Ok(response) => return Ok(response),
                Err(fault) => fault,
            };
            attempts += 1;
            let backoff = Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY).after(attempts);
            let delay = match &fault {
                VendorFault::Busy { retry_after, .. } => retry_after.unwrap_or(backoff),
                VendorFault::Status { status, .. } if is_transient(*status) => backoff,
                VendorFault::Status { .. }
                | VendorFault::Refused { .. }
                | VendorFault::BadImage { .. } => return Err(fault),
                VendorFault::Transport { .. } => backoff,
            };
            let may_repeat = request.repeat == Repeat::Safe || !fault.is_unknown();
            if !may_repeat || attempts >= MAX_ATTEMPTS || delay > MAX_RETRY_DELAY {
                return Err(fault);
            }
            tracing::debug!(doing = request.doing, %fault, ?delay, "retrying a vendor request");
            sleep(delay.max(backoff)).await;
        }
    }

    /// Sends a request as [`send`](Self::send) does, and decodes the response.
    pub(super) async fn send_json<T: DeserializeOwned>(
        &self,
        request: &VendorRequest,
    ) -> Result<T, VendorFault> {
        let response = self.send(request).await?;
        self.decode(&response)
    }

    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        response: &VendorResponse,
    ) -> Result<T, VendorFault> {
        serde_json::from_slice(&response.body).map_err(|error| {
            let body = error_message(&response.body);
            self.fault(format!("cannot decode the response ({error}): {body}"))
        })
    }

    async fn attempt(&self, request: &VendorRequest) -> Result<VendorResponse, VendorFault> {
        let whole = async {
            let response = self.begin(request).await?;
            self.read_whole(response).await
        };
        let response = timeout(request.timeout, whole).await;
        self.check_status(response.map_err(|_| self.timed_out(request.timeout))??)
    }

    /// Sends a request once and returns the response with its body unread.
    pub(super) async fn open_stream(
        &self,
        request: &VendorRequest,
    ) -> Result<Response, VendorFault> {
        let late = |_| self.timed_out(request.timeout);
        let response = timeout(request.timeout, self.begin(request)).await.map_err(late)??;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(response, request.timeout).await)
    }

    /// Opens a WebSocket. The URL may have the scheme of HTTP or of WebSockets.
    pub(super) async fn websocket(
        &self,
        url: &str,
        headers: HeaderMap,
    ) -> Result<WebSocket, VendorFault> {
        let url = match url.strip_prefix("ws") {
            Some(rest) => format!("http{rest}"),
            None => url.to_owned(),
        };
        let request = self.client.get(url).headers(headers);
        let opened = timeout(RESPONSE_TIMEOUT, upgrade(request)).await;
        match opened.map_err(|_| self.timed_out(RESPONSE_TIMEOUT))? {
            Ok(socket) => Ok(socket),
            Err(UpgradeError::Refused(response)) => {
                Err(self.refused(*response, RESPONSE_TIMEOUT).await)
            }
            Err(error @ (UpgradeError::Failed(_) | UpgradeError::NoWebSocket)) => {
                Err(self.fault(root_cause(&error)))
            }
        }
    }

    async fn begin(&self, request: &VendorRequest) -> Result<Response, VendorFault> {
        let sent = self.client.request(request.method.clone(), &request.url);
        let sent = sent.headers(request.headers.clone());
        let sent = match &request.progress {
            Some(progress) if request.body.len() > UPLOAD_CHUNK_BYTES => sent
                .header(CONTENT_LENGTH, request.body.len())
                .body(in_chunks(request.body.clone(), progress.clone())),
            Some(_) | None => sent.body(request.body.clone()),
        };
        sent.send().await.map_err(|error| self.fault(root_cause(&error)))
    }

    async fn read_whole(&self, mut response: Response) -> Result<VendorResponse, VendorFault> {
        let mut body = BytesMut::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| self.fault(root_cause(&error)))?
        {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(self.fault(format!("its response exceeds {MAX_RESPONSE_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        Ok(VendorResponse { status, headers, body: body.freeze() })
    }

    fn check_status(&self, response: VendorResponse) -> Result<VendorResponse, VendorFault> {
        let (vendor, status) = (self.vendor, response.status);
        if status.is_success() {
            return Ok(response);
        }
        let message = error_message(&response.body);
        let retry_after = retry_after(&response.headers);
        let rate_limited = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::SERVICE_UNAVAILABLE && retry_after.is_some())
            || message.starts_with(THROTTLING_PREFIX);
        Err(if rate_limited {
            VendorFault::Busy { vendor, status, message, retry_after }
        } else {
            VendorFault::Status { vendor, status, message }
        })
    }

    /// Returns the fault of an unsuccessful response, with the readable part of its body.
    async fn refused(&self, response: Response, limit: Duration) -> VendorFault {
        let (status, headers) = (response.status(), response.headers().clone());
        let whole = timeout(limit, self.read_whole(response)).await;
        let body = whole.ok().and_then(Result::ok).map(|whole| whole.body).unwrap_or_default();
        let checked = self.check_status(VendorResponse { status, headers, body });
        checked.err().unwrap_or_else(|| self.fault(format!("unexpected status {status}")))
    }

    fn timed_out(&self, limit: Duration) -> VendorFault {
        self.fault(format!("timed out after {} s", limit.as_secs()))
    }

    fn fault(&self, reason: String) -> VendorFault {
        VendorFault::Transport { vendor: self.vendor, reason }
    }
}

/// Returns the configured base URL without a trailing slash, or the vendor's default.
pub(super) fn endpoint(configured: &str, default: &str) -> String {
    match configured.trim_end_matches('/') {
        "" => default.to_owned(),
        configured => configured.to_owned(),
    }
}

pub(super) fn url_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Turns a 404 into `None`.
pub(super) fn none_if_missing<T>(answer: Result<T, VendorFault>) -> Result<Option<T>, VendorFault> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(fault) if fault.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The last error of the chain, which names the cause.
fn root_cause(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Whether another attempt may get a different status.
fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 500 | 502 | 503 | 504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Extracts the message of an error response, whichever field the vendor puts it in.
fn error_message(body: &[u8]) -> String {
    let json = serde_json::from_slice::<Value>(body).ok();
    let message = json.as_ref().and_then(|json| {
        let fields = ["message", "Message", "error", "detail"];
        let message = match fields.into_iter().find_map(|field| json.get(field))? {
            Value::String(text) => text.clone(),
            Value::Null => return None,
            other => other.to_string(),
        };
        // A textual code is more specific than the status.
        let code = json.get("Code").and_then(Value::as_str);
        Some(code.map_or(message.clone(), |code| format!("{code}: {message}")))
    });
    let text = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.is_empty() {
        true => "no details".to_owned(),
        false => plain.chars().take(MAX_MESSAGE_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_vendor_is_repeated() {
        let check =
            |body: &str, expected: &str| assert_eq!(error_message(body.as_bytes()), expected);
        check(r#"{"code":429,"message":"20 sandboxes at most"}"#, "20 sandboxes at most");
        check(r#"{"error":{"a":1}}"#, r#"{"a":1}"#);
        check(r#"{"Code":"Quota","Message":"20 at most"}"#, "Quota: 20 at most");
        check("Bad\ngateway", "Bad gateway");
        check("", "no details");
        assert_eq!(error_message(&[b'x'; 5000]).len(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = VendorKey::new("e2b_secret");
        assert_eq!(format!("{key:?}"), "Key(…)");
        assert!(!format!("{:?}", key.header("Bearer ")).contains("secret"));
    }

    #[test]
    fn a_fault_reports_whether_a_retry_is_safe() {
        let vendor = "E2B";
        let status = |code: u16| VendorFault::Status {
            vendor,
            status: StatusCode::from_u16(code).unwrap(),
            message: "no".into(),
        };
        assert!(!status(403).is_unknown() && status(500).is_unknown());
        assert!(matches!(status(403).of("make"), ProviderError::Refused { .. }));
        assert!(matches!(status(500).of("make"), ProviderError::Failed { .. }));
        let busy = VendorFault::Busy {
            vendor,
            status: StatusCode::TOO_MANY_REQUESTS,
            message: "slow down".into(),
            retry_after: None,
        };
        let text = busy.of("make").to_string();
        assert!(text.contains("E2B answered 429 Too Many Requests: slow down"), "{text}");
    }
}
