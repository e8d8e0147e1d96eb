//! Projects: workspace, memories, files, clean-up.
//!
//! A project outlives its sessions. Its rows are in the store, its files under
//! `workspaces/<project id>/`; the rows are the truth, and what is missing on disk is made again.
//! Nothing here starts or ends a shell.

#[expect(dead_code, reason = "what writes whole files comes with the memories")]
mod durable;
mod workspace;

#[cfg(test)]
pub(crate) mod testing;

pub use workspace::{Workspace, workspace};
