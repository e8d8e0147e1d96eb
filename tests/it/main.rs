//! Tests of the real binary over HTTP; each test has a home directory and a port of its own.
#![allow(clippy::unwrap_used, missing_docs)]

mod compute;
mod door;
mod durable;
mod fuzzed;
mod handoff;
#[allow(dead_code, unused_imports, reason = "not every test module uses every helper")]
mod harness;
mod line;
mod mcp;
mod projects;
mod terminal;
mod tidy;
