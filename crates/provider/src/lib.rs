//! Providers of compute that run instances: the traits, the registry, and the provider `local`.
//!
//! Callers request states, not steps: every operation may be repeated after a crash or a lost reply, and
//! then does nothing or the remaining work. Every created resource carries a label with its lease and
//! generation, so it can be found again. A provider does not use the store.

mod bounded;
mod error;
mod host_socket;
mod instance;
mod label;
pub mod local;
mod registry;
mod traits;
mod workspace;

pub use bounded::CREATION_LIMIT;
pub use error::ProviderError;
pub use host_socket::HostSocket;
pub use instance::{
    Capabilities, Connection, CopyTo, Created, EgressDestination, EgressLog, EgressVerdict,
    Exceeded, Fidelity, Found, HostConnection, ImageShell, Intent, Metrics, MountedPaths, Observed,
    Profile, Reply, ResourceLimits, ScriptOutput, Snapshot, TerminalMounts,
};
pub use label::{read_label, write_label};
pub use local::Local;
pub use registry::Providers;
pub use traits::{Disks, Egress, Limits, Mounts, Ports, Provider, Scripts};
pub use workspace::{PlainWorkspaces, WorkspaceDisks};
