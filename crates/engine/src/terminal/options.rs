//! The options of a command, and of a request to a terminal whose lease is paused.

use std::pin::Pin;
use std::time::Duration;

use wire::{Request, StdinMode};

use crate::lease::IfPaused;
use model::{CommandId, Env, Moment, SessionId};
use store::StoreError;

/// The host keeps at least this many bytes from both ends of each stream.
const MIN_KEPT_BYTES: u64 = 8 << 20;
/// The maximum output of each stream in one response.
pub const MAX_OUTPUT: u64 = 64 << 20;
/// What the host keeps of each stream that a client follows: one that was disconnected for a while misses nothing.
/// Both streams of a command fit into what a terminal keeps of commands that have ended (256 MiB).
const FOLLOWED_BYTES: u64 = 104 << 20;

/// The standard input of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    Null,
    /// These bytes, then end of file.
    Given(Vec<u8>),
    /// Bytes that are sent later.
    Open,
}

/// What happens to the standard input of a command after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinAfterWrite {
    KeepOpen,
    /// The command reads end of file.
    Close,
}

/// What to do when another command runs in the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPolicy {
    Wait,
    Fail,
}

/// How the client receives the output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputDelivery {
    /// With the response, and later by offset.
    Receipt,
    /// As it is written; the host keeps more of it.
    Stream,
}

/// A command with its options.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    pub text: String,
    pub timeout: Option<Duration>,
    pub stdin: Stdin,
    /// Variables for this command only.
    pub env: Env,
    /// The working directory of this command only.
    pub cwd: Option<String>,
    /// How many bytes of each stream the response carries.
    pub max_output: u64,
    pub delivery: OutputDelivery,
    pub if_busy: BusyPolicy,
    pub resume: Resume,
    /// The session that counts its end as activity.
    pub touch: Option<(SessionId, Moment)>,
    /// Whether the caller has an idempotency key, under which a repeated request finds this command.
    pub keyed: bool,
    pub if_abandoned: IfAbandoned,
}

/// What happens to a queued command whose caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfAbandoned {
    /// It never starts, because no caller would learn its result.
    Withdraw,
    /// It stays queued; the caller can return to it.
    Keep,
}

/// Stores the id of a command before it starts.
pub type Naming = Box<
    dyn FnOnce(CommandId) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> + Send,
>;

/// What to do when the lease is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    Yes,
    /// Fail if the lease is paused.
    No,
    /// Resume it, but start nothing if the instance was stopped.
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
        let keep_head = self.max_output.clamp(MIN_KEPT_BYTES, MAX_OUTPUT);
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
                BusyPolicy::Wait => wire::IfBusy::Wait,
                BusyPolicy::Fail => wire::IfBusy::Fail,
            },
            keep_head,
            keep_tail: match self.delivery {
                OutputDelivery::Receipt => MIN_KEPT_BYTES,
                OutputDelivery::Stream => FOLLOWED_BYTES - keep_head,
            },
        }
    }
}
