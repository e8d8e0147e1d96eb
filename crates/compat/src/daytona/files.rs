//! The files of the toolbox.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use axum::{
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::{DaytonaGuest, DaytonaJson, DaytonaRefusal};
use adapter::Adapter;
use adapter::{
    instance::{Files, absolute, relative},
    multipart::{self, Multipart},
    process::{ProcessEnd, Start},
    wrap::Config,
};
use api::transfer::{BodyWriter, Chunks};
use files::{Above, FileError, FileKind, PartialFile, Stat, memory::Expect};
use store::SandboxRecord;

/// Bytes of a field that is no file.
const MAX_FIELD_BYTES: usize = 8 << 10;
/// Bytes of a file whose text is replaced.
const MAX_SEARCHED_BYTES: u64 = 16 << 20;
/// Entries of one list.
const MAX_ENTRIES: usize = 100_000;
/// Directories below each other that are listed at once.
const MAX_DEPTH: u32 = 64;
/// Paths of one body whose files are yet to come.
const MAX_PATHS: usize = 1_000;
/// The prefix of the boundary between the files of an answer.
const BOUNDARY: &str = "DAYTONA-FILE-BOUNDARY";

/// What a query may say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DaytonaFileQuery {
    path: String,
    mode: Option<String>,
    owner: Option<String>,
    group: Option<String>,
    recursive: Option<String>,
    source: String,
    destination: String,
    pattern: String,
    depth: Option<u32>,
}

impl DaytonaFileQuery {
    fn place(&self, sandbox: &SandboxRecord) -> String {
        absolute(&self.path, &sandbox.row.home)
    }
}

fn shown(files: &Files, stat: &Stat) -> Value {
    let (user, group) = stat.owner.unwrap_or(files.owner);
    let bits = stat.mode.unwrap_or(0) & 0o7777;
    let at = stat.modified_at.map(|at| at.to_string()).unwrap_or_default();
    json!({
        "name": stat.path.rsplit('/').next().unwrap_or_default(),
        "path": format!("/{}", stat.path),
        "size": stat.size,
        "mode": adapter::instance::permissions(stat.kind, bits & 0o777),
        "modTime": at,
        "modifiedAt": at,
        "isDir": stat.kind == FileKind::Directory,
        "owner": files.name(user, files.owner.0),
        "group": files.name(group, files.owner.1),
        "permissions": format!("{bits:04o}"),
    })
}

fn refused(error: FileError, path: &str) -> DaytonaRefusal {
    match error {
        FileError::Missing { .. } => {
            let message = format!("file not found: {path}");
            DaytonaRefusal::coded(StatusCode::NOT_FOUND, "FILE_NOT_FOUND", message)
        }
        other => other.into(),
    }
}

/// What is in a directory.
pub(super) async fn list(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = asking.place(&sandbox);
    let depth = asking.depth.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(DaytonaRefusal::bad(format!("depth must be 1 to {MAX_DEPTH}")));
    }
    let files = app.sandbox_files(&sandbox).await?;
    let place = path.clone();
    let listed = files
        .act(move |directory| directory.list(&relative(&place)?, depth, None, MAX_ENTRIES))
        .await;
    let listed = listed.map_err(|error| refused(error, &path))?;
    Ok(axum::Json(listed.iter().map(|stat| shown(&files, stat)).collect()))
}

