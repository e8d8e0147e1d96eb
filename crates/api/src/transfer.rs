//! Streams files into and out of requests, whatever their size.

use std::{io, pin::Pin};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{Stream, StreamExt};
use jiff::Timestamp;
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;
use utoipa::ToSchema;

use super::{
    App,
    error::{Code, Problem},
    extract::{too_large, too_slow},
    slow_body::is_too_slow,
};
use files::{Above, Content, FileKind, Stat, Tree, TreePath, memory::Expect};

/// Size of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Default size of a file's content in JSON.
const DEFAULT_JSON_BYTES: u64 = 1 << 20;
/// Largest size of a file's content in JSON.
const MAX_JSON_BYTES: u64 = 8 << 20;

/// The metadata of a file.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileStat {
    /// Path of the file.
    path: String,
    /// Last segment of the path.
    name: String,
    /// `file`, `directory`, `link` or `other`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: FileKind,
    /// Size in bytes.
    size: u64,
    /// Time of the last write; null if unknown.
    #[schema(value_type = Option<String>)]
    modified_at: Option<Timestamp>,
    /// Permission bits in octal; null if there are none.
    mode: Option<String>,
    /// Target of a symbolic link.
    target: Option<String>,
    /// Entity tag for `If-Match`; changes with each write.
    etag: Option<String>,
}

impl From<Stat> for FileStat {
    fn from(stat: Stat) -> FileStat {
        let name = stat.path.rsplit('/').next().unwrap_or_default().to_owned();
        FileStat {
            name,
            kind: stat.kind,
            size: stat.size,
            modified_at: stat.modified_at,
            mode: stat.mode.map(|mode| format!("{mode:04o}")),
            target: stat.target,
            etag: stat.version.map(etag),
            path: stat.path,
        }
    }
}

/// The content of a file as JSON.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileText {
    /// Path of the file.
    path: String,
    /// Content, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Content as base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_base64: Option<String>,
    /// Offset of the first byte.
    offset: u64,
    /// Offset after the last byte.
    next_offset: u64,
    /// Whether the content reaches the end of the file.
    end: bool,
    /// Size of the whole file in bytes.
    size: u64,
    /// Entity tag for `If-Match`.
    etag: Option<String>,
}

/// The result of a write.
#[derive(Debug, Serialize, ToSchema)]
pub struct WrittenFile {
    /// Path of the file.
    path: String,
    /// Size in bytes.
    size: u64,
    /// Entity tag for `If-Match`.
    etag: Option<String>,
}

/// The requested part of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct FilePart {
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

/// Sends a file, or the part that the query or `Range` selects, as raw bytes.
pub async fn send(
    tree: &Tree,
    path: &TreePath,
    part: FilePart,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let opened = tree.open(path).await?;
    let size = opened.stat.size;
    let range = match (part.offset, part.limit) {
        (None, None) => range(headers),
        _ => None,
    };
    let selected = match range.map(|range| range.within(size)) {
        None => None,
        Some(Some(selected)) => Some(selected),
        Some(None) => return Ok(not_satisfiable(size)),
    };
    let (offset, limit, status) = match selected {
        None => (part.offset.unwrap_or(0), part.limit, StatusCode::OK),
        Some((offset, length)) => (offset, Some(length), StatusCode::PARTIAL_CONTENT),
    };
    let Content { stat, length, bytes } = opened.part(offset, limit)?;
    let mut response =
        Body::from_stream(ReaderStream::with_capacity(bytes, CHUNK_BYTES)).into_response();
    *response.status_mut() = status;
    let headers = response.headers_mut();
    describe(headers, &stat);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    if let Some((offset, length)) = selected {
        content_range(headers, &format!("bytes {offset}-{}/{size}", offset + length - 1));
    }
    Ok(response)
}

