//! The Connect protocol, as far as clients of E2B speak it: JSON, unary calls and streams over HTTP/1.1.
//!
//! A stream is a run of envelopes: one byte of flags, four of length, then JSON. The last one has flag 2
//! and says how it ended; the HTTP status of a stream is 200 in any case.

use std::{pin::Pin, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use api::{error::Problem, extract::BodyLimits};
use files::FileError;

/// The envelope that ends a stream.
const LAST: u8 = 2;
/// The longest time a client can give.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why a call failed, in the protocol's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectCode {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl ConnectCode {
    fn word(self) -> &'static str {
        match self {
            ConnectCode::InvalidArgument => "invalid_argument",
            ConnectCode::DeadlineExceeded => "deadline_exceeded",
            ConnectCode::NotFound => "not_found",
            ConnectCode::AlreadyExists => "already_exists",
            ConnectCode::PermissionDenied => "permission_denied",
            ConnectCode::ResourceExhausted => "resource_exhausted",
            ConnectCode::FailedPrecondition => "failed_precondition",
            ConnectCode::Unimplemented => "unimplemented",
            ConnectCode::Internal => "internal",
            ConnectCode::Unavailable => "unavailable",
            ConnectCode::Unauthenticated => "unauthenticated",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            ConnectCode::InvalidArgument | ConnectCode::FailedPrecondition => {
                StatusCode::BAD_REQUEST
            }
            ConnectCode::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            ConnectCode::NotFound => StatusCode::NOT_FOUND,
            ConnectCode::AlreadyExists => StatusCode::CONFLICT,
            ConnectCode::PermissionDenied => StatusCode::FORBIDDEN,
            ConnectCode::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            ConnectCode::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            ConnectCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ConnectCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ConnectCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    code: ConnectCode,
    message: String,
}

impl Failed {
    pub fn new(code: ConnectCode, message: impl Into<String>) -> Failed {
        Failed { code, message: message.into() }
    }

    fn body(&self) -> Value {
        json!({"code": self.code.word(), "message": self.message})
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Failed {
        let code = match problem.code().status().0 {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                ConnectCode::InvalidArgument
            }
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => {
                ConnectCode::ResourceExhausted
            }
            StatusCode::UNAUTHORIZED => ConnectCode::Unauthenticated,
            StatusCode::FORBIDDEN => ConnectCode::PermissionDenied,
            StatusCode::NOT_FOUND | StatusCode::GONE => ConnectCode::NotFound,
            StatusCode::CONFLICT => ConnectCode::FailedPrecondition,
            StatusCode::SERVICE_UNAVAILABLE => ConnectCode::Unavailable,
            _ => ConnectCode::Internal,
        };
        Failed::new(code, problem.detail())
    }
}

impl From<FileError> for Failed {
    fn from(error: FileError) -> Failed {
        let code = match &error {
            FileError::Missing { .. } => ConnectCode::NotFound,
            FileError::Exists { .. } => ConnectCode::AlreadyExists,
            FileError::Forbidden { .. } => ConnectCode::PermissionDenied,
            FileError::BadPath { .. }
            | FileError::IsDirectory { .. }
            | FileError::NotDirectory { .. }
            | FileError::NotEmpty { .. }
            | FileError::NotRegular { .. }
            | FileError::Loop { .. } => ConnectCode::InvalidArgument,
            FileError::NoSpace => ConnectCode::ResourceExhausted,
            _ => return Problem::from(error).into(),
        };
        Failed::new(code, error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.code.status(), axum::Json(self.body())).into_response()
    }
}

/// The message of a unary call. Fields that are not known here are a later version's.
pub struct Unary<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Unary<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failed> {
        let limits = *request.extensions().get::<BodyLimits>().expect("the guard sets the limits");
        expect_type(request.headers(), "application/json")?;
        let body = limits.read(request.into_body()).await?;
        parse(&body).map(Unary)
    }
}

/// The messages of a call that streams.
pub struct Messages {
    stream: Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    held: Vec<u8>,
    limits: BodyLimits,
}

impl<S: Send + Sync> FromRequest<S> for Messages {
    type Rejection = Failed;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failed> {
        let limits = *request.extensions().get::<BodyLimits>().expect("the guard sets the limits");
        expect_type(request.headers(), "application/connect+json")?;
        let stream = request.into_body().into_data_stream().boxed();
        Ok(Messages { stream, held: Vec::new(), limits })
    }
}

