//! Tests of the real binary over HTTP; each test has a home directory and a port of its own.
#![allow(clippy::unwrap_used, missing_docs)]

mod door;
mod durable;
mod fuzzed;
mod handoff;
mod line;
mod mcp;
mod projects;
mod terminal;
