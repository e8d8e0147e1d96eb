//! What every part of the process shares: the clock, events, metrics, files that are replaced whole, and
//! the deadline of every call that leaves the process. It knows the nouns and nothing that acts on them.

pub mod clock;
pub mod durable;
pub mod event;
pub mod keyed_lock;
pub mod metrics;
pub mod outbound;
