//! Projects: workspace, memories, files, clean-up.
//!
//! A project outlives its sessions. Its rows are in the store, its files under
//! `workspaces/<project id>/`; the rows are the truth, and what is missing on disk is made again.
//! Nothing here starts a shell; [`Departures`] alone ends one, where a project's policy says so.

mod archive;
mod attendance;
pub mod cleanup;
mod departures;
mod projects;
mod sweep;
mod workspace;

#[cfg(test)]
mod tests;

pub use archive::{ImportLimits, Imported};
pub use attendance::AttendancePolicy;
pub use departures::{Attached, Departures};
pub use projects::{InstanceFiles, ProjectChoices, ProjectError, ProjectSettings, Projects};
pub use sweep::{CleanupItem, CleanupMode};
pub use workspace::{Workspace, workspace};
