//! The host as a server uses it: a real process, real PTYs, real signals.
#![allow(clippy::unwrap_used, missing_docs)]

mod detached;
mod exhaustion;
mod hostile;
mod streams;
mod support;
mod terminals;
mod upgrade;
