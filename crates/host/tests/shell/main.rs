//! Commands in real shells, through a real host.
#![allow(clippy::unwrap_used, missing_docs)]

mod bench;
mod cases;
mod exits;
mod harmless;
mod live;
mod prompts;
mod remote;
mod restarts;
mod run_dirs;
#[path = "../it/support.rs"]
#[allow(dead_code)]
mod support;
