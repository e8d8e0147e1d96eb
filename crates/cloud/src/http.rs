//! Asking a vendor over HTTP: time limits, waits between tries, and its own words when it says no.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use provider::ProviderError;

/// How often one thing is asked for.
const TRIES: u32 = 4;
/// The wait after the first try; it doubles.
const WAIT: Duration = Duration::from_millis(200);
/// The longest that a vendor's own word is waited for between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long a vendor has to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
/// The largest answer that is taken in.
const MOST: usize = 256 << 20;
/// What a vendor's words begin with that calls a 429 a 400.
const THROTTLED: &str = "Throttling";
/// How much of a vendor's words is repeated.
const WORDS: usize = 600;
/// Pieces a large body is sent in; after each the progress is told.
const PIECE: usize = 256 << 10;

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Told how many bytes of a body have been taken.
pub(super) type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// A client of one vendor. Cheap to clone.
#[derive(Clone)]
pub(super) struct Client {
    vendor: &'static str,
    client: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Body>,
    tls: Arc<ClientConfig>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("vendor", &self.vendor).finish_non_exhaustive()
    }
}

/// A secret. Nobody sees it by accident.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// This text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For whoever has to send it another way.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// As a header that is not shown either.
    pub(super) fn header(&self, before: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{before}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Key(none)" } else { "Key(…)" })
    }
}

/// Whether asking twice may do something twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It may be asked again whatever became of it.
    Safe,
    /// Only if it certainly was not done.
    Once,
}

/// One question.
pub(super) struct Ask {
    doing: &'static str,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
    repeat: Repeat,
    patience: Duration,
    progress: Option<Progress>,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The vendor said no.
    #[error("{vendor} answered {status}: {words}")]
    Status { vendor: &'static str, status: StatusCode, words: String },
    /// The vendor asks to come again later; nothing was done.
    #[error("{vendor} answered {status}: {words}")]
    Busy { vendor: &'static str, status: StatusCode, words: String, retry_after: Option<Duration> },
    /// Nobody knows what became of it.
    #[error("{vendor} did not answer: {why}")]
    Broken { vendor: &'static str, why: String },
}

impl Fault {
    /// The status of an answer.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } | Self::Busy { status, .. } => Some(*status),
            Self::Broken { .. } => None,
        }
    }

    /// Whether it may have been done in spite of it.
    pub(super) fn is_unknown(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_server_error(),
            Self::Busy { .. } => false,
            Self::Broken { .. } => true,
        }
    }

    /// As a provider's error.
    pub(super) fn of(self, doing: &'static str) -> ProviderError {
        match &self {
            Self::Status { status, .. } if status.is_client_error() => {
                ProviderError::Refused { doing, reason: self.to_string() }
            }
            Self::Busy { retry_after, .. } => {
                ProviderError::Busy { retry_after: *retry_after, reason: self.to_string() }
            }
            Self::Status { .. } | Self::Broken { .. } => ProviderError::failed(doing, self),
        }
    }
}

