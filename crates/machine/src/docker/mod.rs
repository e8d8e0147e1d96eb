//! Containers of an engine on this machine, Docker or Podman. The host is process 1.
//!
//! ```text
//! HOME/containers/<instance>/
//!     label         what it was created for; the engine has the same in the container's labels
//!     launch.json   the input of the launcher
//!     launch.err    errors of the launcher
//!     spec.json     its settings
//!     cgroup        the path of the container's cgroup
//!     host.sock     the host's; no program inside can see it
//!     t/            the directories of its terminals; only the host can see them
//!     door/         the hand-off socket, mounted inside; empty once the host runs
//!     shown.json    the directories of the machine that it may write to
//! HOME/container-disks/<lease>.img      what a lease's containers wrote; outlives them
//! HOME/container-snapshots/<name>.img   a copy of such a disk
//! ```
//! Shells keep running while the engine is down. The engine is only asked to create, pause, resume and
//! remove. A killed server leaves a directory with a label, a container with the same label, or both.

mod command;
mod container;
mod engine;
mod image;
mod kind;
mod labels;
mod launch;
mod options;
mod orphans;
mod root;
mod start;
mod timing;

pub use command::main;
pub use kind::Docker;
pub use options::DockerOptions;
