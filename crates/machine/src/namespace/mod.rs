//! Sandboxes on this machine: Linux namespaces, a user range each, a system call filter, capabilities only over
//! themselves, limits by cgroups, a disk, and egress rules. The host is process 1.
//!
//! ```text
//! HOME/sandboxes/<instance>/
//!     label         its lease and instance
//!     launch.json   the input of the launcher
//!     launch.err    errors of the launcher, the runtime and the host
//!     host.sock     the host's; no program inside can see it
//!     t/            the directories of its terminals; only the host can see them
//! HOME/disks/<lease>.img      outlives the instances of a lease
//! HOME/images, pulled-images  images that an operator imported, or that were pulled
//! HOME/snapshots/<name>.img   a copy of a lease's disk
//! ```
//! A dead sandbox leaves a directory and a cgroup of the same name. Its mounts, loop devices and network
//! interfaces belong to its namespaces and end with its last process.

mod bundle;
mod check;
mod command;
mod confine;
mod confined;
mod cpu_governor;
mod devices;
mod end;
mod flatten;
mod kind;
mod launch;
mod launch_file;
mod options;
mod remedy;
mod rlimit;
mod root;
mod runtime;
mod start;
mod timing;

pub use check::{Check, Finding, Verdict};
pub use command::main;
pub use confined::Confined;
pub use cpu_governor::GOVERNOR_INTERVAL;
pub(crate) use flatten::LAYERS;
pub use kind::Namespace;
pub use options::NamespaceOptions;
