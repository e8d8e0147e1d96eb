//! Shared foundations: the clock, events, metrics, blocking work, atomic replacement of files, keyed locks, the waits
//! between retries, the deadlines of outbound calls, the user ids of shared directories, and percent-encoding. Depends
//! on the model only.

pub mod backoff;
pub mod clock;
pub mod durable;
pub mod event;
pub mod keyed_lock;
pub mod metrics;
pub mod outbound;
pub mod shared_users;
pub mod task;
pub mod uri;
