//! Tools for the files and memories of a thread.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    terminals::ensure_thread,
    tool::{ToolCall, ToolError, ToolReply},
};
use crate::native::{NativeApi, NativeProblem, escape, target};

/// Default and maximum number of bytes of one read.
const DEFAULT_READ_BYTES: u64 = 64 << 10;
const MAX_READ_BYTES: u64 = 1 << 20;
/// Largest file that `edit_file` changes.
const MAX_EDIT_BYTES: u64 = 4 << 20;
const MAX_ITEMS: u32 = 1000;

/// Builds the target of a route of a thread's files.
fn file_target(
    native: &NativeApi,
    thread: Option<&str>,
    verb: &str,
    parameters: &[(&str, Option<String>)],
) -> String {
    let path = format!("/api/threads/{}/fs/{verb}", escape(native.thread(thread)));
    target(path, parameters)
}

/// Selects a file and a range.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFileArguments {
    /// Absolute path. `/workspace/` holds the project's files, where shells start.
    path: String,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
    /// Offset of the first byte; 0 by default.
    offset: Option<u64>,
    /// Maximum number of bytes; 65536 by default, 1048576 at most.
    limit: Option<u64>,
}

/// The content of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileContent {
    /// Path of the file.
    path: String,
    /// The content, if it is UTF-8.
    content: Option<String>,
    /// The content as base64, if it is not UTF-8.
    content_base64: Option<String>,
    /// Offset of the first byte.
    offset: u64,
    /// Offset after the last byte, for the next call.
    next_offset: u64,
    /// Whether the content reaches the end of the file.
    end: bool,
    /// Size of the whole file in bytes.
    size: u64,
}

/// Reads a range of a file.
pub(crate) async fn read_range(
    native: &NativeApi,
    thread: Option<&str>,
    path: &str,
    (offset, limit): (u64, u64),
) -> Result<FileContent, NativeProblem> {
    let target = file_target(
        native,
        thread,
        "read",
        &[
            ("path", Some(path.to_owned())),
            ("offset", Some(offset.to_string())),
            ("limit", Some(limit.to_string())),
            ("format", Some("json".to_owned())),
        ],
    );
    content(native, &target, path).await
}

/// Reads the content of a route that answers in JSON.
async fn content(
    native: &NativeApi,
    target: &str,
    path: &str,
) -> Result<FileContent, NativeProblem> {
    let read = native.get(target).await?.json();
    let number = |key: &str| read[key].as_u64().unwrap_or_default();
    let text = |key: &str| read[key].as_str().map(str::to_owned);
    let content = FileContent {
        path: path.to_owned(),
        content: text("content"),
        content_base64: text("content_base64"),
        offset: number("offset"),
        next_offset: number("next_offset"),
        end: read["end"].as_bool().unwrap_or(true),
        size: number("size"),
    };
    Ok(content.without_cut_character())
}

impl FileContent {
    /// Returns the content as text, or as base64.
    pub(crate) fn into_parts(self) -> (Option<String>, Option<String>) {
        (self.content, self.content_base64)
    }

    /// Leaves a character that the limit cut to the next part, so that a part of a text is a text.
    fn without_cut_character(mut self) -> FileContent {
        let encoded = self.content_base64.as_deref().filter(|_| !self.end);
        let Some(Ok(mut bytes)) = encoded.map(|text| BASE64_STANDARD.decode(text)) else {
            return self;
        };
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            bytes.truncate(error.valid_up_to());
            self.next_offset = self.offset + bytes.len() as u64;
            self.content = String::from_utf8(bytes).ok();
            self.content_base64 = None;
        }
        self
    }

    /// Says how to read on, if the content does not reach the end of the file.
    pub(crate) fn notice_of_rest(&self) -> Option<String> {
        let (next, size) = (self.next_offset, self.size);
        (!self.end).then(|| format!("[{size} bytes in all; continue with offset={next}]"))
    }

    fn reply(self) -> ToolReply<FileContent> {
        let mut text = match (&self.content, &self.content_base64) {
            (Some(text), _) => text.clone(),
            (None, Some(base64)) => base64.clone(),
            (None, None) => String::new(),
        };
        if let Some(notice) = self.notice_of_rest() {
            text.push_str(&format!("\n{notice}"));
        }
        ToolReply::Done { text, data: self }
    }
}