impl Messages {
    /// The next message; `None` at the end. Each has the size and the time that a body has.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failed> {
        loop {
            if let Some((flags, message)) = self.whole()? {
                return match flags {
                    0 => parse(&message).map(Some),
                    LAST => Ok(None),
                    _ => Err(Failed::new(
                        ConnectCode::Unimplemented,
                        "compressed messages are not read",
                    )),
                };
            }
            let more = tokio::time::timeout(self.limits.time, self.stream.next()).await;
            match more {
                Ok(Some(Ok(bytes))) => self.held.extend_from_slice(&bytes),
                Ok(Some(Err(error))) => {
                    return Err(Failed::new(
                        ConnectCode::InvalidArgument,
                        format!("cannot read: {error}"),
                    ));
                }
                Ok(None) if self.held.is_empty() => return Ok(None),
                Ok(None) => {
                    return Err(Failed::new(ConnectCode::InvalidArgument, "a message is cut off"));
                }
                Err(_) => {
                    return Err(Failed::new(
                        ConnectCode::DeadlineExceeded,
                        "nothing came for too long",
                    ));
                }
            }
        }
    }

    /// The one message of a call that only its answer streams.
    pub async fn only<T: DeserializeOwned>(mut self) -> Result<T, Failed> {
        let first = self.next().await?;
        first.ok_or_else(|| Failed::new(ConnectCode::InvalidArgument, "there is no message"))
    }

    fn whole(&mut self) -> Result<Option<(u8, Vec<u8>)>, Failed> {
        let Some((head, rest)) = self.held.split_first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > self.limits.bytes {
            let message = format!("a message may have {} bytes", self.limits.bytes);
            return Err(Failed::new(ConnectCode::ResourceExhausted, message));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let (flags, message) = (head[0], rest[..length].to_vec());
        self.held.drain(..5 + length);
        Ok(Some((flags, message)))
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failed> {
    serde_json::from_slice(body).map_err(|error| {
        Failed::new(ConnectCode::InvalidArgument, format!("not such a message: {error}"))
    })
}

fn expect_type(headers: &HeaderMap, expected: &str) -> Result<(), Failed> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let encoding =
        headers.get(header::CONTENT_ENCODING).map_or(&b"identity"[..], |it| it.as_bytes());
    if given.eq_ignore_ascii_case(expected) && encoding == b"identity" {
        return Ok(());
    }
    let message = format!("expected plain {expected}, got {given:?}");
    Err(Failed::new(ConnectCode::Unimplemented, message))
}

fn envelope(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = Vec::with_capacity(5 + text.len());
    bytes.push(flags);
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// Where the messages of an answer go.
#[derive(Clone)]
pub struct ResponseStream(mpsc::Sender<Bytes>);

impl ResponseStream {
    /// Sends a message; `false` if the client is gone.
    pub async fn say(&self, message: &Value) -> bool {
        self.0.send(envelope(0, message)).await.is_ok()
    }

    pub async fn end(&self, result: Result<(), Failed>) {
        let last = match result {
            Ok(()) => json!({}),
            Err(failed) => json!({"error": failed.body()}),
        };
        let _ = self.0.send(envelope(LAST, &last)).await;
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// An answer that streams, and where its messages go.
pub fn stream() -> (ResponseStream, Response) {
    let (sender, receiver) = mpsc::channel(16);
    let body = futures_util::stream::unfold(receiver, |mut receiver| async {
        let bytes: Bytes = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), receiver))
    });
    let mut response = Body::from_stream(body).into_response();
    let kind = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    (ResponseStream(sender), response)
}

/// An answer that is a stream with nothing in it but why it failed.
pub fn refused(failed: &Failed) -> Response {
    let last = envelope(LAST, &json!({"error": failed.body()}));
    let mut response = Body::from(last).into_response();
    let kind = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// How long the client gives a call.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let ms: u64 = headers.get("connect-timeout-ms")?.to_str().ok()?.trim().parse().ok()?;
    (ms > 0).then(|| Duration::from_millis(ms).min(MAX_TIMEOUT))
}

/// How often the client wants to hear that a stream lives.
pub fn keepalive(headers: &HeaderMap) -> Duration {
    let asked = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok());
    let seconds = asked.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(90);
    Duration::from_secs(seconds.clamp(1, 3600))
}

/// Bytes as the protocol writes them.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes that a client wrote, in either alphabet.
pub fn decode(text: &str) -> Result<Vec<u8>, Failed> {
    STANDARD
        .decode(text)
        .or_else(|_| URL_SAFE.decode(text))
        .map_err(|_| Failed::new(ConnectCode::InvalidArgument, "the data is not base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(bytes: Vec<Vec<u8>>) -> Messages {
        let chunks = bytes.into_iter().map(|piece| Ok(Bytes::from(piece)));
        let limits = BodyLimits { bytes: 64, time: Duration::from_secs(30) };
        Messages { stream: futures_util::stream::iter(chunks).boxed(), held: Vec::new(), limits }
    }

    #[tokio::test]
    async fn messages_are_found_however_they_are_cut() {
        let mut whole = envelope(0, &json!({"a": 1})).to_vec();
        whole.extend_from_slice(&envelope(0, &json!({"b": "ä"})));
        whole.extend_from_slice(&envelope(LAST, &json!({})));
        for size in 1..whole.len() {
            let mut found = Vec::new();
            let mut messages = messages(whole.chunks(size).map(<[u8]>::to_vec).collect());
            while let Some(message) = messages.next::<Value>().await.unwrap() {
                found.push(message);
            }
            assert_eq!(found, [json!({"a": 1}), json!({"b": "ä"})], "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_cut_off_is_refused() {
        let long = envelope(0, &json!({"a": "x".repeat(100)})).to_vec();
        let cut = envelope(0, &json!({"a": 1}))[..8].to_vec();
        for (bytes, code) in
            [(long, ConnectCode::ResourceExhausted), (cut, ConnectCode::InvalidArgument)]
        {
            let failed = messages(vec![bytes]).next::<Value>().await.unwrap_err();
            assert_eq!(failed.code, code, "{failed:?}");
        }
        assert_eq!(messages(vec![]).next::<Value>().await.unwrap(), None);
    }

    #[test]
    fn bytes_are_read_in_either_alphabet() {
        assert_eq!(decode(&encode(b"\xff\xfe")).unwrap(), b"\xff\xfe");
        assert_eq!(decode("__4=").unwrap(), b"\xff\xfe");
        assert!(decode("?").is_err());
    }
}
