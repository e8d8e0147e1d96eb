//! Rewrites the paths of a bundle that comes from another directory.
//!
//! Working directories of shells and variables that refer to the workspace contain paths of the exporting
//! machine. They are rewritten before the rows are inserted.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::bundle::Bundle;

/// Sections of a terminal's state that contain paths.
const SECTIONS: [&str; 4] = ["cwd", "env", "vars", "dirs"];
/// Columns that contain paths.
const COLUMNS: [(&str, &str); 4] = [
    ("threads", "cwd"),
    ("terminals", "cwd"),
    ("terminals", "env_delta"),
    ("terminal_versions", "cwd"),
];

impl Bundle {
    /// Sets the directory that contained the project's files.
    #[must_use]
    pub fn made_in(mut self, root: &str) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// Rewrites all paths for a new directory of the project's files.
    #[must_use]
    pub fn moved_to(mut self, root: &str) -> Self {
        let Some(from) = self.root.replace(root.to_owned()) else { return self };
        // A bundle is not trusted: only the path of a workspace is replaced.
        let is_workspace = from.ends_with(&format!("/workspaces/{}", self.project.project_id));
        if from == root || !is_workspace || !is_plain(&from) || !is_plain(root) {
            return self;
        }
        for (table, column) in COLUMNS {
            for row in self.tables.get_mut(table).into_iter().flatten() {
                if let Some(Value::String(text)) = row.get_mut(column) {
                    let moved = replaced(text.as_bytes(), from.as_bytes(), root.as_bytes());
                    *text = String::from_utf8_lossy(&moved).into_owned();
                }
            }
        }
        let sections = self.tables.get_mut("terminal_sections");
        for row in sections.into_iter().flatten() {
            if let Some((name, content)) = moved_section(row, &self.contents, &from, root) {
                self.contents.insert(name, content);
            }
        }
        self
    }
}

/// Rewrites one section. Returns the new content with its hash.
fn moved_section(
    row: &mut Map<String, Value>,
    contents: &std::collections::BTreeMap<String, String>,
    from: &str,
    to: &str,
) -> Option<(String, String)> {
    let section = row.get("name")?.as_str()?;
    if !SECTIONS.contains(&section) {
        return None;
    }
    let hash = STANDARD.decode(row.get("hash")?.get("base64")?.as_str()?).ok()?;
    let name = blake3::Hash::from_bytes(hash.try_into().ok()?).to_hex();
    let bytes = STANDARD.decode(contents.get(name.as_str())?).ok()?;
    let moved = replaced(&bytes, from.as_bytes(), to.as_bytes());
    let hash = blake3::hash(&moved);
    row.insert("hash".into(), json!({"base64": STANDARD.encode(hash.as_bytes())}));
    Some((hash.to_hex().to_string(), STANDARD.encode(moved)))
}

/// Whether a path needs no escaping in any shell quotes or in JSON.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| is_name_byte(byte) || byte == b'/')
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'@' | b'%')
}

/// Replaces a path by another, wherever it is a whole path or a prefix of one.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let starts = out.last().is_none_or(|&before| !is_name_byte(before) && before != b'/');
        let ends = rest.get(from.len()).is_none_or(|&after| !is_name_byte(after));
        if rest.starts_with(from) && ends && starts {
            out.extend_from_slice(to);
            rest = &rest[from.len()..];
        } else {
            out.push(*first);
            rest = &rest[1..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_are_replaced() {
        let check = |text: &str, expected: &str| {
            let moved = replaced(text.as_bytes(), b"/h/w/p-1", b"/other");
            assert_eq!(String::from_utf8(moved).unwrap(), expected, "{text}");
        };
        check("/h/w/p-1", "/other");
        check("/h/w/p-1/repo/src", "/other/repo/src");
        check("PWD=/h/w/p-1/repo\0A=1\0", "PWD=/other/repo\0A=1\0");
        check("declare -x D=\"/h/w/p-1\"\n", "declare -x D=\"/other\"\n");
        check("/h/w/p-12/repo", "/h/w/p-12/repo");
        check("/x/h/w/p-1/repo", "/x/h/w/p-1/repo");
        check("P=/bin:/h/w/p-1/bin:/h/w/p-1", "P=/bin:/other/bin:/other");
        check("", "");
    }
}
