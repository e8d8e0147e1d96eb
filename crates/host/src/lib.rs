//! The process that sits beside the shell: it holds the PTYs and keeps their output.
//!
//! `stead host --dir DIR` runs one. It is small and single-threaded, knows nothing of HTTP and
//! nothing of what is on the screen, and must hardly ever change: whatever it holds lives exactly as
//! long as it does. [`wire`] is what is said to it, [`log`] is what it leaves on disk.

mod cgroup;
pub mod client;
mod image;
pub mod log;
mod pty;
mod serve;
pub mod shell;
mod socket;
mod start;
mod sys;
pub mod wire;

pub use start::{StartError, main, spawn_detached};
pub use sys::{give_back_memory, ignore_file_size_signal};
