//! The layout of an archive, for writing and reading.

/// The directories of a workspace that go into an archive.
pub(super) const FOLDERS: [&str; 3] = ["repo", "memories/persistent", "data"];
/// The maximum size of rows.json.
pub(super) const MAX_ROWS_BYTES: u64 = 256 << 20;

/// Returns whether a link at `path` points into the same folder.
pub(super) fn stays_inside(path: &str, target: &str, folder: &str) -> bool {
    if target.starts_with('/') || target.contains('\0') {
        return false;
    }
    let mut names: Vec<&str> = path.split('/').collect();
    names.pop();
    let root = folder.split('/').count();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if names.len() <= root => return false,
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    true
}
