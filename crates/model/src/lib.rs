//! The nouns and their transitions.
//!
//! Pure: nothing here reads a clock, a file or a socket; a time is always handed in. Every state
//! machine is a function of the old value and what happened, and answers the next value or
//! [`Refused`].

mod command;
mod id;
mod lease;
mod moment;
mod project;
mod sandbox;
mod session;
mod template;
mod terminal;
mod thread;
mod token;

pub use command::{
    Changes, Command, CommandEnd, CommandStatus, CwdChange, EnvChange, Limit, Source,
};
pub use id::{
    BadId, BuildId, CommandId, InstanceId, LeaseId, MessageId, ProjectId, SessionId, ShareId,
    TemplateId, TerminalId, ThreadId, TokenId,
};
pub use jiff::Timestamp;
pub use lease::{Desired, Instance, InstanceState, Lease, LeaseEvent, LeaseState};
pub use moment::{Moment, SinceBoot};
pub use project::{BackendKind, Project, ProjectConfig, SessionRecord, Statistics, Trashed};
pub use sandbox::{
    Expiry, ExpiryAction, PortAccess, Sandbox, SandboxEvent, SandboxState, SandboxStatus,
};
pub use session::{
    ChatSession, Ended, Hours, Money, OnExpiry, SessionEvent, SessionPolicy, SessionState,
    SessionStatus,
};
pub use template::{
    Build, BuildEvent, BuildStatus, Failure, Made, Tag, Template, USUAL_TAG, Waiter,
};
pub use terminal::{
    Cause, Exit, ShellKind, StateVersion, Terminal, TerminalEvent, TerminalState, TerminalStatus,
};
pub use thread::{Message, Role, Thread};
pub use token::{AccessToken, TOKEN_BYTES, TokenPrefix};

/// A transition that the present state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{noun} is {state} and cannot {event}")]
pub struct Refused {
    /// What was asked to change, e.g. `lease lease_…`.
    pub noun: String,
    /// The state it is in.
    pub state: &'static str,
    /// What was asked of it.
    pub event: &'static str,
}

/// What a name in the environment maps to, in a stable order.
pub type Env = std::collections::BTreeMap<String, String>;
