//! Repositories, by the `git` that the sandbox has.
//!
//! Names and passwords go by the environment, never by the words of a command, which are kept.

pub(super) mod branch;
pub(super) mod commit;
pub(super) mod config;
pub(super) mod remote;
mod repository;
mod status;
