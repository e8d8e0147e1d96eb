//! Errors of terminals, by what the caller can do about them.

use wire::ReplyCode;

use super::link::LinkError;
use super::watch::WatcherGone;
use crate::lease::LeaseError;
use base::lock::StillLocked;
use model::{LeaseId, TerminalId};
use store::StoreError;

/// A resource of the kernel that a terminal needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelResource {
    Terminals,
    Descriptors,
    Processes,
    Watches,
    Memory,
    Disk,
}

impl KernelResource {
    pub(super) fn exhausted(self, message: String) -> TerminalError {
        TerminalError::Exhausted { resource: self, message }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("the terminal's program has ended")]
    Exited,
    /// The terminal was deleted, or the server stops.
    #[error("the terminal is gone")]
    Gone,
    /// Another command runs, and the caller chose not to wait.
    #[error("the terminal is busy")]
    Busy,
    /// The queue of commands is full.
    #[error("too many commands wait for this terminal")]
    QueueFull,
    #[error("the program does not read its input; nothing was typed")]
    InputFull,
    /// Nothing was typed.
    #[error(
        "no program waits for a secret in this terminal; start the one that asks for it, or type it there"
    )]
    NotReading,
    /// Nothing was typed.
    #[error(
        "the terminal would show the secret: its program did not turn the echo off; type it in the terminal \
         if that is intended"
    )]
    Visible,
    /// The host is of an earlier version, or the provider has no PTYs.
    #[error("secrets cannot be typed into terminals of this provider")]
    NoSecrets,
    /// The host is of an earlier version, or the provider has none inside.
    #[error("the ports of this provider's sandboxes cannot be listed")]
    NoPorts,
    /// Another client is the driver.
    #[error("{} has the keyboard; take over first", .driver.as_deref().unwrap_or("no client"))]
    NotDriver { driver: Option<String> },
    #[error("the terminal runs no shell that commands can be run in")]
    NotDrivable,
    #[error("the command takes no input")]
    NoInput,
    #[error("the command's output is no longer kept")]
    NotKept,
    /// The machine ran out of a resource.
    #[error("cannot start a terminal: {message}")]
    Exhausted { resource: KernelResource, message: String },
    #[error("cannot start the program: {0}")]
    NotExecutable(String),
    /// The host rejected the request as invalid.
    #[error("{0}")]
    Refused(String),
    #[error("other searches are running; try again when they have ended")]
    TooManySearches,
    /// The limit of terminals is reached.
    #[error("{0}")]
    TooMany(String),
    #[error("cannot remove the files of terminal {terminal}")]
    Remove {
        terminal: TerminalId,
        #[source]
        source: std::io::Error,
    },
    /// Another request starts or ends a shell.
    #[error(transparent)]
    StillLocked(#[from] StillLocked),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lease has no running instance.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The host exists but does not answer. It is unknown whether the request was executed.
    #[error("the host of lease {lease} does not answer; its shells are kept until it does")]
    Unreachable { lease: LeaseId },
    /// The host replied with this error.
    #[error("the host of this terminal cannot do this: {0}")]
    Failed(String),
    /// The connection to the host failed.
    #[error("the host of this terminal does not answer")]
    Host(#[source] LinkError),
}

impl From<WatcherGone> for TerminalError {
    fn from(_: WatcherGone) -> Self {
        TerminalError::Gone
    }
}

impl From<LinkError> for TerminalError {
    fn from(error: LinkError) -> Self {
        let (code, message) = match error {
            LinkError::Refused { code, message } => (code, message),
            LinkError::Unreachable { lease } => return TerminalError::Unreachable { lease },
            LinkError::Closed | LinkError::Protocol(_) => return TerminalError::Host(error),
        };
        match code {
            ReplyCode::Exited | ReplyCode::NoSuchTerminal => TerminalError::Exited,
            ReplyCode::Busy => TerminalError::Busy,
            ReplyCode::QueueFull => TerminalError::QueueFull,
            ReplyCode::InputFull => TerminalError::InputFull,
            ReplyCode::NotDrivable => TerminalError::NotDrivable,
            ReplyCode::CommandEnded => TerminalError::NoInput,
            ReplyCode::NoSuchCommand => TerminalError::NotKept,
            ReplyCode::NotExecutable => TerminalError::NotExecutable(message),
            ReplyCode::TooManyTerminals => TerminalError::TooMany(message),
            ReplyCode::NoMoreTerminals => KernelResource::Terminals.exhausted(message),
            ReplyCode::NoMoreDescriptors => KernelResource::Descriptors.exhausted(message),
            ReplyCode::NoMoreProcesses => KernelResource::Processes.exhausted(message),
            ReplyCode::NoMoreWatches => KernelResource::Watches.exhausted(message),
            ReplyCode::NoMemory => KernelResource::Memory.exhausted(message),
            ReplyCode::Storage => KernelResource::Disk.exhausted(message),
            ReplyCode::BadRequest => TerminalError::Refused(message),
            ReplyCode::NotReading => TerminalError::NotReading,
            ReplyCode::Visible => TerminalError::Visible,
            ReplyCode::Ok
            | ReplyCode::AlreadyApplied
            | ReplyCode::Exists
            | ReplyCode::Unsupported
            | ReplyCode::StillRunning
            | ReplyCode::BadOffset
            | ReplyCode::BadExecutable
            | ReplyCode::Failed
            | ReplyCode::CommandExists
            | ReplyCode::Other(_) => {
                let reason = if message.is_empty() { format!("{code:?}") } else { message };
                TerminalError::Failed(reason)
            }
        }
    }
}
