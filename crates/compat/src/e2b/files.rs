//! `/files`: whole files in and out.

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

use super::{E2bRefusal, address::E2bGuest, filesystem::NOTES, link::FileQuery};
use adapter::Adapter;
use adapter::{
    instance::{Files, absolute, relative},
    multipart::{self, Multipart},
};
use api::transfer::{self, BodyWriter, Chunks};
use files::{Above, FileError, PartialFile, memory::Expect};

/// Bytes sent at once.
const CHUNK: usize = 256 << 10;
/// Larger files are compressed only for clients that want nothing else: time is dearer than bytes.
const WORTH_IT: u64 = 4 << 20;
/// Files of one request.
const MAX_FILES: usize = 10_000;

/// The refusal in the daemon's words, which clients look for.
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

/// Sends a file, or the range of it that is asked for.
pub(super) async fn read(
    State(app): State<Adapter>,
    guest: E2bGuest,
    query: FileQuery,
    headers: HeaderMap,
) -> Result<Response, E2bRefusal> {
    let path = absolute(query.path().unwrap_or_default(), guest.home_of_files()?);
    let files = app.sandbox_files(&guest.sandbox).await?;
    let asked = path.clone();
    let opened = files.act(move |directory| directory.read(&relative(&asked)?)).await;
    let (file, stat) = opened.map_err(|error| refused(error, &path))?;
    let asked = transfer::range(&headers).map(|range| range.within(stat.size));
    let mut response = match asked {
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
            let mut response = squeezed(file).into_response();
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
            response
        }
        // A file of the kernel's own says nothing of its size.
        None if stat.size == 0 => {
            let file = tokio::fs::File::from_std(file);
            Body::from_stream(ReaderStream::with_capacity(file, CHUNK)).into_response()
        }
        None => {
            let body = section(file, 0, stat.size).map_err(|error| refused(error, &path))?;
            ([(header::CONTENT_LENGTH, stat.size.to_string())], body).into_response()
        }
    };
    let headers = response.headers_mut();
    // Never a page of ours, whatever is in it.
    let raw = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, raw);
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

/// A part of a file as a body.
fn section(mut file: std::fs::File, offset: u64, length: u64) -> Result<Body, FileError> {
    use std::io::{Seek, SeekFrom};
    use tokio::io::AsyncReadExt;
    file.seek(SeekFrom::Start(offset)).map_err(|error| FileError::from_io("read", "", error))?;
    let mut file = tokio::fs::File::from_std(file);
    file.set_max_buf_size(CHUNK);
    Ok(Body::from_stream(ReaderStream::with_capacity(file.take(length), CHUNK)))
}

/// Whether the answer is to be compressed.
fn wants_gzip(headers: &HeaderMap, size: u64) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let accepted = accepted.unwrap_or_default().trim();
    let takes = accepted.split(',').any(|one| {
        let mut fields = one.split(';');
        let is_gzip = fields.next().is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip"));
        is_gzip && !fields.any(|field| matches!(field.trim(), "q=0" | "q=0.0"))
    });
    takes && size > 0 && (size <= WORTH_IT || accepted.eq_ignore_ascii_case("gzip"))
}

fn squeezed(mut file: std::fs::File) -> Body {
    let (writer, sender, body) = BodyWriter::new();
    tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(writer, Compression::fast());
        let done = io::copy(&mut file, &mut encoder).and_then(|_| encoder.finish()?.flush());
        if let Err(error) = done {
            // A client that went away is the usual reason.
            let _ = sender.blocking_send(Err(error));
        }
    });
    body
}

