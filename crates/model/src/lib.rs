//! The domain types and their state transitions.
//!
//! Pure: nothing here reads a clock, a file or a socket; times are parameters. Every state machine is a
//! function of the old value and an event, and returns the next value or [`Refused`].

mod command;
mod handoff;
mod id;
mod lease;
mod moment;
mod project;
mod sandbox;
mod secret;
mod session;
mod template;
mod terminal;
mod thread;
mod token;

pub use command::{
    Changes, Command, CommandEnd, CommandStatus, CwdChange, EnvChange, Limit, Source,
};
pub use handoff::{
    BadAnswer, Handoff, HandoffAnswer, HandoffEvent, HandoffKind, HandoffState, HandoffStatus,
    Notice,
};
pub use id::{
    BadId, BuildId, CommandId, HandoffId, InstanceId, LeaseId, MessageId, ProjectId, SessionId,
    ShareId, TemplateId, TerminalId, ThreadId, TokenId,
};
pub use jiff::Timestamp;
pub use lease::{Desired, Instance, InstanceState, Lease, LeaseEvent, LeaseState};
pub use moment::{Moment, SinceBoot};
pub use project::{BackendKind, Project, ProjectConfig, SessionRecord, Statistics, Trashed};
pub use sandbox::{
    Expiry, ExpiryAction, PortAccess, Sandbox, SandboxEvent, SandboxState, SandboxStatus,
};
pub use secret::looks_secret;
pub use session::{
    ChatSession, EndReason, Hours, Money, OnExpiry, SessionEvent, SessionPolicy, SessionState,
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

/// A transition that the current state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{noun} is {state} and cannot {event}")]
pub struct Refused {
    /// The kind and the id, e.g. `lease lease_…`.
    pub noun: String,
    pub state: &'static str,
    /// The event, as a verb, e.g. `be paused`.
    pub event: &'static str,
}

/// Environment variables, sorted by name.
pub type Env = std::collections::BTreeMap<String, String>;