impl Ask {
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
            patience: ANSWER,
            progress: None,
        }
    }

    pub(super) fn header(mut self, name: &'static str, value: Option<HeaderValue>) -> Self {
        if let Some(value) = value {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(super) fn bearer(mut self, key: &Key) -> Self {
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

    pub(super) fn body(mut self, kind: &str, body: Bytes) -> Self {
        if let Ok(kind) = HeaderValue::from_str(kind) {
            self.headers.insert(CONTENT_TYPE, kind);
        }
        self.body = body;
        self
    }

    /// May be asked again whatever became of it.
    pub(super) fn safe(self) -> Self {
        Self { repeat: Repeat::Safe, ..self }
    }

    /// The vendor has this long to answer.
    pub(super) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whoever waits is told how much of the body is on its way.
    pub(super) fn telling(self, progress: Option<Progress>) -> Self {
        Self { progress, ..self }
    }

    fn request(&self) -> Result<Request<Body>, http::Error> {
        let mut request = Request::builder().method(&self.method).uri(&self.url);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            headers.insert(
                USER_AGENT,
                HeaderValue::from_static(concat!("stead/", env!("CARGO_PKG_VERSION"))),
            );
        }
        let body = match &self.progress {
            Some(progress) if self.body.len() > PIECE => {
                let length = HeaderValue::from(self.body.len());
                if let Some(headers) = request.headers_mut() {
                    headers.insert(http::header::CONTENT_LENGTH, length);
                }
                in_pieces(self.body.clone(), progress.clone())
            }
            _ => Full::new(self.body.clone()).boxed_unsync(),
        };
        request.body(body)
    }
}

fn in_pieces(body: Bytes, progress: Progress) -> Body {
    let pieces = stream::unfold((body, 0), move |(mut rest, sent)| {
        let progress = progress.clone();
        async move {
            if rest.is_empty() {
                return None;
            }
            let piece = rest.split_to(rest.len().min(PIECE));
            let sent = sent + piece.len() as u64;
            progress(sent);
            Some((Ok(Frame::data(piece)), (rest, sent)))
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

impl Client {
    /// A client with the usual authorities, and those in `SSL_CERT_FILE`.
    pub(super) fn new(vendor: &'static str) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
            let certificates = CertificateDer::pem_file_iter(file).into_iter().flatten().flatten();
            roots.add_parsable_certificates(certificates);
        }
        let provider = Arc::new(ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(Duration::from_secs(10)));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(https);
        Ok(Self { vendor, client, tls: Arc::new(tls) })
    }

    /// Whose client this is.
    pub(super) fn vendor(&self) -> &'static str {
        self.vendor
    }

    /// What connections other than this client's own are made with.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        self.tls.clone()
    }

    /// Asks until there is an answer or no hope for one. Statuses that are no success are faults.
    pub(super) async fn ask(&self, ask: &Ask) -> Result<Answer, Fault> {
        let mut tries = 0;
        loop {
            let fault = match self.once(ask).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            tries += 1;
            let own = WAIT * (1 << (tries - 1));
            let wait = match &fault {
                Fault::Busy { retry_after, .. } => retry_after.unwrap_or(own),
                Fault::Status { status, .. } if is_passing(*status) => own,
                Fault::Status { .. } => return Err(fault),
                Fault::Broken { .. } => own,
            };
            let again = ask.repeat == Repeat::Safe || !fault.is_unknown();
            if !again || tries >= TRIES || wait > LONGEST_WAIT {
                return Err(fault);
            }
            tracing::debug!(doing = ask.doing, %fault, ?wait, "asked again");
            sleep(wait.max(own)).await;
        }
    }

    /// The same, and what the answer says.
    pub(super) async fn ask_json<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Fault> {
        let answer = self.ask(ask).await?;
        self.understand(&answer)
    }

    /// What an answer says.
    pub(super) fn understand<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Fault> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            let why = format!("its answer cannot be read ({error}): {}", words(&answer.body));
            Fault::Broken { vendor: self.vendor, why }
        })
    }

    async fn once(&self, ask: &Ask) -> Result<Answer, Fault> {
        let whole = async {
            let (status, headers, body) = self.begin(ask).await?;
            let body = Limited::new(body, MOST).collect().await;
            let body = body.map_err(|error| self.broken(&*error))?.to_bytes();
            Ok(Answer { status, headers, body })
        };
        let answer = match timeout(ask.patience, whole).await {
            Ok(answer) => answer?,
            Err(_) => {
                let why = format!("not within {} s", ask.patience.as_secs());
                return Err(Fault::Broken { vendor: self.vendor, why });
            }
        };
        self.judge(answer)
    }

    /// Asks once, and leaves what comes after the head to the caller.
    pub(super) async fn open(&self, ask: &Ask) -> Result<Incoming, Fault> {
        let (status, headers, body) = match timeout(ask.patience, self.begin(ask)).await {
            Ok(begun) => begun?,
            Err(_) => {
                let why = format!("not within {} s", ask.patience.as_secs());
                return Err(Fault::Broken { vendor: self.vendor, why });
            }
        };
        if status.is_success() {
            return Ok(body);
        }
        let body = timeout(ask.patience, Limited::new(body, MOST).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        match self.judge(Answer { status, headers, body }) {
            Err(fault) => Err(fault),
            Ok(_) => Err(Fault::Broken { vendor: self.vendor, why: format!("{status}") }),
        }
    }

    async fn begin(&self, ask: &Ask) -> Result<(StatusCode, HeaderMap, Incoming), Fault> {
        let request = ask.request().map_err(|error| self.broken(&error))?;
        let response = self.client.request(request).await.map_err(|error| self.broken(&error))?;
        let (head, body) = response.into_parts();
        Ok((head.status, head.headers, body))
    }

    fn judge(&self, answer: Answer) -> Result<Answer, Fault> {
        let (vendor, status) = (self.vendor, answer.status);
        if status.is_success() {
            return Ok(answer);
        }
        let words = words(&answer.body);
        let retry_after = retry_after(&answer.headers);
        let later = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::SERVICE_UNAVAILABLE && retry_after.is_some())
            || words.starts_with(THROTTLED);
        Err(if later {
            Fault::Busy { vendor, status, words, retry_after }
        } else {
            Fault::Status { vendor, status, words }
        })
    }

    fn broken(&self, error: &dyn std::error::Error) -> Fault {
        Fault::Broken { vendor: self.vendor, why: innermost(error) }
    }
}

