//! What can go wrong with a file or a memory, by what the caller can do about it.

use std::io;

use rustix::io::Errno;

/// Why something was not done to a file or a memory.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path cannot be the path of anything.
    #[error("{path:?} is not a path: {why}")]
    BadPath {
        /// What was given, cut if it is long.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is nothing of that name.
    #[error("there is nothing at {path:?}")]
    Missing {
        /// Where.
        path: String,
    },
    /// There is something of that name already.
    #[error("there is something at {path:?} already")]
    Exists {
        /// Where.
        path: String,
    },
    /// It is a directory, and what was asked needs a file.
    #[error("{path:?} is a directory")]
    IsDirectory {
        /// Where.
        path: String,
    },
    /// It, or something above it, is no directory.
    #[error("{path:?} is not, or is not below, a directory")]
    NotDirectory {
        /// Where.
        path: String,
    },
    /// The directory has something in it.
    #[error("{path:?} is not empty")]
    NotEmpty {
        /// Where.
        path: String,
    },
    /// It is a FIFO, a socket or a device.
    #[error("{path:?} is {kind}, not a file")]
    NotRegular {
        /// Where.
        path: String,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// A link on the way leads out of the route.
    #[error("{path:?} leads out of its route")]
    Outside {
        /// Where.
        path: String,
    },
    /// Links on the way go round, or are of the kernel's own kind.
    #[error("{path:?} has a link that is not followed")]
    Loop {
        /// Where.
        path: String,
    },
    /// The file system does not allow it.
    #[error("{path:?} may not be used so")]
    Forbidden {
        /// Where.
        path: String,
    },
    /// It is more than may be stored there in one piece.
    #[error("{path:?} may have {limit} bytes")]
    TooLarge {
        /// Where.
        path: String,
        /// How many bytes it may have.
        limit: u64,
    },
    /// All that may be kept there is kept.
    #[error("there is room for {limit} {what}, and it is taken")]
    Full {
        /// What is counted.
        what: &'static str,
        /// How many may be.
        limit: u64,
    },
    /// It is not what the caller took it for.
    #[error("{path:?} was changed meanwhile")]
    Changed {
        /// Where.
        path: String,
    },
    /// It cannot be done there at all.
    #[error("{path:?}: {what}")]
    NotSupported {
        /// Where.
        path: String,
        /// What cannot be done.
        what: &'static str,
    },
    /// The pattern is no regular expression, or too large a one.
    #[error("not a pattern: {reason}")]
    BadPattern {
        /// What is wrong with it.
        reason: String,
    },
    /// The disk is full.
    #[error("the disk is full")]
    NoSpace,
    /// It cannot be done for the moment; asking again later may help.
    #[error("the memories are unavailable: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The machine failed.
    #[error("cannot {doing} {path:?}")]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// To what.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// The same about a path that the client knows.
    pub(crate) fn with_path(mut self, shown: impl Fn(&str) -> String) -> Self {
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
            | Self::TooLarge { path, .. }
            | Self::Changed { path }
            | Self::NotSupported { path, .. }
            | Self::Io { path, .. } => *path = shown(path),
            Self::Full { .. }
            | Self::BadPattern { .. }
            | Self::NoSpace
            | Self::Unavailable { .. } => {}
        }
        self
    }

    /// What an error of the kernel means for the caller.
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
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY | Errno::BUSY) => {
                Self::Forbidden { path }
            }
            Some(Errno::NAMETOOLONG) => Self::BadPath { path, why: "it is too long" },
            Some(Errno::INVAL) => {
                Self::BadPath { path, why: "the file system does not take such a name" }
            }
            Some(Errno::FBIG) => Self::TooLarge { path, limit: u64::MAX },
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace,
            Some(Errno::NXIO | Errno::NODEV) => Self::NotRegular { path, kind: "a device" },
            Some(Errno::AGAIN) => Self::Changed { path },
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                Self::Unavailable { reason: source.to_string() }
            }
            _ => Self::Io { doing, path, source },
        }
    }
}
