//! Brings the compute of a lease to a requested state: running, paused, stopped or destroyed.
//!
//! One task works on each lease that is in use. It decides (pure, in `model`), records, and then acts, in
//! that order, so that a crash between any two steps is repaired by repeating them. However many callers
//! there are, a lease has one instance. Every call to a provider carries the instance's own name, which was
//! recorded first: a reply that is lost, late or repeated changes nothing.

mod error;
mod leases;
mod reaper;
mod request;
mod retry;
mod shared;
mod worker;

pub use error::LeaseError;
pub use leases::{LeaseFork, Leases};
pub use request::{IfPaused, RunningInstance};
pub use retry::RetryPolicy;