/// Writes the files of a body: one that is the body, or those that are its parts.
pub(super) async fn write(
    State(app): State<Adapter>,
    guest: E2bGuest,
    query: FileQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Value>, E2bRefusal> {
    let home = guest.home_of_files()?;
    let files = app.sandbox_files(&guest.sandbox).await?;
    let most = app.settings.limits.file_bytes as u64;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default();
    let gzip = match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => false,
        Some(b"gzip") => true,
        Some(_) => {
            let message = "only gzip is understood as Content-Encoding";
            return Err(E2bRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let notes = notes_in(&headers);
    let mut chunks = Chunks::new(&app, body);
    let asked = query.path();
    let mut written = Vec::new();
    if kind.starts_with("application/octet-stream") {
        let asked = asked.ok_or_else(|| {
            E2bRefusal::new(StatusCode::BAD_REQUEST, "path is required for a raw upload")
        })?;
        let path = absolute(asked, home);
        let mut incoming = UploadedFile::begin(&files, &path, gzip, most, &notes).await?;
        while let Some(chunk) = chunks.next().await? {
            incoming.add(&files, chunk).await?;
        }
        written.push(incoming.finish(&files).await?);
        return Ok(axum::Json(json!(written)));
    }
    let boundary = multipart::boundary(kind).ok_or_else(|| {
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
            let message = format!("a request may have {MAX_FILES} files");
            return Err(E2bRefusal::new(StatusCode::BAD_REQUEST, message));
        }
        let bad = |message: String| E2bRefusal::new(StatusCode::BAD_REQUEST, message);
        let Some(place) = asked.or(head.file.as_deref().filter(|name| !name.is_empty())) else {
            let message =
                "a file needs a name: give `path` in the query, or a filename in its part";
            return Err(bad(message.to_owned()));
        };
        let path = absolute(place, home);
        if !paths.insert(path.clone()) {
            let message = format!(
                "you cannot upload multiple files to the same path '{path}' in one upload request, \
                 only the first specified file was uploaded"
            );
            return Err(bad(message));
        }
        let mut incoming = UploadedFile::begin(&files, &path, gzip, most, &notes).await?;
        while let Some(piece) = parts.piece().await? {
            incoming.add(&files, piece).await?;
        }
        written.push(incoming.finish(&files).await?);
    }
    if written.is_empty() {
        let message = "there is no file in the body: expected a part with the name `file`";
        return Err(E2bRefusal::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(axum::Json(json!(written)))
}

/// The notes of a client on the files that it writes.
fn notes_in(headers: &HeaderMap) -> BTreeMap<String, String> {
    let note = |(name, value): (&header::HeaderName, &HeaderValue)| {
        let name = name.as_str().strip_prefix("x-metadata-")?;
        Some((name.to_owned(), value.to_str().ok()?.to_owned()))
    };
    headers.iter().filter_map(note).collect()
}

/// A file that is being written, in turns on threads that may block.
struct UploadedFile {
    path: String,
    sink: Option<UploadSink>,
    held: Vec<u8>,
    notes: BTreeMap<String, String>,
}

enum UploadSink {
    Plain(Limited),
    Gzip(Box<MultiGzDecoder<Limited>>),
}

/// A file that does not get larger than it may.
struct Limited {
    part: PartialFile,
    left: u64,
}

impl Write for Limited {
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

/// What came of writing, as an error of files again.
fn unwrapped(error: io::Error, path: &str) -> FileError {
    match error.downcast::<FileError>() {
        Ok(error) => error,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            FileError::BadPattern { reason: "the body is not gzip".to_owned() }
        }
        Err(error) => FileError::from_io("write", path, error),
    }
}

impl UploadedFile {
    async fn begin(
        files: &Files,
        path: &str,
        gzip: bool,
        most: u64,
        notes: &BTreeMap<String, String>,
    ) -> Result<UploadedFile, E2bRefusal> {
        let (place, notes) = (path.to_owned(), notes.clone());
        let attributes = notes.clone();
        let part = files.act(move |directory| {
            let part = directory.write(&relative(&place)?, Above::Make, Expect::Anything)?;
            for (name, value) in attributes {
                part.set_attribute(&format!("{NOTES}{name}"), value.as_bytes())?;
            }
            Ok(part)
        });
        let part = part.await.map_err(|error| refused(error, path))?;
        let limited = Limited { part, left: most };
        let sink = if gzip {
            UploadSink::Gzip(Box::new(MultiGzDecoder::new(limited)))
        } else {
            UploadSink::Plain(limited)
        };
        Ok(UploadedFile { path: path.to_owned(), sink: Some(sink), held: Vec::new(), notes })
    }

    async fn add(&mut self, files: &Files, bytes: Bytes) -> Result<(), E2bRefusal> {
        self.held.extend_from_slice(&bytes);
        if self.held.len() >= CHUNK { self.pass_on(files).await } else { Ok(()) }
    }

    async fn pass_on(&mut self, files: &Files) -> Result<(), E2bRefusal> {
        let Some(mut sink) = self.sink.take() else { return Ok(()) };
        let (bytes, path) = (std::mem::take(&mut self.held), self.path.clone());
        let passed = files.act(move |_| {
            let written = match &mut sink {
                UploadSink::Plain(file) => file.write_all(&bytes),
                UploadSink::Gzip(file) => file.write_all(&bytes),
            };
            written.map(|()| sink).map_err(|error| unwrapped(error, &path))
        });
        self.sink = Some(passed.await.map_err(|error| refused(error, &self.path))?);
        Ok(())
    }

    async fn finish(mut self, files: &Files) -> Result<Value, E2bRefusal> {
        self.pass_on(files).await?;
        let path = self.path.clone();
        if let Some(sink) = self.sink.take() {
            let finished = files.act(move |_| {
                let file = match sink {
                    UploadSink::Plain(file) => file,
                    UploadSink::Gzip(file) => {
                        file.finish().map_err(|error| unwrapped(error, &path))?
                    }
                };
                file.part.finish()
            });
            finished.await.map_err(|error| refused(error, &self.path))?;
        }
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let mut written = json!({"name": name, "path": self.path, "type": "file"});
        if !self.notes.is_empty() {
            written["metadata"] = json!(self.notes);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_compressed_for_whoever_takes_it() {
        let check = |accepted: &str, size: u64, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(accepted).unwrap());
            assert_eq!(wants_gzip(&headers, size), expected, "{accepted:?} {size}");
        };
        check("gzip, deflate", 100, true);
        check("gzip, deflate", WORTH_IT + 1, false);
        check("gzip", WORTH_IT + 1, true);
        check("gzip;q=0, br", 100, false);
        check("identity", 100, false);
        check("", 100, false);
        check("gzip", 0, false);
    }
}
