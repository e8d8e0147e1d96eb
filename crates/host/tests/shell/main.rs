//! Commands in real shells, through a real host.
#![allow(clippy::unwrap_used, missing_docs)]

mod again;
mod bench;
mod cases;
mod ends;
mod harmless;
mod live;
mod places;
mod prompts;
mod remote;
#[path = "../it/support.rs"]
#[allow(dead_code)]
mod support;
