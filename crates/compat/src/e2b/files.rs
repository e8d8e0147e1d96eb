//! `/files`: downloads and uploads of whole files.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, Write},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flate2::{
    Compression,
    write::{GzEncoder, MultiGzDecoder},
};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::{E2bRefusal, address::DaemonCall, filesystem::METADATA_PREFIX, link::FileQuery};
use adapter::Adapter;
use adapter::{
    instance::{Files, absolute, relative},
    multipart::{self, Multipart},
};
use api::transfer::{self, BodyWriter, Chunks};
use files::{Above, FileError, PartialFile, memory::Expect};

const CHUNK_BYTES: usize = 256 << 10;
/// Larger files are compressed only for clients that accept nothing else: compression takes too long.
const MAX_COMPRESSED_BYTES: u64 = 4 << 20;
/// The limit of files per request.
const MAX_FILES: usize = 10_000;

/// The error with the daemon's message, which clients compare.
fn refused(error: FileError, path: &str) -> E2bRefusal {
    match error {
        FileError::Missing { .. } => {
            E2bRefusal::new(StatusCode::NOT_FOUND, format!("path '{path}' does not exist"))
        }
        FileError::IsDirectory { .. } => {
            E2bRefusal::new(StatusCode::BAD_REQUEST, format!("path '{path}' is a directory"))
        }
        FileError::NoSpace => {
            E2bRefusal::new(StatusCode::INSUFFICIENT_STORAGE, "not enough disk space available")
        }
        FileError::BadPath { .. }
        | FileError::NotRegular { .. }
        | FileError::NotDirectory { .. } => {
            E2bRefusal::new(StatusCode::BAD_REQUEST, error.to_string())
        }
        other => other.into(),
    }
}

/// Sends a file, or the requested range of it.
pub(super) async fn read(
    State(app): State<Adapter>,
    call: DaemonCall,
    query: FileQuery,
    headers: HeaderMap,
) -> Result<Response, E2bRefusal> {
    let path = absolute(query.path().unwrap_or_default(), call.home_of_files()?);
    let files = app.sandbox_files(&call.sandbox).await?;
    let target = path.clone();
    let opened = files.act(move |directory| directory.read(&relative(&target)?)).await;
    let (file, stat) = opened.map_err(|error| refused(error, &path))?;
    let range = transfer::range(&headers).map(|range| range.within(stat.size));
    let mut response = match range {
        Some(None) => {
            let whole = format!("bytes */{}", stat.size);
            let refusal = E2bRefusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "invalid range");
            return Ok(([(header::CONTENT_RANGE, whole)], refusal).into_response());
        }
        Some(Some((offset, length))) => {
            let range = format!("bytes {offset}-{}/{}", offset + length - 1, stat.size);
            let body = section(file, offset, length).map_err(|error| refused(error, &path))?;
            (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], body).into_response()
        }
        None if wants_gzip(&headers, stat.size) => {
            let mut response = compressed(file).into_response();
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
            response
        }
        // Files of procfs and sysfs report the size 0.
        None if stat.size == 0 => {
            let file = tokio::fs::File::from_std(file);
            Body::from_stream(ReaderStream::with_capacity(file, CHUNK_BYTES)).into_response()
        }
        None => {
            let body = section(file, 0, stat.size).map_err(|error| refused(error, &path))?;
            ([(header::CONTENT_LENGTH, stat.size.to_string())], body).into_response()
        }
    };
    let headers = response.headers_mut();
    // A browser must not render the content as a page of this server.
    let raw = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, raw);
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

/// A section of a file as a body.
fn section(mut file: std::fs::File, offset: u64, length: u64) -> Result<Body, FileError> {
    use std::io::{Seek, SeekFrom};
    use tokio::io::AsyncReadExt;
    file.seek(SeekFrom::Start(offset)).map_err(|error| FileError::from_io("read", "", error))?;
    let mut file = tokio::fs::File::from_std(file);
    file.set_max_buf_size(CHUNK_BYTES);
    Ok(Body::from_stream(ReaderStream::with_capacity(file.take(length), CHUNK_BYTES)))
}

