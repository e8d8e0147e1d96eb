//! The size limits of frames and data.

/// The maximum length of a frame without its four length bytes. Data is sent in far smaller pieces; the
/// limit allows for shell state with large variables or many functions.
pub const MAX_FRAME: usize = 16 << 20;

/// The maximum number of data bytes in one `Input`, `ExecStdin`, `Output`, `CommandOutput` or chunk answer.
pub const MAX_DATA: usize = 64 << 10;
