//! Why something could not be done with a terminal.

use host::wire::Code;

use super::link::LinkError;
use super::watch::Gone;
use crate::lease::LeaseError;
use model::{LeaseId, TerminalId};
use store::StoreError;

/// What the caller can do about it differs by variant.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// Its program has ended.
    #[error("the terminal's program has ended")]
    Exited,
    /// It was deleted, or the server stops.
    #[error("the terminal is gone")]
    Gone,
    /// Something else runs in its shell, and the caller did not want to wait.
    #[error("the terminal is busy")]
    Busy,
    /// As many commands wait as may.
    #[error("too many commands wait for this terminal")]
    QueueFull,
    /// The program does not read what is typed.
    #[error("the program does not read its input; nothing was typed")]
    InputFull,
    /// Somebody else has the keyboard.
    #[error("{} has the keyboard; take over first", .driver.as_deref().unwrap_or("nobody"))]
    NotDriver {
        /// Who.
        driver: Option<String>,
    },
    /// It runs no shell that exec can drive.
    #[error("the terminal runs no shell that commands can be run in")]
    NotDrivable,
    /// The command reads nothing, or has ended.
    #[error("the command takes no input")]
    NoInput,
    /// There is no such command, or it is no longer kept.
    #[error("the command's output is no longer kept")]
    NotKept,
    /// The machine has no more of something; it says of what.
    #[error("cannot start a terminal: {message}")]
    Exhausted {
        /// Of what.
        code: Code,
        /// In the host's words.
        message: String,
    },
    /// The program cannot be started.
    #[error("cannot start the program: {0}")]
    NotExecutable(String),
    /// The request makes no sense to the host.
    #[error("{0}")]
    Refused(String),
    /// As many terminals as may be are there.
    #[error("{0}")]
    TooMany(String),
    /// What it kept could not be removed.
    #[error("cannot remove the files of terminal {terminal}")]
    Remove {
        /// Which.
        terminal: TerminalId,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No compute could be had.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The host is there and does not answer. Whether the request is carried out is not known.
    #[error("the host of lease {lease} does not answer; its shells are kept until it does")]
    Unreachable {
        /// Whose.
        lease: LeaseId,
    },
    /// The host answered that it cannot do it, and why.
    #[error("the host of this terminal cannot do this: {0}")]
    Failed(String),
    /// The host could not be reached, or not be understood.
    #[error("the host of this terminal does not answer")]
    Host(#[source] LinkError),
}

impl From<Gone> for TerminalError {
    fn from(_: Gone) -> Self {
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
            Code::Exited | Code::NoSuchTerminal => TerminalError::Exited,
            Code::Busy => TerminalError::Busy,
            Code::QueueFull => TerminalError::QueueFull,
            Code::InputFull => TerminalError::InputFull,
            Code::NotDrivable => TerminalError::NotDrivable,
            Code::CommandEnded => TerminalError::NoInput,
            Code::NoSuchCommand => TerminalError::NotKept,
            Code::NotExecutable => TerminalError::NotExecutable(message),
            Code::NoMoreTerminals
            | Code::TooManyTerminals
            | Code::NoMoreDescriptors
            | Code::NoMoreProcesses
            | Code::NoMemory
            | Code::Storage => TerminalError::Exhausted { code, message },
            Code::BadRequest => TerminalError::Refused(message),
            Code::Ok
            | Code::AlreadyApplied
            | Code::Exists
            | Code::Unsupported
            | Code::StillRunning
            | Code::BadOffset
            | Code::BadExecutable
            | Code::Failed
            | Code::CommandExists
            | Code::Other(_) => {
                let reason = if message.is_empty() { format!("{code:?}") } else { message };
                TerminalError::Failed(reason)
            }
        }
    }
}
