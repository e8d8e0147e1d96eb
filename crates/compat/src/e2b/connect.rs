//! The part of the Connect protocol that E2B's clients use: JSON, unary calls and streams over HTTP/1.1.
//!
//! A stream is a sequence of envelopes: one byte of flags, four bytes of length, then JSON. The last envelope has
//! flag 2 and the result of the call; the HTTP status of a stream is always 200.

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

/// The flag of the envelope that ends a stream.
const END_STREAM_FLAG: u8 = 2;
/// The maximum timeout that a client can set.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The error codes of the protocol.
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
    fn name(self) -> &'static str {
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

/// The error of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    code: ConnectCode,
    message: String,
}

impl ConnectError {
    pub fn new(code: ConnectCode, message: impl Into<String>) -> ConnectError {
        ConnectError { code, message: message.into() }
    }

    fn body(&self) -> Value {
        json!({"code": self.code.name(), "message": self.message})
    }
}

impl From<Problem> for ConnectError {
    fn from(problem: Problem) -> ConnectError {
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
        ConnectError::new(code, problem.detail())
    }
}

impl From<FileError> for ConnectError {
    fn from(error: FileError) -> ConnectError {
        let code = match &error {
            FileError::Missing { .. } => ConnectCode::NotFound,
            FileError::Exists { .. } => ConnectCode::AlreadyExists,
            FileError::Forbidden { .. } | FileError::ReadOnly { .. } => {
                ConnectCode::PermissionDenied
            }
            FileError::BadPath { .. }
            | FileError::IsDirectory { .. }
            | FileError::NotDirectory { .. }
            | FileError::NotEmpty { .. }
            | FileError::NotRegular { .. }
            | FileError::Loop { .. } => ConnectCode::InvalidArgument,
            FileError::NoSpace => ConnectCode::ResourceExhausted,
            _ => return Problem::from(error).into(),
        };
        ConnectError::new(code, error.to_string())
    }
}

impl IntoResponse for ConnectError {
    fn into_response(self) -> Response {
        (self.code.status(), axum::Json(self.body())).into_response()
    }
}

/// The message of a unary call. Unknown fields belong to a later version and are ignored.
pub struct Unary<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Unary<T> {
    type Rejection = ConnectError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ConnectError> {
        let limits = *request.extensions().get::<BodyLimits>().expect("the guard sets the limits");
        expect_type(request.headers(), "application/json")?;
        let body = limits.read(request.into_body()).await?;
        parse(&body).map(Unary)
    }
}

/// The messages of a streaming call.
pub struct Messages {
    stream: Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    buffer: Vec<u8>,
    limits: BodyLimits,
}

impl<S: Send + Sync> FromRequest<S> for Messages {
    type Rejection = ConnectError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ConnectError> {
        let limits = *request.extensions().get::<BodyLimits>().expect("the guard sets the limits");
        expect_type(request.headers(), "application/connect+json")?;
        let stream = request.into_body().into_data_stream().boxed();
        Ok(Messages { stream, buffer: Vec::new(), limits })
    }
}

impl Messages {
    /// Returns the next message; `None` at the end. The limits of a body apply to each message.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ConnectError> {
        loop {
            if let Some((flags, message)) = self.take_envelope()? {
                return match flags {
                    0 => parse(&message).map(Some),
                    END_STREAM_FLAG => Ok(None),
                    _ => Err(ConnectError::new(
                        ConnectCode::Unimplemented,
                        "compressed messages are not supported",
                    )),
                };
            }
            let more = tokio::time::timeout(self.limits.time, self.stream.next()).await;
            match more {
                Ok(Some(Ok(bytes))) => self.buffer.extend_from_slice(&bytes),
                Ok(Some(Err(error))) => {
                    return Err(ConnectError::new(
                        ConnectCode::InvalidArgument,
                        format!("cannot read: {error}"),
                    ));
                }
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => {
                    return Err(ConnectError::new(
                        ConnectCode::InvalidArgument,
                        "a message is truncated",
                    ));
                }
                Err(_) => {
                    return Err(ConnectError::new(
                        ConnectCode::DeadlineExceeded,
                        "timed out waiting for a message",
                    ));
                }
            }
        }
    }

    /// Returns the only message of a call whose response is a stream.
    pub async fn only<T: DeserializeOwned>(mut self) -> Result<T, ConnectError> {
        let first = self.next().await?;
        first.ok_or_else(|| {
            ConnectError::new(ConnectCode::InvalidArgument, "the request has no message")
        })
    }

    /// Takes a complete envelope from the buffer.
    fn take_envelope(&mut self) -> Result<Option<(u8, Vec<u8>)>, ConnectError> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > self.limits.bytes {
            let message = format!("a message may have up to {} bytes", self.limits.bytes);
            return Err(ConnectError::new(ConnectCode::ResourceExhausted, message));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let (flags, message) = (head[0], rest[..length].to_vec());
        self.buffer.drain(..5 + length);
        Ok(Some((flags, message)))
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ConnectError> {
    serde_json::from_slice(body).map_err(|error| {
        ConnectError::new(ConnectCode::InvalidArgument, format!("invalid message: {error}"))
    })
}

fn expect_type(headers: &HeaderMap, expected: &str) -> Result<(), ConnectError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let encoding =
        headers.get(header::CONTENT_ENCODING).map_or(&b"identity"[..], |it| it.as_bytes());
    if given.eq_ignore_ascii_case(expected) && encoding == b"identity" {
        return Ok(());
    }
    let message = format!("expected uncompressed {expected}, got {given:?}");
    Err(ConnectError::new(ConnectCode::Unimplemented, message))
}