pub(crate) async fn read_file(
    call: ToolCall,
    arguments: ReadFileArguments,
) -> Result<ToolReply<FileContent>, ToolError> {
    let ReadFileArguments { path, thread, offset, limit } = arguments;
    let limit = limit.unwrap_or(DEFAULT_READ_BYTES).clamp(1, MAX_READ_BYTES);
    let range = (offset.unwrap_or(0), limit);
    Ok(read_range(&call.native, thread.as_deref(), &path, range).await?.reply())
}

/// A file to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFileArguments {
    /// Absolute path; missing directories are created.
    path: String,
    /// The whole content as text.
    content: Option<String>,
    /// The whole content as base64, instead of text.
    content_base64: Option<String>,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileWrite {
    /// Path of the file.
    path: String,
    /// Size in bytes.
    size: u64,
}

fn decode(content: Option<String>, base64: Option<String>) -> Result<Vec<u8>, ToolError> {
    match (content, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map_err(|error| ToolError::Arguments(format!("content_base64: {error}"))),
        (None, None) | (Some(_), Some(_)) => {
            Err(ToolError::Arguments("give either content or content_base64".into()))
        }
    }
}

/// Writes a whole file atomically; `headers` may state what the file must be before.
async fn write(
    native: &NativeApi,
    thread: Option<&str>,
    path: &str,
    headers: HeaderMap,
    content: Vec<u8>,
) -> Result<ToolReply<FileWrite>, ToolError> {
    ensure_thread(native, &escape(native.thread(thread))).await?;
    let parameters = [("path", Some(path.to_owned())), ("create_dirs", Some("true".to_owned()))];
    let target = file_target(native, thread, "write", &parameters);
    put(native, &target, path, headers, content).await
}

/// Writes the content of a route that answers as `write` does.
async fn put(
    native: &NativeApi,
    target: &str,
    path: &str,
    headers: HeaderMap,
    content: Vec<u8>,
) -> Result<ToolReply<FileWrite>, ToolError> {
    let written = native.put_file(target, headers, content).await?.json();
    let data =
        FileWrite { path: path.to_owned(), size: written["size"].as_u64().unwrap_or_default() };
    Ok(ToolReply::Done { text: format!("{} bytes in {}", data.size, data.path), data })
}

pub(crate) async fn write_file(
    call: ToolCall,
    arguments: WriteFileArguments,
) -> Result<ToolReply<FileWrite>, ToolError> {
    let WriteFileArguments { path, content, content_base64, thread } = arguments;
    let content = decode(content, content_base64)?;
    write(&call.native, thread.as_deref(), &path, HeaderMap::new(), content).await
}

/// A replacement in a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFileArguments {
    /// Absolute path of a text file of at most 4 MiB.
    path: String,
    /// The text to replace, exactly as it is in the file.
    old_text: String,
    /// The text to insert instead.
    new_text: String,
    /// Replaces every occurrence; otherwise `old_text` must occur once.
    #[serde(default)]
    replace_all: bool,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

/// A file that was edited.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileEdit {
    /// Path of the file.
    path: String,
    /// Number of replaced occurrences.
    replaced: usize,
    /// Size in bytes.
    size: u64,
}