/// What is known of a file.
pub(super) async fn info(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = asking.place(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let place = path.clone();
    let found = files.act(move |directory| directory.stat_followed(&relative(&place)?)).await;
    Ok(axum::Json(shown(&files, &found.map_err(|error| refused(error, &path))?)))
}

/// Creates a directory and its parents.
pub(super) async fn folder(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = asking.place(&sandbox);
    let mode = asking.mode.as_deref().filter(|mode| !mode.is_empty());
    if let Some(mode) = mode {
        octal(mode)?;
    }
    let files = app.sandbox_files(&sandbox).await?;
    let place = path.clone();
    files.act(move |directory| directory.make_directories(&relative(&place)?)).await?;
    if let Some(mode) = mode {
        change(&app, &sandbox, "chmod", mode, &path).await?;
    }
    Ok(StatusCode::CREATED)
}

/// Refuses what is no mode of a file.
fn octal(mode: &str) -> Result<(), DaytonaRefusal> {
    match u32::from_str_radix(mode, 8) {
        Ok(0..=0o7777) => Ok(()),
        _ => Err(DaytonaRefusal::bad(format!("invalid mode: {mode}"))),
    }
}

/// Removes a file, or a directory if it may.
pub(super) async fn delete(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = asking.place(&sandbox);
    let recursive = asking.recursive.as_deref() == Some("true");
    let files = app.sandbox_files(&sandbox).await?;
    let place = path.clone();
    let removed = files.act(move |directory| {
        let path = relative(&place)?;
        let kind = directory.stat(&path)?.kind;
        match (kind, recursive) {
            (FileKind::Directory, false) => Err(FileError::IsDirectory { path: place }),
            (_, true) => directory.remove_tree(&path),
            (_, false) => directory.remove(&path),
        }
    });
    removed.await.map_err(|error| refused(error, &path))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives something another path.
pub(super) async fn rename(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (from, to) = (
        absolute(&asking.source, &sandbox.row.home),
        absolute(&asking.destination, &sandbox.row.home),
    );
    let files = app.sandbox_files(&sandbox).await?;
    let source = from.clone();
    let moved = files.act(move |directory| {
        directory.rename(&relative(&source)?, &relative(&to)?, Expect::Anything)
    });
    moved.await.map_err(|error| refused(error, &from))?;
    Ok(StatusCode::OK)
}

pub(super) async fn download(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<Response, DaytonaRefusal> {
    let path = asking.place(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let place = path.clone();
    let opened = files.act(move |directory| directory.read(&relative(&place)?)).await;
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

/// Where the bytes of a file come from.
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

/// A file that is written piece by piece.
async fn receive(
    files: &Files,
    path: &str,
    from: &mut UploadField<'_>,
) -> Result<u64, DaytonaRefusal> {
    let place = path.to_owned();
    let begun = files
        .act(move |directory| directory.write(&relative(&place)?, Above::Make, Expect::Anything));
    let mut part: Box<PartialFile> = Box::new(begun.await.map_err(|error| refused(error, path))?);
    let mut size = 0;
    while let Some(piece) = from.piece().await? {
        size += piece.len() as u64;
        part = files.act(move |_| part.write(&piece).map(|()| part)).await?;
    }
    files.act(move |_| part.finish()).await?;
    Ok(size)
}

fn parts(app: &Adapter, headers: &HeaderMap, body: Body) -> Result<Multipart, DaytonaRefusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = multipart::boundary(kind.unwrap_or_default());
    let boundary = boundary.ok_or_else(|| DaytonaRefusal::bad("expected multipart/form-data"))?;
    Ok(Multipart::new(Chunks::new(app, body), &boundary))
}

pub(super) async fn upload(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = asking.place(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let mut parts = parts(&app, &headers, body)?;
    while let Some(head) = parts.next().await? {
        if head.file.is_some() || head.name == "file" {
            receive(&files, &path, &mut UploadField::Part(&mut parts)).await?;
            return Ok(StatusCode::OK);
        }
    }
    Err(DaytonaRefusal::bad("there is no file in the body"))
}

/// Writes one file that is the body, or the first file of a form.
pub(super) async fn upload_raw(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if asking.path.is_empty() {
        return Err(DaytonaRefusal::bad("path is missing"));
    }
    let path = asking.place(&sandbox);
    let files = app.sandbox_files(&sandbox).await?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bytes = if multipart::boundary(kind.unwrap_or_default()).is_some() {
        let mut parts = parts(&app, &headers, body)?;
        loop {
            match parts.next().await? {
                Some(head) if head.file.is_some() || head.name == "file" => {
                    break receive(&files, &path, &mut UploadField::Part(&mut parts)).await?;
                }
                Some(_) => {}
                None => return Err(DaytonaRefusal::bad("there is no file in the body")),
            }
        }
    } else {
        receive(&files, &path, &mut UploadField::Body(Chunks::new(&app, body))).await?
    };
    Ok(axum::Json(json!({"path": asking.path, "bytes": bytes})))
}

/// Writes several files: `files[0].path`, `files[0].file`, and so on.
pub(super) async fn bulk_upload(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let files = app.sandbox_files(&sandbox).await?;
    let mut parts = parts(&app, &headers, body)?;
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    let mut written = Vec::new();
    while let Some(head) = parts.next().await? {
        let Some((which, what)) = head.name.split_once("].") else { continue };
        match what {
            "path" => {
                let mut field = Vec::new();
                while let Some(piece) = parts.piece().await? {
                    field.extend_from_slice(&piece);
                    if field.len() > MAX_FIELD_BYTES {
                        return Err(DaytonaRefusal::bad("a path is too long"));
                    }
                }
                let path = String::from_utf8(field)
                    .map_err(|_| DaytonaRefusal::bad("a path is not UTF-8"))?;
                paths.insert(which.to_owned(), path);
                if paths.len() > MAX_PATHS {
                    return Err(DaytonaRefusal::bad(format!(
                        "more than {MAX_PATHS} paths without a file"
                    )));
                }
            }
            "file" => {
                let asked =
                    paths.remove(which).ok_or_else(|| DaytonaRefusal::bad("a file has no path"))?;
                let path = absolute(&asked, &sandbox.row.home);
                let bytes = receive(&files, &path, &mut UploadField::Part(&mut parts)).await?;
                written.push(json!({"path": asked, "bytes": bytes}));
            }
            _ => {}
        }
    }
    Ok(axum::Json(json!({"files": written})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DownloadPaths {
    paths: Vec<String>,
}

/// Sends several files, each a part of the answer; what cannot be read is a part that says why.
pub(super) async fn bulk_download(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<DownloadPaths>,
) -> Result<Response, DaytonaRefusal> {
    let files = app.sandbox_files(&sandbox).await?;
    // No file can hold a line that is made only now.
    let boundary = format!("{BOUNDARY}-{}", uuid::Uuid::now_v7().simple());
    let kind = format!("multipart/form-data; boundary={boundary}");
    let (mut writer, sender, body) = BodyWriter::new();
    tokio::task::spawn_blocking(move || {
        let write = || -> std::io::Result<()> {
            for path in asked.paths {
                // One at a time: a long list must not use up the server's descriptors.
                let place = absolute(&path, &sandbox.row.home);
                let found = files.act_blocking(|directory| directory.read(&relative(&place)?));
                let found = found.map_err(|error| refused(error, &path));
                let name = path.replace(['"', '\r', '\n'], "_");
                let field = if found.is_ok() { "file" } else { "error" };
                let escaped = escaped(&path);
                write!(
                    writer,
                    "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; \
                     filename=\"{name}\"; filename*=utf-8''{escaped}\r\n"
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
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// A name as RFC 5987 has it: a space is no plus there.
fn escaped(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

/// Runs a program over files and returns its output.
async fn tool(
    app: &Adapter,
    sandbox: &SandboxRecord,
    cmd: &str,
    args: &[&str],
) -> Result<(i32, Vec<u8>), DaytonaRefusal> {
    let start = Start {
        config: Config {
            cmd: cmd.to_owned(),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
            ..Config::default()
        },
        tag: None,
        stdin: false,
        timeout: Some(std::time::Duration::from_secs(60)),
        pty: None,
    };
    let ran = app.run_process(sandbox, start).await?;
    match ran.end {
        // What it could not read is not what it was asked for.
        ProcessEnd::Exit(code @ 0..=2) => Ok((code, ran.stdout)),
        _ => Err(DaytonaRefusal::bad(String::from_utf8_lossy(&ran.stderr).trim().to_owned())),
    }
}

/// The path that is asked for, if there is something.
async fn existing(
    app: &Adapter,
    sandbox: &SandboxRecord,
    asking: &DaytonaFileQuery,
) -> Result<String, DaytonaRefusal> {
    let path = asking.place(sandbox);
    let place = path.clone();
    let files = app.sandbox_files(sandbox).await?;
    let found = files.act(move |directory| directory.stat_followed(&relative(&place)?)).await;
    found.map_err(|error| refused(error, &path))?;
    Ok(path)
}

/// Lines that have a pattern in them.
pub(super) async fn find(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = existing(&app, &sandbox, &asking).await?;
    let mut found = Vec::new();
    // What is no pattern stands for itself.
    for options in ["-rnIZs", "-rnIZsF"] {
        let args = [options, "-e", &asking.pattern, "--", &path];
        let (code, said) = tool(&app, &sandbox, "grep", &args).await?;
        found = said;
        if code < 2 || !found.is_empty() {
            break;
        }
    }
    let mut lines = Vec::new();
    for line in String::from_utf8_lossy(&found).lines() {
        let Some((file, rest)) = line.split_once('\0') else { continue };
        let Some((number, content)) = rest.split_once(':') else { continue };
        let number: u64 = number.parse().unwrap_or(0);
        lines.push(json!({"file": file, "line": number, "content": content}));
    }
    Ok(axum::Json(json!(lines)))
}

/// Files whose names match a pattern.
pub(super) async fn search(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let path = existing(&app, &sandbox, &asking).await?;
    let args = [&path, "-mindepth", "1", "-name", &asking.pattern, "-print0"];
    let (_, found) = tool(&app, &sandbox, "find", &args).await?;
    let text = String::from_utf8_lossy(&found);
    let files: Vec<&str> = text.split('\0').filter(|file| !file.is_empty()).collect();
    Ok(axum::Json(json!({"files": files})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Replace {
    files: Vec<String>,
    pattern: String,
    new_value: String,
}

/// Replaces a text in files.
pub(super) async fn replace(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<Replace>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if asked.pattern.is_empty() {
        return Err(DaytonaRefusal::bad("pattern is missing"));
    }
    let files = app.sandbox_files(&sandbox).await?;
    let mut results = Vec::new();
    for file in asked.files {
        let path = absolute(&file, &sandbox.row.home);
        let (pattern, new_value) = (asked.pattern.clone(), asked.new_value.clone());
        let done = files.act(move |directory| {
            let path = relative(&path)?;
            let (file, stat) = directory.read(&path)?;
            if stat.size > MAX_SEARCHED_BYTES {
                return Err(FileError::TooLarge { path: stat.path, limit: MAX_SEARCHED_BYTES });
            }
            let mut text = String::new();
            file.take(MAX_SEARCHED_BYTES)
                .read_to_string(&mut text)
                .map_err(|error| FileError::from_io("read", &stat.path, error))?;
            let mut part = directory.write(&path, Above::MustExist, Expect::Anything)?;
            part.write(text.replace(&pattern, &new_value).as_bytes())?;
            part.finish().map(drop)
        });
        results.push(match done.await {
            Ok(()) => json!({"file": file, "success": true}),
            Err(error) => json!({"file": file, "success": false, "error": error.to_string()}),
        });
    }
    Ok(axum::Json(json!(results)))
}

async fn change(
    app: &Adapter,
    sandbox: &SandboxRecord,
    program: &str,
    to: &str,
    path: &str,
) -> Result<(), DaytonaRefusal> {
    match tool(app, sandbox, program, &["--", to, path]).await? {
        (0, _) => Ok(()),
        _ => Err(DaytonaRefusal::bad(format!("{program} {to} {path} was refused"))),
    }
}

/// Changes who may do what with a file.
pub(super) async fn permissions(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
    Query(asking): Query<DaytonaFileQuery>,
) -> Result<StatusCode, DaytonaRefusal> {
    let path = existing(&app, &sandbox, &asking).await?;
    if let Some(mode) = asking.mode.as_deref().filter(|mode| !mode.is_empty()) {
        octal(mode)?;
        change(&app, &sandbox, "chmod", mode, &path).await?;
    }
    for (program, to) in [("chown", &asking.owner), ("chgrp", &asking.group)] {
        if let Some(to) = to.as_deref().filter(|to| !to.is_empty()) {
            change(&app, &sandbox, program, to, &path).await?;
        }
    }
    Ok(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_escaped_as_clients_read_it() {
        assert_eq!(escaped("/tmp/a b+c.txt"), "%2Ftmp%2Fa%20b%2Bc.txt");
        assert_eq!(escaped("ü"), "%C3%BC");
    }
}
