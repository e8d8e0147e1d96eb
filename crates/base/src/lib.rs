//! Shared foundations: the clock, events, metrics, blocking work, atomic replacement of files, locks by key and with
//! a deadline, the waits between retries, the deadlines of outbound calls, the user ids of shared directories,
//! percent-encoding, and cutting of text. Depends on the model only.

pub mod backoff;
pub mod clock;
pub mod durable;
pub mod event;
pub mod keyed_lock;
pub mod lock;
pub mod metrics;
pub mod outbound;
pub mod shared_users;
pub mod task;
pub mod uri;
pub mod utf8;
