//! Errors of calls to a host.

use wire::{Event, ReplyCode};

use model::LeaseId;

/// Why a request to a host failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The connection is closed; it is unknown whether the request was executed.
    #[error("the connection to the host is gone")]
    Closed,
    /// The host has been silent for too long; it is unknown whether the request was executed.
    #[error("the host of lease {lease} does not answer")]
    Unreachable { lease: LeaseId },
    #[error("the host refused: {message}")]
    Refused { code: ReplyCode, message: String },
    /// The reply has an unexpected type, or a message is too large.
    #[error("protocol error on the connection to the host: {0}")]
    Protocol(String),
}

/// The error for a reply of an unexpected type.
pub fn unexpected(event: &Event) -> LinkError {
    LinkError::Protocol(format!("unexpected reply {event:?}"))
}