/// Replaces text in a file. A change of the file by another client in between is refused, not overwritten.
pub(crate) async fn edit_file(
    call: ToolCall,
    arguments: EditFileArguments,
) -> Result<ToolReply<FileEdit>, ToolError> {
    let EditFileArguments { path, old_text, new_text, replace_all, thread } = arguments;
    let thread = thread.as_deref();
    if old_text.is_empty() {
        return Err(ToolError::Arguments("old_text must not be empty".into()));
    }
    let limit = Some((MAX_EDIT_BYTES + 1).to_string());
    let parameters = [("path", Some(path.clone())), ("limit", limit)];
    let reply = call.native.get(&file_target(&call.native, thread, "read", &parameters)).await?;
    if reply.body.len() as u64 > MAX_EDIT_BYTES {
        return Err(ToolError::Failed(format!("{path} is larger than {MAX_EDIT_BYTES} bytes")));
    }
    let text = std::str::from_utf8(&reply.body)
        .map_err(|_| ToolError::Failed(format!("{path} is not UTF-8 text")))?;
    let replaced = text.matches(&old_text).count();
    match replaced {
        0 => return Err(ToolError::Failed(format!("old_text does not occur in {path}"))),
        count if count > 1 && !replace_all => {
            return Err(ToolError::Failed(format!(
                "old_text occurs {count} times in {path}; make it longer, or set replace_all"
            )));
        }
        _ => {}
    }
    let mut headers = HeaderMap::new();
    if let Ok(etag) = HeaderValue::from_str(reply.header("etag"))
        && !etag.is_empty()
    {
        headers.insert(header::IF_MATCH, etag);
    }
    let content = text.replace(&old_text, &new_text).into_bytes();
    let size = content.len() as u64;
    match write(&call.native, thread, &path, headers, content).await {
        Err(ToolError::Native(problem)) if problem.status == StatusCode::PRECONDITION_FAILED => {
            return Err(ToolError::Failed(format!("{path} was changed meanwhile; read it again")));
        }
        written => drop(written?),
    }
    let text = format!("{replaced} replaced in {path}");
    Ok(ToolReply::Done { text, data: FileEdit { path, replaced, size } })
}

/// Selects a directory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFilesArguments {
    /// Absolute path of the directory; `/workspace` by default.
    path: Option<String>,
    /// Number of levels; 1 by default, 64 at most.
    depth: Option<u32>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

/// A page of the entries of a directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileList {
    /// The entries; each directory is followed by its own entries.
    items: Vec<FileEntry>,
    /// Continues the list; null at its end.
    next_cursor: Option<String>,
}

/// A file or directory.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FileEntry {
    /// Absolute path.
    path: String,
    /// `file`, `directory`, `link` or `other`.
    #[serde(rename = "type")]
    kind: String,
    /// Size in bytes.
    size: u64,
}

pub(crate) async fn list_files(
    call: ToolCall,
    arguments: ListFilesArguments,
) -> Result<ToolReply<FileList>, ToolError> {
    let ListFilesArguments { path, depth, limit, cursor, thread } = arguments;
    let parameters = [
        ("path", Some(path.unwrap_or_else(|| "/workspace".to_owned()))),
        ("depth", depth.map(|depth| depth.to_string())),
        ("limit", limit.map(|limit| limit.min(MAX_ITEMS).to_string())),
        ("cursor", cursor),
    ];
    let target = file_target(&call.native, thread.as_deref(), "list", &parameters);
    let page = call.native.get(&target).await?.json();
    let items: Vec<FileEntry> = serde_json::from_value(page["items"].clone())
        .map_err(|error| ToolError::Failed(format!("cannot read the list: {error}")))?;
    let next_cursor = page["next_cursor"].as_str().map(str::to_owned);
    let mut text: String = items
        .iter()
        .map(|entry| format!("{:9} {:>10} {}\n", entry.kind, entry.size, entry.path))
        .collect();
    if let Some(cursor) = &next_cursor {
        text.push_str(&format!("[more; continue with cursor={cursor}]"));
    }
    Ok(ToolReply::Done { text, data: FileList { items, next_cursor } })
}

/// Selects files and a pattern.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFilesArguments {
    /// A regular expression, matched line by line.
    pattern: String,
    /// Absolute path of the file or directory; `/workspace` by default.
    path: Option<String>,
    /// Maximum number of matches; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

/// The matching lines.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileMatches {
    /// The matches in the order of their files.
    items: Vec<FileMatch>,
    /// Whether there may be more matches.
    truncated: bool,
    /// The limit that ended the search early.
    reason: Option<String>,
}

/// A line that matches the pattern.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FileMatch {
    /// Absolute path of the file.
    path: String,
    /// Line number, from 1.
    line: u64,
    /// Text of the line; long lines are truncated.
    text: String,
}

