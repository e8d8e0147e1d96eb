//! How large frames and the data in them may be.

/// The longest frame, counted without its four length bytes. Data goes in far smaller pieces; the
/// room is for shell state, which a large variable or many functions can make big.
pub const MAX_FRAME: usize = 16 << 20;

/// The most data bytes in one `Input`, `ExecStdin`, `Output`, `CommandOutput` or chunk answer.
pub const MAX_DATA: usize = 64 << 10;
