//! A named body of work.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ProjectId;

/// A project: what threads belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub project_id: ProjectId,
    /// What it is, in a person's words.
    #[serde(default)]
    pub description: String,
    /// A client's own words for it.
    #[serde(default)]
    pub tags: BTreeSet<String>,
    /// What it does otherwise than others.
    #[serde(default)]
    pub config: ProjectConfig,
    /// Whether clean-up leaves it alone for good.
    #[serde(default)]
    pub pinned: bool,
    /// Clean-up leaves it alone until then, used or not.
    #[serde(default)]
    pub keep_until: Option<Timestamp>,
    /// When it was first warned that it will be cleaned up; forgotten with the next use.
    #[serde(default)]
    pub warned_at: Option<Timestamp>,
    /// When it was last warned.
    #[serde(default)]
    pub reminded_at: Option<Timestamp>,
    /// What was done in it.
    #[serde(default)]
    pub statistics: Statistics,
    /// When something was last done in it.
    pub last_used_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default)]
    pub revision: u64,
}

/// What was done in a project since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Sessions opened.
    pub sessions: u64,
    /// Commands run.
    pub commands: u64,
    /// Bytes of output of its commands.
    pub output_bytes: u64,
}

/// What a project does otherwise than others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectConfig {
    /// What holds the files below a prefix; the longest prefix wins.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<String, BackendKind>,
    /// Whether the instance is stopped when the last client leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_on_disconnect: Option<bool>,
    /// Whether a stopped instance is made again when a client comes back by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recreate_on_reconnect: Option<bool>,
    /// Days without use after which it is cleaned up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup_after_days: Option<u32>,
}

/// What may hold files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A directory on disk.
    Filesystem,
    /// Rows of the store.
    Store,
    State,
}

/// The record of a session, kept when its thread is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    pub session_id: super::SessionId,
    /// The thread it was a window on.
    pub thread_id: super::ThreadId,
    /// Where it is, or was, in its life.
    pub state: super::SessionState,
    pub created_at: Timestamp,
    /// When something was last done in it.
    pub last_active_at: Timestamp,
}

/// A deleted project that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    pub project_id: ProjectId,
    /// What it was.
    pub description: String,
    pub deleted_at: Timestamp,
    pub reason: String,
}