/// Whether the response is compressed.
fn wants_gzip(headers: &HeaderMap, size: u64) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let accepted = accepted.unwrap_or_default().trim();
    let accepts_gzip = accepted.split(',').any(|one| {
        let mut fields = one.split(';');
        let is_gzip = fields.next().is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip"));
        is_gzip && !fields.any(|field| matches!(field.trim(), "q=0" | "q=0.0"))
    });
    accepts_gzip
        && size > 0
        && (size <= MAX_COMPRESSED_BYTES || accepted.eq_ignore_ascii_case("gzip"))
}

fn compressed(mut file: std::fs::File) -> Body {
    let (writer, sender, body) = BodyWriter::new();
    base::task::blocking(move || {
        let mut encoder = GzEncoder::new(writer, Compression::fast());
        let sent = io::copy(&mut file, &mut encoder).and_then(|_| encoder.finish()?.flush());
        if let Err(error) = sent {
            // Usually the client has disconnected, and nothing receives this.
            let _ = sender.blocking_send(Err(error));
        }
    });
    body
}

/// Writes uploaded files: the body itself, or the parts of a form.
pub(super) async fn write(
    State(app): State<Adapter>,
    call: DaemonCall,
    query: FileQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let home = call.home_of_files()?;
    let files = app.sandbox_files(&call.sandbox).await?;
    let limit = app.settings.limits.file_bytes as u64;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let encoding = match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => UploadEncoding::Identity,
        Some(b"gzip") => UploadEncoding::Gzip,
        Some(_) => {
            let message = "the only supported Content-Encoding is gzip";
            return Err(E2bRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let metadata = metadata_in(&headers);
    let mut chunks = Chunks::new(&app, body);
    let requested = query.path();
    let mut written = Vec::new();
    if content_type.starts_with("application/octet-stream") {
        let requested = requested.ok_or_else(|| {
            E2bRefusal::new(StatusCode::BAD_REQUEST, "path is required for a raw upload")
        })?;
        let path = absolute(requested, home);
        let mut incoming = UploadedFile::open(&files, &path, encoding, limit, &metadata).await?;
        while let Some(chunk) = chunks.next().await? {
            incoming.add(&files, chunk).await?;
        }
        written.push(incoming.finish(&files).await?);
        return Ok(axum::Json(json!(written)));
    }
    let boundary = multipart::boundary(content_type).ok_or_else(|| {
        let message = "expected multipart/form-data or application/octet-stream";
        E2bRefusal::new(StatusCode::BAD_REQUEST, message)
    })?;
    let mut parts = Multipart::new(chunks, &boundary);
    let mut paths = HashSet::new();
    while let Some(head) = parts.next().await? {
        if head.name != "file" {
            continue;
        }
        if written.len() >= MAX_FILES {
            let message = format!("a request may have up to {MAX_FILES} files");
            return Err(E2bRefusal::new(StatusCode::BAD_REQUEST, message));
        }
        let bad = |message: String| E2bRefusal::new(StatusCode::BAD_REQUEST, message);
        let Some(name) = requested.or(head.file.as_deref().filter(|name| !name.is_empty())) else {
            let message = "a file needs a name: `path` in the query or a filename in its part";
            return Err(bad(message.to_owned()));
        };
        let path = absolute(name, home);
        if !paths.insert(path.clone()) {
            let message = format!(
                "you cannot upload multiple files to the same path '{path}' in one upload request, \
                 only the first specified file was uploaded"
            );
            return Err(bad(message));
        }
        let mut incoming = UploadedFile::open(&files, &path, encoding, limit, &metadata).await?;
        while let Some(piece) = parts.piece().await? {
            incoming.add(&files, piece).await?;
        }
        written.push(incoming.finish(&files).await?);
    }
    if written.is_empty() {
        let message = "the body has no file: expected a part with the name `file`";
        return Err(E2bRefusal::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(axum::Json(json!(written)))
}

/// The metadata of the uploaded files, from the headers.
fn metadata_in(headers: &HeaderMap) -> BTreeMap<String, String> {
    let entry = |(name, value): (&header::HeaderName, &HeaderValue)| {
        let name = name.as_str().strip_prefix("x-metadata-")?;
        Some((name.to_owned(), value.to_str().ok()?.to_owned()))
    };
    headers.iter().filter_map(entry).collect()
}

/// The encoding of uploaded files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadEncoding {
    Identity,
    Gzip,
}

/// A file that is being uploaded. Its bytes are buffered and written on threads that may block.
struct UploadedFile {
    path: String,
    sink: Option<UploadSink>,
    buffer: Vec<u8>,
    metadata: BTreeMap<String, String>,
}

enum UploadSink {
    Plain(LimitedFile),
    Gzip(Box<MultiGzDecoder<LimitedFile>>),
}

/// A file with a size limit.
struct LimitedFile {
    part: PartialFile,
    left: u64,
}

impl Write for LimitedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.part.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Turns an error of a writer back into a file error.
fn file_error(error: io::Error, path: &str) -> FileError {
    match error.downcast::<FileError>() {
        Ok(error) => error,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            FileError::BadPattern { reason: "the body is not gzip".to_owned() }
        }
        Err(error) => FileError::from_io("write", path, error),
    }
}

impl UploadedFile {
    async fn open(
        files: &Files,
        path: &str,
        encoding: UploadEncoding,
        limit: u64,
        metadata: &BTreeMap<String, String>,
    ) -> Result<UploadedFile, E2bRefusal> {
        let (target, attributes) = (path.to_owned(), metadata.clone());
        let part = files.act(move |directory| {
            let part = directory.write(&relative(&target)?, Above::Make, Expect::Anything)?;
            for (name, value) in attributes {
                part.set_attribute(&format!("{METADATA_PREFIX}{name}"), value.as_bytes())?;
            }
            Ok(part)
        });
        let part = part.await.map_err(|error| refused(error, path))?;
        let file = LimitedFile { part, left: limit };
        let sink = Some(match encoding {
            UploadEncoding::Gzip => UploadSink::Gzip(Box::new(MultiGzDecoder::new(file))),
            UploadEncoding::Identity => UploadSink::Plain(file),
        });
        let (path, metadata) = (path.to_owned(), metadata.clone());
        Ok(UploadedFile { path, sink, buffer: Vec::new(), metadata })
    }

    async fn add(&mut self, files: &Files, bytes: Bytes) -> Result<(), E2bRefusal> {
        self.buffer.extend_from_slice(&bytes);
        if self.buffer.len() >= CHUNK_BYTES { self.write_buffer(files).await } else { Ok(()) }
    }

    async fn write_buffer(&mut self, files: &Files) -> Result<(), E2bRefusal> {
        let Some(mut sink) = self.sink.take() else { return Ok(()) };
        let (bytes, path) = (std::mem::take(&mut self.buffer), self.path.clone());
        let written = files.act(move |_| {
            let written = match &mut sink {
                UploadSink::Plain(file) => file.write_all(&bytes),
                UploadSink::Gzip(file) => file.write_all(&bytes),
            };
            written.map(|()| sink).map_err(|error| file_error(error, &path))
        });
        self.sink = Some(written.await.map_err(|error| refused(error, &self.path))?);
        Ok(())
    }

    async fn finish(mut self, files: &Files) -> Result<Value, E2bRefusal> {
        self.write_buffer(files).await?;
        let path = self.path.clone();
        if let Some(sink) = self.sink.take() {
            let finished = files.act(move |_| {
                let file = match sink {
                    UploadSink::Plain(file) => file,
                    UploadSink::Gzip(file) => {
                        file.finish().map_err(|error| file_error(error, &path))?
                    }
                };
                file.part.finish()
            });
            finished.await.map_err(|error| refused(error, &self.path))?;
        }
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let mut written = json!({"name": name, "path": self.path, "type": "file"});
        if !self.metadata.is_empty() {
            written["metadata"] = json!(self.metadata);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_compressed_for_clients_that_accept_gzip() {
        let check = |accepted: &str, size: u64, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(accepted).unwrap());
            assert_eq!(wants_gzip(&headers, size), expected, "{accepted:?} {size}");
        };
        check("gzip, deflate", 100, true);
        check("gzip, deflate", MAX_COMPRESSED_BYTES + 1, false);
        check("gzip", MAX_COMPRESSED_BYTES + 1, true);
        check("gzip;q=0, br", 100, false);
        check("identity", 100, false);
        check("", 100, false);
        check("gzip", 0, false);
    }
}
