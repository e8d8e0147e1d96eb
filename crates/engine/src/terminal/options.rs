//! What a caller chooses for a command, and for a terminal whose lease is paused.

use std::pin::Pin;
use std::time::Duration;

use host::wire::{Request, StdinMode};

use crate::lease::IfPaused;
use model::{CommandId, Env, Moment, SessionId};
use store::StoreError;

/// Bytes kept at least from either end of each stream.
const KEEP: u64 = 8 << 20;
/// The most output one answer carries of each stream.
pub const MAX_OUTPUT: u64 = 64 << 20;

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// These bytes, then the end.
    Given(Vec<u8>),
    /// What is sent later.
    Open,
}

/// What to do when something else runs in the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfBusy {
    /// Wait in the queue.
    Wait,
    /// Say so.
    Fail,
}

/// A command and everything that holds for it alone.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// What to run.
    pub text: String,
    /// When to end it.
    pub timeout: Option<Duration>,
    /// What it reads.
    pub stdin: Stdin,
    /// Variables for it alone.
    pub env: Env,
    /// A directory for it alone.
    pub cwd: Option<String>,
    /// How much of each stream the answer is to carry.
    pub max_output: u64,
    /// What to do when something else runs.
    pub if_busy: IfBusy,
    /// Whether a paused lease is resumed.
    pub resume: Resume,
    /// The session its end counts as activity of.
    pub touch: Option<(SessionId, Moment)>,
    /// Whether the caller may ask again and must then find this command.
    pub keyed: bool,
    /// What happens to it if the caller leaves before it has begun.
    pub if_abandoned: IfAbandoned,
}

/// What happens to a queued command whose caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfAbandoned {
    /// It never starts: nobody would learn that it ran.
    Withdraw,
    /// It stays queued, for the caller to come back to.
    Keep,
}

/// Records a command's id before anything runs.
pub type Naming = Box<
    dyn FnOnce(CommandId) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> + Send,
>;

/// What to do about a lease that is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// Resume it.
    Yes,
    /// Leave it and say so.
    No,
    /// Resume it; but where the instance was stopped, look at what is kept and start nothing.
    UnlessStopped,
}

impl From<Resume> for IfPaused {
    fn from(resume: Resume) -> IfPaused {
        match resume {
            Resume::Yes | Resume::UnlessStopped => IfPaused::Resume,
            Resume::No => IfPaused::Refuse,
        }
    }
}

impl ExecOptions {
    /// Returns the request that hands this command to a host.
    pub(super) fn request(&self, seq: u32, terminal: String, id: &CommandId) -> Request {
        let (stdin, stdin_data) = match &self.stdin {
            Stdin::Null => (StdinMode::Null, Vec::new()),
            Stdin::Given(bytes) => (StdinMode::Given, bytes.clone()),
            Stdin::Open => (StdinMode::Open, Vec::new()),
        };
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        Request::Exec {
            seq,
            terminal,
            command: id.to_string(),
            text: self.text.clone().into_bytes(),
            timeout_ms: self.timeout.map_or(0, millis),
            stdin,
            stdin_data,
            env: self
                .env
                .iter()
                .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
                .collect(),
            cwd: self.cwd.clone().unwrap_or_default().into_bytes(),
            if_busy: match self.if_busy {
                IfBusy::Wait => host::wire::IfBusy::Wait,
                IfBusy::Fail => host::wire::IfBusy::Fail,
            },
            keep_head: self.max_output.clamp(KEEP, MAX_OUTPUT),
            keep_tail: KEEP,
        }
    }
}
