//! Downloads and uploads.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
};

use axum::{
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::query::{DaytonaFileQuery, refused};
use crate::daytona::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::{
    Adapter,
    instance::{Files, absolute, relative},
    multipart::{self, Multipart},
};
use api::transfer::{BodyWriter, Chunks};
use files::{Above, PartialFile, memory::Expect};

/// The limit of a form field that is not a file.
const MAX_FIELD_BYTES: usize = 8 << 10;
/// The limit of paths in a form whose files have not arrived yet.
const MAX_PATHS: usize = 1_000;
/// The prefix of the boundary between the files of a response.
const BOUNDARY_PREFIX: &str = "DAYTONA-FILE-BOUNDARY";

pub(in crate::daytona) async fn download(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
) -> Result<Response, DaytonaRefusal> {
    let path = query.absolute_path(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let target = path.clone();
    let opened = files.act(move |directory| directory.read(&relative(&target)?)).await;
    let (file, _) = opened.map_err(|error| refused(error, &path))?;
    let body =
        Body::from_stream(ReaderStream::with_capacity(tokio::fs::File::from_std(file), 256 << 10));
    let mut response = body.into_response();
    let raw = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, raw);
    response
        .headers_mut()
        .insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

/// The source of an uploaded file's bytes.
enum UploadField<'a> {
    Part(&'a mut Multipart),
    Body(Chunks),
}

impl UploadField<'_> {
    async fn piece(&mut self) -> Result<Option<axum::body::Bytes>, DaytonaRefusal> {
        Ok(match self {
            UploadField::Part(parts) => parts.piece().await?,
            UploadField::Body(chunks) => chunks.next().await?,
        })
    }
}

/// Writes an uploaded file. Returns its size.
async fn receive(
    files: &Files,
    path: &str,
    source: &mut UploadField<'_>,
) -> Result<u64, DaytonaRefusal> {
    let target = path.to_owned();
    let opened = files
        .act(move |directory| directory.write(&relative(&target)?, Above::Make, Expect::Anything));
    let mut part: Box<PartialFile> = Box::new(opened.await.map_err(|error| refused(error, path))?);
    let mut size = 0;
    while let Some(piece) = source.piece().await? {
        size += piece.len() as u64;
        part = files.act(move |_| part.write(&piece).map(|()| part)).await?;
    }
    files.act(move |_| part.finish()).await?;
    Ok(size)
}

fn parts(app: &Adapter, headers: &HeaderMap, body: Body) -> Result<Multipart, DaytonaRefusal> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = multipart::boundary(content_type.unwrap_or_default());
    let boundary = boundary.ok_or_else(|| DaytonaRefusal::bad("expected multipart/form-data"))?;
    Ok(Multipart::new(Chunks::new(app, body), &boundary))
}

