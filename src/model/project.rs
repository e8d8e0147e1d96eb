//! A named body of work.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ProjectId;

/// A project: what threads belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Its id.
    pub project_id: ProjectId,
    /// What it is, in a person's words.
    #[serde(default)]
    pub description: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// How often the row was changed.
    #[serde(default)]
    pub revision: u64,
}
