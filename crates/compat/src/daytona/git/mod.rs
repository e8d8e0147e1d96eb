//! Git repositories, with the `git` of the sandbox.
//!
//! Credentials are passed in environment variables, never as arguments, because commands are recorded.

pub(super) mod branch;
pub(super) mod commit;
pub(super) mod config;
mod error_code;
pub(super) mod remote;
mod repository;
mod status;
