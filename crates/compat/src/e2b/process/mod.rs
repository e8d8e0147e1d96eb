//! The process service: start, connect, list, input, resize and signal.

mod input;
mod list;
mod output;
mod selector;
mod start;

pub(super) use input::{close_stdin, send_input, send_signal, stream_input, update};
pub(super) use list::list;
pub(super) use output::connect;
pub(super) use start::start;
