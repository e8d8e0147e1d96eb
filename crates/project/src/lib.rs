//! Projects: workspace, memories, files, clean-up.
//!
//! A project outlives its sessions. Its rows are in the store, its files under `workspaces/<project id>/`. The rows
//! are authoritative: missing directories are created again. Nothing here knows leases or terminals: the engine stops the
//! instances of a project that its last client left.

mod archive;
mod attached;
mod attendance;
mod choices;
pub mod cleanup;
mod directories;
mod error;
mod projects;
mod recover;
mod sweep;
mod trash;
mod tree;
mod workspace;

#[cfg(test)]
mod tests;

pub use archive::{ImportLimits, Imported};
pub use attached::{Attached, Occupancy, Vacancy};
pub use attendance::AttendancePolicy;
pub use choices::ProjectChoices;
pub use error::ProjectError;
pub use projects::{ProjectSettings, Projects};
pub use sweep::{CleanupItem, CleanupMode};
pub use tree::{InstanceFiles, NOT_RUNNING};
pub use workspace::{Workspace, workspace};
