//! Containers of an engine on this machine, Docker or Podman. The host is process 1.
//!
//! ```text
//! HOME/containers/<instance>/
//!     label         its lease and instance; the engine has the same in the container's labels
//!     launch.json   the input of the launcher
//!     launch.err    errors of the launcher
//!     spec.json     its settings
//!     cgroup        the path of the container's cgroup
//!     host.sock     the host's; no program inside can see it
//!     t/            the directories of its terminals; only the host can see them
//!     door/         the hand-off socket, mounted inside; empty once the host runs
//!     shown.json    the directories of the machine that it may write to
//! HOME/container-disks/<lease>.img      the writes of a lease's containers; outlives them
//! HOME/container-snapshots/<name>.img   a copy of such a disk
//! ```
//! Shells keep running while the engine is down: it is only used to create, pause, resume and remove
//! containers. A killed server leaves a directory with a label, a container with the same label, or both.

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