pub(crate) async fn search_files(
    call: ToolCall,
    arguments: SearchFilesArguments,
) -> Result<ToolReply<FileMatches>, ToolError> {
    let SearchFilesArguments { pattern, path, limit, thread } = arguments;
    let parameters = [
        ("path", Some(path.unwrap_or_else(|| "/workspace".to_owned()))),
        ("pattern", Some(pattern)),
        ("limit", limit.map(|limit| limit.min(MAX_ITEMS).to_string())),
    ];
    let target = file_target(&call.native, thread.as_deref(), "search", &parameters);
    let found = call.native.get(&target).await?.json();
    let items: Vec<FileMatch> = serde_json::from_value(found["items"].clone())
        .map_err(|error| ToolError::Failed(format!("cannot read the matches: {error}")))?;
    let truncated = found["truncated"].as_bool().unwrap_or_default();
    let mut text: String = items
        .iter()
        .map(|found| format!("{}:{}:{}\n", found.path, found.line, found.text))
        .collect();
    if items.is_empty() {
        text.push_str("no matches\n");
    }
    let reason = found["reason"].as_str().map(str::to_owned);
    if let Some(reason) = &reason {
        text.push_str(&format!(
            "[there may be more matches: {reason}; search a smaller path, or raise limit, up to {MAX_ITEMS}]"
        ));
    }
    Ok(ToolReply::Done { text, data: FileMatches { items, truncated, reason } })
}

/// The memories of a project are kept in one of two stores.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemoryKind {
    /// In memory, with a log on disk; for small values that change often.
    Hot,
    /// On disk.
    #[default]
    Persistent,
}

impl MemoryKind {
    fn name(self) -> &'static str {
        match self {
            MemoryKind::Hot => "hot",
            MemoryKind::Persistent => "persistent",
        }
    }

    fn path(self, name: &str) -> String {
        format!("/memories/{}/{}", self.name(), name.trim_start_matches('/'))
    }

    /// Builds the target of a memory of the thread's project. The thread may run where its files do not have the
    /// memories.
    async fn target(
        self,
        native: &NativeApi,
        thread: Option<&str>,
        name: &str,
        parameters: &[(&str, Option<String>)],
    ) -> Result<String, NativeProblem> {
        let thread = native.get(&format!("/api/threads/{}", escape(native.thread(thread)))).await?;
        let thread = thread.json();
        let project = escape(thread["project_id"].as_str().unwrap_or_default());
        let names: Vec<String> =
            name.split('/').filter(|name| !name.is_empty()).map(escape).collect();
        let path = format!("/api/projects/{project}/memories/{}/{}", self.name(), names.join("/"));
        Ok(target(path, parameters))
    }
}

/// Selects a memory of the thread's project.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryReadArguments {
    /// Path of the memory, such as `notes/build.md`. `list_files` lists `/memories/persistent`.
    path: String,
    /// `persistent` by default.
    #[serde(default)]
    store: MemoryKind,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
    /// Offset of the first byte; 0 by default.
    offset: Option<u64>,
}

pub(crate) async fn memory_read(
    call: ToolCall,
    arguments: MemoryReadArguments,
) -> Result<ToolReply<FileContent>, ToolError> {
    let path = arguments.store.path(&arguments.path);
    let (native, thread) = (&call.native, arguments.thread.as_deref());
    let parameters = [
        ("offset", arguments.offset.map(|offset| offset.to_string())),
        ("limit", Some(MAX_READ_BYTES.to_string())),
        ("format", Some("json".to_owned())),
    ];
    let target = arguments.store.target(native, thread, &arguments.path, &parameters).await?;
    Ok(content(native, &target, &path).await?.reply())
}

/// A memory to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryWriteArguments {
    /// Path of the memory, such as `notes/build.md`.
    path: String,
    /// The whole content.
    content: String,
    /// `persistent` by default.
    #[serde(default)]
    store: MemoryKind,
    /// Id of the thread; `main` by default.
    thread: Option<String>,
}

pub(crate) async fn memory_write(
    call: ToolCall,
    arguments: MemoryWriteArguments,
) -> Result<ToolReply<FileWrite>, ToolError> {
    let path = arguments.store.path(&arguments.path);
    let content = arguments.content.into_bytes();
    let (native, thread) = (&call.native, arguments.thread.as_deref());
    ensure_thread(native, &escape(native.thread(thread))).await?;
    let target = arguments.store.target(native, thread, &arguments.path, &[]).await?;
    put(native, &target, &path, HeaderMap::new(), content).await
}
