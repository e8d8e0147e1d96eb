//! The real binary, driven through its front door; each test with a home and a port of its own.
#![allow(clippy::unwrap_used, missing_docs)]

mod compute;
mod door;
mod durable;
#[allow(dead_code, unused_imports, reason = "not every test needs every tool")]
mod harness;
mod line;
mod projects;
mod terminal;
mod tidy;
