//! The result of a request.

use wire::{Code, Event};

/// Why a request was refused.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Code, pub(super) String);

/// The result of a request: an answer now or later, or a refusal.
pub(super) type Answer = Result<Option<Event>, Refusal>;
