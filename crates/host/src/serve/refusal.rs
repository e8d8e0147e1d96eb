//! The result of a request.

use wire::{Event, ReplyCode};

/// Why a request was refused.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) ReplyCode, pub(super) String);

/// The result of a request: an answer now or later, or a refusal.
pub(super) type Answer = Result<Option<Event>, Refusal>;
