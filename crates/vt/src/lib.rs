//! A screen: bytes in, picture out. Pure: no I/O, no clock, no async.
//!
//! A [`Screen`] reads what a program writes to its terminal and knows, at every
//! byte, what xterm.js would show. It can write that down again in three ways:
//! as escape sequences that make a fresh xterm.js the same terminal
//! ([`Screen::snapshot`]), as a binary checkpoint of its own
//! ([`Screen::checkpoint`]), and as text or HTML for readers.
//!
//! Whatever the bytes are, it never panics, never asks for unbounded memory, and
//! does not care how the bytes were cut into pieces.

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
    Cursor, CursorShape, Event, Fed, Mark, Modes, MouseEncoding, MouseMode, Screen, Size,
};
