//! The host: the process that owns the PTYs of terminals and keeps their output.
//!
//! `stead host --dir DIR` runs a host. It is small and single-threaded, knows neither HTTP nor the contents
//! of the screen, and should rarely change, because its shells end when it exits. [`wire`] is its protocol,
//! [`shell`] runs commands, [`log`] is the output on disk.

mod cgroup;
pub mod client;
pub mod log;
mod ports;
mod pty;
mod serve;
mod socket;
mod start;
mod sys;

pub use cgroup::cgroup_directory;
pub use start::{StartError, main, spawn_detached};
pub use sys::{give_back_memory, ignore_file_size_signal};
