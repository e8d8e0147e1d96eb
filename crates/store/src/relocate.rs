//! A bundle whose files have another place here than where it was made.
//!
//! Where a shell stands, and the variables that name places in the workspace, are paths of the
//! exporting machine. They are written anew before the rows come in.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::bundle::Bundle;

/// Sections of a terminal's state that name places.
const SECTIONS: [&str; 4] = ["cwd", "env", "vars", "dirs"];
/// Columns that do.
const COLUMNS: [(&str, &str); 4] = [
    ("threads", "cwd"),
    ("terminals", "cwd"),
    ("terminals", "env_delta"),
    ("terminal_versions", "cwd"),
];

impl Bundle {
    /// Says where the project's files were.
    #[must_use]
    pub fn made_in(mut self, root: &str) -> Self {
        self.root = Some(root.to_owned());
        self
    }

    /// The same for files that are in another directory.
    #[must_use]
    pub fn moved_to(mut self, root: &str) -> Self {
        let Some(from) = self.root.replace(root.to_owned()) else { return self };
        // Nothing but a workspace is taken for one, whatever a bundle from elsewhere says.
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

/// Points a section at the content it has here; answers that, under the name of its hash.
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

/// Whether a path means itself in any shell's quotes and in JSON.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| is_of_name(byte) || byte == b'/')
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'@' | b'%')
}

/// The bytes with one path in place of another, wherever it is a whole path or begins one.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let begins = out.last().is_none_or(|&before| !is_of_name(before) && before != b'/');
        let ends = rest.get(from.len()).is_none_or(|&after| !is_of_name(after));
        if rest.starts_with(from) && ends && begins {
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
    fn only_whole_paths_are_moved() {
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