/// The response to an unsatisfiable range, with the size of the file.
fn not_satisfiable(size: u64) -> Response {
    let detail = format!("the file has {size} bytes");
    let mut response = Problem::new(Code::RangeNotSatisfiable, detail).into_response();
    content_range(response.headers_mut(), &format!("bytes */{size}"));
    response
}

fn content_range(headers: &mut HeaderMap, range: &str) {
    if let Ok(range) = HeaderValue::from_str(range) {
        headers.insert(header::CONTENT_RANGE, range);
    }
}

/// Sets the headers of a file so that a browser never displays it as a page of this server.
fn describe(headers: &mut HeaderMap, stat: &Stat) {
    let raw = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, raw);
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert("x-size", stat.size.into());
    if let Some(Ok(etag)) = stat.version.map(|version| HeaderValue::from_str(&etag(version))) {
        headers.insert(header::ETAG, etag);
    }
}

/// Sends content that is in memory.
pub fn send_bytes(stat: &Stat, bytes: Bytes) -> Response {
    let mut response = Body::from(bytes).into_response();
    describe(response.headers_mut(), stat);
    response
}

/// Returns a part of a file as JSON.
pub async fn text(tree: &Tree, path: &TreePath, part: FilePart) -> Result<FileText, Problem> {
    let limit = part.limit.unwrap_or(DEFAULT_JSON_BYTES);
    if limit > MAX_JSON_BYTES {
        return Err(Problem::query(
            "limit",
            format!("must be at most {MAX_JSON_BYTES} with format=json"),
        ));
    }
    let offset = part.offset.unwrap_or(0);
    let Content { stat, mut bytes, .. } = tree.read(path, offset, Some(limit)).await?;
    let mut content = Vec::new();
    bytes
        .read_to_end(&mut content)
        .await
        .map_err(|error| Problem::internal("cannot read a file", &error))?;
    let next_offset = offset + content.len() as u64;
    let end = (content.len() as u64) < limit || next_offset >= stat.size;
    let (content, content_base64) = match String::from_utf8(content) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    };
    let etag = stat.version.map(etag);
    let (path, size) = (stat.path, stat.size);
    Ok(FileText { path, content, content_base64, offset, next_offset, end, size, etag })
}

/// Writes a body into a file, atomically.
pub async fn receive(
    app: &App,
    tree: &Tree,
    path: &TreePath,
    above: Above,
    headers: &HeaderMap,
    body: Body,
) -> Result<(StatusCode, axum::Json<WrittenFile>), Problem> {
    let expect = expectation(headers)?;
    let status = match tree.stat(path).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::CREATED,
    };
    let mut writing = tree.write(path, above, expect).await?;
    let mut chunks = Chunks::new(app, body);
    let mut size = 0;
    while let Some(chunk) = chunks.next().await? {
        size += chunk.len() as u64;
        writing.write(chunk).await?;
    }
    let version = writing.finish().await?;
    let written = WrittenFile { path: path.to_string(), size, etag: version.map(etag) };
    Ok((status, axum::Json(written)))
}

/// The chunks of a body, within the limits.
pub struct Chunks {
    stream: Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    left: usize,
    max: usize,
    time: std::time::Duration,
}

impl Chunks {
    pub fn new(app: &App, body: Body) -> Chunks {
        let limits = &app.settings.limits;
        Chunks::of(body.into_data_stream(), limits.file_bytes, limits.body_time)
    }

    /// The chunks of a stream of at most `max` bytes, each within `time`.
    pub fn of(
        stream: impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
        max: usize,
        time: std::time::Duration,
    ) -> Chunks {
        Chunks { stream: stream.boxed(), left: max, max, time }
    }

    /// Returns the next chunk, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let chunk = match tokio::time::timeout(self.time, self.stream.next()).await {
            Err(_) => {
                let detail = format!("no data for {} s", self.time.as_secs_f32());
                return Err(Problem::new(Code::BodyTimeout, detail));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(error))) if is_too_slow(&error) => return Err(too_slow(&error)),
            Ok(Some(Err(error))) => {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    format!("cannot read the body: {error}"),
                ));
            }
        };
        self.left = self.left.checked_sub(chunk.len()).ok_or_else(|| too_large(self.max))?;
        Ok(Some(chunk))
    }
}

