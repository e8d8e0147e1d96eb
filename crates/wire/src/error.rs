//! Errors of encoding and decoding.

/// A payload that does not match its type, or an invalid frame length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame: {0}")]
pub struct Malformed(pub &'static str);

/// A message that does not fit into a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message of {0} bytes does not fit a frame")]
pub struct TooLarge(pub usize);
