//! Why bytes are no frame, or a message makes none.

/// A payload that has not the shape its type has, or a length no frame may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame: {0}")]
pub struct Malformed(pub &'static str);

/// A message that does not fit a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message of {0} bytes does not fit a frame")]
pub struct TooLarge(pub usize);
