//! Commands in real shells.
#![allow(clippy::unwrap_used, missing_docs)]

mod bench;
mod cases;