pub(in crate::daytona) async fn upload(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = query.absolute_path(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let mut parts = parts(&app, &headers, body)?;
    while let Some(head) = parts.next().await? {
        if head.file.is_some() || head.name == "file" {
            receive(&files, &path, &mut UploadField::Part(&mut parts)).await?;
            return Ok(StatusCode::OK);
        }
    }
    Err(DaytonaRefusal::bad("the body has no file"))
}

/// Writes one file: the body itself, or the first file of a form.
pub(in crate::daytona) async fn upload_raw(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    Query(query): Query<DaytonaFileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if query.path.is_empty() {
        return Err(DaytonaRefusal::bad("path is missing"));
    }
    let path = query.absolute_path(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bytes = if multipart::boundary(content_type.unwrap_or_default()).is_some() {
        let mut parts = parts(&app, &headers, body)?;
        loop {
            match parts.next().await? {
                Some(head) if head.file.is_some() || head.name == "file" => {
                    break receive(&files, &path, &mut UploadField::Part(&mut parts)).await?;
                }
                Some(_) => {}
                None => return Err(DaytonaRefusal::bad("the body has no file")),
            }
        }
    } else {
        receive(&files, &path, &mut UploadField::Body(Chunks::new(&app, body))).await?
    };
    Ok(axum::Json(json!({"path": query.path, "bytes": bytes})))
}

/// Writes several files: `files[0].path`, `files[0].file`, and so on.
pub(in crate::daytona) async fn bulk_upload(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let files = app.sandbox_files(&sandbox).await?;
    let mut parts = parts(&app, &headers, body)?;
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    let mut written = Vec::new();
    while let Some(head) = parts.next().await? {
        let Some((index, field)) = head.name.split_once("].") else { continue };
        match field {
            "path" => {
                let mut text = Vec::new();
                while let Some(piece) = parts.piece().await? {
                    text.extend_from_slice(&piece);
                    if text.len() > MAX_FIELD_BYTES {
                        return Err(DaytonaRefusal::bad("a path is too long"));
                    }
                }
                let path = String::from_utf8(text)
                    .map_err(|_| DaytonaRefusal::bad("a path is not UTF-8"))?;
                paths.insert(index.to_owned(), path);
                if paths.len() > MAX_PATHS {
                    return Err(DaytonaRefusal::bad(format!(
                        "more than {MAX_PATHS} paths without a file"
                    )));
                }
            }
            "file" => {
                let requested =
                    paths.remove(index).ok_or_else(|| DaytonaRefusal::bad("a file has no path"))?;
                let path = absolute(&requested, &sandbox.row.home);
                let bytes = receive(&files, &path, &mut UploadField::Part(&mut parts)).await?;
                written.push(json!({"path": requested, "bytes": bytes}));
            }
            _ => {}
        }
    }
    Ok(axum::Json(json!({"files": written})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct DownloadPaths {
    paths: Vec<String>,
}

/// Sends several files, each as a part of the response. The part of an unreadable file has the error.
pub(in crate::daytona) async fn bulk_download(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<DownloadPaths>,
) -> Result<Response, DaytonaRefusal> {
    let files = app.sandbox_files(&sandbox).await?;
    // The boundary is random, so no file contains it.
    let boundary = format!("{BOUNDARY_PREFIX}-{}", uuid::Uuid::now_v7().simple());
    let content_type = format!("multipart/form-data; boundary={boundary}");
    let (mut writer, sender, body) = BodyWriter::new();
    base::task::blocking(move || {
        let write = || -> std::io::Result<()> {
            for path in request.paths {
                // Files are opened one at a time: a long list must not use up the server's descriptors.
                let target = absolute(&path, &sandbox.row.home);
                let found = files.act_blocking(|directory| directory.read(&relative(&target)?));
                let found = found.map_err(|error| refused(error, &path));
                let name = path.replace(['"', '\r', '\n'], "_");
                let field = if found.is_ok() { "file" } else { "error" };
                let encoded = percent_encoded(&path);
                write!(
                    writer,
                    "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; \
                     filename=\"{name}\"; filename*=utf-8''{encoded}\r\n"
                )?;
                match found {
                    Ok((mut file, stat)) => {
                        write!(
                            writer,
                            "Content-Length: {}\r\nContent-Type: application/octet-stream\r\n\r\n",
                            stat.size
                        )?;
                        std::io::copy(&mut (&mut file).take(stat.size), &mut writer)?;
                    }
                    Err(refusal) => {
                        let body = refusal.body().to_string();
                        write!(
                            writer,
                            "Content-Type: application/json; charset=utf-8\r\n\r\n{body}"
                        )?;
                    }
                }
                writer.write_all(b"\r\n")?;
            }
            write!(writer, "--{boundary}--\r\n")?;
            writer.flush()
        };
        if let Err(error) = write() {
            let _ = sender.blocking_send(Err(error));
        }
    });
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// Percent-encodes a name (RFC 5987), with `%20` for a space instead of a plus sign.
fn percent_encoded(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_percent_encoded() {
        assert_eq!(percent_encoded("/tmp/a b+c.txt"), "%2Ftmp%2Fa%20b%2Bc.txt");
        assert_eq!(percent_encoded("ü"), "%C3%BC");
    }
}
