//! A project: a group of threads with shared files and settings.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ProjectId;

/// A group of threads with shared files and settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub project_id: ProjectId,
    /// A description for people.
    #[serde(default)]
    pub description: String,
    /// Labels that clients set.
    #[serde(default)]
    pub tags: BTreeSet<String>,
    /// Settings that override the server's.
    #[serde(default)]
    pub config: ProjectConfig,
    /// Whether cleanup never deletes the project.
    #[serde(default)]
    pub pinned: bool,
    /// Cleanup does not delete the project before this time, used or not.
    #[serde(default)]
    pub keep_until: Option<Timestamp>,
    /// When the first warning about its cleanup was published; cleared by the next use.
    #[serde(default)]
    pub warned_at: Option<Timestamp>,
    /// When the last warning was published.
    #[serde(default)]
    pub reminded_at: Option<Timestamp>,
    #[serde(default)]
    pub statistics: Statistics,
    /// The time of the last activity.
    pub last_used_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default)]
    pub revision: u64,
}

/// Counters of a project since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Sessions opened.
    pub sessions: u64,
    /// Commands run.
    pub commands: u64,
    /// Bytes of command output.
    pub output_bytes: u64,
}

/// Settings of a project that override the server's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectConfig {
    /// The backend of the files below a prefix; the longest prefix wins.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<String, BackendKind>,
    /// Whether the instance is stopped when the last client disconnects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_on_disconnect: Option<bool>,
    /// Whether a stopped instance is recreated when a client reconnects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recreate_on_reconnect: Option<bool>,
    /// Idle days after which cleanup deletes the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup_after_days: Option<u32>,
}

/// A backend for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A directory on disk.
    Filesystem,
    /// Rows of the database.
    Store,
    State,
}

/// The record of a session; it outlives the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    pub session_id: super::SessionId,
    pub thread_id: super::ThreadId,
    pub state: super::SessionState,
    pub created_at: Timestamp,
    /// The time of the last activity.
    pub last_active_at: Timestamp,
}

/// A deleted project that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    pub project_id: ProjectId,
    pub description: String,
    pub deleted_at: Timestamp,
    pub reason: String,
}