/// Returns the precondition of `If-Match` or `If-None-Match`.
fn expectation(headers: &HeaderMap) -> Result<Expect, Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?").trim());
    let bad = |name: &str, detail: &str| {
        Err(Problem::field(Code::InvalidHeader, format!("/{name}"), detail))
    };
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Expect::Anything),
        (None, Some("*")) => Ok(Expect::Absent),
        (None, Some(_)) => bad("if-none-match", "only * is supported"),
        (Some(etag), None) => {
            let digits = etag.trim_matches('"');
            match u64::from_str_radix(digits, 16) {
                Ok(version) if digits.len() == 16 => Ok(Expect::Version(version)),
                _ => bad("if-match", "not an entity tag of this server"),
            }
        }
        (Some(_), Some(_)) => bad("if-match", "cannot be combined with if-none-match"),
    }
}

fn etag(version: u64) -> String {
    format!("\"{version:016x}\"")
}

/// A range of bytes.
#[derive(Debug, Clone, Copy)]
pub enum Range {
    From(u64, Option<u64>),
    Last(u64),
}

impl Range {
    /// Returns offset and length in a file of this size; `None` if the range is outside.
    pub fn within(self, size: u64) -> Option<(u64, u64)> {
        let (first, last) = match self {
            Range::From(first, last) => (first, last.unwrap_or(u64::MAX)),
            Range::Last(count) => (size.saturating_sub(count), u64::MAX),
        };
        (first < size).then(|| (first, last.min(size - 1) - first + 1))
    }
}

/// Returns the range of the `Range` header; multiple and malformed ranges are ignored.
pub fn range(headers: &HeaderMap) -> Option<Range> {
    let value = headers.get(header::RANGE)?.to_str().ok()?;
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim(), last.trim()) {
        ("", count) => Some(Range::Last(number(count)?)),
        (first, "") => Some(Range::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Range::From(first, Some(last)))
        }
    }
}

/// A writer whose bytes become the body of a response. It blocks while the client is slow, and fails when the
/// client disconnects.
pub struct BodyWriter {
    sender: tokio::sync::mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl BodyWriter {
    /// Returns the writer, a sender to report a failure, and the body.
    pub fn new() -> (BodyWriter, tokio::sync::mpsc::Sender<io::Result<Bytes>>, Body) {
        let (sender, receiver) = tokio::sync::mpsc::channel(16);
        let body = futures_util::stream::unfold(receiver, async |mut receiver| {
            let next: io::Result<Bytes> = receiver.recv().await?;
            Some((next, receiver))
        });
        let writer = BodyWriter { sender: sender.clone(), buffer: Vec::with_capacity(CHUNK_BYTES) };
        (writer, sender, Body::from_stream(body))
    }

    fn send_buffer(&mut self) -> io::Result<()> {
        let bytes =
            Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK_BYTES)));
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.sender.blocking_send(Ok(bytes)).map_err(gone)
    }
}

impl io::Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK_BYTES {
            self.send_buffer()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.send_buffer() }
    }
}

/// A blocking reader of a body.
pub struct BodyReader {
    receiver: tokio::sync::mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl BodyReader {
    /// Returns the reader and the sender of its chunks.
    pub fn new() -> (BodyReader, tokio::sync::mpsc::Sender<io::Result<Bytes>>) {
        let (sender, receiver) = tokio::sync::mpsc::channel(16);
        (BodyReader { receiver, rest: Bytes::new() }, sender)
    }
}

impl io::Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.receiver.blocking_recv() {
                None => return Ok(0),
                Some(chunk) => self.rest = chunk?,
            }
        }
        let count = buffer.len().min(self.rest.len());
        buffer[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}
