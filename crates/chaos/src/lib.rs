//! Drives the real server with random operations while faults are injected, and checks what clients saw.
//!
//! ```text
//!  plan (seed) ──▶ clients ──HTTP──▶ stead serve ◀── faults (seed)
//!                     │
//!                     ▼
//!              histories ──▶ register (linearizability), ledgers (at most once), leftovers
//! ```
//! The crate knows the server's HTTP contract and its processes, and no code of the product: what it checks cannot
//! share a fault with what it is checked against.

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
