//! Terminal emulator. Pure: no I/O, no clock, no async.
//!
//! A [`Screen`] parses the output of a program and shows, after every byte, what xterm.js would
//! show. It can be exported in three ways: as escape sequences that bring a fresh xterm.js to
//! the same state ([`Screen::snapshot`]), as a binary checkpoint for this crate
//! ([`Screen::checkpoint`]), and as text or HTML for people.
//!
//! For any input it never panics and its memory is bounded. The result does not depend on how
//! the input was split into calls.

mod ascii;
mod checkpoint;
mod compact;
mod grid;
mod html;
mod json;
mod links;
mod parser;
mod screen;
mod snapshot;
mod style;
mod style_table;
mod width;

pub use checkpoint::RestoreError;
pub use json::screen_json;
pub use screen::{
    CursorShape, Fed, Mark, Modes, MouseEncoding, MouseMode, Screen, ScreenCursor, ScreenEvent,
    Size,
};
pub use width::text_width;
