//! Paths from clients. A parsed path contains no `..`.

use std::fmt;

use crate::FileError;

/// Below the kernel's limit of 4096, because a prefix is added.
const MAX_BYTES: usize = 4000;
/// The kernel's limit for one name.
const MAX_NAME_BYTES: usize = 255;

/// An absolute path in the tree that clients see, e.g. `/workspace/src/main.rs`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Relative);

/// A path below a root: names separated by single slashes, none of them empty, `.` or `..`. The root
/// itself is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relative(Box<str>);

impl TreePath {
    /// Parses a path that must start with a slash.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        match text.strip_prefix('/') {
            Some(rest) => Ok(Self(Relative::parse(rest)?)),
            None => Err(bad(text, "it does not start with a slash")),
        }
    }

    /// The path without its first slash.
    #[must_use]
    pub fn relative(&self) -> &Relative {
        &self.0
    }
}

impl Relative {
    #[must_use]
    pub fn root() -> Self {
        Self("".into())
    }

    /// Parses a path. Repeated slashes, a trailing slash and `.` are ignored. `..` is refused, because its
    /// meaning depends on links.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        if text.len() > MAX_BYTES {
            return Err(bad(text, "it is longer than 4000 bytes"));
        }
        let mut clean = String::with_capacity(text.len());
        for name in text.split('/') {
            match name {
                "" | "." => continue,
                ".." => return Err(bad(text, "it contains `..`")),
                _ if name.contains('\0') => return Err(bad(text, "it contains a NUL")),
                _ if name.len() > MAX_NAME_BYTES => {
                    return Err(bad(text, "a name in it is longer than 255 bytes"));
                }
                _ => {}
            }
            if !clean.is_empty() {
                clean.push('/');
            }
            clean.push_str(name);
        }
        Ok(Self(clean.into()))
    }

    /// The path as text, without a slash at either end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the parent and the last name, or `None` for the root.
    #[must_use]
    pub fn split_last(&self) -> Option<(Self, &str)> {
        if self.is_root() {
            return None;
        }
        let (above, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        Some((Self(above.into()), name))
    }

    /// Returns the path relative to `prefix`, if it is `prefix` or below it.
    #[must_use]
    pub fn below(&self, prefix: &Self) -> Option<Self> {
        if prefix.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(&*prefix.0)? {
            "" => Some(Self::root()),
            rest => rest.strip_prefix('/').map(|rest| Self(rest.into())),
        }
    }

    /// Joins two paths.
    #[must_use]
    pub fn join(&self, more: &Self) -> Self {
        match (self.is_root(), more.is_root()) {
            (true, _) => more.clone(),
            (_, true) => self.clone(),
            (false, false) => Self(format!("{}/{}", self.0, more.0).into()),
        }
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.0)
    }
}

impl fmt::Display for Relative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn bad(text: &str, why: &'static str) -> FileError {
    let mut path: String = text.chars().take(80).collect();
    if path.len() < text.len() {
        path.push('…');
    }
    FileError::BadPath { path, why }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        let found = match TreePath::parse(text) {
            Ok(path) => path.to_string(),
            Err(FileError::BadPath { why, .. }) => why.to_owned(),
            Err(other) => other.to_string(),
        };
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn a_path_is_normalized_or_refused() {
        check("/", "/");
        check("/workspace", "/workspace");
        check("/workspace//a/./b/", "/workspace/a/b");
        check("/a/...", "/a/...");
        check("/a/%2e%2e", "/a/%2e%2e");
        check("a", "it does not start with a slash");
        check("", "it does not start with a slash");
        check("/a/../b", "it contains `..`");
        check("/..", "it contains `..`");
        check("/a\0b", "it contains a NUL");
        check(&format!("/{}", "n".repeat(256)), "a name in it is longer than 255 bytes");
        check(&"/n".repeat(2001), "it is longer than 4000 bytes");
    }

    #[test]
    fn below_compares_whole_names() {
        let path = |text| Relative::parse(text).unwrap();
        assert_eq!(path("memories/hot/a").below(&path("memories/hot")), Some(path("a")));
        assert_eq!(path("memories/hotter").below(&path("memories/hot")), None);
        assert_eq!(path("memories/hot").below(&path("memories/hot")), Some(Relative::root()));
        assert_eq!(path("a/b").below(&Relative::root()), Some(path("a/b")));
    }

    proptest! {
        #[test]
        fn no_parsed_path_contains_dots(text in "[/.a\0]{0,40}") {
            if let Ok(path) = Relative::parse(&text) {
                for name in path.as_str().split('/').filter(|_| !path.is_root()) {
                    prop_assert!(!name.is_empty() && name != "." && name != "..");
                    prop_assert!(!name.contains('\0'));
                }
                prop_assert_eq!(Relative::parse(path.as_str()).unwrap(), path);
            }
        }
    }
}
