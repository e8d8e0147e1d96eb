//! SHA-256 digests of content, as registries write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";

/// The digest of some content: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentDigest(String);

impl ContentDigest {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = ContentHasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The hexadecimal digits, which are also a safe file name.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl FromStr for ContentDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix(PREFIX).unwrap_or_default();
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != 64 || !hex.bytes().all(is_hex) {
            let text: String = text.chars().take(100).collect();
            return Err(format!("{text:?} is not a SHA-256 digest"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ContentDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ContentDigest> for String {
    fn from(digest: ContentDigest) -> Self {
        digest.0
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Computes the digest of content that arrives in pieces.
#[derive(Default)]
pub(crate) struct ContentHasher(Sha256);

impl ContentHasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> ContentDigest {
        use fmt::Write;
        let mut text = PREFIX.to_owned();
        for byte in self.0.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        ContentDigest(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_in_lower_case_is_a_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ContentDigest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(ContentDigest::of(b"")));
        let upper = empty.to_ascii_uppercase();
        for bad in ["", "sha256:", "sha512:00", &empty[..70], "sha256:../../etc", &upper] {
            assert!(bad.parse::<ContentDigest>().is_err(), "{bad}");
        }
    }
}
