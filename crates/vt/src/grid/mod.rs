//! Cells in rows, rows in buffers, and the lines that scrolled away.

pub(crate) mod buffer;
pub(crate) mod cell;
pub(crate) mod reflow;
pub(crate) mod row;
pub(crate) mod scrollback;
