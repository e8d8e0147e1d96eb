//! The result of handling a request.

use wire::{Event, ReplyCode};

/// Why a request was refused, as a code and a message.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) ReplyCode, pub(super) String);

/// The result of a request: an answer, `None` if it is answered later, or a refusal.
pub(super) type Answer = Result<Option<Event>, Refusal>;
