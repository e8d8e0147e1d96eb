//! Errors of files and memories, by what the caller can do about them.

use std::io;

use provider::ProviderError;
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("invalid path {path:?}: {why}")]
    BadPath {
        /// The input, shortened if it is long.
        path: String,
        why: &'static str,
    },
    #[error("{path:?} does not exist")]
    Missing { path: String },
    #[error("{path:?} already exists")]
    Exists { path: String },
    /// The operation needs a file.
    #[error("{path:?} is a directory")]
    IsDirectory { path: String },
    /// The path, or a parent of it, is not a directory.
    #[error("{path:?} or one of its parents is not a directory")]
    NotDirectory { path: String },
    #[error("{path:?} is not empty")]
    NotEmpty { path: String },
    /// The file is a FIFO, a socket or a device.
    #[error("{path:?} is {kind}, not a file")]
    NotRegular {
        path: String,
        /// The type of the file, with its article.
        kind: &'static str,
    },
    /// A link in the path leads outside of the route.
    #[error("{path:?} leads outside of its route")]
    Outside { path: String },
    /// The path contains a loop of links, or a magic link of the kernel.
    #[error("{path:?} contains a link that cannot be followed")]
    Loop { path: String },
    /// The file system does not permit it.
    #[error("permission denied for {path:?}")]
    Forbidden { path: String },
    #[error("the file system of {path:?} is read-only")]
    ReadOnly { path: String },
    /// The kernel made the file system of a disk image read-only.
    #[error(
        "the disk of {path:?} accepts no more changes, because the machine's disk was full or failed; \
         suspend and resume the sandboxes that use it"
    )]
    DiskStopped { path: String },
    /// The content exceeds the limit of one file.
    #[error("{path:?} exceeds the limit of {limit} bytes")]
    TooLarge { path: String, limit: u64 },
    /// The limit of files or bytes is reached.
    #[error("the limit of {limit} {what} is reached")]
    Full { what: &'static str, limit: u64 },
    /// The file does not have the version that the caller expects.
    #[error("{path:?} was changed meanwhile")]
    Changed { path: String },
    /// The backend of this path does not support the operation.
    #[error("{path:?}: {what}")]
    NotSupported { path: String, what: &'static str },
    /// The pattern is not a valid regular expression, or is too large.
    #[error("invalid pattern: {reason}")]
    BadPattern { reason: String },
    #[error("the disk is full")]
    NoSpace,
    /// The disk does not confirm that the content is stored.
    #[error("the disk failed to store {path:?}: {reason}")]
    DiskFailed { path: String, reason: String },
    /// The provider of the instance that has the files failed.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A temporary failure; a retry may succeed.
    #[error("the files are unavailable: {reason}")]
    Unavailable { reason: String },
    #[error("cannot {doing} {path:?}")]
    Io {
        doing: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// Replaces the path by the client's path.
    pub(crate) fn with_path(mut self, client_path: impl Fn(&str) -> String) -> Self {
        match &mut self {
            Self::BadPath { path, .. }
            | Self::Missing { path }
            | Self::Exists { path }
            | Self::IsDirectory { path }
            | Self::NotDirectory { path }
            | Self::NotEmpty { path }
            | Self::NotRegular { path, .. }
            | Self::Outside { path }
            | Self::Loop { path }
            | Self::Forbidden { path }
            | Self::ReadOnly { path }
            | Self::DiskStopped { path }
            | Self::TooLarge { path, .. }
            | Self::Changed { path }
            | Self::NotSupported { path, .. }
            | Self::DiskFailed { path, .. }
            | Self::Io { path, .. } => *path = client_path(path),
            Self::Full { .. }
            | Self::BadPattern { .. }
            | Self::NoSpace
            | Self::Provider(_)
            | Self::Unavailable { .. } => {}
        }
        self
    }

    /// Translates an error of the kernel.
    pub fn from_io(doing: &'static str, path: &str, source: io::Error) -> Self {
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => Self::Missing { path },
            Some(Errno::EXIST) => Self::Exists { path },
            Some(Errno::ISDIR) => Self::IsDirectory { path },
            Some(Errno::NOTDIR) => Self::NotDirectory { path },
            Some(Errno::NOTEMPTY) => Self::NotEmpty { path },
            Some(Errno::XDEV) => Self::Outside { path },
            Some(Errno::LOOP) => Self::Loop { path },
            Some(Errno::ACCESS | Errno::PERM | Errno::TXTBSY | Errno::BUSY) => {
                Self::Forbidden { path }
            }
            Some(Errno::ROFS) => Self::ReadOnly { path },
            Some(Errno::NAMETOOLONG) => Self::BadPath { path, why: "it is too long" },
            Some(Errno::INVAL) => {
                Self::BadPath { path, why: "the file system does not support this name" }
            }
            Some(Errno::FBIG) => Self::TooLarge { path, limit: u64::MAX },
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace,
            Some(Errno::IO) => Self::DiskFailed { path, reason: source.to_string() },
            Some(Errno::NXIO | Errno::NODEV) => Self::NotRegular { path, kind: "a device" },
            Some(Errno::AGAIN) => Self::Changed { path },
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                Self::Unavailable { reason: source.to_string() }
            }
            _ => Self::Io { doing, path, source },
        }
    }
}
