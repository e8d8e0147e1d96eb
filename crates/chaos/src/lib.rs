//! Drives the real server with random operations while faults are injected, and checks the answers to clients.
//!
//! ```text
//!  plan (seed) ──▶ clients ──HTTP──▶ stead serve ◀── faults (seed)
//!                     │
//!                     ▼
//!              histories ──▶ register (linearizability), ledgers (at most once), leftovers
//! ```
//! The crate knows the server's HTTP contract and its processes, but uses no code of the product, so that it cannot
//! share a bug with it.

pub mod client;
pub mod fault;
pub mod http;
pub mod ledger;
pub mod leftovers;
pub mod plan;
pub mod power;
pub mod register;
pub mod report;
pub mod rng;
pub mod run;
pub mod server;
pub mod vendor;
