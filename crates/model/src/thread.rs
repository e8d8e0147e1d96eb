//! Threads and their messages.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Env, LeaseId, MessageId, ProjectId, SessionPolicy, TerminalId, ThreadId};

/// One conversation or task.
///
/// It stores the ids of its default terminal and of its lease, so that a missing row is recreated with
/// the id that clients know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Chosen by the client.
    pub thread_id: ThreadId,
    pub project_id: ProjectId,
    pub terminal_id: TerminalId,
    /// The lease for new terminals.
    pub lease_id: LeaseId,
    /// The requested provider; `None` means the server's default.
    pub provider: Option<String>,
    /// The policy of new sessions.
    pub policy: SessionPolicy,
    /// The initial environment of its shells.
    pub env: Env,
    /// The initial directory of its shells; `None` means the project's workspace.
    pub cwd: Option<String>,
    /// Metadata that clients set.
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// When it was last changed or used.
    pub updated_at: Timestamp,
    pub revision: u64,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The system prompt.
    System,
    User,
    Assistant,
    /// A tool's result.
    Tool,
}

/// One message of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Sorts by time.
    pub message_id: MessageId,
    pub role: Role,
    pub content: String,
    pub at: Timestamp,
}