/// Where a vendor is: where it was said to be, or else at its own place.
pub(super) fn endpoint(named: &str, own: &str) -> String {
    match named.trim_end_matches('/') {
        "" => own.to_owned(),
        named => named.to_owned(),
    }
}

/// A text as part of an address.
pub(super) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// An answer about something, unless that is not there.
pub(super) fn unless_gone<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(fault) if fault.status() == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The cause of causes, in words.
fn innermost(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Statuses that the next try may not meet.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 500 | 502 | 503 | 504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// What a vendor said, as far as it is meant to be read.
fn words(body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).ok();
    let said = said.as_ref().and_then(|said| {
        let names = ["message", "Message", "error", "detail"];
        let told = match names.into_iter().find_map(|name| said.get(name))? {
            Value::String(text) => text.clone(),
            Value::Null => return None,
            other => other.to_string(),
        };
        // Where a code is a word, it says more than the status.
        let code = said.get("Code").and_then(Value::as_str);
        Some(code.map_or(told.clone(), |code| format!("{code}: {told}")))
    });
    let text = said.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.is_empty() { "nothing more".to_owned() } else { plain.chars().take(WORDS).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendors_own_words_are_repeated() {
        let check = |body: &str, expected: &str| assert_eq!(words(body.as_bytes()), expected);
        check(r#"{"code":429,"message":"20 sandboxes at most"}"#, "20 sandboxes at most");
        check(r#"{"error":{"a":1}}"#, r#"{"a":1}"#);
        check(r#"{"Code":"Quota","Message":"20 at most"}"#, "Quota: 20 at most");
        check("Bad\ngateway", "Bad gateway");
        check("", "nothing more");
        assert_eq!(words(&[b'x'; 5000]).len(), WORDS);
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::new("e2b_secret");
        assert_eq!(format!("{key:?}"), "Key(…)");
        assert!(!format!("{:?}", key.header("Bearer ")).contains("secret"));
    }

    #[test]
    fn a_fault_tells_what_can_be_done_about_it() {
        let vendor = "E2B";
        let status = |code: u16| Fault::Status {
            vendor,
            status: StatusCode::from_u16(code).unwrap(),
            words: "no".into(),
        };
        assert!(!status(403).is_unknown() && status(500).is_unknown());
        assert!(matches!(status(403).of("make"), ProviderError::Refused { .. }));
        assert!(matches!(status(500).of("make"), ProviderError::Failed { .. }));
        let busy = Fault::Busy {
            vendor,
            status: StatusCode::TOO_MANY_REQUESTS,
            words: "slow down".into(),
            retry_after: None,
        };
        let said = busy.of("make").to_string();
        assert!(said.contains("E2B answered 429 Too Many Requests: slow down"), "{said}");
    }
}
