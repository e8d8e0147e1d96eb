//! Resources: the screens of terminals, and the files of threads.

use rmcp::{
    ErrorData,
    model::{
        ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
        ResourceContents, ResourceTemplate,
    },
};
use serde_json::{Value, json};

use crate::{
    native::{NativeApi, NativeProblem, target},
    tools::{read_range, screen_text},
};

const SCHEME: &str = "stead://";
/// Largest file that is read as a resource.
const MAX_FILE_BYTES: u64 = 4 << 20;
const PAGE_ITEMS: u32 = 100;

/// The resource that a URI names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResourceName {
    Screen { terminal_id: String },
    File { thread_id: String, path: String },
}

impl ResourceName {
    pub(crate) fn parse(uri: &str) -> Option<ResourceName> {
        let (kind, rest) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        match kind {
            "terminals" => {
                let terminal_id = rest.strip_suffix("/screen")?;
                let is_valid = !terminal_id.is_empty() && !terminal_id.contains('/');
                is_valid.then(|| ResourceName::Screen { terminal_id: terminal_id.to_owned() })
            }
            "threads" => {
                let (thread_id, path) = rest.split_once("/files/")?;
                let path = format!("/{}", unescape(path)?.trim_start_matches('/'));
                let is_valid = !thread_id.is_empty() && !thread_id.contains('/');
                is_valid.then(|| ResourceName::File { thread_id: thread_id.to_owned(), path })
            }
            _ => None,
        }
    }
}

fn screen_uri(terminal_id: &str) -> String {
    format!("{SCHEME}terminals/{terminal_id}/screen")
}

/// Decodes the percent-encoding of a path.
fn unescape(text: &str) -> Option<String> {
    let (mut decoded, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(decoded).ok()
}

/// Lists the screens of all terminals, page by page.
pub(crate) async fn list(
    native: &NativeApi,
    cursor: Option<String>,
) -> Result<ListResourcesResult, ErrorData> {
    let parameters = [("limit", Some(PAGE_ITEMS.to_string())), ("cursor", cursor)];
    let page = native.get(&target("/api/terminals".to_owned(), &parameters)).await;
    let page = page.map_err(|problem| ErrorData::invalid_params(problem.to_string(), None))?.json();
    let screen = |terminal: &Value| {
        let id = terminal["terminal_id"].as_str().unwrap_or_default();
        let thread = terminal["thread_id"].as_str().unwrap_or_default();
        Resource::new(screen_uri(id), format!("screen of {thread}"))
            .with_description(format!("The screen of terminal {id} in thread {thread}"))
            .with_mime_type("text/plain")
    };
    let resources = page["items"].as_array().into_iter().flatten().map(screen).collect();
    let next_cursor = page["next_cursor"].as_str().map(str::to_owned);
    Ok(ListResourcesResult { resources, next_cursor, ..ListResourcesResult::default() })
}

pub(crate) fn templates() -> ListResourceTemplatesResult {
    let resource_templates = vec![
        ResourceTemplate::new("stead://terminals/{terminal_id}/screen", "Screen of a terminal")
            .with_description("The text on the screen of a terminal")
            .with_mime_type("text/plain"),
        ResourceTemplate::new("stead://threads/{thread_id}/files/{+path}", "File of a thread")
            .with_description(
                "A file of a thread by its absolute path, such as workspace/README.md",
            ),
    ];
    ListResourceTemplatesResult { resource_templates, ..ListResourceTemplatesResult::default() }
}

pub(crate) async fn read(native: &NativeApi, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let missing = |problem: &NativeProblem| not_found(uri, &problem.to_string());
    let mut notice = None;
    let contents = match ResourceName::parse(uri) {
        None => return Err(not_found(uri, "not a resource of this server")),
        Some(ResourceName::Screen { terminal_id }) => {
            let screen =
                screen_text(native, terminal_id, 0).await.map_err(|error| missing(&error))?;
            ResourceContents::text(screen.into_text(), uri)
        }
        Some(ResourceName::File { thread_id, path }) => {
            let file = read_range(native, Some(&thread_id), &path, (0, MAX_FILE_BYTES)).await;
            let file = file.map_err(|error| missing(&error))?;
            notice = file.notice_of_rest();
            match file.into_parts() {
                (Some(text), _) => ResourceContents::text(text, uri),
                (None, base64) => ResourceContents::blob(base64.unwrap_or_default(), uri)
                    .with_mime_type("application/octet-stream"),
            }
        }
    };
    // Beside the content, which stays a part of the file.
    let notice = notice.map(|notice| {
        let text = format!("The file is longer than a resource may be. {notice} of read_file");
        ResourceContents::text(text, uri).with_mime_type("text/plain")
    });
    Ok(ReadResourceResult::new([contents].into_iter().chain(notice).collect()))
}

pub(crate) fn not_found(uri: &str, detail: &str) -> ErrorData {
    ErrorData::resource_not_found(
        format!("resource not found: {detail}"),
        Some(json!({ "uri": uri })),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_screen_or_a_file() {
        let check = |uri: &str, expected: Option<ResourceName>| {
            assert_eq!(ResourceName::parse(uri), expected, "{uri}");
        };
        let screen = |id: &str| Some(ResourceName::Screen { terminal_id: id.into() });
        let file = |thread: &str, path: &str| {
            Some(ResourceName::File { thread_id: thread.into(), path: path.into() })
        };
        check("stead://terminals/term_1/screen", screen("term_1"));
        check("stead://terminals//screen", None);
        check("stead://terminals/a/b/screen", None);
        check("stead://threads/main/files/workspace/a%20b", file("main", "/workspace/a b"));
        check("stead://threads/main/files//etc/hosts", file("main", "/etc/hosts"));
        check("stead://threads/main/files/%zz", None);
        check("stead://other/1", None);
        check("file:///etc/passwd", None);
    }
}