fn envelope(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let mut bytes = Vec::with_capacity(5 + text.len());
    bytes.push(flags);
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// The sender of a streamed response.
#[derive(Clone)]
pub struct ResponseStream(mpsc::Sender<Bytes>);

impl ResponseStream {
    /// Sends a message; `false` if the client has disconnected.
    pub async fn send(&self, message: &Value) -> bool {
        self.0.send(envelope(0, message)).await.is_ok()
    }

    pub async fn end(&self, result: Result<(), ConnectError>) {
        let last = match result {
            Ok(()) => json!({}),
            Err(failed) => json!({"error": failed.body()}),
        };
        let _ = self.0.send(envelope(END_STREAM_FLAG, &last)).await;
    }

    /// Waits until the client disconnects.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A streamed response and its sender.
pub fn stream() -> (ResponseStream, Response) {
    let (sender, receiver) = mpsc::channel(16);
    let body = futures_util::stream::unfold(receiver, |mut receiver| async {
        let bytes: Bytes = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), receiver))
    });
    let mut response = Body::from_stream(body).into_response();
    let content_type = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    (ResponseStream(sender), response)
}

/// A streamed response that has only an error.
pub fn refused(failed: &ConnectError) -> Response {
    let last = envelope(END_STREAM_FLAG, &json!({"error": failed.body()}));
    let mut response = Body::from(last).into_response();
    let content_type = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// The timeout that the client sets for a call.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let ms: u64 = headers.get("connect-timeout-ms")?.to_str().ok()?.trim().parse().ok()?;
    (ms > 0).then(|| Duration::from_millis(ms).min(MAX_TIMEOUT))
}

/// The keep-alive interval that the client requests for a stream.
pub fn keepalive(headers: &HeaderMap) -> Duration {
    let requested = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok());
    let seconds = requested.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(90);
    Duration::from_secs(seconds.clamp(1, 3600))
}

/// Encodes bytes as the protocol does.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes bytes of a client, in either base64 alphabet.
pub fn decode(text: &str) -> Result<Vec<u8>, ConnectError> {
    STANDARD
        .decode(text)
        .or_else(|_| URL_SAFE.decode(text))
        .map_err(|_| ConnectError::new(ConnectCode::InvalidArgument, "the data is not base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(bytes: Vec<Vec<u8>>) -> Messages {
        let chunks = bytes.into_iter().map(|piece| Ok(Bytes::from(piece)));
        let limits = BodyLimits { bytes: 64, time: Duration::from_secs(30) };
        Messages { stream: futures_util::stream::iter(chunks).boxed(), buffer: Vec::new(), limits }
    }

    #[tokio::test]
    async fn messages_are_found_in_chunks_of_any_size() {
        let mut whole = envelope(0, &json!({"a": 1})).to_vec();
        whole.extend_from_slice(&envelope(0, &json!({"b": "ä"})));
        whole.extend_from_slice(&envelope(END_STREAM_FLAG, &json!({})));
        for size in 1..whole.len() {
            let mut found = Vec::new();
            let mut messages = messages(whole.chunks(size).map(<[u8]>::to_vec).collect());
            while let Some(message) = messages.next::<Value>().await.unwrap() {
                found.push(message);
            }
            assert_eq!(found, [json!({"a": 1}), json!({"b": "ä"})], "in chunks of {size} bytes");
        }
    }

    #[tokio::test]
    async fn a_long_or_truncated_message_is_refused() {
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
    fn bytes_are_decoded_in_either_alphabet() {
        assert_eq!(decode(&encode(b"\xff\xfe")).unwrap(), b"\xff\xfe");
        assert_eq!(decode("__4=").unwrap(), b"\xff\xfe");
        assert!(decode("?").is_err());
    }
}
