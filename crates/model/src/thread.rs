//! Threads and what is said in them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Env, LeaseId, MessageId, ProjectId, SessionPolicy, TerminalId, ThreadId};

/// One conversation or task.
///
/// It remembers the ids of its default terminal and of its lease, so that a row that went missing
/// comes back under the id that clients know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The id the client chose.
    pub thread_id: ThreadId,
    pub project_id: ProjectId,
    pub terminal_id: TerminalId,
    /// The lease new terminals of it stand on.
    pub lease_id: LeaseId,
    /// The provider that was asked for; `None` means the server's choice.
    pub provider: Option<String>,
    /// The policy of sessions that open on it.
    pub policy: SessionPolicy,
    /// What a shell of it has in its environment from the start.
    pub env: Env,
    /// Where a shell of it starts; `None` means the project's workspace.
    pub cwd: Option<String>,
    /// A client's own notes.
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// When it was last changed or used.
    pub updated_at: Timestamp,
    pub revision: u64,
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The one who instructs.
    System,
    User,
    Assistant,
    /// A tool's result.
    Tool,
}

/// One thing said in a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its id; sorts by time.
    pub message_id: MessageId,
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
    pub at: Timestamp,
}
