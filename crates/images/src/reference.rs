//! References of images: `python:3.13-slim`, `ghcr.io/owner/name@sha256:…`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::digest::ContentDigest;

/// The registry of references that name none, and the host that serves its API.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";

const MAX_REFERENCE_BYTES: usize = 512;
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// The name of an image in a registry. Its text is canonical: `docker.io/library/python:3.13-slim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    registry: String,
    repository: String,
    version: ImageVersion,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ImageVersion {
    Tag(String),
    Digest(ContentDigest),
}

/// A text that is not the reference of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid image reference; write it as [REGISTRY/]NAME[:TAG] or NAME@sha256:DIGEST, in lower case"
)]
pub struct BadReference(String);

impl ImageReference {
    /// Whether a text names a tag, a digest, a repository with a path, or a registry. A bare name such as
    /// `debian` does not: it could as well be an imported image.
    #[must_use]
    pub fn is_explicit(text: &str) -> bool {
        text.contains(['/', ':', '@'])
    }

    pub(crate) fn registry(&self) -> &str {
        &self.registry
    }

    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    /// The host and port that serve the registry's API.
    pub(crate) fn host(&self) -> &str {
        if self.registry == DEFAULT_REGISTRY { DEFAULT_REGISTRY_HOST } else { &self.registry }
    }

    /// The tag or digest, as the registry's API wants it.
    pub(crate) fn version(&self) -> String {
        match &self.version {
            ImageVersion::Tag(tag) => tag.clone(),
            ImageVersion::Digest(digest) => digest.to_string(),
        }
    }

    pub(crate) fn digest(&self) -> Option<&ContentDigest> {
        match &self.version {
            ImageVersion::Tag(_) => None,
            ImageVersion::Digest(digest) => Some(digest),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registry, repository, version } = self;
        match version {
            ImageVersion::Tag(tag) => write!(f, "{registry}/{repository}:{tag}"),
            ImageVersion::Digest(digest) => write!(f, "{registry}/{repository}@{digest}"),
        }
    }
}

impl FromStr for ImageReference {
    type Err = BadReference;

    fn from_str(text: &str) -> Result<Self, BadReference> {
        let bad = || BadReference(text.chars().take(MAX_REFERENCE_BYTES).collect());
        if text.len() > MAX_REFERENCE_BYTES {
            return Err(bad());
        }
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let (registry, rest) = match named.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest)
            }
            Some(_) | None => (DEFAULT_REGISTRY, named),
        };
        let registry = match registry {
            "index.docker.io" | DEFAULT_REGISTRY_HOST => DEFAULT_REGISTRY,
            other => other,
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if !is_host(registry) || !is_repository(repository) || !tag.is_none_or(is_tag) {
            return Err(bad());
        }
        let repository = match registry {
            DEFAULT_REGISTRY if !repository.contains('/') => format!("library/{repository}"),
            _ => repository.to_owned(),
        };
        let version = match digest {
            Some(digest) => ImageVersion::Digest(digest),
            None => ImageVersion::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { registry: registry.to_ascii_lowercase(), repository, version })
    }
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.split('.').all(is_label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_repository(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_component = |component: &str| {
        component.bytes().all(|byte| is_word(byte) || b"._-".contains(&byte))
            && component.bytes().next().is_some_and(is_word)
            && component.bytes().next_back().is_some_and(is_word)
            && !component.contains("..")
    };
    text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(is_component)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_TAG_BYTES).contains(&text.len())
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

/// Whether a host, with or without a port, is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or(host);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_canonical() {
        let digest = ContentDigest::of(b"");
        let check = |text: &str, expected: &str| {
            let parsed: Result<ImageReference, _> = text.parse();
            assert_eq!(parsed.map(|it| it.to_string()).as_deref(), Ok(expected), "{text}");
        };
        check("python:3.13-slim", "docker.io/library/python:3.13-slim");
        check("debian", "docker.io/library/debian:latest");
        check("index.docker.io/e2bdev/base", "docker.io/e2bdev/base:latest");
        check("localhost:5000/a/b:1", "localhost:5000/a/b:1");
        check("GHCR.io/a__b/c-d", "ghcr.io/a__b/c-d:latest");
        check(&format!("a/b:1@{digest}"), &format!("docker.io/a/b@{digest}"));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "/",
            "a//b",
            "../../etc/passwd",
            "a/../b",
            "A:1",
            "a:",
            "a:-1",
            "a@sha256:0",
            "-v",
            "a b",
            "host.example:99999/a",
            "ho_st.example/a",
            "a:1:2",
            "http://a/b",
        ] {
            assert!(text.parse::<ImageReference>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["127.0.0.1.example.com:5000", "10.0.0.1", "localhost.example.com", "0.0.0.0"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
