//! Cells, rows, buffers and scrollback.

pub(crate) mod buffer;
pub(crate) mod cell;
pub(crate) mod reflow;
pub(crate) mod row;
pub(crate) mod scrollback;
