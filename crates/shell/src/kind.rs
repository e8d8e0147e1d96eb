//! The shells that can be driven, by name.

/// A kind of shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bash,
    Zsh,
    /// dash, busybox sh or any other POSIX shell.
    Sh,
}
